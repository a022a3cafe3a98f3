"""κ found by search beside what is proven, for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from garfield.gars.robustness import Kappa
from garfield.report.plain_tables import plain_table


def kappa_table(found: Iterable[Kappa]) -> Table:
    """One line per rule, the smallest κ first."""
    table = plain_table()
    table.add_column("rule", style="bold", no_wrap=True)
    for heading in ("n", "f", "κ found", "κ by an attack", "κ proven ≤"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("found by")
    for each in sorted(found, key=lambda kappa: kappa.found):
        proven = "not known" if each.theory is None else number(each.theory.kappa)
        numbers = (str(each.n), str(each.f), number(each.found), number(each.by_attack), proven)
        table.add_row(*(Text(cell) for cell in (each.rule, *numbers, each.by)))
    return table


def kappa_caption(found: Sequence[Kappa]) -> str:
    """Explain what the numbers are, and where the proofs stand."""
    told = (each.theory.source.split("; ") for each in found if each.theory)
    sources = dict.fromkeys(source for several in told for source in several)
    proven = f" Proven: {'; '.join(sources)}." if sources else ""
    return (
        "|answer − honest mean|² ≤ κ · mean squared deviation of the honest, whatever f others "
        f"say: smaller is better, and none can be below {number(found[0].least)} (f/(n − 2f)). "
        f"Found: the worst rows of a search, so the rule's own κ is no smaller.{proven}"
    )


def kappa_json(found: Kappa) -> dict[str, Any]:
    """Everything about it, the rows that show it included; an infinite κ is null, and said."""
    theory = found.theory and {"kappa": found.theory.kappa, "source": found.theory.source}
    return {
        "rule": found.rule, "n": found.n, "f": found.f, "kappa": found.found,
        "unbounded": found.found == math.inf, "by": found.by,
        "attack": {"kappa": found.by_attack, "by": found.attack}, "theory": theory,
        "least": found.least, "calls": found.calls, "rows": found.rows.tolist(),
        "honest": list(found.honest),
    }  # fmt: skip


def number(kappa: float) -> str:
    """A κ in three digits."""
    return "∞" if kappa == math.inf else f"{kappa:.3g}"
