"""A discriminator trained with differential privacy, and what every device has spent of it."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from garfield.cli.app import run
from garfield.core.config import made
from garfield.core.errors import BudgetSpent, ConfigError, InputError
from garfield.fedgan import training
from garfield.fedgan.averaging import network_state
from garfield.fedgan.device import DeviceData, Task, Trainer
from garfield.fedgan.gan import Gan
from garfield.fedgan.load import Load
from garfield.fedgan.networks import gan_for
from garfield.fedgan.nodes.messages import About
from garfield.fedgan.nodes.node_process import trainer_of
from garfield.fedgan.nodes.process_training import ProcessTraining
from garfield.fedgan.settings import FedganSettings, PrivacySettings
from garfield.fedgan.simulation import simulated
from garfield.runs.run_directory import RunDirectory

pytest.importorskip("opacus")

from garfield.fedgan.differential_privacy import (
    PrivacyAccount,
    PrivateNetworks,
    PrivateTrainer,
    private_networks,
)
from garfield.fedgan.differential_privacy.account import ORDERS

IMAGE = (1, 4, 4)


class TinyGenerator(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 16), nn.Tanh())

    def forward(self, z):
        return self.layers(z).view(-1, *IMAGE)


TINY = Gan(
    generator=TinyGenerator,
    discriminator=lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 1)
    ),
    latent=3,
    generator_loss=lambda fake: (fake - 1).square().mean(),
    discriminator_loss=lambda real, fake: ((real - 1).square().mean() + fake.square().mean()) / 2,
    optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
)
STATE = network_state(TINY.build(0))


def data(samples=20, seed=0, classes=4):
    rng = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (samples, *IMAGE), generator=rng, dtype=torch.uint8)
    return DeviceData(images, torch.arange(samples) % classes)


def limits(**given):
    return PrivacySettings(**{"dp_epsilon": 50.0, "dp_delta": 1e-3, **given})


def task(batch=8, steps=4, every=1, keeps=False):
    return Task(0, Load(batch, steps), every, 77, keeps)


def federation(gan=TINY, **given):
    given = {
        "devices": 6, "fraction": 0.5, "local_steps": 2, "batch": 4, "dp_epsilon": 3.5,
        "dp_delta": 1e-3, "dp_noise": 0.8,
    } | given  # fmt: skip
    settings = made(FedganSettings, given)
    devices = [data(20 + 10 * k, seed=k) for k in range(settings.population.devices)]
    return simulated(gan, devices, classes=4, settings=settings)


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# -- the account --------------------------------------------------------------------------------


def test_epsilon_is_that_of_opacus_own_accountant_and_adds_up_over_rounds():
    from opacus.accountants import RDPAccountant

    account, reference = PrivacyAccount(limits()), RDPAccountant()
    assert account.epsilon == 0
    for load, samples in ((Load(8, 5), 100), (Load(8, 5), 100), (Load(4, 2), 60)):
        before = account.epsilon
        expected = account.epsilon_after(load, samples)
        account.pay(load, samples)
        assert account.epsilon == expected > before
        for _ in range(load.steps):
            reference.step(noise_multiplier=1.0, sample_rate=load.batch / samples)
    known = reference.get_epsilon(1e-3, alphas=list(ORDERS))
    assert account.epsilon == pytest.approx(known, rel=1e-9)
    assert account.epsilon == pytest.approx(reference.get_epsilon(1e-3), rel=0.02)


def test_more_noise_costs_less_and_few_images_cost_what_all_of_them_cost():
    load = Load(50, 10)
    costs = [
        PrivacyAccount(limits(dp_noise=noise)).epsilon_after(load, 1000) for noise in (0.7, 1, 4)
    ]
    assert costs == sorted(costs, reverse=True)
    account = PrivacyAccount(limits())
    assert account.epsilon_after(load, 50) == account.epsilon_after(load, 7)  # q is 1 for both
    # one Gaussian release: the classic bound is above what Rényi divergences give
    one = PrivacyAccount(limits(dp_noise=4.0, dp_delta=1e-5)).epsilon_after(Load(1, 1), 1)
    assert 0.5 < one < np.sqrt(2 * np.log(1.25e5)) / 4


def test_a_round_that_cannot_be_paid_for_is_not_begun():
    account = PrivacyAccount(limits(dp_epsilon=3.0))
    while account.can_pay(Load(8, 5), 100):
        account.pay(Load(8, 5), 100)
    spent, rounds = account.epsilon, account.rounds
    assert rounds > 1
    with pytest.raises(BudgetSpent, match=r"5 batches of 8 from 100 images .* beyond the 3 that"):
        account.pay(Load(8, 5), 100)
    assert (account.epsilon, account.rounds) == (spent, rounds)
    assert spent <= 3.0


def test_an_account_is_on_the_disk_before_anything_is_trained(tmp_path, monkeypatch):
    path = tmp_path / "account.json"
    trainer = PrivateTrainer(PrivateNetworks(TINY, limits()), PrivacyAccount(limits(), path=path))

    def crash(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(PrivateNetworks, "train", crash)
    with pytest.raises(KeyboardInterrupt):
        trainer.train(data(), STATE, task())
    again = PrivacyAccount(limits(), path=path)
    assert again.rounds == 1
    assert again.epsilon == trainer.account.epsilon > 0
    again.pay(Load(8, 4), 20)
    assert PrivacyAccount(limits(), path=path).rounds == 2
    path.write_text('{"rounds": 2}')
    with pytest.raises(InputError, match="nobody knows what this device has spent"):
        PrivacyAccount(limits(), path=path)


# -- training -----------------------------------------------------------------------------------


def by_hand(seed, given, clip, noise, images):
    """DP-SGD written out: one gradient at a time, clipped, summed, noised."""
    generator, discriminator = TINY.build(0)
    coins = np.random.default_rng(seed)
    steps = [TINY.optimizer(each.parameters()) for each in (generator, discriminator)]
    samples, rate = len(images), given.load.batch / len(images)
    for _ in range(given.load.steps):
        picked = np.flatnonzero(coins.random(samples) < rate)
        fake = generator(torch.randn(given.load.batch, 3))
        total = [torch.zeros_like(p) for p in discriminator.parameters()]
        for row in picked:
            loss = (discriminator(images[row : row + 1]) - 1).square().mean() / 2
            gradient = torch.autograd.grad(loss, list(discriminator.parameters()))
            norm = torch.cat([g.flatten() for g in gradient]).norm()
            for t, g in zip(total, gradient, strict=True):
                t += g * min(1.0, clip / float(norm + 1e-6))
        loss = discriminator(fake.detach()).square().mean() / 2
        of_fakes = torch.autograd.grad(loss, list(discriminator.parameters()))
        for p, t, g in zip(discriminator.parameters(), total, of_fakes, strict=True):
            p.grad = (t + torch.normal(0, noise * clip, p.shape)) / (rate * samples) + g
        steps[1].step()
        steps[0].zero_grad()
        TINY.generator_loss(discriminator(fake)).backward()
        steps[0].step()
    return network_state((generator, discriminator))


@pytest.mark.parametrize(("clip", "noise"), [(1e6, 1e-9), (0.05, 1e-6), (0.05, 1.5)])
def test_training_is_dp_sgd_written_out_by_hand(clip, noise):
    given = task(batch=8, steps=4)
    found = PrivateNetworks(TINY, limits(dp_clip=clip, dp_noise=noise)).train(
        data(), STATE, given, seed=5
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        expected = by_hand(5, given, clip, noise, data().batch(np.arange(20))[0])
    for name, tensor in found.state.items():
        torch.testing.assert_close(tensor, expected[name], msg=name, atol=1e-5, rtol=1e-4)


def test_one_image_more_moves_the_sum_by_a_clip_at_most():
    """What the noise is measured by; the same batch with and without one image."""
    images, _ = data().batch(np.arange(20))
    clip = 0.01
    moved = []
    for given in (images, images[:-1]):
        networks = PrivateNetworks(TINY, limits(dp_clip=clip, dp_noise=1e-12))
        discriminator = networks.networks[1]
        before = torch.cat([p.detach().flatten().clone() for p in discriminator.parameters()])
        optimizer = private_networks.clipping(
            torch.optim.SGD(discriminator.parameters(), lr=1.0), noise=1e-12, clip=clip,
            expected_batch=1.0,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of torch's hooks, as `train` does
            networks._discriminate(optimizer, (given, torch.zeros(len(given))), images[:3], ())
        after = torch.cat([p.detach().flatten() for p in discriminator.parameters()])
        moved.append(after - before)
    assert (moved[0] - moved[1]).norm() == pytest.approx(clip, rel=1e-2)


def test_an_image_whose_gradient_overflows_changes_nothing_that_noise_does_not_cover():
    """A server could choose weights that overflow on one pattern, and see whether all are NaN."""
    gan = replace(TINY, discriminator=lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 1)))
    images = torch.zeros(3, *IMAGE)
    images[1] = 1.0
    found = []
    for given in (images, images[[0, 2]]):
        networks = PrivateNetworks(gan, limits(dp_noise=1e-12))
        score = networks.networks[1][1]
        nn.init.constant_(score.weight, 1e38)
        nn.init.constant_(score.bias, 0.5)
        optimizer = private_networks.clipping(
            torch.optim.SGD(score.parameters(), lr=1.0), noise=1e-12, clip=1.0, expected_batch=1.0
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of torch's hooks, as `train` does
            networks._discriminate(optimizer, (given, torch.zeros(len(given))), images[[0, 2]], ())
        found.append([p.detach().clone() for p in (score.weight, score.bias)])
    (weight, bias), (other_weight, other_bias) = found
    assert weight.isfinite().all()
    assert torch.equal(weight, other_weight)
    torch.testing.assert_close(bias, other_bias)


def test_a_batch_without_a_real_image_is_a_step_of_noise():
    networks = PrivateNetworks(TINY, limits(dp_noise=2.0))
    one = networks.train(data(1000), STATE, task(batch=2, steps=1), seed=0)
    with_seed = [np.random.default_rng(seed).random(1000).min() for seed in range(20)]
    empty = int(np.argmax(with_seed))
    assert with_seed[empty] > 2 / 1000  # nobody is in the batch
    other = networks.train(data(1000), STATE, task(batch=2, steps=1), seed=empty)
    again = networks.train(data(1000, seed=9), STATE, task(batch=2, steps=1), seed=empty)
    assert same(other.state, again.state)  # no image has a say
    assert not same(other.state, one.state)
    weight = "discriminator.4.weight"
    assert (other.state[weight] - STATE[weight]).abs().mean() > 0.05  # 0.1 · σ · C / 2


def test_noise_comes_from_the_devices_secret_and_not_from_the_servers_seed():
    networks = PrivateNetworks(TINY, limits())

    def update(secret, **other):
        account = PrivacyAccount(limits(), secret=secret)
        return PrivateTrainer(networks, account).train(data(), STATE, replace(task(), **other))

    assert same(update(1).state, update(1, seed=1234).state)
    assert not same(update(1).state, update(2).state)
    assert not same(update(None).state, update(None).state)
    account = PrivacyAccount(limits(), secret=1)
    trainer = PrivateTrainer(networks, account)
    assert not same(
        trainer.train(data(), STATE, task()).state, trainer.train(data(), STATE, task()).state
    )


def test_losses_that_are_told_are_those_of_generated_images():
    networks = PrivateNetworks(TINY, limits(dp_clip=1e-9, dp_noise=1e-3))
    found = [networks.train(data(seed=k), STATE, task(steps=1), seed=3) for k in (0, 1)]
    assert found[0].discriminator_loss == found[1].discriminator_loss


def test_an_update_says_what_was_spent_and_when_there_is_too_little_for_another():
    account = PrivacyAccount(limits(dp_epsilon=1.8), secret=0)
    trainer = PrivateTrainer(PrivateNetworks(TINY, limits()), account)
    told = []
    while not told or not told[-1].spent:
        told.append(trainer.train(data(60), STATE, task(batch=4, steps=2)))
    spent = [each.epsilon for each in told]
    assert len(spent) > 2
    assert spent == sorted(set(spent))
    assert spent[-1] <= 1.8
    with pytest.raises(BudgetSpent):
        trainer.train(data(60), STATE, task(batch=4, steps=2))


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("name", ["lsgan(width=0.0625, group_norm=True)"])
def test_conditional_networks_of_the_library_train_privately(name, keeps):
    gan = gan_for(name, (1, 16, 16), classes=4)
    rng = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (12, 1, 16, 16), generator=rng, dtype=torch.uint8)
    own = DeviceData(images, torch.arange(12) % 4)
    state = network_state(gan.build(0))
    networks = PrivateNetworks(gan, limits())
    update = networks.train(own, state, task(batch=4, steps=2, every=2, keeps=keeps), seed=1)
    assert all(t.isfinite().all() for t in update.state.values() if t.is_floating_point())
    assert any("_optimizer." in name for name in update.state) is keeps
    plain = Trainer(gan).train(own, state, task(batch=4, steps=2))  # as without privacy
    assert plain.state.keys() == {n for n in update.state if "_optimizer." not in n}


def test_group_norm_takes_the_place_of_batch_norm_in_the_discriminator_alone():
    for text, image in (
        ("lsgan(width=0.25, group_norm=True)", (1, 28, 28)),
        ("dcgan(ngf=4, ndf=3, group_norm=True)", (3, 64, 64)),
    ):
        generator, discriminator = gan_for(text, image).build(0)
        assert not any(isinstance(m, nn.BatchNorm2d) for m in discriminator.modules())
        assert sum(isinstance(m, nn.GroupNorm) for m in discriminator.modules()) == 3
        assert any(isinstance(m, nn.BatchNorm2d) for m in generator.modules())
        discriminator.eval()  # no dropout: an image's score is its own
        images = torch.rand(5, *image) * 2 - 1
        torch.testing.assert_close(discriminator(images)[:2], discriminator(images[:2]))


# -- refusals -----------------------------------------------------------------------------------


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))
        self.score = nn.Linear(16, 1)

    def forward(self, images):
        return self.score(images.flatten(1))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"discriminator": lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16))},
         r"batch norm \(1\).*lsgan\(group_norm=True\)"),
        ({"discriminator": Counting}, "keeps seen besides its weights"),
        ({"discriminator_loss": lambda real, fake: (real - fake.mean()).square().mean()},
         "does not keep real images apart"),
        ({"discriminator_loss": lambda real, fake: fake.mean() - real.sum()},
         "does not keep real images apart"),
        ({"discriminator_loss": lambda real, fake: fake.mean() - real.std()},
         "does not keep real images apart"),
    ],
    ids=["batch norm", "buffers", "relativistic", "a sum", "a spread"],
)  # fmt: skip
def test_what_cannot_be_bounded_is_refused(changed, message):
    with pytest.raises(ConfigError, match=message):
        PrivateNetworks(replace(TINY, **changed), limits())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dp_epsilon": 0.01}, r"No device can pay for a single round: .* costs ε = .* 0.01"),
        ({"dp_delta": 0.1}, "A delta of 0.1 allows giving away one of 70 images"),
        ({"dp_epsilon": 0.0}, "dp_epsilon must be positive"),
        ({"dp_epsilon": None, "dp_delta": 1e-5, "dp_noise": 2.0}, "give --dp-epsilon too"),
        ({"clusters": 3}, "Give --public-images"),
    ],
)  # fmt: skip
def test_budgets_that_mean_nothing_are_refused_with_numbers(given, message):
    with pytest.raises(ConfigError, match=message):
        federation(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dp_delta": 0.5}, r"A delta of 0.5 allows giving away one of 20 images .* below 0.05"),
        ({"dp_epsilon": 0.01}, r"pays for no iteration: .* image of 20 costs ε = .* of 0.01"),
    ],
)
def test_a_device_of_its_own_refuses_a_budget_that_means_nothing(given, message, tmp_path):
    about = About("lsgan(width=0.0625, group_norm=True)", (1, 16, 16), ("a", "b"), False, "reset")
    with pytest.raises(ConfigError, match=message):
        trainer_of(about, limits(**given), tmp_path / "accounts" / "mine.json", 20)
    assert not (tmp_path / "accounts").exists()
    trainer_of(about, limits(), tmp_path / "accounts" / "mine.json", 20)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dp_delta": 0.5}, "A delta of 0.5 allows giving away one of"),
        ({"dp_epsilon": 0.01}, r"No device can pay for a single round: .* of 0.01"),
    ],
)
def test_processes_are_not_started_with_a_budget_that_means_nothing(given, message, tmp_path):
    settings = made(
        FedganSettings,
        {
            "gan": "lsgan(width=0.0625, group_norm=True)", "devices": 3, "fraction": 1.0,
            "dp_epsilon": 5.0,
        } | given,
    )  # fmt: skip
    with pytest.raises(ConfigError, match=message):
        ProcessTraining(settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_without_opacus_the_extra_is_named(monkeypatch):
    import sys

    from garfield.core.errors import MissingDependency

    for name in [name for name in sys.modules if name.partition(".")[0] == "opacus"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opacus", None)
    with pytest.raises(MissingDependency, match=r"pip install 'garfield-ml\[fedgan-private\]'"):
        PrivateNetworks(TINY, limits())


# -- rounds -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("sampling", ["balanced", "random"])
def test_devices_leave_when_their_budget_is_spent_until_nobody_is_left(sampling):
    held = federation(sampling=sampling)
    gone, last = set(), {}
    while not held.server.over:
        record = held.round()
        assert not gone & set(record.asked)
        assert set(record.epsilon) == set(record.took_part)
        assert all(spent > last.get(device, 0) for device, spent in record.epsilon.items())
        last |= record.epsilon
        gone |= set(record.spent)
        assert held.server.round < 200
    assert len(gone) + len(set(range(6)) - set(last)) == 6
    assert max(last.values()) <= 3.5
    assert [a.epsilon for a in held.private.accounts] == [last.get(k, 0.0) for k in range(6)]
    asked = held.server.history.asked
    assert asked[5] > asked[0]  # more images, smaller sampling rate, more rounds


@pytest.mark.slow
def test_a_device_that_cannot_pay_for_its_first_round_is_never_asked():
    held = federation(dp_epsilon=4.0, dp_noise=0.7)
    poor = held.private.spent()
    assert poor == [0]  # 20 images cost more than the budget
    while not held.server.over:
        assert not set(held.round().asked) & set(poor)


def test_a_robust_rule_ends_when_too_few_are_left_for_it():
    held = federation(gar="median", f=1, fraction=0.5)
    while not held.server.over:
        assert len(held.round().asked) == 3
    assert np.count_nonzero(~held.server.history.gone) < 3


def test_metrics_speak_of_privacy_only_where_there_is_some():
    event = federation().round().as_event()
    assert all(isinstance(device, str) for device in event["epsilon"])
    json.dumps(event)
    plain = federation(dp_epsilon=None, dp_delta=1e-5, dp_noise=1.0).round().as_event()
    assert "epsilon" not in plain
    assert "spent" not in plain


SMALL = {
    "gan": "lsgan(width=0.0625, group_norm=True)", "data": "fashion-small", "devices": 4,
    "fraction": 0.5, "partition": "iid", "local_steps": 2, "batch": 20, "rounds": 30,
    "evaluate_every": 0, "checkpoint_every": 1, "judge": "none", "dp_epsilon": 1.8,
}  # fmt: skip


def train(path, resume=False, tell=lambda event: None, **other):
    settings = made(FedganSettings, SMALL | other)
    return training.train(settings, RunDirectory(path), tell, resume=resume)


@pytest.mark.slow
def test_a_run_ends_in_good_order_when_nobody_is_left_and_says_so(tmp_path, capsys):
    words = [
        word
        for name, value in SMALL.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    out = tmp_path / "run"
    assert run(["fedgan", "train", "--simulate", "--out", str(out), *words]) == 0
    shown = capsys.readouterr()
    said = " ".join((shown.out + shown.err).split())
    summary = json.loads((out / "summary.json").read_text())
    assert 2 <= summary["rounds"] < 30
    assert summary["ended"].startswith(f"It ends after {summary['rounds']} of 30 rounds")
    assert "privacy budget of ε = 1.8" in said
    assert "ε ≤" in said
    assert 0 < summary["epsilon"] <= 1.8
    assert (summary["delta"], summary["devices_spent"]) == (1e-5, 4)
    assert (out / f"images/round-{summary['rounds']:08}.png").exists()  # the last evaluation


@pytest.mark.slow
def test_a_resumed_run_has_spent_what_it_had_and_ends_at_the_same_bits(tmp_path):
    class Cut(Exception):  # noqa: N818
        pass

    def cut(event):
        if event["event"] == "round" and event["round"] == 2:
            raise Cut

    expected = train(tmp_path / "whole")
    with pytest.raises(Cut):
        train(tmp_path / "cut", tell=cut)
    found = train(tmp_path / "cut", resume=True)
    assert same(found.server.state, expected.server.state)
    assert [each.epsilon for each in found.private.accounts] == [
        each.epsilon for each in expected.private.accounts
    ]
    assert found.server.history.gone.tolist() == expected.server.history.gone.tolist()
    assert found.server.round == expected.server.round == 4
