"""An authority for one control plane, and what it signs."""

import ipaddress
from datetime import datetime, timedelta, timezone

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

LOOPBACK = "127.0.0.1"


class Authority:
    """Signs certificates, and writes them with their keys into one directory."""

    def __init__(self, directory):
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        builder = self._builder(self._name, self._key)
        builder = builder.add_extension(x509.BasicConstraints(True, 0), critical=True)
        self.path = directory / "ca.pem"
        self.path.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))

    def issue(self, file, common_name, organization=None):
        """Write `file`.pem and `file`.key, and return their paths; good for servers on loopback."""
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        if organization is not None:
            attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        names = [
            x509.DNSName("localhost"),
            x509.DNSName("kubernetes.default.svc"),
            x509.IPAddress(ipaddress.ip_address(LOOPBACK)),
        ]
        builder = self._builder(x509.Name(attributes), key)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate, private = self.directory / f"{file}.pem", self.directory / f"{file}.key"
        certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        private.write_bytes(_pem_of_key(key))
        return certificate, private

    def issue_key(self, file):
        """Write a key without a certificate, for the signatures of service accounts' tokens."""
        path = self.directory / f"{file}.key"
        path.write_bytes(_pem_of_key(rsa.generate_private_key(65537, 2048)))
        return path

    def _builder(self, subject, key):
        now = datetime.now(timezone.utc)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(days=1))
        )


def _pem(certificate):
    return certificate.public_bytes(serialization.Encoding.PEM)


def _pem_of_key(key):
    # Kubernetes 1.20 reads an RSA key of service accounts in this form, and EC keys in both
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
