"""Reproduce a figure or table: run what its recipe says, and set its numbers beside ours.

A recipe (`report/recipes.py`) holds simulated trainings, benchmarks, or both. Trainings run in
this process, so that an installed package reproduces accuracies; benchmarks are programs of the
repository's folder `benchmarks`, and need a clone of it. Whatever is done is kept in the folder
given, under its own settings, and not done again:

    cells/            a file for each simulated training
    NAME.json         what a benchmark found, and runs.json what all trainings did
    *.png             the pictures
    reproduced.json   the source's numbers beside ours, and on which machine
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from garfield.apps.settings import Settings
from garfield.core.errors import ConfigError, MissingDependency, RunError
from garfield.core.files import as_json, write_json
from garfield.launch.simulate import simulate
from garfield.report.machine import machine, processor
from garfield.report.recipe_pictures import draw_recipe
from garfield.report.recipe_runs import Cell, Runs, Trained, curves, finals
from garfield.report.recipes import RUNS, Recipe, Step, compared
from garfield.report.summary import versions
from garfield.runs.process import keep_heap, use_threads

Say = Callable[[str], None]
_HERE = Path(__file__).resolve()
_SHIPPED = _HERE.parents[1] / "recipes"


def clone() -> Path | None:
    """The repository that this file lies in, or else that of the working directory."""
    roots = (_HERE.parents[3], Path.cwd())
    return next((root for root in roots if (root / "benchmarks" / "__main__.py").is_file()), None)


def recipes_folder() -> Path:
    """Where recipes lie: in a clone its own, else those that were installed."""
    root = clone()
    return _SHIPPED if root is None else root / "recipes"


@dataclass(frozen=True)
class Reproduction:
    """One recipe in one folder, in its full or its quick form."""

    recipe: Recipe
    folder: Path
    quick: bool = False
    fresh: bool = False
    """Do again what is kept."""
    threads: int = 1
    """For simulated trainings; they end at the same bits for any number."""

    def check(self) -> None:
        """Refuse what cannot be run here, before anything starts or is written."""
        if self.recipe.commands(quick=self.quick) and clone() is None:
            raise ConfigError(
                f"{self.recipe.name} measures with the repository's folder benchmarks, which an "
                "installed package does not hold. Run it inside a clone of the repository."
            )
        if self.recipe.runs:
            for cell in self.recipe.runs.cells(quick=self.quick):
                settings_of(cell)

    def run(self, say: Say) -> None:
        """Do what is not done yet."""
        self.check()
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.recipe.runs:
            self._train(self.recipe.runs, say)
        for step in self.recipe.commands(quick=self.quick):
            self._measure(step, say)

    def result(self, say: Say) -> dict[str, Any]:
        """Set the source's numbers beside ours, and draw; what reproduced.json holds."""
        drawn: list[Path] = []
        if self.folder.is_dir():
            try:
                drawn = draw_recipe(self.recipe, self.folder, self.folder)
            except MissingDependency as missing:
                say(str(missing))
        found = {
            "recipe": self.recipe.name, "title": self.recipe.title, "source": self.recipe.source,
            "rows": compared(self.recipe, self.folder), "differs": self.recipe.differs,
            "pictures": [path.name for path in drawn], "quick": self.quick,
            "cpu": processor(), "machine": asdict(machine()), "versions": versions(),
            "when": time.strftime("%Y-%m-%d %H:%M:%S%z"),
        }  # fmt: skip
        if self.folder.is_dir():
            write_json(self.folder / "reproduced.json", found)
        return found

    def _train(self, runs: Runs, say: Say) -> None:
        cells = runs.cells(quick=self.quick)
        clock, found = _TimeLeft(), []
        for number, cell in enumerate(cells, start=1):
            trained, new = self._cell(cell)
            found.append((cell, trained))
            if new:
                left = clock.after(trained.seconds, len(cells) - number)
                broke = f", ended early: {trained.ended}" if trained.ended else ""
                say(
                    f"{number} of {len(cells)}: {cell.name}, seed {cell.seed}: "
                    f"{trained.accuracy:.1%} in {trained.seconds:.0f} s{broke}{left}"
                )
        target = runs.target_of(quick=self.quick)
        lists = {"final": finals(found, target), "curve": curves(found)}
        write_json(self.folder / f"{RUNS}.json", {"target": target, "results": lists})

    def _cell(self, cell: Cell) -> tuple[Trained, bool]:
        """What the cell came to, and whether it was run for that now."""
        settings = settings_of(cell)
        used = json.loads(as_json(_told(settings)))
        path = self.folder / "cells" / f"{_digest(used)}.json"
        if path.exists() and not self.fresh:
            return Trained(**json.loads(path.read_text("utf-8"))["found"]), False
        trained = train_cell(settings, self.threads)
        path.parent.mkdir(exist_ok=True)
        write_json(path, {"cell": cell.name, "settings": used, "found": trained})
        return trained, True

    def _measure(self, step: Step, say: Say) -> None:
        """Run a benchmark where the repository is, and keep what it left."""
        root = clone()
        assert root is not None  # check() has seen it
        note = self.folder / f".{step.name}.words"
        kept = self.folder / f"{step.name}.json"
        words = " ".join(step.words)
        if kept.exists() and note.exists() and note.read_text("utf-8") == words and not self.fresh:
            return
        say(f"$ python -m {words}")
        done = subprocess.run(
            [sys.executable, "-m", *step.words], cwd=root, check=False, stdout=sys.stderr,
            env={**os.environ, "PYTHONPATH": _with(root)},
        )  # fmt: skip
        if done.returncode:
            raise RunError(f"python -m {words} ended with {done.returncode}.")
        shutil.copyfile(root / "results" / f"{step.benchmark}.json", kept)
        note.write_text(words, "utf-8")


