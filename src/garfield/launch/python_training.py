"""`garfield.train`: a whole training by one call, with a model and data of one's own.

run = garfield.train(model=Net, data=(x, y, x_test, y_test), gar="nnm+trimmed-mean",
                     workers=20, byzantine_workers=4, worker_attack="little-is-enough",
                     simulate=True)
run.summary["score"], run.frame(), run.model(), run.plot()
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from multiprocessing import current_process
from pathlib import Path
from typing import Any

from garfield.apps.own_parts import held
from garfield.apps.settings import Settings
from garfield.core.errors import ConfigError, RunError
from garfield.kernels import parallel
from garfield.launch.assemble import forget_data
from garfield.launch.displays import QuietDisplay, display_of
from garfield.launch.own_objects import OwnObjects
from garfield.launch.settings_files import read_settings
from garfield.launch.training import RunResult, prepare, resumption
from garfield.launch.training import train as run_training
from garfield.launch.training_run import TrainingRun
from garfield.runs.run_directory import RunDirectory, new_path
from garfield.runs.user_files import being_loaded


def train(
    *,
    model: Any = None,
    data: Any = None,
    loss: Any = None,
    metric: Any = None,
    optimizer: Any = None,
    out: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    progress: bool = True,
    **settings: Any,
) -> TrainingRun:
    """Train a model, and return what came of it; the same as `garfield train`.

    `model` is a registered name, `"mine.py:Net"`, a class of torch.nn.Module or a function that
    makes one: every node makes its own, from the same seed. A module that exists already is
    copied, and training starts from its weights; it stays as it is itself. `data` is a registered
    name, a source (`"data.npz"`, `"folder:DIR"`, `"hf:DIR"`), (x, y) or (x, y, x_test, y_test) as
    arrays or tensors, or a function that returns these. `loss` and `metric` are functions of
    outputs and targets, `optimizer` a class of torch.optim or a function of parameters; all three
    may be names. `out` is where the run is kept, `resume` a run to go on with, `threads` those of
    each process. All other keywords are settings of `garfield train`, by their names.

    A model that has diverged is a result (`run.summary["diverged"]`); a run that cannot go on
    raises RunError. Ctrl-C ends it in good order, to be resumed, and then raises KeyboardInterrupt.
    """
    _refuse_import()
    own = OwnObjects()
    for part, given in (
        ("model", model), ("loss", loss), ("metric", metric), ("optimizer", optimizer),
    ):  # fmt: skip
        if given is not None:
            own.take(part, given)
    base = Settings() if resume is None else read_settings(_kept(Path(resume)).config)
    wanted = base.updated(**settings)
    if data is not None:
        own.take_data(data, wanted.seed)
    wanted = _named(wanted, own, None if resume is None else base)
    if not wanted.simulate:
        own.refuse_unfindable()
    try:
        with held(own.parts), _own_threads():
            return _trained(wanted, base, own, out, resume, threads, progress)
    finally:
        forget_data()  # what was held is the caller's, and may be another next time


def _trained(
    wanted: Settings,
    base: Settings,
    own: OwnObjects,
    out: str | os.PathLike[str] | None,
    resume: str | os.PathLike[str] | None,
    threads: int | None,
    progress: bool,
) -> TrainingRun:
    ready = prepare(wanted)
    directory = RunDirectory(Path(resume or out or new_path(ready.app)))
    checkpoints = None
    if resume is not None:
        checkpoints = resumption(ready, directory, base)
    else:
        directory.check_new()
        if not ready.simulate and (written := own.written(directory.path)) is not None:
            ready = ready.updated(data=written)
    threads = threads or ((os.cpu_count() or 1) if ready.simulate else 1)
    display = display_of(ready) if progress else QuietDisplay()
    result = run_training(ready, directory, display, checkpoints=checkpoints, threads=threads)
    _raise_failure(result, directory.path)
    return TrainingRun(directory.path, ready, own.parts)


def _raise_failure(result: RunResult, path: Path) -> None:
    if result.interrupted:
        raise KeyboardInterrupt(f"Interrupted. Go on with: garfield.train(resume={str(path)!r})")
    if result.failure and not result.history.diverged:
        raise RunError(f"{result.failure} What it left is in {path}.") from result.error


def _named(wanted: Settings, own: OwnObjects, before: Settings | None) -> Settings:
    """The settings with the names of what was handed over.

    Data that a resumed run keeps as files are taken from there, if they are the same.
    """
    names = dict(own.names)
    if before is not None and "data" in names:
        kept = before.samples.data
        if names["data"].startswith("memory:") and kept.endswith(names["data"].partition(":")[2]):
            names["data"] = kept
    return wanted.updated(**names)


def _kept(path: Path) -> RunDirectory:
    directory = RunDirectory(path)
    directory.check_old()
    return directory


def _refuse_import() -> None:
    """Refuse to train while a script is imported: by its own nodes, to find its model."""
    file = being_loaded()
    if file is None and not getattr(current_process(), "_inheriting", False):
        return
    raise ConfigError(
        f"garfield.train is called while {file or 'the script'} is imported, which every node does "
        'to find its model. Put the call under: if __name__ == "__main__":'
    )


@contextmanager
def _own_threads() -> Iterator[None]:
    """Leave torch and the kernels with as many threads as they had, and torch's random state."""
    with ExitStack() as after:
        after.callback(parallel.set_threads, parallel.limit())
        if find_spec("torch") is not None:
            import torch

            after.callback(torch.set_num_threads, torch.get_num_threads())
            after.enter_context(torch.random.fork_rng(devices=[]))
        yield
