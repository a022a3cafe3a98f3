"""A training that was run, opened again: its numbers, its curves, and the model that it trained.

run = garfield.TrainingRun.open("runs/2026-11-18-101500-ssmw")
run.summary["score"], run.frame().tail(), run.plot(), run.model()
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from garfield.apps.own_parts import held, model_named
from garfield.apps.settings import Settings
from garfield.core.errors import ConfigError, InputError, MissingDependency
from garfield.core.frameworks import require
from garfield.launch.assemble import dataset
from garfield.launch.own_objects import held_parts
from garfield.launch.settings_files import read_settings
from garfield.launch.training import roster_of, title
from garfield.report import plots
from garfield.report.run_history import RunHistory, read_history
from garfield.report.scores import shown
from garfield.runs.checkpoints import Checkpoints, read_checkpoint
from garfield.runs.run_directory import RunDirectory

_PER_STEP = ("communication_s", "aggregation_s", "gradients", "variance_ratio")


class TrainingRun:
    """What a training has left in its directory. Made by `garfield.train`, or by `open`."""

    def __init__(
        self, directory: Path, settings: Settings, parts: Mapping[str, Any] | None = None
    ) -> None:
        """`parts` are models and the like that only this process holds, by their names."""
        self.directory, self.settings = directory, settings
        self._parts = dict(parts or {})

    @classmethod
    def open(cls, directory: str | os.PathLike[str], *, model: Any = None) -> TrainingRun:
        """The run kept there, whoever ran it.

        `model` is the user's own again, where it lay in memory only: a class of a notebook, say.
        """
        kept = RunDirectory(Path(directory))
        kept.check_old()
        settings = read_settings(kept.config)
        return cls(kept.path, settings, held_parts({settings.learning.model: model}))

    def __repr__(self) -> str:
        summary = self.summary
        metric = summary.get("metric") or "accuracy"
        return (
            f"<run in {self.directory}: {metric} {shown(metric, summary.get('score'))} after "
            f"{summary['steps']} steps>"
        )

    @cached_property
    def summary(self) -> dict[str, Any]:
        """What came of the run, as its summary.json has it."""
        path = RunDirectory(self.directory).summary
        if not path.is_file():
            raise ConfigError(f"{self.directory} has no {path.name}: the run is not over.")
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    @cached_property
    def history(self) -> RunHistory:
        """All that the run's nodes have told."""
        events = RunDirectory(self.directory).events()
        return read_history(events, roster_of(self.settings))

    def frame(self) -> Any:
        """A pandas.DataFrame with a row a step; the score stands under its metric's name, in the
        steps that were evaluated."""
        try:
            from pandas import DataFrame
        except ImportError:
            raise MissingDependency(
                "Frames are made by pandas, which is not installed. "
                "Install it with: pip install 'garfield-ml[frames]'"
            ) from None
        rows: dict[int, dict[str, Any]] = {}
        for event in self.history.steps:
            told = {name: event[name] for name in _PER_STEP if name in event}
            rows[event["step"]] = {"step": event["step"], "time_s": event["time_s"], **told}
        for point in self.history.curve:
            row = rows.setdefault(point.step, {"step": point.step, "time_s": point.time_s})
            row |= {point.score.metric: point.score.value, "loss": point.loss}
        return DataFrame([rows[step] for step in sorted(rows)])

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """A matplotlib figure of the score over steps and over time, written to `path` if given."""
        if not self.history.curve:
            raise InputError(f"{self.directory} holds no evaluation to draw.")
        figure = plots.accuracy(self.history, title(self.settings))
        if path is not None:
            figure.savefig(path, dpi=130)
        return figure

    def model(self) -> Any:
        """The model, as the first honest server had it last: a module of its own class, in
        evaluation mode."""
        if self.settings.frameworks[0] != "torch":
            raise ConfigError("The model of a run with TensorFlow at its servers is not built yet.")
        require(["torch"])
        from garfield.adapters.torch_adapter import TorchAdapter

        laid, module = (self._new_module() for _ in range(2))
        saved = read_checkpoint(self._newest())
        adapter = TorchAdapter(laid)
        if saved.vector.size != adapter.size + adapter.tail:
            raise ConfigError(
                f"{self.directory} holds a model of {saved.vector.size} numbers, and "
                f"{self.settings.learning.model} has {adapter.size + adapter.tail} now."
            )
        adapter.write(saved.vector)
        module.load_state_dict(laid.state_dict())  # with memory of its own for every tensor
        return module.eval()

    def _new_module(self) -> Any:
        from garfield.models import build_model

        s, about = self.settings, self.summary
        with held(self._parts):
            if "input_shape" not in about:  # of a run before it was told
                data = dataset(s.samples, s.seed)
                about = {"classes": data.class_count, "input_shape": data.shape}
            shape = about["input_shape"]
            return build_model(
                model_named(s.learning.model), classes=about["classes"] or 1,
                channels=shape[0] if len(shape) == 3 else None, seed=s.seed,
            )  # fmt: skip

    def _newest(self) -> Path:
        """The newest checkpoint of the first honest server that has one."""
        checkpoints = Checkpoints(RunDirectory(self.directory).checkpoints)
        for name in self.settings.honest_servers:
            saved = checkpoints.saved(name)
            if saved:
                return saved[max(saved)]
        raise ConfigError(f"{self.directory} holds no checkpoint of a model.")
