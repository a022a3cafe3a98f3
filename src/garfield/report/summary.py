"""The numbers of a run: accuracy, throughput, where the time went, who misbehaved.

Of a step as the server sees it, communication is the time it waited for replies
less the time that a worker computed meanwhile: compute + communication +
aggregation make up the step. What a server itself spends on evaluations is in none of
them; those made beside training may slow it, where cores are few.
"""

from __future__ import annotations

import math
import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from garfield.core.events import Event
from garfield.core.silence import Reason
from garfield.core.version import VERSION
from garfield.report.filtering import filtering
from garfield.report.run_history import Part, Point, RunHistory, standing
from garfield.report.scores import ACCURACY


def summarise(history: RunHistory) -> dict[str, Any]:
    """Sum up a run, as far as its events go."""
    steps, curve = history.steps, history.curve
    time_s = sum(part_time_s(history, part) for part in history.parts)
    gradients = sum(event.get("gradients", 0) for event in steps)
    blamed = misbehaviour(history)
    return {
        **scores(curve),
        "steps": max((event["step"] for event in steps), default=history.parts[-1].first_step),
        "time_s": time_s,
        "updates_per_s": _rate(len(steps), time_s),
        "batches_per_s": _rate(gradients, time_s),
        "breakdown": breakdown(history),
        "bytes_sent": _total(history, "bytes_sent"),
        "bytes_received": _total(history, "bytes_received"),
        "liars": {peer: about for peer, about in blamed.items() if about["kind"] == "lied"},
        "silent": {peer: about for peer, about in blamed.items() if about["kind"] == "silent"},
        "left_out": left_out(history),
        "suspected": suspected(history),
        "diverged": history.diverged,
        "resumed_at": [part.first_step for part in history.parts[1:]],
        **variance(history),
        **filtering(history),
    }


def scores(curve: Sequence[Point]) -> dict[str, Any]:
    """The last score and the best, by which metric, and the accuracy if that is it."""
    last = curve[-1].score if curve else None
    values = [point.score.value for point in curve if not math.isnan(point.score.value)]
    best = None
    if last is not None and values:
        best = max(values) if last.larger_is_better else min(values)
    right = last is not None and last.metric == ACCURACY
    return {
        "accuracy": last.value if last is not None and right else None,
        "loss": curve[-1].loss if curve else None,
        "best_accuracy": best if right else None,
        "metric": None if last is None else last.metric,
        "larger_is_better": None if last is None else last.larger_is_better,
        "score": None if last is None else last.value,
        "best_score": best,
    }


def part_time_s(history: RunHistory, part: Part) -> float:
    """Seconds of training in a part."""
    steps = part.steps_of(history.leading_server(part))
    return float(steps[-1]["time_s"]) if steps else 0.0


def breakdown(history: RunHistory) -> dict[str, float]:
    """Seconds a step, by what they were spent on."""
    waited = aggregated = 0.0
    for part in history.parts:
        steps = part.steps_of(history.leading_server(part))
        if steps:
            waited += steps[-1]["communication_s"]
            aggregated += steps[-1]["aggregation_s"]
    count = len(history.steps) or 1
    compute_s = _compute_s(history)
    return {
        "compute_s": compute_s,
        "communication_s": max(0.0, waited / count - compute_s),
        "aggregation_s": aggregated / count,
    }


def misbehaviour(history: RunHistory) -> dict[str, dict[str, Any]]:
    """Peers that lied provably or kept silent, as honest nodes tell it.

    Of each: whether there is proof, how often what was seen by the one who saw it most, the
    reason that weighs most, and who told. A peer lied if one honest witness can prove it; a
    reason that only another version knows proves nothing.
    """
    blamed: dict[str, _Blame] = {}
    for part in history.parts:
        seen: dict[str, Counter[Reason]] = {}
        for witness, event in part.last_of_each().items():
            if witness not in history.roster.honest:
                continue
            for peer, faults in (event.get("faults") or {}).items():
                found = {Reason(why): fault for why, fault in faults.items() if Reason.known(why)}
                guilty = {why: fault for why, fault in found.items() if not why.blameless}
                if guilty:
                    counted = Counter({why: fault["times"] for why, fault in guilty.items()})
                    seen[peer] = seen.get(peer, counted) | counted  # the larger of each
                    blame = blamed.setdefault(peer, _Blame())
                    blame.witnesses.add(witness)
                    blame.details |= {why: fault["detail"] for why, fault in guilty.items()}
        for peer, counted in seen.items():
            blamed[peer].counts += counted  # sums start anew in each part
    diverged = history.diverged is not None
    return {peer: blamed[peer].verdict(diverged) for peer in sorted(blamed)}


