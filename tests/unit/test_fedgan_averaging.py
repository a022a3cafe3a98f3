"""Many learning states to one."""

import pytest
import torch
from torch import nn

from garfield.core.errors import InputError
from garfield.fedgan.averaging import (
    WeightedMean,
    check_alike,
    load_networks,
    load_optimizers,
    network_state,
    optimizer_state,
)
from garfield.fedgan.networks import gan_for

GAN = gan_for("lsgan(width=0.25)", (1, 28, 28))


def mean(states, weights):
    found = WeightedMean()
    for state, weight in zip(states, weights, strict=True):
        found.add(state, weight)
    return found.mean()


def test_all_of_both_networks_is_in_a_state_buffers_included():
    networks = GAN.build(0)
    state = network_state(networks)
    assert len(state) == sum(len(network.state_dict()) for network in networks)
    assert "generator.layers.3.running_var" in state
    assert "discriminator.layers.4.num_batches_tracked" in state


def test_a_state_is_a_copy_and_loads_bit_for_bit():
    networks, others = GAN.build(0), GAN.build(1)
    networks[0](GAN.noise(8))  # moves the buffers
    state = network_state(networks)
    load_networks(others, state)
    loaded = network_state(others)
    assert all(torch.equal(loaded[name], state[name]) for name in state)
    with torch.no_grad():
        networks[0].dense.weight.zero_()
    assert state["generator.dense.weight"].any()


def test_the_mean_is_the_weighted_one_whatever_the_weights_add_up_to():
    states = [network_state(GAN.build(seed)) for seed in range(3)]
    for scale in (1, 7.5):
        found = mean(states, [0.5 * scale, 0.3 * scale, 0.2 * scale])
        for name, tensor in found.items():
            stacked = torch.stack([state[name].double() for state in states])
            weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
            expected = torch.tensordot(weights, stacked, 1).to(tensor.dtype)
            torch.testing.assert_close(tensor, expected)
            assert tensor.dtype == states[0][name].dtype


def test_what_all_agree_on_comes_out_as_it_went_in():
    state = network_state(GAN.build(4))
    found = mean([state] * 7, [0.1, 0.2, 0.3, 0.05, 0.05, 0.2, 0.1])
    assert all(torch.equal(found[name], state[name]) for name in state)


def test_counts_are_averaged_and_rounded_and_truth_is_by_majority():
    a = {"seen": torch.tensor(30), "on": torch.tensor([True, False])}
    b = {"seen": torch.tensor(15), "on": torch.tensor([False, False])}
    found = mean([a, b], [3, 1])
    assert found["seen"].item() == 26
    assert found["seen"].dtype == torch.int64
    assert found["on"].tolist() == [True, False]


def test_nothing_has_no_mean():
    with pytest.raises(InputError, match="no state"):
        WeightedMean().mean()
    with pytest.raises(InputError, match="no state"):
        mean([{"a": torch.ones(1)}], [0.0])


def trained(seed):
    torch.manual_seed(seed)
    networks = GAN.build(seed)
    optimizers = tuple(GAN.optimizer(network.parameters()) for network in networks)
    loss = GAN.generator_loss(networks[1](networks[0](GAN.noise(4))))
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
    return networks, optimizers


def test_optimizer_state_travels_and_is_averaged():
    states = [optimizer_state(trained(seed)[1]) for seed in (0, 1)]
    found = mean(states, [1, 1])
    key = "generator_optimizer.0.exp_avg"
    torch.testing.assert_close(found[key], (states[0][key] + states[1][key]) / 2)
    assert found["discriminator_optimizer.0.step"].item() == 1
    _, optimizers = trained(2)
    load_optimizers(optimizers, found)
    again = optimizer_state(optimizers)
    assert again.keys() == found.keys()
    assert all(torch.equal(again[name], found[name]) for name in found)
    optimizers[0].step()  # and it can go on


def test_an_optimizer_that_is_given_nothing_begins_anew():
    _, optimizers = trained(0)
    load_optimizers(optimizers, {})
    assert optimizer_state(optimizers) == {}


def test_loading_optimizer_state_leaves_what_was_given_alone():
    _, optimizers = trained(0)
    state = optimizer_state(optimizers)
    before = {name: tensor.clone() for name, tensor in state.items()}
    load_optimizers(optimizers, state)
    for optimizer in optimizers:
        optimizer.step()
    assert all(torch.equal(state[name], before[name]) for name in state)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda s: s.update({"generator.dense.bias": torch.full((1568,), float("nan"))}),
         "device-3 sent generator.dense.bias with NaN or infinite numbers"),
        (lambda s: s["discriminator.score.all_classes.bias"].fill_(float("inf")), "infinite"),
        (lambda s: s.update({"generator.dense.bias": torch.zeros(7)}), "not torch.float32"),
        (lambda s: s.update({"generator.dense.bias": torch.zeros(1568).double()}), "torch.float64"),
        (lambda s: s.pop("generator.dense.bias"), "generator.dense.bias is not in both"),
        (lambda s: s.update({"extra": torch.zeros(1)}), "extra is not in both"),
    ],
)  # fmt: skip
def test_what_a_device_sends_must_fit_what_it_was_given(spoil, message):
    like = network_state(GAN.build(0))
    sent = {name: tensor.clone() for name, tensor in like.items()}
    check_alike(sent, like, "device-3")
    spoil(sent)
    with pytest.raises(InputError, match=message):
        check_alike(sent, like, "device-3")


def test_any_module_has_a_state():
    networks = (nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1)))
    assert "discriminator.1.running_mean" in network_state(networks)
