"""Real ranks under gloo: the hook is the rule on the whole gradient, and no liar moves it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from garfield import GARS
from garfield.gars import parse
from garfield.torch_ddp import robust
from tests.ddp_ranks import (
    backward,
    batch,
    flat,
    gathered,
    run,
    small_model,
    wrapped,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

N, F, STEPS = 7, 1, 3
RULES = [*GARS, "nnm+multi-krum", "bucketing(s=2, seed=3)+median"]
UNSEEDED = ["dnc(sample=20)", "bucketing(s=2)+median"]
CLOSE = 1e-6  # of the largest gradient: columns are added up in the order of buckets


def faults(name):
    return F if parse(name).robust else 0


def buckets_of(hook):
    """How many buckets the hook is handed from now on, as a list that grows."""
    seen, take = [], hook.take
    hook.take = lambda bucket: (seen.append(bucket.index()), take(bucket))[1]
    return seen


def error(rows, wanted, got):
    return float((wanted - got).abs().max() / rows.abs().max())


# -- any rule, the whole gradient -------------------------------------------------------------


def every_rule(rank, n):
    return {name: one_rule(name, rank) for name in [*RULES, *UNSEEDED]}


def one_rule(name, rank):
    """Errors of three steps, the number of buckets in the last one, and the gradient."""
    alone, ddp = small_model(), wrapped(small_model())
    hook = robust(ddp, gar=name, f=faults(name))
    seen, errors = buckets_of(hook), []
    for step in range(STEPS):
        seen.clear()
        for module in (alone, ddp):
            module.zero_grad()
            backward(module, batch(rank, step))
        rows = gathered(flat(alone))
        if name not in UNSEEDED:
            errors.append(error(rows, parse(name)(rows, f=faults(name)), flat(ddp)))
    return np.array([*errors, len(seen), *flat(ddp).tolist()])


@pytest.fixture(scope="module")
def by_rule(tmp_path_factory):
    return run(every_rule, N, tmp_path_factory.mktemp("rules"))


@pytest.mark.parametrize("name", RULES)
def test_it_is_the_rule_on_the_whole_gradient_however_many_buckets(by_rule, name):
    *errors, buckets = by_rule[0][name][: STEPS + 1]
    assert max(errors) < CLOSE
    assert buckets >= 3


@pytest.mark.parametrize("name", [*RULES, *UNSEEDED])
def test_all_ranks_get_the_same_bits_even_of_a_rule_that_draws_at_random(by_rule, name):
    assert len({rank[name].tobytes() for rank in by_rule}) == 1


# -- DDP's options ------------------------------------------------------------------------------


class Branches(nn.Module):
    """Ranks use one branch or the other; nobody uses the third."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Linear(8, 30)
        self.last = nn.ModuleList(nn.Linear(30, 3) for _ in range(3))

    def forward(self, x):
        return self.last[int(x[0, 0] > 0)](self.first(x))


def frozen():
    model = small_model()
    model[0].requires_grad_(False)
    return model


def mixed():
    model = small_model()
    model[4].double()
    model.insert(4, _Widen())
    return model


class _Widen(nn.Module):
    def forward(self, x):
        return x.double()


OPTIONS = {
    "views": (small_model, {"gradient_as_bucket_view": True}),
    "static": (small_model, {"static_graph": True}),
    "branches": (Branches, {"find_unused_parameters": True}),
    "frozen": (frozen, {}),
    "mixed": (mixed, {}),
    "one-bucket": (small_model, {"bucket_cap_mb": 25}),
}


def every_option(rank, n):
    found = {}
    for name, (build, options) in OPTIONS.items():
        alone, ddp = build(), wrapped(build(), **options)
        robust(ddp, gar="multi-krum", f=F)
        errors = []
        for step in range(STEPS):
            for module in (alone, ddp):
                module.zero_grad()
                backward(module, batch(rank, step))
            rows = gathered(flat(alone))
            errors.append(error(rows, parse("multi-krum")(rows, f=F), flat(ddp)))
        found[name] = np.array([*errors, *flat(ddp).tolist()])
    return {**found, "accumulated": accumulated(rank), "bfloat16": halved(rank)}


