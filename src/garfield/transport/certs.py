"""Certificates for a cluster: one authority, and one certificate per node with name and role.

`make` writes them all, once, where the cluster is set up; each host then gets
`ca.pem` and its own nodes' `<name>.pem` and `<name>.key`. The authority's key,
`ca.key`, can make new nodes: it stays where it was made. `add` does so later, for
nodes that join: the others' files stay as they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

from garfield.core.errors import ConfigError, MissingDependency
from garfield.transport import identity as identities
from garfield.transport.identity import Credentials, Identity

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError:
    raise MissingDependency(
        "Certificates are made and read with cryptography, which is not installed. "
        "Install it with: pip install 'garfield-ml[train]'"
    ) from None

_REMAKE = "Make certificates anew (garfield.transport.certs.make) and hand them out."
_A_MINUTE, _LONGEST_DAYS = 1 / (24 * 60), 36_500  # days
_SKEW = timedelta(minutes=10)  # hosts' clocks differ


def make(
    directory: Path | str,
    nodes: Mapping[str, str],
    *,
    valid_days: float = 365,
    now: datetime | None = None,
) -> None:
    """Write an authority, and a certificate and key for each node of name: role.

    Keys are readable by their owner only. A directory that already has an authority is refused:
    its nodes would no longer trust each other.
    """
    directory = Path(directory)
    who = _checked(nodes, valid_days)
    span = _span(valid_days, now)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _authority(authority_key, span)
    with _writing(directory):
        if (directory / "ca.pem").exists():
            raise ConfigError(
                f"{directory} holds an authority already, and its nodes trust no other. "
                "Add nodes to it (garfield certs --add), or choose an empty directory."
            )
        directory.mkdir(parents=True, exist_ok=True)
        _write(directory, "ca", authority, authority_key)
        for node in who:
            _write_node(directory, node, authority, authority_key, span)


def add(
    directory: Path | str,
    nodes: Mapping[str, str],
    *,
    valid_days: float = 365,
    now: datetime | None = None,
) -> datetime:
    """Certificates of an authority that is there, for nodes that have none; until when they hold.

    No longer than the authority itself, whose nodes keep theirs.
    """
    directory = Path(directory)
    who = _checked(nodes, valid_days)
    authority, authority_key = _load_authority(directory, now or datetime.now(timezone.utc))
    for node in who:
        for path in (directory / f"{node.name}.pem", directory / f"{node.name}.key"):
            if path.exists():
                raise ConfigError(
                    f"{node.name} has {path} already, which may be in use. "
                    "Remove it first to have it made anew."
                )
    start, end = _span(valid_days, now)
    span = (start, min(end, authority.not_valid_after_utc))
    with _writing(directory):
        for node in who:
            _write_node(directory, node, authority, authority_key, span)
    return span[1]


def load(directory: Path | str, name: str, *, now: datetime | None = None) -> Credentials:
    """The credentials of one node, checked to be its own and still valid."""
    directory = Path(directory)
    authority, certificate, key = (
        _read(directory / file) for file in ("ca.pem", f"{name}.pem", f"{name}.key")
    )
    try:
        parsed = x509.load_pem_x509_certificate(certificate)
        private = serialization.load_pem_private_key(key, password=None)
        issuer = x509.load_pem_x509_certificate(authority)
    except ValueError as problem:
        raise ConfigError(f"{directory}/{name}.* cannot be read: {problem}. {_REMAKE}") from None
    who = _identity(parsed)
    if who is None or who.name != name:
        found = "no node" if who is None else who.name
        raise ConfigError(f"{directory}/{name}.pem is the certificate of {found}. {_REMAKE}")
    if private.public_key() != parsed.public_key():
        raise ConfigError(f"{name}.key and {name}.pem in {directory} are no pair. {_REMAKE}")
    try:
        parsed.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        made_by = f"was not made by {directory}/ca.pem"
        raise ConfigError(f"{directory}/{name}.pem {made_by}. {_REMAKE}") from None
    for label, each in ((name, parsed), ("ca", issuer)):
        _check_dates(directory / f"{label}.pem", each, now or datetime.now(timezone.utc))
    return Credentials(who, authority, certificate, key)


# -- making -------------------------------------------------------------------------

Span = tuple[datetime, datetime]


def _checked(nodes: Mapping[str, str], valid_days: float) -> list[Identity]:
    if not _A_MINUTE <= valid_days <= _LONGEST_DAYS:  # so that nan is refused as well
        raise ConfigError(
            f"Certificates are valid for up to {_LONGEST_DAYS} days, and for a minute at least, "
            f"got {valid_days:g} days (--days, valid_days). 365 is usual."
        )
    who = [identities.identity(name, role) for name, role in nodes.items()]
    if any(node.name == "ca" for node in who):
        raise ConfigError("No node can be called ca: its files would be the authority's.")
    return who


def _span(valid_days: float, now: datetime | None) -> Span:
    start = now or datetime.now(timezone.utc)
    return (start - _SKEW, start + timedelta(days=valid_days))


@contextmanager
def _writing(directory: Path) -> Iterator[None]:
    """Tell in one line why files cannot be written there."""
    try:
        yield
    except OSError as problem:
        raise ConfigError(
            f"Certificates cannot be written to {directory}: {problem.strerror}. "
            "Choose another directory (--out), or make room and leave to write there."
        ) from None


def _write_node(
    directory: Path,
    node: Identity,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    span: Span,
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    _write(directory, node.name, _certificate(node, key, authority, authority_key, span), key)


def _authority(key: ec.EllipticCurvePrivateKey, span: Span) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "garfield authority")])
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    usage = _key_usage(signs_certificates=True)
    return (
        _builder(name, name, key, span)
        .add_extension(constraints, critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _certificate(
    node: Identity,
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    span: Span,
) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node.name)])
    both_ends = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    return (
        _builder(name, authority.subject, key, span)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both_ends), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(node.dns_name)]), critical=False)
        .add_extension(issuer, critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, span: Span
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(span[0])
        .not_valid_after(span[1])
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write(
    directory: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> None:
    pem = serialization.Encoding.PEM
    (directory / f"{name}.pem").write_bytes(certificate.public_bytes(pem))
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = directory / f"{name}.key"
    path.unlink(missing_ok=True)  # an older one might be readable by others
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secret)


# -- reading ------------------------------------------------------------------------


def _load_authority(
    directory: Path, now: datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Certificate and key of the authority, which are a pair, and still valid."""
    try:
        authority = x509.load_pem_x509_certificate(_read(directory / "ca.pem"))
        key = serialization.load_pem_private_key(_read(directory / "ca.key"), password=None)
    except ValueError as problem:
        raise ConfigError(f"{directory}/ca.* cannot be read: {problem}. {_REMAKE}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{directory}/ca.key is not one of ours. {_REMAKE}")
    if key.public_key() != authority.public_key():
        raise ConfigError(f"ca.key and ca.pem in {directory} are no pair. {_REMAKE}")
    _check_dates(directory / "ca.pem", authority, now)
    return authority, key


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as problem:  # ValueError: no path at all, with a zero in it
        why = problem.strerror if isinstance(problem, OSError) else problem
        raise ConfigError(f"{path} cannot be read: {why}. {_REMAKE}") from None


def _identity(certificate: x509.Certificate) -> Identity | None:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return None
    return identities.from_dns_names(names.value.get_values_for_type(x509.DNSName))


def _check_dates(path: Path, certificate: x509.Certificate, now: datetime) -> None:
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > end:
        raise ConfigError(f"{path} has expired on {end:%Y-%m-%d %H:%M} UTC. {_REMAKE}")
    if now < start:
        raise ConfigError(
            f"{path} is valid from {start:%Y-%m-%d %H:%M} UTC, and here it is "
            f"{now:%Y-%m-%d %H:%M}. Set this host's clock."
        )
