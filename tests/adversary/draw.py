"""Drawing cases: from a cell (who plays what game) and a seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from garfield.gars import parse
from tests.adversary.case import FOREVER, Case, Crash, Move, Slow
from tests.adversary.invariants import bears_silence
from tests.adversary.liar import LIES, TIMES

KINDS = {
    "draco": (("gradient",), ("coded",), ("model",)),
    "decentralized": (("gradient",), ("proposal",), ("model",), ("aggregate",),
                      ("proposal", "model")),
}  # fmt: skip
_KINDS = (("gradient",), ("model",), ("proposal",), ("model", "proposal"))


@dataclass(frozen=True)
class Cell:
    """An application, its rules and its numbers."""

    name: str
    case: Case

    def draw(self, seed: int) -> Case:
        """One of all the adversary's ways to play it."""
        rng = np.random.default_rng([seed, len(self.name), sum(map(ord, self.name))])
        case = replace(self.case, seed=seed, steps=int(rng.choice([3, 4, 6, 9])))
        if case.app == "decentralized" and rng.random() < 0.3:
            case = replace(case, contractions=1)
        case = replace(case, moves=_moves(case, rng), slow=_slow(case, rng))
        if case.app == "draco" and rng.random() < 0.5:
            case = _late_beside_conspirators(case, rng)
        elif case.app == "liubei" and rng.random() < 0.4:
            case = _late_servers(case, rng)
        elif case.trusted and rng.random() < 0.2:
            case = _late_for_a_while(case, rng)
        elif not case.trusted and rng.random() < 0.25:
            return _left_behind(case, rng)
        return replace(case, crash=_crash(case, rng))


def cells() -> list[Cell]:
    """Every application × rule at the smallest n that it admits, and with enough for silence."""
    found = []
    for gar in RULES:
        needs = parse(gar).needs
        found.append(_cell("ssmw", gar, n_w=needs(1)))
        found.append(_cell("ssmw", gar, n_w=needs(1) + 1))
        found.append(_cell("msmw", gar, n_w=needs(1), n_ps=3, f_ps=1))
        found.append(_cell("msmw", gar, n_w=needs(1) + 1, n_ps=5, f_ps=1))
        both = max(needs(1), parse("trimmed-mean").needs(1))
        found.append(_cell("decentralized", gar, n_w=both))
        found.append(_cell("decentralized", gar, n_w=both + 2))
    for gar in ("median", "trimmed-mean", "multi-krum"):
        needs = parse(gar).needs
        for model_gar in ("median", "trimmed-mean"):
            given = {"gar": gar, "model_gar": model_gar, "asynchronous": True, "f_ps": 1}
            found.append(_cell("msmw", **given, n_w=needs(1) + 1, n_ps=4))
            found.append(_cell("msmw", **given, n_w=needs(1) + 1, n_ps=5))
        found.append(_cell("msmw", gar, n_w=needs(1) + 1, n_ps=5, f_ps=1, model_gar="median"))
        given = {"f_w": 2, "n_w": needs(2) + 2, "n_ps": 8, "f_ps": 2}
        found.append(_cell("msmw", gar, **given))
        found.append(_cell("msmw", gar, "median", **given, asynchronous=True))
        found.append(_cell("decentralized", gar, f_w=2, n_w=needs(2) + 3))
        found.append(_cell("decentralized", gar, n_w=needs(1) + 2, asynchronous=True))
    for n_ps in (6, 7):
        found.append(
            _cell("guanyu", "multi-krum", n_w=6, n_ps=n_ps, f_ps=1, asynchronous=True,
                  model_gar="median")
        )  # fmt: skip
    for gar, n in (("mda", 4), ("median", 4), ("multi-krum", 6)):
        found.append(_cell("liubei", gar, n_w=n, n_ps=4, f_ps=1, model_gar="median"))
        found.append(_cell("liubei", gar, n_w=n, n_ps=5, f_ps=1, model_gar="median"))
    for gar in ("median", "multi-krum"):
        found.append(_cell("aggregathor", gar, n_w=parse(gar).needs(1) + 1))
    for code, n, f in (("repetition", 3, 1), ("repetition", 6, 1), ("cyclic", 3, 1),
                       ("cyclic", 4, 1), ("cyclic", 7, 2), ("cyclic", 9, 3),
                       ("repetition", 5, 2)):  # fmt: skip
        found.append(_cell("draco", "average", n_w=n, f_w=f, code=code))
    found.append(_cell("draco", "average", n_w=8, f_w=2, code="cyclic", redundancy=7))
    return list({cell.name: cell for cell in found}.values())


