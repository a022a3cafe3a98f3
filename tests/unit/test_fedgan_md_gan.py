"""MD-GAN is what its paper says, and centralized training is the plain loop."""

import dataclasses

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from garfield.core.errors import ConfigError, DivergedError, InputError
from garfield.fedgan.baselines import (
    CentralizedTraining,
    MdGanDevice,
    MdGanServer,
    MdGanTraining,
    Messages,
)
from garfield.fedgan.baselines.md_gan import batches_drawn
from garfield.fedgan.baselines.md_gan_training import swap_period
from garfield.fedgan.baselines.randomness import LocalImages, drawn_from, mixed
from garfield.fedgan.gan import Gan
from garfield.fedgan.networks import gan_for
from tests.fedgan_small import BATCH, IMAGE, flat, images, lsgan, shares
from tests.marks import heavy_but


def lsgan_by_sgd(classes=None):
    """Trained by plain descent: Adam makes a step of full length of a gradient that is nothing
    but rounding, and LSGAN has some, of biases in front of batch norm."""
    return dataclasses.replace(
        lsgan(classes), optimizer=lambda parameters: torch.optim.SGD(parameters, 0.05, 0.9)
    )


class ByHand:
    """One generator and N discriminators in one graph, as a textbook would write it: the
    generator's loss is the mean of what each discriminator says of its batch."""

    def __init__(self, gan, shares, seed, k, steps=1):
        self.gan, self.seed, self.k, self.steps, self.t = gan, seed, k, steps, 0
        self.generator = gan.build(seed)[0]
        self.judges = [gan.build(mixed(seed, n + 1))[1] for n in range(len(shares))]
        self.data = [LocalImages(x, y, BATCH, seed, n + 1) for n, (x, y) in enumerate(shares)]
        self.opt = gan.optimizer(self.generator.parameters())
        self.opts = [gan.optimizer(judge.parameters()) for judge in self.judges]

    def iterate(self, heard=None):
        heard = range(len(self.judges)) if heard is None else heard
        made = []
        with drawn_from(self.seed, 0, self.t):
            for _ in range(self.k):
                z = torch.randn(BATCH, self.gan.latent)
                asked = ()
                if self.gan.conditional_on:
                    asked = (torch.randint(self.gan.conditional_on, (BATCH,)),)
                made.append((self.generator(z, *asked), asked))
        total = 0.0
        for n in heard:
            judge, (fake, asked) = self.judges[n], made[n % self.k]
            real, labels = self.data[n].batch(self.t)
            with drawn_from(self.seed, n + 1, self.t):
                for _ in range(self.steps):
                    self.opts[n].zero_grad()
                    told = judge(real, labels) if asked else judge(real)
                    self.gan.discriminator_loss(told, judge(fake.detach(), *asked)).backward()
                    self.opts[n].step()
                shown, asked = made[(n + 1) % self.k]
                total = total + self.gan.generator_loss(judge(shown, *asked)) / len(heard)
        self.opt.zero_grad()
        total.backward()
        self.opt.step()
        self.t += 1


CASES = [
    ("lsgan", 1, 1, 1, None),
    ("lsgan", 5, 1, 1, None),
    ("lsgan", 8, 2, 1, None),
    ("lsgan", 8, 2, 2, None),
    ("lsgan", 8, 2, 1, 3),
    ("lsgan", 7, 3, 1, None),
    ("dense", 8, 2, 1, 3),
]
FEW = ("lsgan", 5, 1, 1, None), ("dense", 8, 2, 1, 3)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "devices", "k", "steps", "classes"), heavy_but(CASES, *FEW))
def test_iterations_equal_those_of_one_process_written_by_hand(kind, devices, k, steps, classes):
    """Dropout and batch norm included: what leaves a device is exactly a gradient of pixels.

    Each iteration begins from the same weights: what rounding leaves of the one before, 1e-7, may
    turn a rectifier the other way in the next, which moved a weight by 1.5e-4 on one processor.
    """
    gan = lsgan_by_sgd(classes) if kind == "lsgan" else dense_gan(classes)
    data = shares(devices)
    training = MdGanTraining(
        gan, data, batch=BATCH, k=k, discriminator_steps=steps, epochs_per_swap=0, seed=4
    )
    by_hand = ByHand(gan, data, seed=4, k=k, steps=steps)
    start = flat(training.server.generator)
    for _ in range(3):
        training.iterate()
        by_hand.iterate()
        moved = flat(training.server.generator)
        torch.testing.assert_close(moved, flat(by_hand.generator), rtol=0, atol=1e-5)
        for device, judge in zip(training.devices, by_hand.judges, strict=True):
            torch.testing.assert_close(flat(device.discriminator), flat(judge), rtol=0, atol=1e-5)
            judge.load_state_dict(device.discriminator.state_dict())
        by_hand.generator.load_state_dict(training.server.generator.state_dict())
    assert (moved - start).abs().max() > 1e-3  # something was learned that could differ


