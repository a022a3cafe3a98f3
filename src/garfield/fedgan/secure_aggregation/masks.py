"""Keys, masks and sealed messages of secure aggregation: X25519, HKDF, ChaCha20.

Every key is derived for one purpose, one session and one pair of names, so that nothing that is
agreed on in one round can be used in another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from garfield.core.errors import InputError, MissingDependency
from garfield.fedgan.secure_aggregation.fixed_point import Words

try:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.hashes import SHA256, Hash
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError:
    raise MissingDependency(
        "Secure aggregation needs cryptography, which is not installed. "
        "Install it with: pip install 'garfield-ml[fedgan]'"
    ) from None

KEY = 32
"""Bytes of every key, seed and digest here."""
_NONCE = bytes(12)  # each key seals one message
_BLOCK = 1 << 20  # bytes of a mask that are made at once, to stay in the cache


@dataclass(frozen=True)
class PublicKeys:
    """What a device advertises."""

    sealing: bytes
    """With whom others agree on keys for messages to it."""
    masking: bytes
    """With whom others agree on masks."""
    self_mask: bytes
    """The digest of its own mask's seed: pieces that give another seed are found out."""

    def __post_init__(self) -> None:
        for part in (self.sealing, self.masking, self.self_mask):
            if not isinstance(part, bytes) or len(part) != KEY:
                raise InputError(f"A public key has {KEY} bytes.")


def private_key(secret: bytes) -> X25519PrivateKey:
    """The key of those 32 random bytes."""
    return X25519PrivateKey.from_private_bytes(secret)


def public_bytes(key: X25519PrivateKey) -> bytes:
    """What is advertised of a key."""
    return key.public_key().public_bytes_raw()


def agreed_key(
    key: X25519PrivateKey, other: bytes, purpose: str, session: bytes, names: tuple[str, str]
) -> bytes:
    """The key that two devices agree on, the same for both; InputError if the other's is none."""
    try:
        shared = key.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError:  # a point of small order, which gives zero to everybody
        raise InputError("A device has advertised a key that is none.") from None
    low, high = sorted(names)
    return _derived(shared, f"{purpose}\0{low}\0{high}".encode(), session)


def digest(seed: bytes, session: bytes) -> bytes:
    """What commits a device to its own mask without giving it away."""
    found = Hash(SHA256())
    found.update(b"self mask\0" + session + b"\0" + seed)
    return found.finalize()


def add_mask(total: Words, seed: bytes, session: bytes, *, negative: bool = False) -> None:
    """Add the mask that a seed stands for to a vector of words, or take it out."""
    stream = Cipher(algorithms.ChaCha20(_derived(seed, b"mask", session), bytes(16)), None)
    keys = stream.encryptor()
    per_block = _BLOCK // total.itemsize
    zeros = bytes(_BLOCK)
    for lo in range(0, len(total), per_block):
        part = total[lo : lo + per_block]
        words = np.frombuffer(keys.update(zeros[: part.nbytes]), total.dtype)
        if negative:
            np.subtract(part, words, out=part)
        else:
            np.add(part, words, out=part)


def seal(key: bytes, message: bytes, about: bytes) -> bytes:
    """A message that only who has the key can read or write; `about` is not hidden, and fixed."""
    return ChaCha20Poly1305(key).encrypt(_NONCE, message, about)


def unseal(key: bytes, sealed: bytes, about: bytes) -> bytes | None:
    """The message; None if it is not what was sealed with that key about that."""
    try:
        return ChaCha20Poly1305(key).decrypt(_NONCE, sealed, about)
    except (InvalidTag, ValueError):
        return None


def _derived(secret: bytes, purpose: bytes, session: bytes) -> bytes:
    return HKDF(SHA256(), KEY, salt=session, info=b"garfield " + purpose).derive(secret)