def settings_of(cell: Cell) -> Settings:
    """The settings of a cell, checked; ConfigError names the cell."""
    try:
        return Settings.of(simulate=True, **cell.values).check()
    except ConfigError as problem:
        raise ConfigError(f"{cell.name}: {problem}") from None


def train_cell(settings: Settings, threads: int) -> Trained:
    """Train in this process, on a virtual clock."""
    keep_heap()
    use_threads(1, settings.frameworks)  # gradients are computed side by side instead
    events: list[Any] = []
    ended, began = None, time.perf_counter()
    try:
        simulate(settings, events.append, threads=threads)
    except RunError as problem:
        ended = str(problem)
    diverged = (event["error"] for event in events if event["event"] == "diverged")
    steps = [event for event in events if event["event"] == "step"]
    last = steps[-1] if steps else {"step": 0, "bytes_received": 0, "computed": 0}
    done = max(1, last["step"])
    return Trained(
        curve=[(event["step"], event["accuracy"]) for event in events if "accuracy" in event],
        ended=ended or next(diverged, None),
        bytes_per_step=last["bytes_received"] / done,
        gradients_per_step=last["computed"] / done,
        seconds=time.perf_counter() - began,
    )


class _TimeLeft:
    """Guesses from the cells that were run how long the others will take."""

    def __init__(self) -> None:
        self._took_s: list[float] = []

    def after(self, took_s: float, left: int) -> str:
        self._took_s.append(took_s)
        guess_s = left * sum(self._took_s) / len(self._took_s)
        return f"; about {guess_s / 60:.0f} min left" if guess_s > 60 else ""


def _told(settings: Settings) -> dict[str, Any]:
    """What a cell is kept under: all that was chosen, and the rules, whose defaults may change."""
    usual = Settings().values()
    chosen = {
        name: value
        for name, value in settings.values().items()
        if name != "data_dir" and value != usual.get(name)
    }
    return {**chosen, "app": settings.app, "gar": settings.rule_name}


def _digest(used: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(used, sort_keys=True).encode()).hexdigest()[:16]


def _with(root: Path) -> str:
    """The module search path of a benchmark: the clone's own sources come first."""
    there = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(root / "src"), str(root), *([there] if there else [])])
