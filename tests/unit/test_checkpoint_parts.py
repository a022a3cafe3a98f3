"""What a node that was killed while saving leaves behind, and who removes it."""

import numpy as np

from garfield.runs.checkpoints import Checkpoint, Checkpoints


def saved(step):
    return Checkpoint(step, np.zeros(3, np.float32), {"momentum": np.float64(0.9)})


def test_the_next_save_removes_what_a_killed_node_left_half_written(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    mine = [
        tmp_path / ".worker-1-velocity-00000115.safetensors.26788.part",
        tmp_path / ".worker-1-velocity-00000115.pt.26788.part",
    ]
    others = [
        tmp_path / ".worker-1-00000115.safetensors.26788.part",
        tmp_path / ".worker-11-velocity-00000115.safetensors.26788.part",
        tmp_path / "notes.part",
    ]
    for path in (*mine, *others):
        path.write_bytes(b"PK")
    checkpoints.save("worker-1-velocity", saved(120))
    assert not [path for path in mine if path.exists()]
    assert all(path.exists() for path in others)
    assert set(checkpoints.saved("worker-1-velocity")) == {120}