def test_the_number_of_batches_is_the_log_of_the_number_of_devices():
    assert [batches_drawn(n) for n in (1, 2, 3, 7, 8, 10, 20, 21, 60, 176)] == [
        1, 1, 1, 1, 2, 2, 2, 3, 4, 5,
    ]  # fmt: skip


def test_devices_learn_from_one_batch_and_judge_the_next():
    server = MdGanServer(lsgan(), IMAGE, 20, batch=BATCH, seed=1)
    server.draw()
    sent = [server.messages.unpack(server.batches_for(n)) for n in range(4)]
    (d0, g0), (d1, g1), (d2, _), _ = [[pair[0] for pair in pairs] for pairs in sent]
    assert server.messages.k == 2
    assert torch.equal(g0, d1)
    assert torch.equal(g1, d0)
    assert torch.equal(d2, d0)
    assert not torch.equal(d0, d1)


def test_bytes_are_those_of_the_vectors_in_both_directions():
    data = shares(8, each=12)
    training = MdGanTraining(lsgan(), data, batch=BATCH, epochs_per_swap=1.0)
    assert training.server.swap_every == 2
    pixels = BATCH * 256 * 4
    training.iterate()
    assert {(t.down, t.up) for t in training.traffic} == {(2 * pixels, pixels)}
    training.iterate()
    moved = training.devices[0].discriminator_length * 4
    assert {(t.down, t.up) for t in training.traffic} == {(4 * pixels + moved, 2 * pixels + moved)}


def test_one_batch_for_all_travels_once():
    training = MdGanTraining(lsgan(), shares(2), batch=BATCH, epochs_per_swap=0)
    training.iterate()
    assert training.server.messages.k == 1
    assert training.traffic[0].down == training.traffic[0].up == BATCH * 256 * 4


def test_a_conditional_batch_carries_its_classes():
    messages = Messages(IMAGE, BATCH, 2, conditional=True)
    pairs = [(images(BATCH)[0], torch.randint(3, (BATCH,))) for _ in range(2)]
    vector = np.concatenate([messages.pack(*pair) for pair in pairs])
    assert vector.shape == (messages.batches,)
    for (x, y), (x_again, y_again) in zip(pairs, messages.unpack(vector), strict=True):
        assert torch.equal(x, x_again)
        assert torch.equal(y, y_again)
        assert y_again.dtype == torch.int64


def test_every_device_gets_anothers_discriminator_when_they_change_places():
    data = shares(5, each=BATCH)
    training = MdGanTraining(lsgan(), data, batch=BATCH, epochs_per_swap=1.0, seed=2)
    training.server.swap_every = 0
    training.iterate()
    before = [device.give_discriminator() for device in training.devices]
    training.server.swap_every = 1
    swaps = training.server.swaps()
    assert sorted(swaps) == sorted(swaps.values()) == list(range(5))
    assert all(getter != giver for getter, giver in swaps.items())
    training._swap()
    for getter, giver in swaps.items():
        np.testing.assert_array_equal(training.devices[getter].give_discriminator(), before[giver])
    again = {tuple(sorted(swaps.items()))}
    for training.server.iteration in range(2, 9):
        again.add(tuple(sorted(training.server.swaps().items())))
    assert len(again) > 1  # not always the same neighbour


def test_what_batch_norm_has_learned_moves_with_a_discriminator():
    training = MdGanTraining(lsgan(), shares(2), batch=BATCH, epochs_per_swap=0)
    training.iterate()
    first, second = training.devices
    mean = first.discriminator.state_dict()["layers.4.running_mean"].clone()
    assert mean.abs().sum() > 0
    second.take_discriminator(first.give_discriminator())
    assert torch.equal(second.discriminator.state_dict()["layers.4.running_mean"], mean)


def test_discriminators_change_places_after_so_many_epochs_of_a_devices_data():
    assert swap_period([6000] * 10, 50, 1.0) == 120
    assert swap_period([100, 300], 50, 0.5) == 2
    assert swap_period([10], 50, 1.0) == 1
    assert swap_period([10], 50, 0) == 0