def accumulated(rank):
    """Two batches without exchange, and a third with it."""
    alone, ddp = small_model(), wrapped(small_model())
    robust(ddp, gar="multi-krum", f=F)
    errors = []
    for step in range(STEPS):
        alone.zero_grad()
        ddp.zero_grad()
        for part in range(3):
            backward(alone, batch(rank, 3 * step + part))
        with ddp.no_sync():
            for part in range(2):
                backward(ddp, batch(rank, 3 * step + part))
        backward(ddp, batch(rank, 3 * step + 2))
        rows = gathered(flat(alone))
        errors.append(error(rows, parse("multi-krum")(rows, f=F), flat(ddp)))
    return np.array([*errors, *flat(ddp).tolist()])


def halved(rank):
    """Half precision travels as it is and is aggregated in float32."""
    alone, ddp = small_model(torch.bfloat16), wrapped(small_model(torch.bfloat16))
    robust(ddp, gar="trimmed-mean", f=F)
    errors = []
    for step in range(STEPS):
        for module in (alone, ddp):
            module.zero_grad()
            backward(module, batch(rank, step, torch.bfloat16))
        rows = gathered(flat(alone).float())
        wanted = parse("trimmed-mean")(rows, f=F).to(torch.bfloat16)
        errors.append(error(rows, wanted, flat(ddp)))
    return np.array([*errors, *flat(ddp).tolist()])


@pytest.fixture(scope="module")
def by_option(tmp_path_factory):
    return run(every_option, 5, tmp_path_factory.mktemp("options"))


@pytest.mark.parametrize("name", [*OPTIONS, "accumulated", "bfloat16"])
def test_it_holds_with_each_of_ddps_options(by_option, name):
    assert by_option[0][name][:STEPS].max() < CLOSE
    assert len({rank[name].tobytes() for rank in by_option}) == 1


# -- liars --------------------------------------------------------------------------------------


def lying_run(rank, n):
    """Thirty steps with rank n − 1 lying: the losses' mean at the end, and the model."""
    teacher, found = small_model(), {}
    for name in ("plain", "multi-krum", "nan"):
        torch.manual_seed(2)
        model = nn.Sequential(nn.Linear(8, 30), nn.Tanh(), nn.Linear(30, 3))
        if rank == n - 1:
            factor = float("nan") if name == "nan" else -100.0
            for parameter in model.parameters():
                parameter.register_hook(lambda gradient, factor=factor: factor * gradient)
        ddp = wrapped(model)
        if name != "plain":
            hook = robust(ddp, gar="multi-krum", f=F)
        groups = [{"params": [p], "lr": 0.1} for p in ddp.parameters()]
        optimizer = torch.optim.SGD(groups, momentum=0.9)
        for step in range(30):
            x = batch(rank, step)
            optimizer.zero_grad()
            (ddp(x) - teacher(x).detach()).square().mean().backward()
            optimizer.step()
        x = batch(99, 0)
        loss = (model(x) - teacher(x)).square().mean() / teacher(x).square().mean()
        weights = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
        found[name] = np.array([float(loss), *weights.tolist()])
        if name != "plain":
            found[f"{name}: left out"] = np.array(hook.last.left_out)
            found[f"{name}: set aside"] = np.array(list(hook.last.set_aside))
    return found


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    return run(lying_run, 5, tmp_path_factory.mktemp("liars"))


def test_one_rank_that_lies_ruins_plain_ddp(attacked):
    assert not attacked[0]["plain"][0] < 10


@pytest.mark.parametrize("name", ["multi-krum", "nan"])
def test_with_the_hook_it_learns_and_tells_who_lies(attacked, name):
    assert attacked[0][name][0] < 0.3
    assert 4 in attacked[0][f"{name}: left out"]
    assert attacked[0]["nan: set aside"].tolist() == [4]


@pytest.mark.parametrize("name", ["multi-krum", "nan"])
def test_all_ranks_end_with_the_same_bits(attacked, name):
    assert len({rank[name].tobytes() for rank in attacked}) == 1


EXAMPLE = Path(__file__).parents[2] / "examples" / "06-torchrun-ddp" / "digits.py"


@pytest.mark.heavy
@pytest.mark.parametrize(("options", "learns"), [([], True), (["--plain"], False)])
def test_the_example_learns_under_torchrun_and_plain_ddp_does_not(options, learns):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*torchrun, "--nproc-per-node", "4", EXAMPLE, *options], check=False,
        capture_output=True, text=True, timeout=580, env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    accuracy = float(re.search(r"final accuracy (\S+)", done.stdout).group(1))
    assert (accuracy > 0.8) if learns else (accuracy < 0.2)
