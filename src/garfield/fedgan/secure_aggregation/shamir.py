"""Shamir's secret sharing: any `threshold` of n pieces give the secret, fewer say nothing of it.

The secret is the value at 0 of a random polynomial of degree threshold − 1 over the field modulo
the Mersenne prime 2⁵²¹ − 1; piece i is its value at i. Shamir, "How to share a secret", CACM 1979.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

PRIME = 2**521 - 1
SECRET = 32
"""Bytes of a secret."""
PIECE = 66
"""Bytes of a piece: 521 bits."""

RandomBytes = Callable[[int], bytes]
"""So many bytes that nobody can foresee: os.urandom, but for tests."""


def split(secret: bytes, threshold: int, count: int, random_bytes: RandomBytes) -> list[bytes]:
    """Pieces number 1 to `count` of a secret of 32 bytes."""
    assert len(secret) == SECRET
    assert 1 <= threshold <= count
    # 80 bytes for 521 bits: modulo the prime, no value is likelier than another by 2⁻¹¹⁹ of it
    rest = [int.from_bytes(random_bytes(80), "little") % PRIME for _ in range(threshold - 1)]
    coefficients = [int.from_bytes(secret, "little"), *rest]
    return [_value(coefficients, at).to_bytes(PIECE, "little") for at in range(1, count + 1)]


def joined(pieces: Mapping[int, bytes]) -> bytes | None:
    """The secret from pieces by their numbers; None if they are of no secret of 32 bytes.

    Lagrange: f(0) = Σ_i f(i) Π_{j≠i} j / (j − i). With as many pieces as the threshold, all of them
    right, that is the secret; with wrong ones it is any number.
    """
    found = 0
    for i, piece in pieces.items():
        numerator = denominator = 1
        for j in pieces:
            if j != i:
                numerator = numerator * j % PRIME
                denominator = denominator * (j - i) % PRIME
        value = int.from_bytes(piece, "little")
        found = (found + value * numerator * pow(denominator, -1, PRIME)) % PRIME
    return found.to_bytes(SECRET, "little") if found < 2 ** (8 * SECRET) else None


def _value(coefficients: list[int], at: int) -> int:
    """Horner's rule."""
    value = 0
    for coefficient in reversed(coefficients):
        value = (value * at + coefficient) % PRIME
    return value
