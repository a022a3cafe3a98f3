"""Timing: when a liar speaks, to whom, and in which phases of a round.

A plan's text says what, then when: ``reverse, withhold(from=server-1|server-2), late(s=0.05)``.

    withhold(from=a|b, kind=k)   never answers these askers, nor anybody else for these kinds
    never                        answers nobody
    only(to=a|b)                 lies to these alone; the others are told the truth, at once
    phase(kind=k)                acts for these kinds alone; all else is the truth, at once
    first                        lies before it can know: about a step that it has not seen yet
    last(share=0.9)              keeps each answer back for this share of the askers' time-out
    late(s=0.05)                 keeps each answer back for so many seconds
    alternate(every=2)           is silent in every so manieth step
    ahead(by=1000)               claims to be so many steps further on than it is
    redrawn                      who lies is drawn anew each step, f of the workers

Whom `only` leaves out may still be named by `withhold`. Everything here is a function of asker,
key and clock-free numbers: what is said now does not depend on what was said before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from garfield.core.errors import ConfigError, UnknownName
from garfield.transport.contract import Key, kind_named


class Speech(Enum):
    """What an asker is told."""

    LIE = "lie"
    TRUTH = "truth"
    NOTHING = "nothing"


@dataclass(frozen=True)
class Withheld:
    """Answers that never come: to these askers, for these kinds; an empty set is all."""

    askers: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()

    def covers(self, asker: str, kind: str) -> bool:
        """Whether this asker gets no vector of that kind."""
        return asker in (self.askers or {asker}) and kind in (self.kinds or {kind})


@dataclass(frozen=True)
class Timing:
    """When a liar acts. Without any of it: always, at once, towards everybody."""

    withheld: tuple[Withheld, ...] = ()
    only: frozenset[str] = frozenset()
    """The askers that are lied to; empty for all."""
    phases: frozenset[str] = frozenset()
    """The kinds of vectors for which it acts; empty for all."""
    first: bool = False
    """Answers for steps that it has not reached, from what it knew last."""
    late_s: float = 0.0
    """Seconds to keep an answer back."""
    late_share: float = 0.0
    """And so much of the askers' time-out."""
    every: int = 0
    """Silent in every so manieth step; 0 for none."""
    ahead: int = 0
    """How many steps further on it claims to be."""
    redrawn: bool = False
    """Who lies is drawn anew each step."""

    def speech(self, asker: str, key: Key) -> Speech:
        """What this asker is told under this key, by one whose turn to lie it is."""
        if not self.acts_on(key.kind):
            return Speech.TRUTH
        if any(each.covers(asker, key.kind) for each in self.withheld):
            return Speech.NOTHING
        if asker not in (self.only or {asker}):
            return Speech.TRUTH
        silent = self.every > 0 and key.step % self.every == self.every - 1
        return Speech.NOTHING if silent else Speech.LIE

    def acts_on(self, kind: str) -> bool:
        """Whether vectors of that kind are lied about, or timed, at all."""
        return kind in (self.phases or {kind})

    def after_s(self, timeout_s: float) -> float:
        """Seconds to keep an answer back from an asker that waits for so long."""
        return self.late_s + self.late_share * timeout_s

    @property
    def askers(self) -> frozenset[str]:
        """Everybody whom it names."""
        return self.only.union(*(each.askers for each in self.withheld))

    @property
    def truthful(self) -> bool:
        """Whether somebody may be told the truth of something."""
        return bool(self.only or self.phases or self.redrawn)


ALWAYS = Timing()
"""Lies to everybody about everything, at once."""


# -- from text ------------------------------------------------------------------------------------


def _names(value: str) -> frozenset[str]:
    return frozenset(name.strip() for name in value.split("|") if name.strip())


def _kinds(value: str) -> frozenset[str]:
    return frozenset(kind_named(name).name for name in _names(value))


def _withhold(timing: Timing, given: Mapping[str, str]) -> Timing:
    told = Withheld(_names(given.get("from", "")), _kinds(given.get("kind", "")))
    if told == Withheld():
        raise ConfigError("withhold needs from=, kind= or both. To answer nobody, say never.")
    return replace(timing, withheld=(*timing.withheld, told))


