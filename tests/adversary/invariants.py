"""What must hold in every run, whatever f liars say and whenever they say it.

Each check returns sentences about what does not hold: which node, which step, which rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log2

import numpy as np

from garfield.core.errors import DecodingError, QuorumError
from garfield.core.silence import Reason
from garfield.gars import parse
from tests.adversary.case import Case
from tests.adversary.quadratic import RATE, SIZE
from tests.adversary.record import OWN, Join, Record
from tests.adversary.world import World, play

TOLERANCE = 1e-4
"""Of float32 sums, beside values of about 1."""
HULL = frozenset({"median", "trimmed-mean"})
"""Rules whose answer lies, per coordinate, between what honest rows say."""
REACH = {
    "krum": 2.0, "multi-krum": 2.0, "bulyan": 2.0, "mda": 2.0, "meamed": 2.0,
    "geometric-median": 3.0, "monna": 2.0, "aksel": 3.0, "centered-clipping": 6.0, "caf": 6.0,
    "dnc": 1e9,
}  # fmt: skip
"""How many diameters of the honest rows an answer may lie from the nearest of them; 6 for a rule
behind a pre-aggregation. `dnc` promises nothing there (`garfield/gars/robustness/theory.py`)."""


def broken(case: Case) -> list[str]:
    """Everything that does not hold in this case."""
    world, record = play(case)
    checks = (joins, inside_joins, inside, together, steps, live, draco, nobody_honest)
    return [sentence for check in checks for sentence in check(case, world, record)]


# -- 1: joins -------------------------------------------------------------------------------------


def joins(case: Case, world: World, record: Record) -> Iterator[str]:
    """Liars among the rows ≤ the f told, rows ≥ needs(f told); f told is f, where all may lie.

    What a round brought is joined with nothing else: with no stale model of the node's own, say.
    """
    for join in record.joins:
        if OWN in join.names and set(join.names) != {OWN}:
            yield f"1 joins: {_where(join)} its own among them, which no peer has sent."
        if OWN in join.names or _excused(case, record, join.key.step):
            continue
        lying = [name for name in join.names if name in case.liars]
        where = f"1 joins: {_where(join)} told f={join.told}"
        if len(lying) > join.told:
            yield f"{where}, and {len(lying)} of its rows are liars': {', '.join(lying)}."
        if len(join.rows) < join.rule.needs(join.told):
            yield f"{where}, which needs {join.rule.needs(join.told)} rows."
        if not case.trusted and join.told < join.f - len(join.proven):
            yield f"{where} of {join.f}, and {len(join.proven)} have proved to be faulty."


_LANDS = 4
"""Steps after which what was too late has landed: until then its sender is charged."""


def _excused(case: Case, record: Record, step: int) -> bool:
    """Whether an honest worker of a trusted server is later then than the network allows.

    Or was so a little before: it is charged until something comes of it, and steps take no time
    where all others answer at once.
    """
    if not case.trusted or case.asynchronous or case.app == "draco":
        return False
    began = {each.key.step: each.at_s for each in record.published if each.key.kind == "model"}
    for before in range(step + 1):
        takes_s = _answers_in_s(case, before)
        if takes_s > case.timeout_s and (
            before >= step - _LANDS
            or began.get(step, 0.0) <= began.get(before, 0.0) + takes_s + case.timeout_s
        ):
            return True
    return False


def _answers_in_s(case: Case, step: int) -> float:
    """How long the slowest worker's answer takes at most: its model on the way, then its row."""

    def hop_s(asker: str, sender: str, kind: str) -> float:
        fits = [slow.delay_s for slow in case.slow if slow.covers(asker, sender, kind, step)]
        return fits[-1] if fits else 0.0

    server, sent = case.servers[0], "coded" if case.code == "cyclic" else "gradient"
    return max(
        hop_s(worker, server, "model") + hop_s(server, worker, sent) for worker in case.workers
    )


def _where(join: Join) -> str:
    kind = "newest" if join.key.is_newest else f"{join.key.kind} {join.key.step}"
    return f"{join.node} joined {len(join.rows)} rows of {kind} by {join.rule.name},"


# -- 2: inside ------------------------------------------------------------------------------------


def inside_joins(case: Case, world: World, record: Record) -> Iterator[str]:
    """What a join makes lies between its honest rows, or near them, as the rule promises."""
    for join in record.joins:
        honest = [
            row for name, row in zip(join.names, join.rows, strict=True) if name not in case.liars
        ]
        rows = np.array(honest)
        if not len(rows) or OWN in join.names or _excused(case, record, join.key.step):
            continue
        yield from _away(join, rows)


def _away(join: Join, rows: np.ndarray) -> Iterator[str]:
    low, high = rows.min(axis=0), rows.max(axis=0)
    result, slack = join.result[: rows.shape[1]], TOLERANCE * (1 + np.abs(rows).max())
    if join.rule.name in HULL:
        if ((result < low - slack) | (result > high + slack)).any():
            yield f"2 inside: {_where(join)} got {result}, honest rows reach from {low} to {high}."
        return
    reach = REACH.get(join.rule.name.rpartition("+")[2], 6.0)
    apart = max(float(np.linalg.norm(a - b)) for a in rows for b in rows)
    away = min(float(np.linalg.norm(result - row)) for row in rows)
    if not away <= reach * apart + slack:
        yield f"2 inside: {_where(join)} got {result}, {away:.3g} from all honest rows, which are {apart:.3g} apart."  # noqa: E501


