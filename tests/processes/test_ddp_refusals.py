"""What DDP with a rule cannot work with is refused in every rank, with the remedy."""

import numpy as np
import pytest
from torch import nn

from garfield.torch_ddp import robust
from tests.ddp_ranks import backward, batch, run, small_model, wrapped

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def refusals(rank, n):
    plain = small_model()
    normed = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
    words = nn.Sequential(nn.Embedding(8, 3, sparse=True))
    asked = {
        "not wrapped": lambda: robust(plain, gar="median", f=1),
        "bound": lambda: robust(wrapped(plain), gar="krum", f=1),
        "name": lambda: robust(wrapped(plain), gar="medain", f=1),
        "buffers": lambda: robust(wrapped(normed), gar="median", f=1),
        "sparse": lambda: robust(wrapped(words), gar="median", f=1),
        "thawed": lambda: thawed(rank),
        "too many": lambda: all_ill(rank),
    }
    robust(wrapped(normed, broadcast_buffers=False), gar="median", f=1)  # the remedy it names
    found = {}
    for name, ask in asked.items():
        try:
            ask()
            found[name] = np.array("nothing was refused")
        except Exception as refusal:
            found[name] = np.array(f"{type(refusal).__name__}: {refusal}")
    return found


def thawed(rank):
    ddp = wrapped(small_model())
    ddp.module[0].requires_grad_(False)
    robust(ddp, gar="median", f=1)
    ddp.module[0].requires_grad_(True)
    backward(ddp, batch(rank, 0))


def all_ill(rank):
    """Last of all: a backward pass that has failed leaves DDP unusable."""
    ddp = wrapped(small_model())
    robust(ddp, gar="median", f=1)
    backward(ddp, batch(rank, 0) * float("nan"))


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    return run(refusals, 3, tmp_path_factory.mktemp("refusals"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("not wrapped", "ConfigError: robust() takes a DistributedDataParallel, got a Sequential."),
        ("bound", "BoundError: krum needs n >= 5 inputs to tolerate f=1 faults, got n=3."),
        ("name", "UnknownName: medain is not a rule. Did you mean median?"),
        ("buffers", "ConfigError: DDP copies module.1.running_mean and other buffers from rank 0"),
        ("sparse", "ConfigError: 0 has sparse gradients. Make it with sparse=False."),
        ("thawed", "ConfigError: DDP hands over more than the 1323 gradients"),
        ("too many", "InputError: median tolerates f=1 faults among n=3 rows, but 3 cannot be"),
    ],
)
def test_what_cannot_work_is_refused_with_the_remedy(refused, name, message):
    for rank in refused:
        assert str(rank[name]).startswith(message)
