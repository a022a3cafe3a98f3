"""The history of a run, read from its events: who sent them, when, and what went on.

A run that was resumed has several parts, and sums start anew in each. Steps are counted
as the leading server saw them: the honest one that came farthest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from garfield.core.events import Event
from garfield.core.silence import Reason
from garfield.report.scores import Score, score_of
from garfield.report.sound_events import is_sound

Standing: TypeAlias = Literal["trusted", "left out", "heard", "silent", "not needed"]
"""What became of a worker's gradient in a step.

Heard: the rule decides per coordinate, so it leaves nobody out.
"""


@dataclass(frozen=True)
class Roster:
    """The nodes of a run by role, and which of them lie, as far as that is known."""

    servers: Sequence[str]
    workers: Sequence[str]
    liars: Sequence[str] = ()

    @property
    def honest_servers(self) -> list[str]:
        return [name for name in self.servers if name not in self.liars]

    @property
    def honest(self) -> frozenset[str]:
        """Names of the nodes whose events are believed."""
        return frozenset((*self.servers, *self.workers)).difference(self.liars)


@dataclass(frozen=True)
class Point:
    """An evaluation on the test set."""

    step: int
    time_s: float
    score: Score
    loss: float | None

    @property
    def accuracy(self) -> float:
        """The value of the score, which is accuracy unless the run has another metric."""
        return self.score.value


@dataclass
class Part:
    """The events from a start or resumption to the next."""

    first_step: int = 0
    events: list[Event] = field(default_factory=list)

    def steps_of(self, node: str) -> list[Event]:
        return [e for e in self.events if e["event"] == "step" and e["node"] == node]

    def last_of_each(self) -> dict[str, Event]:
        """The last event of each node that holds its sums."""
        return {e["node"]: e for e in self.events if "bytes_sent" in e}


@dataclass(frozen=True)
class RunHistory:
    """The parts of a run in order, and whose they are. Made by `read_history`."""

    roster: Roster
    parts: Sequence[Part]

    def leading_server(self, part: Part) -> str:
        """The first honest server among those that came farthest; "" where there is none."""
        last = {e["node"]: int(e["step"]) for e in part.events if e["event"] == "step"}
        honest = self.roster.honest_servers
        return max(honest, key=lambda name: (last.get(name, -1), -honest.index(name)), default="")

    @property
    def steps(self) -> list[Event]:
        """The step events of each part's leading server."""
        return [event for part in self.parts for event in part.steps_of(self.leading_server(part))]

    @property
    def curve(self) -> list[Point]:
        """Evaluations in the order of steps; seconds add up over the parts."""
        points: dict[int, Point] = {}
        before_s = 0.0
        for part in self.parts:
            time_s = 0.0
            for event in part.events:
                if event.get("node") not in self.roster.honest_servers:
                    continue
                time_s = max(time_s, event.get("time_s", 0.0))
                score = score_of(event)
                if score is not None and event["step"] not in points:
                    seen = (event["step"], before_s + event.get("time_s", time_s))
                    points[event["step"]] = Point(*seen, score, event.get("loss"))
            before_s += time_s
        return [points[step] for step in sorted(points)]

    @property
    def diverged(self) -> str | None:
        """Why the model is useless, if it is."""
        for event in self.parts[-1].events:
            if event["event"] == "diverged" and event["node"] in self.roster.honest_servers:
                return str(event["error"])
        return None


def read_history(events: Sequence[Event], roster: Roster) -> RunHistory:
    """Cut events into parts; what was told of steps that were done again later is dropped."""
    parts = [Part()]
    for event in filter(is_sound, events):
        if event["event"] != "resumed":
            parts[-1].events.append(event)
            continue
        step = int(event["step"])
        for part in parts:
            part.events = [e for e in part.events if e.get("step", 0) <= step]
        parts.append(Part(step))
    return RunHistory(roster, parts)


def standing(event: Event, worker: str) -> Standing:
    """What became of a worker's gradient in a step."""
    silent: Mapping[str, Any] = event.get("silent") or {}
    trusted = event.get("trusted")
    if trusted is not None and worker in trusted:
        return "trusted"
    if worker in silent:
        told = silent[worker]  # a text alone, where a version wrote it that knew no reasons
        reason = told["reason"] if isinstance(told, Mapping) else told
        return "not needed" if reason == Reason.NOT_NEEDED.value else "silent"
    if worker in (event.get("set_aside") or {}):
        return "left out"
    return "heard" if trusted is None else "left out"
