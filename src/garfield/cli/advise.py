"""`garfield advise`: which rule for these numbers, with its cost measured here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from garfield.cli.shared import AsJson, WholeNumber, console, print_json, progress

if TYPE_CHECKING:
    from garfield.gars.advice import Advice


def advise(
    *,
    n: Annotated[WholeNumber, Parameter(help="Vectors to aggregate, faulty ones included.")],
    f: Annotated[WholeNumber, Parameter(help="Faults to tolerate among them.")],
    d: Annotated[WholeNumber, Parameter(help="Parameters of the model.")],
    as_json: AsJson = False,
) -> None:
    """Say which rules n, f and d allow, what each costs here, and which one to take."""
    from rich.text import Text

    from garfield.gars import advice
    from garfield.report.speed import columns_timed

    admissible = [about.rule for about in advice.advise(n, f, d) if about.admissible]
    advices = advice.advise(n, f, d, _measured(admissible, n, f, d))
    pick, reason = advice.recommend(n, f, d)
    if as_json:
        told = {"recommended": pick, "reason": reason, "columns_timed": columns_timed(n, d)}
        print_json({"n": n, "f": f, "d": d, **told, "rules": advices})
        return
    _show(advices, f"n = {n}, f = {f}, d = {d:,}. Time of one aggregation: {_how(n, d)}")
    console().print(Text.assemble((f"Advised: {pick or 'none'}.", "bold"), f" {reason}"))


def _measured(names: list[str], n: int, f: int, d: int) -> dict[str, float]:
    from garfield.gars import GARS
    from garfield.report.speed import time_rules

    seconds = {}
    with progress() as bar:
        task = bar.add_task("timing the rules here", total=len(names))
        for name, taken in time_rules([GARS[name] for name in names], n, f, d):
            bar.advance(task)
            if taken is not None:
                seconds[name] = taken
    return seconds


def _how(n: int, d: int) -> str:
    """Where the times come from."""
    from garfield.report.speed import MOST_ROWS, columns_timed

    if n > MOST_ROWS:
        return f"not measured for more than {MOST_ROWS} rows"
    columns = columns_timed(n, d)
    how = f"measured here on random float32 rows of {columns:,} columns"
    return how if columns == d else f"{how} or less, and scaled to d in a straight line"


def _show(advices: list[Advice], caption: str) -> None:
    from rich.text import Text

    from garfield.report.tables import advice_table

    out = console()
    if any(about.admissible for about in advices):
        out.print(advice_table(advices))
        out.print(
            f"{caption}. Δ (equation 3.13): honest gradients may deviate by |∇L| / Δ, so smaller "
            "is better. –: not known, or not measured.\n",
            style="dim",
        )
    left_out = [f"{about.rule} ({about.why})" for about in advices if not about.admissible]
    if left_out:
        out.print(Text.assemble(("Not for these numbers:", "bold"), f" {', '.join(left_out)}."))