def inside(case: Case, world: World, record: Record) -> Iterator[str]:
    """Honest models at t+1 lie in hull(models at t) − γ · hull(gradients of t), per coordinate.

    One that has jumped lies in the hull of others' models from there on, or of these. Buffers
    lie in the hull of what gradients brought.
    """
    if case.app == "draco" or not {case.gar, case.model_gar} <= HULL:
        return
    models, gradients = _by_step(record, "model"), _by_step(record, "gradient")
    landed = _landings(case, record)
    own = {
        step: [row for node, row in rows if (node, step) not in landed]
        for step, rows in models.items()
    }
    for each in record.published:
        step = each.key.step
        if each.key.kind != "model" or step == 0 or _excused(case, record, step - 1):
            continue
        before, along = models.get(step - 1), gradients.get(step - 1)
        hulls = []
        if before and along:
            x, g = (np.array([row for _, row in rows]) for rows in (before, along))
            low = np.append(x.min(0)[:SIZE] - RATE * g.max(0)[:SIZE], g.min(0)[SIZE:])
            high = np.append(x.max(0)[:SIZE] - RATE * g.min(0)[:SIZE], g.max(0)[SIZE:])
            hulls += [low, high]
        if (each.node, step) in landed:
            hulls += [row for at in own if at >= step - 1 for row in own[at]]
        if not hulls:
            yield f"2 inside: {each.node} has a model of step {step}, and nobody else had any."
            continue
        low, high = np.min(hulls, axis=0), np.max(hulls, axis=0)
        slack = TOLERANCE * (1 + np.abs(hulls).max())
        if ((each.vector < low - slack) | (each.vector > high + slack)).any():
            how = "jumped to" if (each.node, step) in landed else "has"
            yield (
                f"2 inside: {each.node} {how} {each.vector} as model {step}, "
                f"allowed is {low} to {high}."
            )


Rows = list[tuple[str, np.ndarray]]


def _by_step(record: Record, kind: str) -> dict[int, Rows]:
    """What honest nodes have published, more than once after a restart."""
    found: dict[int, Rows] = {}
    for each in record.published:
        if each.key.kind == kind:
            row = each.vector.astype(np.float64)
            found.setdefault(each.key.step, []).append((each.node, row))
    return found


def _landings(case: Case, record: Record) -> set[tuple[str, int]]:
    """Who has jumped, and to which step."""
    found = set()
    for join in record.joins:
        if join.key.is_newest and len(join.claims) > join.f:
            step = min(join.claims.values())
            found |= {(join.node, step), (join.node, min(step, case.steps - 1))}
    return found


# -- 3: together ----------------------------------------------------------------------------------


def together(case: Case, world: World, record: Record) -> Iterator[str]:
    """Δ′ ≤ ρ(Δ + γG) by the trimmed mean where 2q > n + 3f, and Δ′ ≤ Δ + γG by the median, too.

    Δ + γG is how far honest proposals lie apart. A step that somebody jumped to is left out; and
    who starts anew may propose another model for a step than in its first life.
    """
    if case.crash is not None and case.crash.name in case.servers:
        return
    if case.trusted or case.model_gar not in HULL or case.app == "liubei":
        return
    models, proposals = _by_step(record, "model"), _by_step(record, "proposal")
    n, f = case.numbers.n_ps, case.numbers.f_ps
    jumped = {step for _, step in _landings(case, record)}
    rows: dict[int, list[int]] = {}
    for join in record.joins:
        if join.key.kind == "proposal" and OWN not in join.names:
            rows.setdefault(join.key.step, []).append(len(join.rows))
    for step, found in models.items():
        if step in jumped or step not in proposals or step not in rows:
            continue
        q = min(rows[step])
        contracts = case.model_gar == "trimmed-mean" and 2 * q > n + 3 * f
        rho = (n + f - q) / (q - 2 * f) if contracts else 1.0
        apart, before = _spread(found), _spread(proposals[step])
        if (apart > rho * before + TOLERANCE).any():
            yield (
                f"3 together: honest models of step {step} are {apart} apart, and {rho:.3g} of "
                f"{before} is allowed (n={n}, f={f}, q={q})."
            )


def _spread(rows: Rows) -> np.ndarray:
    matrix = np.array([row for _, row in rows])[:, :SIZE]
    spread: np.ndarray = matrix.max(axis=0) - matrix.min(axis=0)
    return spread


# -- 4: steps -------------------------------------------------------------------------------------


