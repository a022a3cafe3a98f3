"""What workers hand over, and what they refuse."""

import pytest
import torch
from torch import nn

from garfield.core.errors import ConfigError
from garfield.elastic.job.cursor import Cursor
from garfield.elastic.job.learning_rate import scaled
from garfield.elastic.job.state import TrainingState, _put_together, _taken_apart
from garfield.elastic.policy.learning_rate import factor as learning_rate_factor


def trained(kind=torch.optim.Adam, width=3):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width))
    optimizer = kind(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for _ in range(3):
        model(torch.randn(5, 4)).sum().backward()
        optimizer.step()
        scheduler.step()
    state = TrainingState(model, optimizer, Cursor(10, 0, 1, 3), {"scheduler": scheduler})
    state.step, state.generation, state.reference_step = 3, 2, 8
    return state


def fresh(kind=torch.optim.Adam, width=3, samples=10):
    model = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width))
    optimizer = kind(model.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    return TrainingState(model, optimizer, Cursor(samples), {"scheduler": scheduler})


def assert_equal(one, other):
    structure, tensors = _taken_apart(one.state_dict())
    others_structure, others = _taken_apart(other.state_dict())
    assert structure == others_structure
    for mine, theirs in zip(tensors, others, strict=True):
        assert torch.equal(mine, theirs)


def test_a_copied_state_does_not_change_with_the_training_and_loads_elsewhere():
    one, other = trained(), fresh()
    copied = one.copied()
    other.load(copied)
    assert_equal(one, other)
    one.model[0].weight.data.zero_()
    other.load(copied)
    assert other.model[0].weight.any()


def test_tensors_are_received_where_they_belong_and_made_where_there_are_none():
    structure, sent = _taken_apart(trained().state_dict())
    other = fresh()
    state, places = _put_together(structure, other.state_dict(), torch.device("cpu"))
    assert [(p.shape, p.dtype) for p in places] == [(s.shape, s.dtype) for s in sent]
    assert state["model"]["0.weight"].data_ptr() == other.model[0].weight.data_ptr()
    assert state["optimizer"]["state"].keys() == structure["optimizer"]["state"].keys()
    assert state["extra"] == structure["extra"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (fresh(width=2), "0.weight of the model is .3, 4. of torch.float32 .* .2, 4."),
        (fresh(samples=11), "10 samples an epoch, the data set here 11"),
    ],
)
def test_the_state_of_another_training_is_refused_and_nothing_changes(other, message):
    before = other.copied()
    before.pop("random")
    with pytest.raises(ConfigError, match=message):
        other.load(trained().copied())
    structure, tensors = _taken_apart(other.state_dict())
    structure_before, tensors_before = _taken_apart(before)
    assert structure == structure_before
    assert all(map(torch.equal, tensors, tensors_before))


def test_extra_state_must_be_named_alike():
    other = fresh()
    other.extra = {"sampler": other.extra["scheduler"]}
    with pytest.raises(ConfigError, match=r"\['scheduler'\], this worker \['sampler'\]"):
        other.load(trained().copied())


@pytest.mark.parametrize(("name", "factor"), [("linear", 4.0), ("sqrt", 2.0), ("none", 1.0)])
def test_a_learning_rate_follows_the_samples_of_a_step_for_that_step_only(name, factor):
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.01)
    parameter.grad = torch.ones(1)
    with scaled(optimizer, learning_rate_factor(name, 4, 1)):
        optimizer.step()
    assert parameter.item() == pytest.approx(1 - 0.01 * factor)
    assert optimizer.param_groups[0]["lr"] == 0.01