@dataclass
class _Blame:
    """What honest nodes told of one peer."""

    counts: Counter[Reason] = field(default_factory=Counter)
    details: dict[Reason, str] = field(default_factory=dict)
    witnesses: set[str] = field(default_factory=set)

    def verdict(self, diverged: bool) -> dict[str, Any]:
        """Proof before silence, then what was seen most often.

        When the model itself has diverged, honest gradients are not finite either.
        """
        void = {Reason.NOT_FINITE} if diverged else set()
        proofs = {why for why in self.counts if why.proof} - void
        counts = self.counts
        ordered = sorted(counts, key=lambda why: (why not in proofs, -counts[why], why.value))
        return {
            "kind": "lied" if proofs else "silent",
            "times": counts.total(),
            "reason": ordered[0].value,
            "detail": self.details[ordered[0]],
            "reasons": {
                why.value: {"times": counts[why], "detail": self.details[why]} for why in ordered
            },
            "witnesses": sorted(self.witnesses),
        }


def left_out(history: RunHistory) -> dict[str, int]:
    """Count the steps in which the rule did not let a worker's gradient in."""
    counts = Counter(
        worker
        for event in history.steps
        for worker in history.roster.workers
        if standing(event, worker) == "left out"
    )
    return {worker: counts[worker] for worker in history.roster.workers if counts[worker]}


def suspected(history: RunHistory) -> dict[str, int]:
    """Count the steps in which a worker was left out beyond what chance explains, or for cause.

    A rule that always leaves out k of h rows leaves somebody out, whoever they are: were all
    alike, each of them in k/h of the steps, give or take. What exceeds that by more than three
    deviations counts, and every row that was set aside because it could not be used. It is a
    suspicion and no proof: honest workers whose data differ from all others' look so too.
    """
    found: dict[str, int] = {}
    for worker in history.roster.workers:
        times = cause = 0
        mean = variance = 0.0
        for event in history.steps:
            aside, silent = event.get("set_aside") or {}, event.get("silent") or {}
            cause += worker in aside and worker not in silent
            share = _left_out_by_quota(event, history.roster.workers)
            if share is not None and worker not in aside:
                times += standing(event, worker) == "left out"
                mean, variance = mean + share, variance + share * (1 - share)
        beyond = times - math.ceil(mean + 3 * math.sqrt(variance))
        if cause + max(0, beyond):
            found[worker] = cause + max(0, beyond)
    return found


def _left_out_by_quota(event: Event, workers: Iterable[str]) -> float | None:
    """The share of the rows that the rule was shown and did not let in; None if it says nothing."""
    if event.get("trusted") is None:
        return None
    aside = event.get("set_aside") or {}
    standings = [standing(event, worker) for worker in workers if worker not in aside]
    shown = [each for each in standings if each in ("trusted", "left out")]
    return shown.count("left out") / len(shown) if shown else None


def variance(history: RunHistory) -> dict[str, float | None]:
    """Sum up whether honest gradients varied little enough for the rule (thesis, equation 3.12).

    The middle σ / |∇L| of the steps that were measured, null if there are none or if noise was
    all there was; and the share of them at which the rule's condition held, null if the rule
    has no known Δ.
    """
    measured = [event for event in history.steps if "variance_ratio" in event]
    ratios = sorted(_number(event["variance_ratio"]) for event in measured)
    middle = ratios[len(ratios) // 2] if ratios else math.inf
    held = [event["variance_held"] for event in measured if event["variance_held"] is not None]
    return {
        "variance_ratio": middle if middle < math.inf else None,
        "variance_held": sum(held) / len(held) if held else None,
    }


def versions(
    packages: Iterable[str] = ("garfield", "numpy", "torch", "tensorflow-cpu", "keras", "grpcio"),
) -> dict[str, str]:
    """Versions of Python and of the packages that a run depends on."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = VERSION if package == "garfield" else version(package)
        except PackageNotFoundError:
            continue
    return found


def _compute_s(history: RunHistory) -> float:
    """Mean seconds of one gradient, over all workers and steps."""
    seconds = computed = 0.0
    for part in history.parts:
        last: dict[str, Event] = {e["node"]: e for e in part.events if e.get("compute_s")}
        seconds += sum(event["compute_s"] for event in last.values())
        computed += sum(event["computed"] for event in last.values())
    return seconds / computed if computed else 0.0


def _total(history: RunHistory, what: str) -> int:
    parts = (part.last_of_each().values() for part in history.parts)
    return sum(event[what] for events in parts for event in events)


def _number(told: float | None) -> float:
    """What was not finite is null on disk."""
    return math.inf if told is None or math.isnan(told) else told


def _rate(count: int, time_s: float) -> float | None:
    return count / time_s if time_s > 0 else None
