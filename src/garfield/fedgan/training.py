"""A federated GAN from settings to a run directory: the loop behind `garfield fedgan train`.

    config.toml                       all settings
    metrics.jsonl                     an event a line: began, round, evaluated, done
    images/round-00000010.png         what the generator made of the same noise, over time
    clusters.json                     with --clusters: centroids, and what they are centroids of
    checkpoints/, weights/            as in `saved_weights.py`

Metrics *are* the history of rounds: who was asked and who took part is appended, never written
anew, and a resumed run reads it from there. Evaluations draw from seeds of their own and their
time is not that of rounds, so neither they nor an interruption changes what is learned.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from garfield.core.config import flattened, made, named, read_toml, settings_of, values_of
from garfield.core.errors import ConfigError, InputError, MissingDependency
from garfield.core.events import Event, Sink
from garfield.core.files import write_json
from garfield.core.types import Floats
from garfield.data import Dataset
from garfield.fedgan.averaging import State, check_alike
from garfield.fedgan.clustering import PublishedClusters
from garfield.fedgan.device import DeviceData
from garfield.fedgan.gan import Gan
from garfield.fedgan.image_data import FOLDER, clustered, dataset_for, devices_of
from garfield.fedgan.joining import Robust
from garfield.fedgan.judging import GeneratorEvaluation, judge_for
from garfield.fedgan.networks import gan_for
from garfield.fedgan.pictures import write_grid
from garfield.fedgan.saved_weights import Described, LearningStates, export
from garfield.fedgan.settings import FedganSettings, RecordSettings
from garfield.fedgan.simulation import Federation, simulated
from garfield.report.fedgan_summary import FedganHistory
from garfield.runs.recording import Recording
from garfield.runs.run_directory import RunDirectory

GRID = 64
"""Images of a grid."""
_LAST = "joining.last"  # what a rule remembers, beside the state
_WAITING = {
    "servers", "lease_s", "round_timeout_s", "late_devices", "join_timeout_s", "listen",
    "certificates",
}  # fmt: skip
"""Where processes are, and how long they are waited for."""
_MAY_CHANGE = {
    "rounds",
    "data_dir",
    *_WAITING,
    *named(settings_of(RecordSettings)),
    *named(settings_of(Recording)),
}


class Evaluation(Protocol):
    """Says how good a generator is, as numbers for metrics and summary."""

    def __call__(self, gan: Gan, generator: torch.nn.Module, *, last: bool) -> dict[str, Any]: ...


def train(
    settings: FedganSettings,
    directory: RunDirectory,
    tell: Sink,
    *,
    resume: bool = False,
    evaluation: Evaluation | None = None,
    kind: type[Training] | None = None,
) -> Federation:
    """Train as the settings say, and leave all of it in the directory.

    Images are judged as the settings say, unless another `evaluation` is given. Devices are
    simulated, unless `kind` says otherwise (`nodes.process_training`), and the directory tells so.
    """
    settings.recording.check()
    kind = kind or Training
    settings = replace(settings, simulate=kind.simulates)
    run = kind(settings, directory.path, evaluation)
    if resume:
        run.restore(directory)
    with ExitStack() as stack:
        stack.enter_context(directory)
        directory.open(values_of(settings), settings.recording.log)

        def heard(event: Event) -> None:
            directory.record(event)
            tell(event)

        run.run(heard, resumed=resume)
    return run.federation


class Training:
    """A federated GAN under way, all devices simulated."""

    simulates = True
    """What its directory says of devices."""
    published: PublishedClusters | None
    """What devices without labels count their images by."""

    def __init__(
        self, settings: FedganSettings, path: Path, evaluation: Evaluation | None = None
    ) -> None:
        self.settings, self.path = settings, path
        self.dataset: Dataset = dataset_for(settings)
        self.classes, self.published = self._classes()
        self.gan = gan_for(
            settings.gan, self.dataset.image,
            classes=len(self.classes) if settings.conditional else None,
        )  # fmt: skip
        self.federation = self._federation()
        self.server = self.federation.server
        self.checkpoints = LearningStates(path / "checkpoints")
        self.note = ""
        """Why nobody judges the images, if somebody should."""
        self.evaluation = evaluation or self._judge()
        self._whole: tuple[int, State, Floats | None] = (0, self.server.state, None)
        """Of the last round that is over: an interruption may come at any moment."""
        self._evaluated = -1

    def _classes(self) -> tuple[tuple[str, ...], PublishedClusters | None]:
        """The names of classes, or of clusters in their place, and how these are published."""
        if self.settings.population.clusters is None:
            self._devices = self._divided()
            return self.dataset.classes, None
        self._devices, published = clustered(self._divided(), self.settings)
        return published.names, published

    def _federation(self) -> Federation:
        return simulated(
            self.gan, self._devices, classes=len(self.classes), settings=self.settings,
            class_names=self.classes,
        )  # fmt: skip

    def _divided(self) -> list[DeviceData]:
        return devices_of(self.dataset, self.settings)

    def _judge(self) -> Evaluation | None:
        """The judge that the settings name; without its network, none if any would have done."""
        wanted = self.settings.record
        if wanted.judge == "none":
            return None
        weights = wanted.inception_weights
        try:
            judge = judge_for(
                self.dataset if self.settings.data.startswith(FOLDER) else self.settings.data,
                data_dir=self.settings.data_dir,
                features=wanted.judge,
                inception_weights=None if weights is None else Path(weights),
            )
        except MissingDependency as missing:
            if wanted.judge != "auto":
                raise
            self.note = f"Images are not judged. {missing}"
            return None
        return GeneratorEvaluation(
            judge, n=wanted.judged_images, seed=self.settings.training.seed,
            train_classifier=wanted.train_classifier and len(self.dataset.classes) > 1,
            labels_are_classes=self.settings.population.clusters is None,
        )  # fmt: skip

    def run(self, tell: Sink, *, resumed: bool) -> None:
        """Hold the rounds that are left; what is over is saved, however it ends."""
        if self.published is not None:
            write_json(self.path / "clusters.json", self.published.as_json())
        tell(self._began("resumed" if resumed else "began"))
        saved = self.server.round
        if resumed and self._is_time(self.settings.record.evaluate_every, saved - 1):
            self._evaluate(tell)  # unless that was done before it was broken off
        try:
            while (before := self.server.round) < self._last:
                self._hold(tell)
                if self._is_time(self.settings.record.evaluate_every, before):
                    self._evaluate(tell)
                if self._is_time(self.settings.record.checkpoint_every, before):
                    self.save()
                    saved = self.server.round
        finally:
            if self._whole[0] > saved:
                self.save()
        tell({"event": "done", "round": self.server.round, "note": self._ended()})

    @property
    def _last(self) -> int:
        """How many rounds there are: fewer than were asked for if no device is left for them."""
        return self.server.round if self.server.over else self.settings.training.rounds

    def _ended(self) -> str:
        """Why it has ended before its time; empty if it has not."""
        wanted, budget = self.settings.training.rounds, self.settings.privacy.dp_epsilon
        if self.server.round >= wanted or budget is None:
            return ""
        return (
            f"It ends after {self.server.round} of {wanted} rounds: too few devices are left that "
            f"can pay for another within their privacy budget of ε = {budget:g}."
        )

    def _is_time(self, every: int, before: int) -> bool:
        """Whether a multiple of `every`, or the end, was reached since that round."""
        now = self.server.round
        last = now == self._last
        return last or (every > 0 and now // every > before // every)

    def _hold(self, tell: Sink) -> None:
        """Hold a round, or wait for those that were held."""
        began = time.monotonic()
        record = self.federation.round()
        took = time.monotonic() - began
        moved = self.server.bytes_per_device()
        tell(
            record.as_event()
            | {
                "seconds": took, "bytes_per_device": float(moved.mean()),
                "most_bytes_of_a_device": int(moved.max()),
            }
        )  # fmt: skip
        # only now: no checkpoint may know of a round that the metrics do not
        last = self.server.joining.last if isinstance(self.server.joining, Robust) else None
        self._whole = (self.server.round, self.server.state, last)

    def _evaluate(self, tell: Sink) -> None:
        """Draw a grid of images, and have them judged if there is a judge."""
        began, number = time.monotonic(), self.server.round
        if number == self._evaluated:
            return
        path = Path("images") / f"round-{number:08}.png"
        write_grid(self.federation.images(GRID, seed=self.settings.training.seed), self.path / path)
        found: dict[str, Any] = {}
        if self.evaluation is not None:
            last = number == self._last
            found = self.evaluation(self.gan, self.federation.generator, last=last)
        took = time.monotonic() - began
        tell({"event": "evaluated", "round": number, "grid": str(path), "seconds": took, **found})

    # -- keeping ----------------------------------------------------------------------------

    def save(self) -> None:
        """Write a checkpoint of the last round that is over, and its weights."""
        number, state, last = self._whole
        kept: State = state if last is None else state | {_LAST: torch.from_numpy(last)}
        self.checkpoints.save(number, kept)
        about = Described(
            self.settings.gan, self.dataset.image, self.classes, self.settings.conditional, number,
        )  # fmt: skip
        export(self.path / "weights", state, about)

    def restore(self, directory: RunDirectory) -> None:
        """Go on from the newest checkpoint, with the history that the metrics hold.

        A run that was broken off before its first one begins anew.
        """
        self._refuse_other_settings(directory)
        if not self.checkpoints.saved():
            return
        number, found = self.checkpoints.newest()
        last: Tensor | None = found.pop(_LAST, None)
        if self.server.rules.keeps_optimizer:  # which is no part of a state before the first round
            like = self.server.state | {k: v for k, v in found.items() if "_optimizer." in k}
        else:
            like = self.server.state
        try:
            check_alike(found, like, "The checkpoint")
        except InputError as problem:
            raise ConfigError(f"{self.path} cannot be resumed: {problem}") from None
        past = FedganHistory.of(directory.events())
        rounds = past.rounds[:number]
        if [event["round"] for event in rounds] != list(range(number)):
            raise ConfigError(
                f"{directory.metrics} does not hold all {number} rounds before the checkpoint."
            )
        for event in rounds:
            self.federation.replay(event)
        self._evaluated = max((event["round"] for event in past.evaluations), default=-1)
        found = {name: found[name] for name in like}  # files sort them: vectors must not change
        self.server.state = found
        joining = self.server.joining
        if isinstance(joining, Robust) and last is not None:
            joining.last = last.numpy()
        self._whole = (number, found, None if last is None else last.numpy())

    def _refuse_other_settings(self, directory: RunDirectory) -> None:
        flat = flattened(read_toml(directory.config), settings_of(FedganSettings))
        before, now = values_of(made(FedganSettings, flat)), values_of(self.settings)
        # runs that were begun from Python did not say so once; only simulated ones have checkpoints
        before["simulate"] = bool(before["simulate"] or self.checkpoints.saved())
        for name, value in before.items():
            if now[name] != value and name not in _MAY_CHANGE:
                raise ConfigError(
                    f"{name} was {value!r} and cannot become {now[name]!r} in a resumed run. Begin "
                    "another run for that."
                )

    def _began(self, kind: str) -> Event:
        table = self.server.table
        return {
            "event": kind, "round": self.server.round, "gan": self.settings.gan,
            "data": self.settings.data, "devices": table.devices,
            "devices_a_round": self.server.rules.devices_a_round,
            "classes": list(self.classes), "per_class": table.per_class.tolist(),
            "state_bytes": self.server.state_bytes, "rounds": self.settings.training.rounds,
            "sampling": self.settings.training.sampling,
            "weighting": self.settings.training.weighting, "gar": self.settings.lies.gar,
            **self._privacy(),
            "clusters": None if self.published is None else self.published.key,
            "note": self.note,
        }  # fmt: skip

    def _privacy(self) -> dict[str, Any]:
        given, private = self.settings.privacy, self.federation.private
        if private is None:
            return {}
        return {
            "epsilon_budget": given.dp_epsilon, "delta": given.dp_delta, "clip": given.dp_clip,
            "noise": given.dp_noise, "spent": private.spent(),
        }  # fmt: skip
