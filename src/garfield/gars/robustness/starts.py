"""Where a search for a rule's worst rows begins: honest rows of many kinds, and known lies.

Honest rows come in families, in one dimension and in several: n rows span no more than
n − 1, so more dimensions add nothing to a rule that goes by distances, and a rule that goes
by coordinates is as bad in one. Lies come from every attack that is registered, their
parameters drawn anew each time. And there are the two-point rows, from which the least κ of
any rule is proven: some honest rows are one number, the others another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from garfield.attacks import ATTACKS, Attack
from garfield.core.errors import ConfigError, InputError
from garfield.core.registry import Parameters
from garfield.core.types import Matrix

_TRIALS = 12  # calls of the rule that an attack may spend on its strength
_OFFSETS = (0.0, 1.0, 10.0)  # lengths of the honest mean, in deviations


@dataclass(frozen=True, eq=False)
class Start:
    """Rows to judge a rule by: the honest first, the f lies last."""

    rows: Matrix
    """(n, d); a row of NaN stands for a liar that is silent."""
    name: str
    attack: str | None = None
    """The attack that told the lies, where one did."""


def two_points(n: int, f: int) -> Iterator[Start]:
    """Honest rows of zeros and ones, and lies at, between and beyond them."""
    h = n - f
    for ones in range(1, h):
        honest = np.repeat([0.0, 1.0], [h - ones, ones])
        for lie in (0.0, 1.0, 0.5, 2.0, 1e3) if f else (0.0,):
            rows = np.concatenate([honest, np.full(f, lie)])
            yield Start(rows[:, None], f"two points ({ones} of {h} apart)")


def attacked(
    n: int, f: int, rng: np.random.Generator, defence: Callable[[Any], Any]
) -> Iterator[Start]:
    """Lies of every attack on honest rows of every family, without end."""
    while True:
        for d in dict.fromkeys((1, 2, 5, n - 1)):
            for family, draw in FAMILIES.items():
                honest = draw(n - f, max(d, 1), rng)
                honest += rng.choice(_OFFSETS) * _unit(honest.shape[1], rng)
                kind = f"{family}, d = {honest.shape[1]}"
                if f == 0:
                    yield Start(honest, kind)
                    continue
                for name, attack in ATTACKS.items():
                    if name == attack.name and attack.kind == "vector":
                        yield from _lied(honest, f, attack, kind, rng, defence)


def _lied(
    honest: Matrix,
    f: int,
    attack: Attack,
    kind: str,
    rng: np.random.Generator,
    defence: Callable[[Any], Any],
) -> Iterator[Start]:
    attack = varied(attack, rng)
    try:
        lies = attack.rows(honest, f=f, rng=rng, defence=defence)
    except (ConfigError, InputError):  # a parameter or a family that does not suit it
        return
    silent = np.full(honest.shape[1], np.nan)
    told = [silent if lie is None else np.asarray(lie, np.float64) for lie in lies]
    yield Start(np.stack([*honest, *told]), kind, _spelt(attack))


def varied(attack: Attack, rng: np.random.Generator) -> Attack:
    """The attack with other parameters, where it has some; often with its own."""
    defaults = Parameters(attack.name, attack.function, frozenset()).defaults
    if "trials" in defaults:
        attack = attack.bind(trials=_TRIALS)
    for name, default in defaults.items():
        value = _another(default, rng)
        if value is None or name in ("trials", "least", "most"):
            continue
        with suppress(ConfigError):  # out of its range: as it was
            attack = attack.bind(**{name: value})
    return attack


def _another(default: Any, rng: np.random.Generator) -> Any:
    """A value in place of the default; None to keep it."""
    if isinstance(default, (bool, str)) or rng.random() < 0.25:
        return None
    sign = rng.choice((-1, 1))
    if isinstance(default, int):
        return int(sign * default)
    size = 10 ** rng.uniform(-1.5, 1.5)
    return float(size) if default is None else float(sign * size * default)


def _spelt(attack: Attack) -> str:
    given = ((name, value) for name, value in attack.params.items() if name != "trials")
    params = ", ".join(
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in given
    )
    return f"{attack.name}({params})" if params else attack.name


# -- families of honest rows: (h, d, rng) to (h, d) -------------------------------------------


def _gaussian(h: int, d: int, rng: np.random.Generator) -> Matrix:
    return rng.standard_normal((h, d))


def _heavy_tailed(h: int, d: int, rng: np.random.Generator) -> Matrix:
    return rng.standard_t(1.5, (h, d))


def _clusters(h: int, d: int, rng: np.random.Generator) -> Matrix:
    apart = rng.integers(1, h) if h > 1 else 0
    rows = 10 ** rng.uniform(-3, 0) * rng.standard_normal((h, d))
    rows[:apart] += rng.standard_normal(d) + _unit(d, rng)
    return rows


def _outlier(h: int, d: int, rng: np.random.Generator) -> Matrix:
    rows = rng.standard_normal((h, d))
    rows[0] += 10 ** rng.uniform(0, 2) * _unit(d, rng)
    return rows


def _one_coordinate(h: int, d: int, rng: np.random.Generator) -> Matrix:
    rows = 1e-2 * rng.standard_normal((h, d))
    rows[:, 0] += rng.standard_normal(h)
    return rows


def _corners(h: int, d: int, rng: np.random.Generator) -> Matrix:
    """Rows that are all equally far from each other, as far as d allows."""
    rows = np.zeros((h, d))
    rows[np.arange(h), np.arange(h) % d] = rng.choice((-1.0, 1.0), h) if d < h else 1.0
    return rows


def _unit(d: int, rng: np.random.Generator) -> Matrix:
    direction = rng.standard_normal(d)
    return np.asarray(direction / np.sqrt(direction @ direction))


FAMILIES: Mapping[str, Callable[[int, int, np.random.Generator], Matrix]] = {
    "gaussian": _gaussian,
    "heavy-tailed": _heavy_tailed,
    "clusters": _clusters,
    "one outlier": _outlier,
    "one coordinate": _one_coordinate,
    "corners": _corners,
}
