"""Which checkpoint counts, and which files stay."""

import logging

import pytest
import torch
from torch import nn

from garfield.core.errors import ConfigError
from garfield.elastic.job.checkpoint_writer import CheckpointWriter
from garfield.elastic.job.coordination import CheckpointPointer
from garfield.elastic.job.cursor import Cursor
from garfield.elastic.job.on_sqlite import SqliteCoordination
from garfield.elastic.job.state import TrainingState


def state_at(step, generation=1):
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    state = TrainingState(model, optimizer, Cursor(10, 0, 1, 3))
    state.step, state.generation = step, generation
    return state


@pytest.fixture
def agreed(tmp_path):
    kept = SqliteCoordination(tmp_path / "job.sqlite")
    yield kept
    kept.close()


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_what_was_saved_is_loaded_to_the_bit(tmp_path, agreed):
    writer = CheckpointWriter(tmp_path / "saved", agreed)
    saved, other = state_at(7), state_at(0)
    writer.start(saved, generation=1)
    writer.close()
    pointer = agreed.read().checkpoint
    assert (pointer.generation, pointer.step) == (1, 7)
    writer.load(other, pointer)
    assert (other.step, other.cursor) == (7, saved.cursor)
    for mine, theirs in zip(other.model.parameters(), saved.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_files_of_older_generations_go_once_a_later_one_counts(tmp_path, agreed):
    writer = CheckpointWriter(tmp_path / "saved", agreed)
    writer.save(state_at(7), generation=2)
    writer.save(state_at(9), generation=11)
    assert names(tmp_path / "saved") == [
        "generation-11-00000009.pt",
        "generation-11-00000009.safetensors",
    ]


def test_a_half_that_was_overtaken_changes_nothing(tmp_path, agreed, caplog):
    writer = CheckpointWriter(tmp_path / "saved", agreed)
    agreed.begin(2)
    with caplog.at_level(logging.WARNING):
        writer.save(state_at(50), generation=1)
    assert "overtaken" in caplog.text
    assert agreed.read().checkpoint is None
    writer.save(state_at(9), generation=2)
    writer.save(state_at(8), generation=2)  # a survivor who was behind
    assert agreed.read().checkpoint.step == 9


def test_a_disk_that_takes_nothing_ends_no_training(tmp_path, agreed, caplog):
    (tmp_path / "saved").write_text("in the way")
    CheckpointWriter(tmp_path / "saved", agreed).save(state_at(7), generation=1)
    assert "cannot be written" in caplog.text
    assert agreed.read().checkpoint is None


def test_a_file_of_something_else_is_refused(tmp_path, agreed):
    writer = CheckpointWriter(tmp_path, agreed)
    with pytest.raises(ConfigError, match="cannot be read"):
        writer.load(state_at(0), CheckpointPointer(1, 5, "missing.safetensors"))
