"""`garfield demo`: what two liars do to averaging, and what they do to a robust rule."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from garfield.cli.exit_codes import FAILED, INTERRUPTED
from garfield.cli.shared import (
    AsJson,
    WholeNumber,
    console,
    default_directory,
    pictures_if_possible,
    print_error,
    print_json,
)
from garfield.cli.train import display_of

if TYPE_CHECKING:
    from garfield.apps.settings import Settings
    from garfield.launch.training import RunResult
    from garfield.report.comparison import Entry

STEPS = 100
LIARS = 2
WORKERS = 9


def demo(
    *,
    steps: Annotated[
        WholeNumber,
        Parameter(help="Updates of the model in each run.", validator=validators.Number(gte=2)),
    ] = STEPS,
    attack: Annotated[str, Parameter(help="What the liars do.")] = "reverse",
    out: Annotated[
        Path | None, Parameter(metavar="DIR", help="Where it is kept. (runs/DATE-TIME-demo)")
    ] = None,
    seed: Annotated[WholeNumber, Parameter(help="Fixes all randomness.")] = 0,
    as_json: AsJson = False,
) -> int | None:
    """Train three times on real data: averaging, averaging under attack, robust under attack.

    Each run is ten processes on this machine: a server and nine workers, two of which lie.
    """
    from garfield.launch.training import prepare, train
    from garfield.runs.run_directory import RunDirectory

    runs = _runs(steps, attack, seed)
    for settings in runs.values():
        prepare(settings)
    root = RunDirectory(out or default_directory("demo"))
    root.check_new()
    entries: dict[str, Entry] = {}
    for number, (label, settings) in enumerate(runs.items(), start=1):
        directory = RunDirectory(root.path / label.replace(" ", "-"))
        result = train(settings, directory, display_of(settings, f"{number}/3 {label}"))
        if result.interrupted:
            return INTERRUPTED
        if result.failure and not result.summary["diverged"]:
            print_error(result.failure)
            return FAILED
        entries[label] = _entry(label, settings, result)
    _show(list(entries.values()), root.path, as_json)
    return None


def _runs(steps: int, attack: str, seed: int) -> dict[str, Settings]:
    from garfield.apps.settings import Settings

    calm = Settings.of(
        app="vanilla", model="mnist_cnn", data="fashion-small", workers=WORKERS, steps=steps,
        evaluate_every=max(1, steps // 16), seed=seed,
    )  # fmt: skip
    attacked = calm.updated(byzantine_workers=LIARS, worker_attack=attack)
    robust = attacked.updated(app="ssmw", gar="multi-krum")
    return {"vanilla": calm, "vanilla attacked": attacked, "robust attacked": robust}


def _entry(label: str, settings: Settings, result: RunResult) -> Entry:
    from garfield.report.comparison import Entry

    rule = settings.rule_name.replace("average", "averaging")
    attack = settings.faults.worker_attack
    return Entry(
        label, settings.faults.byzantine_workers, attack, rule, result.summary, result.history.curve
    )


def _show(entries: list[Entry], path: Path, as_json: bool) -> None:
    from garfield.report.comparison import draw, sentences, table

    said = sentences(entries, WORKERS)
    picture = path / "demo.png"
    with pictures_if_possible():
        draw(entries, f"{LIARS} of {WORKERS} workers lie: who still learns?", picture)
    if as_json:
        print_json({"runs": [entry.summary for entry in entries], "findings": said})
        return
    out = console()
    out.print()
    out.print(table(entries))
    out.print()
    for sentence in said:
        out.print(sentence)
    out.print(f"The picture is {picture}; each run is kept beside it.", soft_wrap=True)
