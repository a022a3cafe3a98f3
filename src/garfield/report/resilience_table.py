"""The table of errors for a terminal: attacks down, rules across.

Where the terminal is too narrow for all rules, the table is cut into several
with the attacks repeated. A mark beside each number says what its colour says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from garfield.report.findings import shown, worst
from garfield.report.resilience import FAIR, GOOD, Cell, Resilience, grade

_MARKS = {"good": "", "fair": "~", "bad": "✗"}
_STYLES = {"good": "green", "fair": "yellow", "bad": "bold red"}
_GAP = 2  # columns of air between two rules


def resilience_tables(result: Resilience, width: int) -> Iterator[Table]:
    """Make as many tables as it takes for `width` columns."""
    columns = {rule: _column(result, rule) for rule in result.rules}
    first = max(len(attack) for attack in [*result.attacks, "worst"])
    part: list[str] = []
    used = first
    for rule, cells in columns.items():
        wide = _GAP + max(len(line) for cell in cells for line in cell.plain.split("\n"))
        if part and used + wide > width:
            yield _table(result, {name: columns[name] for name in part})
            part, used = [], first
        part.append(rule)
        used += wide
    yield _table(result, {name: columns[name] for name in part})


def caption(result: Resilience) -> str:
    """What the numbers are."""
    rounds = "one round" if result.rounds == 1 else f"middle of {result.rounds} rounds"
    return (
        f"|aggregate − honest mean| / |honest mean|, {rounds}; n = {result.n} workers, "
        f"f = {result.f} of them attackers, d = {result.d:,} parameters. 0 is perfect, 1 is not "
        f"moving at all. Green: below {GOOD:g}; yellow and ~: below {FAIR:g}; red and ✗: {FAIR:g} "
        "or more."
    )


def _column(result: Resilience, rule: str) -> list[Text]:
    """Heading, one cell per attack, and the worst of them."""
    cells = result.of(rule)
    heading = Text(_broken(rule), style="bold", justify="right")
    most = worst(result, rule)
    if most is None:
        note = next(iter(cells.values())).note  # "needs n ≥ 15"
        heading.append("\n" + note.replace("needs ", "needs\n"), style="dim")
    body = [_cell(cells[attack]) for attack in result.attacks]
    return [heading, *body, Text("·", style="dim") if most is None else _graded(most[1])]


def _cell(cell: Cell) -> Text:
    return Text("·", style="dim") if cell.error is None else _graded(cell.error)


def _graded(error: float) -> Text:
    how = grade(error)
    return Text(shown(error) + _MARKS[how], style=_STYLES[how])


def _broken(name: str) -> str:
    """A long name on several lines, at its joints."""
    return name.replace("-", "-\n").replace("+", "+\n").replace("(", "\n(")


def _table(result: Resilience, columns: dict[str, Sequence[Text]]) -> Table:
    padding = (0, 0, 0, _GAP - 1)  # on the left; the box itself puts one more between columns
    table = Table(box=box.SIMPLE_HEAD, padding=padding, pad_edge=False, show_edge=False)
    table.add_column(Text("attack", style="bold"), no_wrap=True)
    for heading, *_ in columns.values():
        table.add_column(heading, justify="right", no_wrap=True, vertical="bottom")
    last = len(result.attacks) - 1
    for i, attack in enumerate(result.attacks):
        cells = [column[1 + i] for column in columns.values()]
        table.add_row(attack, *cells, end_section=i in (0, last))
    table.add_row(Text("worst", style="bold"), *(column[-1] for column in columns.values()))
    return table
