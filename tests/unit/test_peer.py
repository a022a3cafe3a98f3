"""A user's own loop among peers: what a step exchanges, and what the loop may do around it."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from garfield import GARS, BoundError, ConfigError, InputError, Peer, run_as_peers
from garfield.nodes.byzantine import Plan, parse_plan
from garfield.transport.contract import Key
from garfield.transport.simulated import Simulation

N, F = 5, 1
NAMES = [f"peer-{i}" for i in range(N)]


def module(*extra):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), *extra, nn.Linear(4, 2))


def batch(rank, step):
    draw = torch.Generator().manual_seed(100 * rank + step)
    return torch.randn(8, 3, generator=draw)


def run(loop, lies=None):
    """loop(peer) for every peer, in one process; what each returned."""
    simulation, results = Simulation(), {}

    def start(rank, name):
        plan = parse_plan(lies, Plan(n=N, f=F)) if lies and rank == N - 1 else None
        peer = Peer(simulation.transport(name), NAMES, plan=plan)
        results[rank] = loop(peer)

    for rank, name in enumerate(NAMES):
        simulation.spawn(lambda rank=rank, name=name: start(rank, name))
    simulation.run(until=lambda: len(results) == N)
    return [results[rank] for rank in range(N)]


def weights(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()]).clone()


def loop(peer, zero="optimizer", gar="multi-krum"):
    model = module()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    peer.robust(model, optimizer, gar=gar, f=F)
    for step in range(4):
        model.zero_grad() if zero == "model" else optimizer.zero_grad(set_to_none=zero != "kept")
        model(batch(peer.rank, step)).square().sum().backward()
        optimizer.step()
        schedule.step()
    return weights(model)


def by_hand(gar="multi-krum"):
    """The same without any exchange: one model, everybody's gradients in turn."""
    model = module()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
    for step in range(4):
        rows = []
        for rank in range(N):
            model.zero_grad()
            model(batch(rank, step)).square().sum().backward()
            rows.append(torch.cat([p.grad.reshape(-1) for p in model.parameters()]))
        vector = GARS[gar](rows, f=F)
        at = 0
        for p in model.parameters():
            p.grad = vector[at : at + p.numel()].view(p.shape).clone()
            at += p.numel()
        optimizer.step()
        schedule.step()
    return weights(model)


@pytest.mark.parametrize("zero", ["optimizer", "model", "kept"])
def test_a_step_is_the_rule_on_everybodys_gradients(zero):
    for found in run(lambda peer: loop(peer, zero)):
        torch.testing.assert_close(found, by_hand(), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("lies", ["reverse", "nan", "random", "equivocate"])
def test_honest_peers_stay_together_whatever_one_says(lies):
    honest = run(loop, lies)[: N - 1]
    assert all(torch.isfinite(found).all() for found in honest)
    start = weights(module())
    moved = (by_hand("average") - start).norm()
    for found in honest:
        assert (found - by_hand("average")).norm() < moved  # nearer the honest end than the start


def test_who_takes_over_others_models_forgets_what_its_rules_remember_once():
    def one(peer):
        model, forgotten = module(), []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        node = peer.robust(model, optimizer, gar="centered-clipping", f=F)
        node._gradients.forget = lambda: forgotten.append(("gradients", step))
        node._models.forget = lambda: forgotten.append(("models", step))
        for step in range(3):
            node.jumps += step == 1  # as if it had just caught up with the others
            model(batch(peer.rank, step)).square().sum().backward()
            optimizer.step()
        return forgotten

    assert run(one) == [[("gradients", 1), ("models", 1)]] * N


def test_a_parameter_without_a_gradient_takes_no_harm():
    def one(peer):
        model = module()
        model.register_parameter("unused", nn.Parameter(torch.ones(2)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        peer.robust(model, optimizer, gar="median", f=F)
        model(batch(peer.rank, 0)).sum().backward()
        optimizer.step()
        return model.unused.detach().clone()

    assert all(torch.equal(found, torch.ones(2)) for found in run(one))


def test_statistics_are_joined_by_their_median():
    def one(peer):
        model = module(nn.BatchNorm1d(4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        peer.robust(model, optimizer, gar="median", f=F)
        model(batch(peer.rank, 0)).square().sum().backward()
        own = model[1].running_mean.clone()
        optimizer.step()
        return own, model[1].running_mean.clone()

    owns, joined = zip(*run(one), strict=True)
    expected = torch.stack(owns).median(0).values
    for found in joined:
        torch.testing.assert_close(found, expected)


def test_peers_that_start_apart_go_on_from_what_the_rule_makes_of_their_models():
    def one(peer):
        model = module()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.1 * peer.rank
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        node = peer.robust(model, optimizer, gar="median", f=F)
        model(batch(peer.rank, 0)).square().sum().backward()
        optimizer.step()
        return weights(model), node

    found = run(one)
    expected = weights(module()) + 0.2  # the middle of five
    for mine, node in found:
        torch.testing.assert_close(mine, expected)
        assert node.outbox.own(Key("model", 0)) is not None  # for a peer that fell behind


def test_what_cannot_be_exchanged_is_refused():
    def closure(peer):
        model = module()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        peer.robust(model, optimizer, gar="median", f=F)
        with pytest.raises(ConfigError, match=r"optimizer.step\(closure\) computes gradients"):
            optimizer.step(lambda: 0.0)
        with pytest.raises(ConfigError, match="Pass the optimizer, too"):
            peer.robust(model, gar="median", f=F)
        with pytest.raises(BoundError, match="krum needs n >= 7"):
            peer.robust(model, optimizer, gar="krum", f=2)
        with pytest.raises(ConfigError, match="A dict is not a model"):
            peer.robust({}, optimizer, gar="median", f=F)

    run(closure)


@pytest.mark.parametrize(
    "data",
    [np.arange(23), torch.arange(23), TensorDataset(torch.arange(23))],
    ids=["array", "tensor", "dataset"],
)
def test_shares_are_equally_long_and_nobody_has_anothers_sample(data):
    simulation = Simulation()
    peers = [Peer(simulation.transport(name), NAMES) for name in NAMES]
    shares = [[int(np.ravel(x)[0]) for x in peer.share(data)] for peer in peers]
    assert {len(share) for share in shares} == {4}
    assert len({x for share in shares for x in share}) == 20


def test_too_few_samples_for_a_share_each():
    peer = Peer(Simulation().transport("peer-0"), NAMES)
    with pytest.raises(InputError, match="4 samples are too few for 5 peers"):
        peer.share(np.arange(4))


def test_a_peer_must_be_one_of_the_peers():
    with pytest.raises(ConfigError, match="pear-0 is not one of the peers"):
        Peer(Simulation().transport("pear-0"), NAMES)


@pytest.mark.parametrize(
    ("liars", "message"),
    [
        ({0: "reverse"}, "A liar must be one of peers 1..4, got 0."),
        ({5: "reverse"}, "A liar must be one of peers 1..4, got 5."),
        ({1: "revers"}, "revers is not an attack. Did you mean reverse?"),
        ({1: "mimic"}, "mimic needs to see all honest gradients"),
        ({1: "reverse, withhold(from=peer-9)"}, "peer-9 is not one of the peers"),
        ({1: "reverse, redrawn"}, "the liars are named, and cannot be redrawn"),
    ],
)
def test_lies_that_cannot_be_told_are_refused_before_anything_starts(liars, message):
    with pytest.raises(ConfigError, match=message):
        run_as_peers(print, N, liars=liars)