def test_the_same_seed_gives_the_same_bits_and_torchs_own_state_is_left_alone():
    before = torch.random.get_rng_state()
    runs = []
    for seed in (5, 5, 6):
        training = MdGanTraining(lsgan(), shares(3), batch=BATCH, seed=seed)
        training.train(4)
        runs.append(flat(training.server.generator))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_device_that_is_late_does_not_count():
    gan, data = lsgan_by_sgd(), shares(3)
    server = MdGanServer(gan, IMAGE, 3, batch=BATCH, seed=1)
    devices = [
        MdGanDevice(gan, *share, server.messages, number=n, seed=1) for n, share in enumerate(data)
    ]
    server.draw()
    for number in (0, 2):
        server.take_feedback(number, devices[number].feedback(server.batches_for(number)))
    server.update()
    by_hand = ByHand(gan, data, seed=1, k=1)
    by_hand.iterate(heard=(0, 2))
    torch.testing.assert_close(flat(server.generator), flat(by_hand.generator), rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["md-gan", "centralized"])
def test_a_training_that_is_resumed_ends_at_the_same_bits(kind, tmp_path):
    def made():
        if kind == "centralized":
            return CentralizedTraining(lsgan(), *images(40), batch=BATCH, seed=7)
        return MdGanTraining(lsgan(), shares(8, each=12), batch=BATCH, seed=7)

    whole, broken_off, resumed = made(), made(), made()
    whole.train(5)
    broken_off.train(3)
    save_file(broken_off.state(), tmp_path / "state.safetensors")
    resumed.restore(load_file(tmp_path / "state.safetensors"))
    resumed.train(5)
    expected, found = whole.state(), resumed.state()
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[key], found[key]) for key in expected)
    assert resumed.iteration == 5


def test_a_saved_training_of_other_networks_or_devices_is_refused():
    training = MdGanTraining(lsgan(), shares(2), batch=BATCH)
    with pytest.raises(InputError, match="has 3 devices, not 2"):
        training.restore(MdGanTraining(lsgan(), shares(3), batch=BATCH).state())
    other = gan_for("lsgan(width=0.125)", IMAGE)
    with pytest.raises(InputError, match=r"for generator.dense.weight, not .* other networks"):
        training.restore(MdGanTraining(other, shares(2), batch=BATCH).state())


# ---- bad input


def test_feedback_that_cannot_be_used_is_refused_with_its_device():
    server = MdGanServer(lsgan(), IMAGE, 2, batch=BATCH)
    server.draw()
    good = np.zeros(BATCH * 256, np.float32)
    with pytest.raises(InputError, match=r"feedback of device 1 should have 1536 float32 numbers"):
        server.take_feedback(1, good[1:])
    with pytest.raises(InputError, match="got float64"):
        server.take_feedback(1, good.astype(np.float64))
    broken = good.copy()
    broken[7] = np.nan
    with pytest.raises(InputError, match="feedback of device 1 is not finite at iteration 0"):
        server.take_feedback(1, broken)
    server.take_feedback(1, good)
    for stranger in (1, 2, -1):
        with pytest.raises(InputError, match=f"No feedback of device {stranger} is awaited"):
            server.take_feedback(stranger, good)
    server.update()
    server.draw()
    with pytest.raises(InputError, match="No device gave feedback at iteration 1"):
        server.update()


def test_a_discriminator_that_is_none_is_not_taken_over():
    training = MdGanTraining(lsgan(), shares(1), batch=BATCH)
    device = training.devices[0]
    before = device.give_discriminator()
    for strange in (before[1:], np.full_like(before, np.inf)):
        with pytest.raises(InputError):
            device.take_discriminator(strange)
    np.testing.assert_array_equal(device.give_discriminator(), before)
    with pytest.raises(InputError, match="batches of generated images should have"):
        device.feedback(before)