RULES = (
    "median", "trimmed-mean", "krum", "multi-krum", "bulyan", "mda", "meamed", "geometric-median",
    "monna", "aksel", "centered-clipping", "caf", "nnm+median", "dnc", "bucketing+median",
    "arc+median",
)  # fmt: skip
"""All that bear liars, and one behind each pre-aggregation."""


def _cell(app: str, gar: str, model_gar: str = "trimmed-mean", **given: Any) -> Cell:
    waits = {"give_up_s": 1000.0} if given.get("asynchronous") else {}
    case = Case(app, gar, model_gar, **given, **waits)
    n = case.numbers
    parts = [app, gar if app != "draco" else case.code]
    if not case.trusted:
        parts.append(model_gar)
    parts.append(f"{n.n_w}/{n.f_w}")
    if not case.trusted and not case.peers:
        parts.append(f"{n.n_ps}/{n.f_ps}")
    if case.redundancy:
        parts.append(f"r{case.redundancy}")
    return Cell(" ".join([*parts, *(["async"] if case.asynchronous else [])]), case)


def _moves(case: Case, rng: np.random.Generator) -> tuple[Move, ...]:
    found = []
    for liar in case.liars:
        for _ in range(int(rng.choice([1, 1, 2, 3]))):
            found.append(_move(case, liar, rng))
    return tuple(found)


