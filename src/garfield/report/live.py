"""Displays of a run while it goes on: redrawn in place on a terminal, else plain lines.

`Status` takes events and knows the state; the displays only show it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from garfield.core.events import Event
from garfield.report.run_history import Roster, standing
from garfield.report.scores import Score, score_of

RECENT = 20
"""Steps that "lately" means."""
_WARNINGS = 4


@dataclass
class Status:
    """The state of a run, from its events."""

    roster: Roster
    total: int
    step: int = 0
    score: Score | None = None
    loss: float | None = None
    evaluated: int = -1
    """The step whose score and loss these are."""
    silent: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    _steps: deque[Event] = field(default_factory=lambda: deque(maxlen=RECENT + 1))

    def take(self, event: Event) -> bool:
        """Note an event; whether it holds an evaluation."""
        if event["event"] in ("failed", "diverged", "no-velocity", "went-back", "unheard"):
            self.warnings.append(_warning(event))
        if event.get("node") not in self.roster.honest_servers or "step" not in event:
            return False
        if event["event"] == "step" and event["step"] > self.step:
            self.step = event["step"]
            self._steps.append(event)
            workers = self.roster.workers
            silent = [name for name in workers if standing(event, name) == "silent"]
            self.silent = {name: event["silent"][name]["detail"] for name in silent}
        score = score_of(event)
        if score is None or event["step"] <= self.evaluated:
            return False  # or another server has evaluated this step already
        self.evaluated = event["step"]
        self.score, self.loss = score, event.get("loss")
        return True

    @property
    def lags(self) -> bool:
        """Whether score and loss are those of an earlier step."""
        return 0 <= self.evaluated < self.step

    @property
    def updates_per_s(self) -> float | None:
        """Pace of the last steps, by the clock of the server that reported the last one."""
        if not self._steps:
            return None
        last = self._steps[-1]
        first = next(event for event in self._steps if event["node"] == last["node"])
        if last["time_s"] <= first["time_s"]:
            return None
        return float((last["step"] - first["step"]) / (last["time_s"] - first["time_s"]))

    @property
    def eta_s(self) -> float | None:
        return (self.total - self.step) / self.updates_per_s if self.updates_per_s else None

    @property
    def left_out(self) -> dict[str, int]:
        """How often each worker was left out lately."""
        recent = list(self._steps)[-RECENT:]
        counts = Counter(
            name
            for event in recent
            for name in self.roster.workers
            if standing(event, name) == "left out"
        )
        return dict(counts.most_common())

    @property
    def recent(self) -> int:
        return min(len(self._steps), RECENT)


class LiveDisplay(Protocol):
    """Shows a run while it goes on: all its events, and sentences besides."""

    def __enter__(self) -> LiveDisplay: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def take(self, event: Event) -> None: ...

    def say(self, text: str) -> None: ...


class TerminalDisplay:
    """A display for a terminal: redrawn in place, and left as it was at the end."""

    def __init__(
        self, status: Status, title: str, console: Console, clock: Callable[[], float]
    ) -> None:
        self.status, self.title, self._clock = status, title, clock
        self._started = clock()
        self._live = Live(get_renderable=self.render, console=console, refresh_per_second=6)

    def __enter__(self) -> TerminalDisplay:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def take(self, event: Event) -> None:
        self.status.take(event)

    def say(self, text: str) -> None:
        self._live.console.print(text)

    def render(self) -> RenderableType:
        """Draw the run as it is now."""
        status = self.status
        head = Table.grid(padding=(0, 2))
        bar = ProgressBar(total=status.total, completed=status.step, width=36)
        elapsed = clock_time(self._clock() - self._started)
        left = "" if status.eta_s is None else f"{clock_time(status.eta_s)} left"
        done = "starting" if not status.step else f"step {status.step}/{status.total}"
        head.add_row(Text(self.title, style="bold"), bar, done, elapsed, Text(left, style="dim"))
        metric = "" if status.score is None else status.score.metric
        since = f" ({metric} and loss: step {status.evaluated})" if status.lags else ""
        lines: list[RenderableType] = [head, Text("  " + numbers(status) + since)]
        if status.left_out:
            often = counted(status.left_out, status.recent)
            lines.append(Text(f"  left out lately: {often}", style="yellow"))
        if status.silent:
            who = "; ".join(f"{name} ({why})" for name, why in list(status.silent.items())[:6])
            lines.append(Text(f"  silent: {who}", style="yellow"))
        lines += [Text(f"  ! {line}", style="red") for line in status.warnings[-_WARNINGS:]]
        return Group(*lines)


class LineDisplay:
    """A display for files and pipes: a line for every evaluation, and for what went wrong."""

    def __init__(self, status: Status, title: str, console: Console) -> None:
        self.status, self.title, self._console = status, title, console
        self._warned = 0

    def __enter__(self) -> LineDisplay:
        self.say(f"{self.title}: starting")
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def take(self, event: Event) -> None:
        evaluated = self.status.take(event)
        for warning in self.status.warnings[self._warned :]:
            self.say(f"{self.title}: warning: {warning}")
        self._warned = len(self.status.warnings)
        if evaluated:
            self.say(line(self.title, self.status))

    def say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False)


def display_for(
    status: Status, title: str, console: Console, clock: Callable[[], float]
) -> LiveDisplay:
    """The display that fits the console."""
    if console.is_terminal:
        return TerminalDisplay(status, title, console, clock)
    return LineDisplay(status, title, console)


def _warning(event: Event) -> str:
    """What went wrong, and at which node, unless the words say so."""
    error, node = str(event["error"]), event.get("node")
    return error if not node or node in error else f"{node}: {error}"


def line(title: str, status: Status) -> str:
    """Put one evaluation in a line."""
    parts = [f"{title}: step {status.evaluated}/{status.total}", numbers(status)]
    if status.left_out:
        parts.append(f"left out {counted(status.left_out, status.recent)}")
    if status.silent:
        parts.append(f"silent {', '.join(status.silent)}")
    return ", ".join(part for part in parts if part)


def numbers(status: Status) -> str:
    """Show score, loss and pace, as far as they are known."""
    parts = []
    if status.score is not None:
        parts.append(f"{status.score.metric} {status.score.shown}")
    if status.loss is not None:
        parts.append(f"loss {status.loss:.3g}")
    if status.updates_per_s is not None:
        parts.append(f"{status.updates_per_s:.1f} updates/s")
    return ", ".join(parts)


def counted(counts: dict[str, int], among: int, most: int = 5) -> str:
    """The most frequent ones, in words: "worker-8 20×, worker-7 19× of 20"."""
    shown: Sequence[tuple[str, int]] = sorted(counts.items(), key=lambda item: -item[1])
    told = ", ".join(f"{name} {times}×" for name, times in shown[:most])
    more = f" and {len(shown) - most} others" if len(shown) > most else ""
    return f"{told}{more} of {among}"


def clock_time(seconds: float) -> str:
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
