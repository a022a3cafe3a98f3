"""The model that a run has trained, as a file of named tensors that needs none of this library.

    module.load_state_dict(safetensors.torch.load_file("model.safetensors"))          # torch
    for v in model.weights: v.assign(safetensors.numpy.load_file(...)[v.path])        # Keras

A checkpoint holds by name what nodes exchange, and a model may hold more, such as counts of the
batches that it has seen: so it is built again from the run's settings, given the checkpoint's
vector, and asked for its whole state by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from garfield.apps.settings import Settings
from garfield.core.errors import ConfigError, MissingDependency, UnknownName
from garfield.core.files import replacing
from garfield.core.version import VERSION
from garfield.launch.assemble import new_adapter
from garfield.launch.node_checkpoints import NodeCheckpoints
from garfield.runs.checkpoints import read_checkpoint
from garfield.runs.run_directory import RunDirectory


@dataclass(frozen=True)
class Exported:
    """What was written, and of whom."""

    path: str
    server: str
    step: int
    tensors: int
    numbers: int


def export_model(
    settings: Settings, directory: RunDirectory, path: Path, server: str | None = None
) -> Exported:
    """Write the newest model of a run, as it would be resumed, or of one of its servers."""
    try:
        from safetensors.numpy import save_file
    except ImportError:
        raise MissingDependency(
            "Named tensors are written as safetensors, which is not installed. "
            "Install it with: pip install 'garfield-ml[train]'"
        ) from None
    if server is not None and server not in settings.server_names:
        raise UnknownName("a server of this run", server, settings.server_names)
    honest = settings.honest_servers if server is None else (server,)
    doubted = settings.application.doubted(settings) if server is None else 0
    found = NodeCheckpoints(directory.checkpoints).resumed(honest, honest, doubted).start
    saved = read_checkpoint(found.files[honest[0]])
    adapter = new_adapter(settings, settings.framework_of(honest[0]), optimizer=False)
    if saved.vector.size != adapter.size + adapter.tail:
        raise ConfigError(
            f"The checkpoint of {honest[0]} holds {saved.vector.size} numbers, and the model of "
            f"the run's settings has {adapter.size + adapter.tail}."
        )
    adapter.write(saved.vector)
    tensors = dict(adapter.tensors())
    about = {
        "app": settings.app, "model": settings.learning.model, "data": settings.samples.data,
        "framework": settings.framework_of(honest[0]), "server": honest[0],
        "step": str(saved.step), "garfield": VERSION,
    }  # fmt: skip
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            save_file(tensors, partial, metadata=about)
    except OSError as problem:
        raise ConfigError(f"{path} cannot be written: {problem.strerror or problem}.") from None
    count = sum(tensor.size for tensor in tensors.values())
    return Exported(str(path), honest[0], saved.step, len(tensors), count)