def _never(timing: Timing, given: Mapping[str, str]) -> Timing:
    return replace(timing, withheld=(*timing.withheld, Withheld()))


def _only(timing: Timing, given: Mapping[str, str]) -> Timing:
    return replace(timing, only=_some("only(to=server-0)", _names(given.get("to", ""))))


def _phase(timing: Timing, given: Mapping[str, str]) -> Timing:
    return replace(timing, phases=_some("phase(kind=proposal)", _kinds(given.get("kind", ""))))


def _first(timing: Timing, given: Mapping[str, str]) -> Timing:
    return replace(timing, first=True)


def _last(timing: Timing, given: Mapping[str, str]) -> Timing:
    return replace(timing, late_share=_number("last.share", given.get("share", "0.9"), 0, 1))


def _late(timing: Timing, given: Mapping[str, str]) -> Timing:
    return replace(timing, late_s=_number("late.s", given.get("s", "0.05"), 0, 3600))


def _alternate(timing: Timing, given: Mapping[str, str]) -> Timing:
    return replace(timing, every=_whole("alternate.every", given.get("every", "2"), 1))


def _ahead(timing: Timing, given: Mapping[str, str]) -> Timing:
    return replace(timing, ahead=_whole("ahead.by", given.get("by", "1000"), 0))


def _redrawn(timing: Timing, given: Mapping[str, str]) -> Timing:
    return replace(timing, redrawn=True)


def _some(example: str, found: frozenset[str]) -> frozenset[str]:
    if not found:
        raise ConfigError(f"{example.partition('(')[0]} names nobody. Write it like {example}.")
    return found


def _number(name: str, value: str, least: float, most: float) -> float:
    try:
        number = float(value)
    except ValueError:
        raise ConfigError(f"{name} must be a number, got {value!r}.") from None
    if not least < number <= most:
        raise ConfigError(f"{name} must be above {least:g} and at most {most:g}, got {value}.")
    return number


def _whole(name: str, value: str, least: int) -> int:
    number = _number(name, value, least, 2**31)
    if number != int(number):
        raise ConfigError(f"{name} must be a whole number, got {value}.")
    return int(number)


@dataclass(frozen=True)
class Term:
    """One word about time: what it means, its parameters, and what it changes."""

    about: str
    parameters: tuple[str, ...]
    apply: Callable[[Timing, Mapping[str, str]], Timing]


TERMS: Mapping[str, Term] = {
    "withhold": Term(
        "never answers some, as in withhold(from=server-1), or not for withhold(kind=proposal)",
        ("from", "kind"),
        _withhold,
    ),
    "never": Term("answers nobody", (), _never),
    "only": Term("lies to these alone, as in only(to=server-0|server-1)", ("to",), _only),
    "phase": Term("acts for these kinds of vectors alone: phase(kind=proposal)", ("kind",), _phase),
    "first": Term("lies before it can know: about a step that it has not reached", (), _first),
    "last": Term(
        "keeps answers back for 0.9 of the time-out, or last(share=0.5)", ("share",), _last
    ),
    "late": Term("keeps answers back for 50 ms, or late(s=0.2)", ("s",), _late),
    "alternate": Term("is silent every other step, or alternate(every=9)", ("every",), _alternate),
    "ahead": Term("claims to be 1000 steps further on, or ahead(by=2)", ("by",), _ahead),
    "redrawn": Term("who lies is drawn anew each step: f of the workers", (), _redrawn),
}


def timed(timing: Timing, name: str, inside: str) -> Timing:
    """The timing with one term more: its name, and its parameters as they were written."""
    term, given = TERMS[name], {}
    for part in filter(None, (part.strip() for part in inside.split(","))):
        parameter, equals, value = (word.strip() for word in part.partition("="))
        if not equals:
            raise ConfigError(f"{name}({inside}) is not understood. Write parameters as key=value.")
        if parameter not in term.parameters:
            raise UnknownName(f"a parameter of {name}", parameter, term.parameters)
        given[parameter] = value
    return term.apply(timing, given)
