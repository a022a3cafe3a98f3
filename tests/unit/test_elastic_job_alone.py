"""One process, no controller: the same loop trains, and what it needs to go on is kept."""

import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import IterableDataset, TensorDataset

from garfield.core.errors import ConfigError, RunError
from garfield.elastic.job import ElasticOptions, ElasticTraining
from garfield.elastic.job.environment import JOB, MEMBER, environment_of, job_of_this_process
from garfield.elastic.job.on_sqlite import SqliteCoordination

DATA = TensorDataset(torch.arange(20).float().view(20, 1), torch.arange(20).float().view(20, 1))


def parts(seed=0):
    torch.manual_seed(seed)
    model = nn.Linear(1, 1)
    return model, torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)


def trained(options, epochs, stop_after=None, seed=0):
    model, optimizer = parts(seed)
    used, steps = [], 0
    with ElasticTraining(model, optimizer, DATA, options) as job:
        for _ in job.epochs(epochs):
            for x, y in job.batches():
                used.append(job.indices)
                assert np.array_equal(x.view(-1), job.indices)
                with job.step():
                    job.backward((job.model(x) - y).square().mean())
                steps += job.stepped
                if steps == stop_after:
                    job.leave()
    return model, used, job


def plain(steps, batch, scale=1.0):
    model, optimizer = parts()
    optimizer.param_groups[0]["lr"] *= scale
    used = []
    for epoch in range(steps):
        used += np.random.default_rng((0, epoch)).permutation(20).tolist()
    for step in range(steps):
        x, y = DATA[used[step * batch : (step + 1) * batch]]
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
    return model


def assert_same(one, other):
    for mine, theirs in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_alone_it_is_the_plain_loop():
    model, used, job = trained(ElasticOptions(batch=5), epochs=2)
    assert_same(model, plain(8, 5))
    assert sorted(sum(used[:4], ())) == sorted(sum(used[4:], ())) == list(range(20))
    assert (job.step_number, job.left, job.workers, job.generation) == (8, False, 1, 1)


def test_a_fixed_step_is_accumulated_from_smaller_batches():
    model, used, job = trained(ElasticOptions(batch=3, fixed_step=10), epochs=1)
    assert_same(model, plain(2, 10))
    assert [len(each) for each in used] == [2, 3, 2, 3] * 2
    assert job.step_number == 2


def test_a_reference_step_scales_the_learning_rate():
    options = ElasticOptions(batch=5, reference_step=10)
    assert_same(trained(options, epochs=1)[0], plain(4, 5, scale=0.5))


def dropping(options, epochs, stop_after=None):
    """Train with all kinds of random numbers; the parameters, and whether it came to the end."""
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    model = nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.5), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    with ElasticTraining(model, optimizer, DATA, options) as job:
        for _ in job.epochs(epochs):
            for x, y in job.batches():
                noise = random.random() + np.random.standard_normal()
                with job.step():
                    job.backward((job.model(x) - y - noise).square().mean())
                if job.step_number == stop_after:
                    job.leave()
    return model, job.left


def test_a_resumed_training_draws_the_random_numbers_of_one_never_ended(tmp_path):
    whole, _ = dropping(ElasticOptions(batch=5, checkpoint_dir=str(tmp_path / "whole")), 2)
    options = ElasticOptions(batch=5, checkpoint_dir=str(tmp_path / "parts"))
    assert dropping(options, 2, stop_after=3)[1]
    resumed, left = dropping(options, 2)
    assert not left
    for mine, theirs in zip(resumed.parameters(), whole.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_who_is_told_to_leave_goes_on_from_there_when_started_again(tmp_path):
    options = ElasticOptions(batch=5, checkpoint_dir=str(tmp_path))
    _, first, job = trained(options, epochs=2, stop_after=3)
    assert job.left
    model, second, job = trained(options, epochs=2, seed=9)
    assert not job.left
    assert_same(model, plain(8, 5))
    assert sorted(sum((first + second)[:4], ())) == list(range(20))
    # one step more than told: what happens after it had been agreed on already
    assert (len(first), len(second), job.generation) == (4, 4, 2)
    assert len(list(tmp_path.glob("*.safetensors"))) == 1


def test_a_training_that_has_ended_goes_on_if_more_epochs_are_asked_for(tmp_path):
    options = ElasticOptions(batch=5, checkpoint_dir=str(tmp_path))
    trained(options, epochs=1)
    model, used, _ = trained(options, epochs=2)
    assert_same(model, plain(8, 5))
    assert len(used) == 4


def test_an_error_of_the_script_passes():
    def script():
        with ElasticTraining(*parts(), DATA) as job:
            for _ in job.batches():
                with job.step():
                    _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        script()


def test_a_batch_that_is_not_trained_on_is_an_error():
    with (
        pytest.raises(RunError, match="not trained on"),
        ElasticTraining(*parts(), DATA, ElasticOptions(batch=5)) as job,
    ):
        for _ in job.batches():
            pass


def test_a_data_set_needs_a_length():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter([])

    with pytest.raises(ConfigError, match="no length"):
        ElasticTraining(*parts(), Stream())


def test_a_step_without_a_batch_is_an_error():
    with (
        pytest.raises(RunError, match="batches"),
        ElasticTraining(*parts(), DATA) as job,
        job.step(),
    ):
        pass


def test_the_environment_tells_the_job(tmp_path):
    kept = SqliteCoordination(tmp_path / "job.sqlite")
    access = job_of_this_process(None, environment_of(tmp_path / "job.sqlite", "w1"))
    assert access.member == "w1"
    access.coordination.propose(["w1"], after=0)
    assert kept.read().generation.members == ("w1",)
    with pytest.raises(ConfigError, match=MEMBER):
        job_of_this_process(None, {JOB: str(tmp_path / "job.sqlite")})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"batch": 0}, "batch must be"), ({"learning_rate": "liner"}, "Did you mean linear")],
)
def test_wrong_options_are_refused(wrong, message):
    with pytest.raises(ConfigError, match=message):
        ElasticOptions(**wrong)