def test_numbers_that_do_not_fit_are_refused_before_anything_starts():
    none = (torch.zeros(0, *IMAGE), torch.zeros(0, dtype=torch.long))
    cases = [
        (ConfigError, r"k must be within 1\.\.2 \(devices\), got 3", shares(2), {"k": 3}),
        (ConfigError, "at least 1 device, got none", [], {}),
        (InputError, "Device 1 has no images", [shares(1)[0], none], {}),
        (
            ConfigError,
            "at least 1 discriminator step, got 0",
            shares(1),
            {"discriminator_steps": 0},
        ),
        (ConfigError, "must not be negative, got -1", shares(1), {"epochs_per_swap": -1}),
        (ConfigError, "A batch must hold at least 1 image, got 0", shares(1), {"batch": 0}),
    ]
    for error, message, data, wrong in cases:
        with pytest.raises(error, match=message):
            MdGanTraining(lsgan(), data, **{"batch": BATCH, **wrong})
    other = (torch.zeros(4, 1, 20, 20), torch.zeros(4, dtype=torch.long))
    with pytest.raises(InputError, match=r"Device 1 has images of \(1, 20, 20\), others of"):
        MdGanTraining(lsgan(), [shares(1)[0], other], batch=BATCH)
    with pytest.raises(ConfigError, match="conditional on 2 classes, and labels run from 0 to 2"):
        MdGanTraining(lsgan(classes=2), shares(1), batch=BATCH)
    with pytest.raises(InputError, match="must be floats"):
        MdGanTraining(lsgan(), [(images(4)[0].to(torch.uint8), images(4)[1])], batch=BATCH)


# ---- centralized


def test_centralized_iterations_equal_the_plain_loop():
    gan, (x, y) = lsgan_by_sgd(), images(40)
    training = CentralizedTraining(gan, x, y, batch=BATCH, seed=3)
    training.train(3)
    generator, discriminator = gan.build(3)
    g, d = gan.optimizer(generator.parameters()), gan.optimizer(discriminator.parameters())
    local = LocalImages(x, y, BATCH, 3)
    for t in range(3):
        with drawn_from(3, t):
            fake = generator(torch.randn(BATCH, gan.latent))
            d.zero_grad()
            real = discriminator(local.batch(t)[0])
            gan.discriminator_loss(real, discriminator(fake.detach())).backward()
            d.step()
            g.zero_grad()
            gan.generator_loss(discriminator(fake)).backward()
            g.step()
    torch.testing.assert_close(flat(training.generator), flat(generator), rtol=0, atol=1e-6)
    torch.testing.assert_close(flat(training.discriminator), flat(discriminator), rtol=0, atol=1e-6)


@pytest.mark.slow
def test_centralized_training_learns_what_its_images_have_in_common():
    """All images are dark on the left and bright on the right; noise knows nothing of sides."""
    x, y = images(100)
    x = 0.2 * x + torch.cat([torch.full((8,), -0.8), torch.full((8,), 0.8)])
    training = CentralizedTraining(dense_gan(), x, y, batch=20, seed=0)
    seen = []
    training.train(300, every=100, then=lambda at: seen.append(at.iteration))
    assert seen == [100, 200, 300]
    made = training.gan.generate(
        training.generator, training.gan.noise(40, torch.Generator().manual_seed(1))
    )
    assert made[..., :8].mean() < -0.4
    assert made[..., 8:].mean() > 0.4


def test_a_training_whose_losses_are_no_numbers_ends():
    x, y = images(20)
    training = CentralizedTraining(lsgan(), x, y, batch=BATCH)
    with torch.no_grad():
        training.generator.dense.weight.fill_(float("nan"))
    with pytest.raises(DivergedError, match="at iteration 0: lower the learning rate"):
        training.iterate()


def test_fewer_images_than_a_batch_are_drawn_more_than_once():
    local = LocalImages(*images(4), 10, 0)
    x, y = local.batch(0)
    assert (len(x), len(y), len(local)) == (10, 10, 4)


class Dense(nn.Module):
    """A generator or discriminator of two layers that may be told the class."""

    def __init__(self, inputs, outputs, classes, end):
        super().__init__()
        self.classes, self.end = classes or 0, end
        self.first = nn.Linear(inputs + self.classes, 32)
        self.last = nn.Linear(32, outputs)

    def forward(self, x, *labels):
        told = [nn.functional.one_hot(each, self.classes).float() for each in labels]
        return self.end(self.last(torch.tanh(self.first(torch.cat([x.flatten(1), *told], 1)))))


def dense_gan(classes=None):
    return Gan(
        generator=lambda: Dense(4, 256, classes, lambda x: torch.tanh(x).reshape(-1, *IMAGE)),
        discriminator=lambda: Dense(256, 1, classes, nn.Identity()),
        latent=4,
        generator_loss=lambda fake: (fake - 1).square().mean(),
        discriminator_loss=lambda real, fake: (real - 1).square().mean() + fake.square().mean(),
        optimizer=lambda parameters: torch.optim.Adam(parameters, 2e-3, betas=(0.5, 0.999)),
        conditional_on=classes,
    )
