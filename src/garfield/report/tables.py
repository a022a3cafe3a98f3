"""Tables for a terminal: rules, attacks, advice, and the state of the machine."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from rich.table import Table
from rich.text import Text

from garfield.attacks import Attack
from garfield.gars import Rule
from garfield.gars.advice import Advice
from garfield.report.machine import Kernels, Machine, Package, Speed
from garfield.report.plain_tables import plain_table


def rules_table(rules: Iterable[Rule]) -> Table:
    table = plain_table("rule", "needs n ≥", "cost", "choose it when")
    for rule in rules:
        _add(table, (rule.name, "bold"), bound(rule), rule.cost, rule.choose)
    return table


def attacks_table(
    attacks: Mapping[str, Attack], behaviours: Mapping[str, str], words: Mapping[str, str]
) -> Table:
    """One line per attack, its other names below it. Then what nodes do as nodes, and when."""
    table = plain_table("attack", "knows", "what it sends")
    for attack in {attack.name: attack for attack in attacks.values()}.values():
        knows = f"{attack.knows}, lies in the data" if attack.kind == "data" else attack.knows
        knows += ", and the rule" if attack.knows_rule else ""
        _add(table, (attack.name, "bold"), knows, formula(attack))
        for alias in aliases(attack, attacks):
            _add(table, (f"  = {alias}", "dim"), "", "")
    for name, what in behaviours.items():
        _add(table, (name, "bold"), "acts as a node", what)
    for name, what in words.items():
        _add(table, (name, "bold"), "says when", what)
    return table


def advice_table(advices: Sequence[Advice]) -> Table:
    """The admissible rules; the recommended one is marked."""
    table = plain_table("", "rule", "max f", "Δ", "time", "cost", "choose it when")
    for column in table.columns[2:5]:
        column.justify = "right"
    for advice in advices:
        if not advice.admissible:
            continue
        delta = "–" if advice.delta is None else f"{advice.delta:.2f}"
        time = "–" if advice.seconds is None else duration(advice.seconds)
        style = "bold green" if advice.recommended else ""
        cells = ("→" if advice.recommended else "", advice.rule, str(advice.max_f), delta, time)
        _add(table, *((cell, style) for cell in (*cells, advice.cost, advice.choose)))
    return table


def machine_table(machine: Machine, kernels: Kernels, packages: Sequence[Package]) -> Table:
    table = plain_table("", "", "")
    table.show_header = False
    memory = (
        "unknown" if machine.memory_bytes is None else f"{machine.memory_bytes / 2**30:.1f} GiB"
    )
    _add(table, "machine", machine.python, machine.platform)
    simd = ", ".join(machine.simd) or "unknown"
    _add(table, "", f"{machine.cores} cores, {memory}", f"SIMD: {simd}")
    state = ("load", "green") if kernels.loaded else ("do not load", "bold red")
    others = ", ".join(name for name in kernels.isas if name != kernels.isa)
    use = f"compiled, on all cores, with {kernels.isa}" + (f" (also: {others})" if others else "")
    _add(table, "kernels", state, kernels.problem or use)
    for package in packages:
        if package.version:
            _add(table, package.name, (package.version, "green"), f"for {package.gives}")
        else:
            remedy = f"for {package.gives}: {package.install}"
            _add(table, package.name, ("missing", "yellow"), remedy)
    return table


def speed_line(speed: Speed) -> str:
    ratios = ", ".join(f"{name} {x:.1f}×" for name, x in speed.ratios.items() if name != "average")
    return (
        f"Averaging reads {speed.mean_gb_per_s:.1f} GB/s "
        f"(n = {speed.n}, f = {speed.f}, d = {speed.d:,}, float32); in times of that: {ratios}."
    )


def bound(rule: Rule) -> str:
    """The smallest n as a formula in f, where it is a straight line."""
    at = [rule.needs(f) for f in range(4)]
    slope = at[1] - at[0]
    if any(after - before != slope for before, after in pairwise(at)):
        return ", ".join(f"{n} (f={f})" for f, n in enumerate(at))
    if slope == 0:
        return str(at[0])
    return f"{'' if slope == 1 else slope}f" + (f" + {at[0]}" if at[0] else "")


def formula(attack: Attack) -> str:
    """What an attack sends, in a line of its docstring: its own, or the one in its module's."""
    own = inspect.getdoc(attack.function)
    if own:
        return own.splitlines()[0]
    lines = (inspect.getdoc(inspect.getmodule(attack.function)) or "").splitlines()
    for line in lines:
        names, gap, what = line.strip().partition("  ")
        if gap and attack.name in names.split(", "):  # "    inf, nan    what a broken node sends"
            return what.strip()
    headline = lines[0] if lines else ""
    return headline.partition(": ")[2] or headline


def aliases(attack: Attack, attacks: Mapping[str, Attack]) -> list[str]:
    """The other names that an attack is registered under."""
    return [name for name, other in attacks.items() if other is attack and name != attack.name]


def duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.0f} µs"


def _add(table: Table, *cells: str | tuple[str, str]) -> None:
    """A row of plain or (text, style) cells, in which brackets mean nothing special."""
    table.add_row(*(Text(cell) if isinstance(cell, str) else Text(*cell) for cell in cells))