def steps(case: Case, world: World, record: Record) -> Iterator[str]:
    """Steps never fall, and nobody is more than one beyond all other honest nodes."""
    at: dict[tuple[str, str], int] = {}
    largest = -1
    for each in record.published:
        step, place = each.key.step, (each.node, each.key.kind)
        crash = case.crash
        restarted = crash is not None and each.node == crash.name
        if crash is not None and (crash.all_servers or crash.name in case.servers[: case.trusted]):
            restarted = step >= crash.saved  # all go back with it, and no further
        if step < at.get(place, 0) and not restarted:
            yield f"4 steps: {each.node} was at {each.key.kind} {at[place]}, and is at {step}."
        at[place] = step
        if step > largest + 1:
            yield f"4 steps: {each.node} is at {each.key.kind} {step}, honest ones at {largest}."
        if each.key.kind in ("model", "proposal"):
            largest = max(largest, step)


# -- 5: live --------------------------------------------------------------------------------------


def live(case: Case, world: World, record: Record) -> Iterator[str]:
    """All honest nodes finish in time where there are enough of them, or stop naming a liar."""
    if record.stands_still:
        yield f"5 live: it goes on for ever: {record.stands_still}."
        return
    honest = [name for name in case.servers if name not in case.liars]
    stuck = [n for n in honest if n not in record.finished and n not in record.failures]
    if stuck:
        yield f"5 live: {', '.join(stuck)} neither finished nor stopped."
    for name, failure in record.failures.items():
        if isinstance(failure, DecodingError):
            continue
        if not isinstance(failure, QuorumError):
            yield f"5 live: {name} stopped with {type(failure).__name__}: {failure}"
    short = {n: e for n, e in record.failures.items() if isinstance(e, QuorumError)}
    if short and bears_silence(case):
        for name, failure in short.items():
            yield f"5 live: {name} stopped: {failure}"
    elif short and not _names_a_liar(case, short):
        yield "5 live: nobody names a liar: " + " ".join(map(str, short.values()))
    if not short and not case.asynchronous:
        yield from _in_time(case, record)


def bears_silence(case: Case) -> bool:
    """Whether there are enough nodes for liars to be silent, and laggards to be taken back."""
    if case.app == "draco":
        return True  # the code refuses what it cannot bear, and nobody is waited for for ever
    numbers = case.numbers
    enough = numbers.n_w >= parse(case.gar).needs(numbers.f_w) + numbers.f_w
    if case.trusted:
        return enough
    rule = parse(case.model_gar)
    return enough and numbers.n_ps >= rule.needs(numbers.f_ps) + numbers.f_ps + 1


def _names_a_liar(case: Case, short: dict[str, QuorumError]) -> bool:
    for failure in short.values():
        if not failure.silent:  # too few nodes to take back one that has fallen behind
            return True
        if any(liar in str(failure) for liar in case.liars):
            return True
    return False


def _in_time(case: Case, record: Record) -> Iterator[str]:
    for asker, waited_s in record.waited_s.items():
        most_s = case.timeout_s * (1 + log2(1 + record.rounds[asker] / 8))
        lives = 1 + (case.crash is not None and case.crash.name == asker)
        allowed_s = most_s * len(record.waited_for[asker]) * lives
        if waited_s > allowed_s + 1e-6:
            yield f"5 live: {asker} has waited {waited_s:.3g} s too long, {allowed_s:.3g} allowed."


# -- 6: draco -------------------------------------------------------------------------------------


def draco(case: Case, world: World, record: Record) -> Iterator[str]:
    """The model of a run without liars, and nobody honest is blamed."""
    if case.app != "draco":
        return
    for step, name in record.blamed:
        if name not in case.liars:
            yield f"6 draco: {name} is honest, and was blamed at step {step}."
    _, other = play(case.without_liars())
    mine, true = _by_step(record, "model"), _by_step(other, "model")
    for step, found in mine.items():
        for name, row in found:
            expected = dict(true[step])[name]
            same = np.array_equal(row, expected)
            if case.code == "cyclic":
                same = np.allclose(row, expected, rtol=0, atol=1e-6)
            if not same:
                yield f"6 draco: {name} has {row} at step {step}, without liars {expected}."


# -- 7: nobody honest -----------------------------------------------------------------------------


def nobody_honest(case: Case, world: World, record: Record) -> Iterator[str]:
    """Nobody honest and in time is charged, named, or excluded."""
    honest = set(case.honest)
    in_time = case.crash is None and max((s.delay_s for s in case.slow), default=0.0) <= 0.2
    if case.trusted and in_time and not case.asynchronous:
        for asker, peer, step in record.charges:
            if peer in honest:
                yield f"7 honest: {asker} charged {peer}, which answers in time, at step {step}."
    for asker, step, servers in record.followed:
        lying = [name for name in servers if name in case.liars]
        if 2 * len(lying) >= len(servers):
            yield (
                f"7 honest: {asker} chose among {', '.join(servers)} at step {step}, without "
                "honest ones that answer in time."
            )
    for name in honest:
        node = world.servers.get(name) or world.workers.get(name)
        faults = {} if node is None else node.account.faults
        for peer in honest.intersection(faults):
            for reason in faults[peer]:
                if reason.proof or reason is Reason.REFUSED:
                    yield f"7 honest: {name} says of {peer}: {reason.value}."