def _move(case: Case, liar: str, rng: np.random.Generator) -> Move:
    honest = list(case.honest)
    to: tuple[str, ...] = ()
    if rng.random() < 0.5:
        to = tuple(sorted(rng.choice(honest, size=rng.integers(1, max(2, len(honest) // 2 + 1)),
                                     replace=False).tolist()))  # fmt: skip
    kinds: tuple[str, ...] = ()
    if rng.random() < 0.4:
        choice = KINDS.get(case.app, _KINDS)
        kinds = choice[rng.integers(len(choice))]
    since, until = 0, FOREVER
    if rng.random() < 0.3:
        since = int(rng.integers(case.steps))
    if rng.random() < 0.3:
        until = since + int(rng.integers(1, case.steps))
    return Move(
        liar, str(rng.choice(LIES)), str(rng.choice(TIMES)), to, kinds, since, until,
        every=int(rng.choice([1, 1, 1, 2, 3])),
    )  # fmt: skip


def _slow(case: Case, rng: np.random.Generator) -> tuple[Slow, ...]:
    honest = list(case.honest)
    shares = [0.05, 0.2, 0.2, 0.45, 0.9] if not case.asynchronous else [0.01, 0.2, 2.0, 40.0]
    if case.app == "draco":  # what it promises holds whoever is late
        shares.append(2.0)
    found = []
    for _ in range(int(rng.choice([0, 1, 1, 2, 3]))):
        delay_s = float(rng.choice(shares)) * case.timeout_s
        victim = str(rng.choice(honest))
        half = tuple(honest[::2])
        since, until = 0, FOREVER
        if rng.random() < 0.4:
            since = int(rng.integers(case.steps))
            until = since + int(rng.choice([1, 3, 9]))
        shape = rng.integers(6)
        if shape == 0:
            found.append(Slow(delay_s, hashed=True, since=since, until=until))
        elif shape == 1:
            found.append(Slow(delay_s, senders=(victim,), since=since, until=until))
        elif shape == 2:
            found.append(Slow(delay_s, askers=(victim,), since=since, until=until))
        elif shape == 3:
            rest = tuple(name for name in honest if name not in half)
            found.append(Slow(delay_s, senders=half, askers=rest, since=since, until=until))
        elif shape == 4:
            two = tuple(sorted(rng.choice(honest, size=2, replace=False).tolist()))
            if rng.random() < 0.5:
                found.append(Slow(delay_s, askers=two, since=since, until=until))
            else:
                found.append(Slow(delay_s, senders=two, since=since, until=until))
        else:
            kind = str(rng.choice(["model", "gradient", "proposal"]))
            found.append(Slow(delay_s, (victim,), kinds=(kind,), since=since, until=until))
    return tuple(found)


def _late_beside_conspirators(case: Case, rng: np.random.Generator) -> Case:
    """Up to f honest workers are late for good, and all liars tell one story."""
    honest = case.workers[: case.n_w - case.f_w]
    late = rng.choice(honest, size=rng.choice([1, case.f_w, case.f_w]), replace=False).tolist()
    moves = tuple(Move(liar, "fit", "now") for liar in case.liars)
    return replace(case, moves=moves, slow=(Slow(2.0, senders=tuple(sorted(late))),))


def _late_for_a_while(case: Case, rng: np.random.Generator) -> Case:
    """One worker is later than it may be in one step or two, and in time again after that."""
    since = int(rng.integers(2))
    until = since + int(rng.integers(1, 3))
    honest = case.workers[: case.n_w - case.f_w]
    late = Slow(1.5, (str(rng.choice(honest)),), kinds=("gradient",), since=since, until=until)
    usual = Slow(0.4, kinds=("gradient",))
    slow = usual, replace(usual, delay_s=0.5, senders=late.senders), late
    return replace(case, slow=slow, steps=12)


def _late_servers(case: Case, rng: np.random.Generator) -> Case:
    """Honest servers use up the patience with them, and the liar, who is quick, does not."""
    honest = case.servers[: case.n_ps - case.f_ps]
    slow = Slow(0.9, senders=honest, kinds=("model",), until=int(rng.integers(6, 12)))
    every = int(rng.choice([2, 3, 4, 6]))
    return replace(case, slow=(slow,), steps=16, gather_every=every)


def _left_behind(case: Case, rng: np.random.Generator) -> Case:
    """One honest server falls behind, and liars tell it what the newest models are.

    Where honest nodes are in time, nobody falls behind but by a crash.
    """
    honest = [name for name in case.servers if name not in case.liars]
    victim = str(rng.choice(honest))
    lies = ("constant", "reverse", "apart", "stale", "one", "low")
    moves = []
    for liar in case.liars:
        if liar in case.servers:
            what, when = str(rng.choice(lies)), str(rng.choice(["now", "ahead", "behind"]))
            to = (victim,) if rng.random() < 0.5 else ()
            moves.append(Move(liar, what, when, to, kinds=("model",)))
    case = replace(case, moves=tuple(moves), steps=int(rng.choice([6, 9, 14])))
    if case.asynchronous:
        until = int(rng.integers(2, case.steps))
        late_s = float(rng.choice([0.2, 2.0, 40.0]))
        late = Slow(late_s, askers=(victim,), until=until)
        return replace(case, slow=(Slow(0.01, hashed=True), late))
    if not bears_silence(case):
        return replace(case, slow=(Slow(0.9, askers=(victim,)),))
    at = int(rng.integers(1, case.steps))
    down_s = float(rng.choice([0.3, 3.0, 6.0]))
    slow = Slow(float(rng.choice([0.05, 0.2])))
    return replace(case, slow=(slow,), crash=Crash(victim, at, down_s))


def _crash(case: Case, rng: np.random.Generator) -> Crash | None:
    """Only where enough are left to bear it, and somebody to learn from."""
    if rng.random() > 0.25 or not bears_silence(case):
        return None
    able = case.servers if case.app == "draco" else case.honest
    name, step = str(rng.choice(able)), int(rng.integers(1, case.steps + 1))
    down_s = float(rng.choice([0.0, 0.3, 3.0]))
    if case.trusted and name in case.servers:
        return Crash(name, step, down_s, saved=int(rng.integers(1, step + 1)))
    return Crash(name, step, down_s)
