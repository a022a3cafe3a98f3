"""The validating webhook: refuses what no schema can, before it is stored, with a clear message.

All operators serve with one certificate, kept in a Secret: whoever comes first makes it. The
configuration that tells the API server about us is part of the manifests; here it is given the
address and the authority. If nobody answers, the API server lets a job pass (`Ignore`): then the
operator says the same in a condition, when it is back.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from garfield.core.errors import ObjectAbsent, WriteConflict
from garfield.elastic.kubernetes.client import ApiServer, Object
from garfield.elastic.kubernetes.naming import GROUP, PLURAL, VERSION, core_path
from garfield.elastic.operator.settings import Endpoints

CONFIGURATION = "garfield-elastic-operator"
"""The name of the ValidatingWebhookConfiguration, and of the Secret with the certificate."""
HANDLER = "validate"
"""The path at which the API server asks, by which kopf knows the handler."""
_VALID = timedelta(days=3650)
_RENEW_BEFORE = timedelta(days=30)
_TIMEOUT_S = 5
_ADMISSION = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


class Certificate:
    """What the webhook's server shows, as PEM; it is its own authority."""

    def __init__(self, certificate: bytes, key: bytes) -> None:
        self.certificate, self.key = certificate, key

    def holds_for(self, host: str) -> bool:
        """Whether it names that host, for long enough."""
        read = x509.load_pem_x509_certificate(self.certificate)
        names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        lasts = read.not_valid_after_utc - datetime.now(timezone.utc) > _RENEW_BEFORE
        return lasts and _alternative_name(host) in list(names)


def shared_certificate(api: ApiServer, namespace: str, host: str) -> Certificate:
    """The certificate in the Secret; if there is none for this host yet, a new one goes there."""
    path = core_path("secrets", namespace)
    while True:
        try:
            secret = api.get(f"{path}/{CONFIGURATION}")
        except ObjectAbsent:
            secret = {}
        data = secret.get("data") or {}
        if "tls.crt" in data and "tls.key" in data:
            found = Certificate(*(base64.b64decode(data[name]) for name in ("tls.crt", "tls.key")))
            if found.holds_for(host):
                return found
        made = make_certificate(host)
        try:
            _store(api, path, secret, made)
            return made
        except WriteConflict:
            continue  # another operator was faster: take that one's


def make_certificate(host: str) -> Certificate:
    """A certificate for one host that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, CONFIGURATION)])
    now = datetime.now(timezone.utc)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=10))  # hosts' clocks differ
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName([_alternative_name(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    key_pem = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    return Certificate(signed.public_bytes(pem), key_pem)


def service_host(endpoints: Endpoints, namespace: str) -> str:
    """The name under which the API server reaches us."""
    return endpoints.webhook_host or f"{endpoints.webhook_service}.{namespace}.svc"


def configure(api: ApiServer, endpoints: Endpoints, namespace: str, port: int, pem: bytes) -> None:
    """Tell the API server where to ask, and whom to trust there."""
    client: dict[str, Any] = {"caBundle": base64.b64encode(pem).decode()}
    if endpoints.webhook_host:
        client["url"] = f"https://{endpoints.webhook_host}:{port}/{HANDLER}"
    else:
        service = {"name": endpoints.webhook_service, "namespace": namespace}
        client["service"] = {**service, "path": f"/{HANDLER}", "port": 443}
    api.patch(f"{_ADMISSION}/{CONFIGURATION}", {"webhooks": [webhook(client)]})


def webhook(client: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of the configuration."""
    rule = {
        "apiGroups": [GROUP],
        "apiVersions": [VERSION],
        "resources": [PLURAL],
        "operations": ["CREATE", "UPDATE"],
        "scope": "Namespaced",
    }
    return {
        "name": f"{PLURAL}.{GROUP}",
        "clientConfig": client,
        "rules": [rule],
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "timeoutSeconds": _TIMEOUT_S,
        "admissionReviewVersions": ["v1"],
    }


def _store(api: ApiServer, path: str, secret: Object, made: Certificate) -> None:
    encoded = {"tls.crt": made.certificate, "tls.key": made.key}
    data = {name: base64.b64encode(value).decode() for name, value in encoded.items()}
    if secret:
        api.replace(f"{path}/{CONFIGURATION}", {**secret, "data": data})
        return
    body = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls"}
    api.create(path, {**body, "metadata": {"name": CONFIGURATION}, "data": data})


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
