"""Files of a run that is resumed: its metrics, and its checkpoints."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from garfield.core.errors import ConfigError
from garfield.core.files import as_json
from garfield.report.node_summary import summarise_node
from garfield.report.run_history import Roster, read_history
from garfield.report.summary import summarise
from garfield.report.summary_table import summary_table
from garfield.runs.checkpoints import SUFFIX, Checkpoint, Checkpoints, read_checkpoint
from garfield.runs.run_directory import RunDirectory
from tests.fuzz.target import bent, fuzzed

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where files are written in no time: each of these is flushed to its disk."""

SUMS = {"bytes_sent": 9, "bytes_received": 9}
STEP = {
    "event": "step", "node": "server-0", "step": 1, "time_s": 0.5, "communication_s": 0.1,
    "aggregation_s": 0.1, "accuracy": 0.5, "loss": None, "gradients": 2, "trusted": ["worker-0"],
    "set_aside": {"worker-1": "too large"}, **SUMS, "variance_ratio": 1.5, "variance_held": True,
    "silent": {"worker-1": {"reason": "no answer", "detail": "größer"}},
    "faults": {"worker-1": {"not finite": {"times": 3, "detail": "not finite"}}},
}  # fmt: skip
WORKER = {"event": "worker", "node": "worker-0", "step": 2, "computed": 2, "compute_s": 0.1, **SUMS}
WORKER |= {"filters": {"server-0": [3, 1]}}
RESUMED = {"event": "resumed", "step": 1}
DIVERGED = {"event": "diverged", "node": "server-0", "step": 2, "error": "not finite"}
LINES = [json.dumps(event).encode() for event in (STEP, WORKER, RESUMED, DIVERGED)]
METRICS = b"\n".join(LINES) + b"\n"


def _values() -> st.SearchStrategy[Any]:
    plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    names = st.sampled_from(["worker-0", "worker-1", "not finite", "times", "detail", "reason"])
    return st.recursive(plain, lambda of: st.lists(of) | st.dictionaries(names, of), max_leaves=6)


def _changed_events() -> st.SearchStrategy[bytes]:
    """Events of which some fields hold something else, or are gone."""
    fields = sorted({*STEP, *WORKER, *DIVERGED})
    changes = st.dictionaries(st.sampled_from(fields), _values(), max_size=3)
    gone = st.sets(st.sampled_from(fields), max_size=2)

    def changed(event: dict[str, Any], new: dict[str, Any], less: set[str]) -> bytes:
        found = {name: part for name, part in (event | new).items() if name not in less}
        return json.dumps(found).encode()

    kinds = st.sampled_from([STEP, WORKER, RESUMED, DIVERGED])
    events = st.builds(changed, kinds, changes, gone)
    return st.lists(events, min_size=1, max_size=4).map(b"\n".join)


@fuzzed("metrics", begin_from=[METRICS], inputs=bent([METRICS, *LINES]) | _changed_events())
def metrics(data: bytes) -> None:
    """Whatever is in the file, it is summed up, and what is appended is read again."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as made:
        directory = RunDirectory(Path(made))
        directory.metrics.write_bytes(data)
        with directory:
            directory.open({})
            directory.record(RESUMED)
        events = directory.events()
        assert events[-1] == RESUMED
        roster = Roster(["server-0"], ["worker-0", "worker-1"])
        found = summarise(read_history(events, roster))
        json.loads(as_json(found))
        summary_table({**found, "total_steps": 9, "gar": "median"})
        for name, role in (("server-0", "server"), ("worker-0", "worker")):
            as_json(summarise_node(events, name, role, roster.workers))


def _saved(state: dict[str, Any]) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as made:
        layout = [("a.weight", (2, 2)), ("a.bias", (2,))]
        checkpoint = Checkpoint(4, np.arange(6, dtype=np.float32), state, layout)
        Checkpoints(Path(made)).save("server-0", checkpoint)
        return {path.suffix: path.read_bytes() for path in Path(made).iterdir()}


def _torch_state() -> dict[str, Any]:
    import torch

    model = torch.nn.Linear(2, 2)
    adam = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    adam.step()
    return {"optimizer": adam.state_dict()}


OF_TORCH = _saved(_torch_state())
OF_ARRAYS = _saved({"momentum": np.float64(0.9)})


def _read(tensors: bytes, pt: bytes) -> Checkpoint | None:
    """What is read, or None if it is refused; in a line of text, which is all that may happen."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as made:
        path = Path(made) / f"server-0-00000004{SUFFIX}"
        path.write_bytes(tensors)
        path.with_suffix(".pt").write_bytes(pt)
        try:
            found = read_checkpoint(path)
        except ConfigError as refused:
            assert len(str(refused).splitlines()) == 1, str(refused)
            return None
    assert found.step == 4
    assert found.vector.ndim == 1
    assert found.vector.dtype == np.float32
    assert all(isinstance(name, str) for name in found.state)
    return found


@fuzzed("checkpoint", begin_from=[OF_TORCH[SUFFIX], OF_ARRAYS[SUFFIX], b""])
def checkpoint(data: bytes) -> None:
    """A file is read or refused."""
    _read(data, OF_TORCH[".pt"])


@fuzzed("checkpoint state", begin_from=[OF_TORCH[".pt"], b""])
def checkpoint_state(data: bytes) -> None:
    """Only what was written is read."""
    found = _read(OF_TORCH[SUFFIX], data)
    assert (found is not None) == (data == OF_TORCH[".pt"])
