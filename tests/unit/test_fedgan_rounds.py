"""One device's training, the server's round, and many devices in one process."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from garfield.core.config import made
from garfield.core.errors import BoundError, ConfigError, InputError, RunError
from garfield.fedgan.averaging import network_state
from garfield.fedgan.device import DeviceData, Task, Trainer, drawing_from, iterate
from garfield.fedgan.gan import Gan
from garfield.fedgan.joining import Layout, Robust
from garfield.fedgan.load import Load
from garfield.fedgan.lying import METADATA_ATTACKS
from garfield.fedgan.networks import gan_for
from garfield.fedgan.server import device_seed
from garfield.fedgan.settings import MOST_BATCH, MOST_STEPS, FedganSettings
from garfield.fedgan.simulation import simulated

IMAGE = (1, 4, 4)


class TinyGenerator(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 16), nn.Tanh())

    def forward(self, z):
        return self.layers(z).view(-1, *IMAGE)


def tiny_discriminator():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1)
    )


TINY = Gan(
    generator=TinyGenerator,
    discriminator=tiny_discriminator,
    latent=3,
    generator_loss=lambda fake: (fake - 1).square().mean(),
    discriminator_loss=lambda real, fake: ((real - 1).square() + fake.square()).mean() / 2,
    optimizer=lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
)
STATE = network_state(TINY.build(0))


def data(samples=20, seed=0, classes=4):
    rng = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (samples, *IMAGE), generator=rng, dtype=torch.uint8)
    return DeviceData(images, torch.randint(0, classes, (samples,), generator=rng))


def task(**other):
    return Task(0, Load(8, 4), 1, 77, False).__class__(
        **({"round": 0, "load": Load(8, 4), "generator_every": 1, "seed": 77,
            "keeps_optimizer": False} | other)
    )  # fmt: skip


def settings(**given):
    given = {"devices": 12, "fraction": 0.5, "local_steps": 3, "batch": 8, "rounds": 3} | given
    return made(FedganSettings, given)


def federation(gan=TINY, samples=20, **given):
    chosen = settings(**given)
    devices = [data(samples + k, seed=k) for k in range(chosen.population.devices)]
    return simulated(gan, devices, classes=4, settings=chosen)


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# -- a device -----------------------------------------------------------------------------------


def test_training_is_the_loop_written_out_by_hand():
    """Fresh images and fresh scores everywhere, no frozen weights: the same networks come out."""
    given = task()
    update = Trainer(TINY).train(data(), STATE, given)
    generator, discriminator = TINY.build(0)
    steps = TINY.optimizer(generator.parameters()), TINY.optimizer(discriminator.parameters())
    batches = np.random.default_rng(given.seed)
    with drawing_from(given.seed):
        for _ in range(given.load.steps):
            rows = batches.choice(20, 8, replace=False)
            real = data().images[torch.from_numpy(rows)].float() / 127.5 - 1
            fake = generator(torch.randn(8, 3))
            steps[1].zero_grad()
            TINY.discriminator_loss(discriminator(real), discriminator(fake.detach())).backward()
            steps[1].step()
            steps[0].zero_grad()
            TINY.generator_loss(discriminator(fake)).backward()
            steps[0].step()
    expected = network_state((generator, discriminator))
    for name, tensor in update.state.items():
        torch.testing.assert_close(tensor, expected[name], msg=name)


def test_what_a_device_does_depends_on_state_data_and_task_alone():
    trainer = Trainer(TINY)
    first = trainer.train(data(), STATE, task())
    trainer.train(data(seed=5), first.state, task(seed=1))  # another device in between
    torch.manual_seed(123)
    before = torch.get_rng_state()
    again = trainer.train(data(), STATE, task())
    assert torch.equal(torch.get_rng_state(), before)
    assert same(first.state, again.state)
    assert same(first.state, Trainer(TINY).train(data(), STATE, task()).state)
    assert not same(first.state, trainer.train(data(), STATE, task(seed=78)).state)


def test_the_generator_steps_once_per_e_iterations():
    steps = []

    class Counted(torch.optim.SGD):
        def step(self, closure=None):
            steps.append(len(self.param_groups[0]["params"]))
            return super().step(closure)

    gan = replace(TINY, optimizer=lambda parameters: Counted(parameters, lr=0.01))
    Trainer(gan).train(data(), STATE, task(load=Load(8, 7), generator_every=3))
    assert steps == [4, 4, 4, 6, 4, 4, 4, 6, 4]  # the generator has 6 parameters


def test_the_discriminators_weights_take_gradients_again_afterwards():
    trainer = Trainer(TINY)
    trainer.train(data(), STATE, task())
    assert all(parameter.requires_grad for parameter in trainer.networks[1].parameters())


def test_fewer_samples_than_a_batch_are_drawn_again():
    update = Trainer(TINY).train(data(samples=2), STATE, task())
    assert np.isfinite([update.generator_loss, update.discriminator_loss]).all()


def test_optimizers_begin_anew_or_go_on():
    trainer, longer = Trainer(TINY), Trainer(TINY)
    kept = task(keeps_optimizer=True)
    first = trainer.train(data(), STATE, kept)
    assert first.state["generator_optimizer.0.step"].item() == 4
    second = longer.train(data(), first.state, replace(kept, seed=5))
    assert second.state["generator_optimizer.0.step"].item() == 8
    reset = trainer.train(data(), first.state, task(seed=5))
    assert not any("optimizer" in name for name in reset.state)
    assert not torch.equal(
        reset.state["generator.layers.0.weight"], second.state["generator.layers.0.weight"]
    )


def test_conditional_networks_are_given_the_labels_of_the_real_images():
    asked = []

    class Listening(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = tiny_discriminator()

        def forward(self, images, labels):
            asked.append(labels)
            return self.inner(images)

    class Labelled(TinyGenerator):
        def forward(self, z, labels):
            asked.append(labels)
            return super().forward(z)

    gan = replace(TINY, generator=Labelled, discriminator=Listening, conditional_on=4)
    share = data()
    iterate(
        gan, networks := gan.build(0), tuple(gan.optimizer(n.parameters()) for n in networks),
        share, task(load=Load(8, 1)),
    )  # fmt: skip
    rows = np.random.default_rng(77).choice(20, 8, replace=False)
    assert len(asked) == 4
    assert all(torch.equal(labels, share.labels[rows]) for labels in asked)


def test_bytes_and_floats_are_the_same_images():
    share = data()
    floats = DeviceData(share.images.float() / 127.5 - 1, share.labels, rows=np.array([4, 2, 9]))
    images, labels = floats.batch(np.array([2, 0]))
    bytes_, _ = share.batch(np.array([9, 4]))
    torch.testing.assert_close(images, bytes_)
    assert torch.equal(labels, share.labels[[9, 4]])
    assert floats.class_counts(4) == tuple(torch.bincount(share.labels[[4, 2, 9]], minlength=4))


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (torch.zeros(3, 4, 4), torch.zeros(3, dtype=torch.int64), r"must be \(n, c, h, w\)"),
        (torch.zeros(3, 1, 4, 4).double(), torch.zeros(3, dtype=torch.int64), "float64"),
        (torch.zeros(3, 1, 4, 4), torch.zeros(2, dtype=torch.int64), "3 images need as many"),
        (torch.zeros(3, 1, 4, 4), torch.zeros(3), "int64 labels"),
    ],
)
def test_data_of_another_shape_is_refused(images, labels, message):
    with pytest.raises(InputError, match=message):
        DeviceData(images, labels)


def test_labels_out_of_range_are_refused():
    with pytest.raises(InputError, match="Labels run from 0 to 3, not within"):
        data().class_counts(3)


def test_a_task_is_read_as_it_was_sent_and_nonsense_is_refused():
    assert Task.read(task().as_json()) == task()
    for wrong in (None, {}, task().as_json() | {"batch": 0}, task().as_json() | {"steps": 1.5},
                  task().as_json() | {"seed": -1}, task().as_json() | {"more": 1}):  # fmt: skip
        with pytest.raises(InputError, match="task"):
            Task.read(wrong)


@pytest.mark.parametrize(
    ("what", "most"),
    [
        ("seed", 2**63 - 1), ("batch", MOST_BATCH), ("steps", MOST_STEPS),
        ("generator_every", MOST_STEPS), ("round", 2**32),
    ],
)  # fmt: skip
def test_no_server_can_ask_a_device_for_a_task_that_never_ends(what, most):
    assert Task.read(task().as_json() | {what: most}).as_json()[what] == most
    with pytest.raises(InputError, match=rf"task's {what} must be .* within \d\.\.{most}, got"):
        Task.read(task().as_json() | {what: most + 1})
    with pytest.raises(InputError, match=f"task's {what} must be"):
        Task.read(task().as_json() | {what: 10**31})


def test_a_setting_that_no_device_would_follow_is_refused_before():
    for given in ({"batch": MOST_BATCH + 1}, {"local_steps": MOST_STEPS + 1}):
        with pytest.raises(ConfigError, match=r"within 1\.\."):
            made(FedganSettings, given)


# -- the server ---------------------------------------------------------------------------------


def test_a_round_is_the_weighted_mean_of_what_its_devices_learned():
    found = federation()
    server = found.server
    plan = server.plan()
    trained = [
        Trainer(TINY).train(found.devices[device], server.state, each).state
        for device, each in zip(plan.devices, plan.tasks, strict=True)
    ]
    record = found.round()
    assert record.took_part == plan.devices
    assert sum(record.weights) == pytest.approx(1)
    for name, tensor in server.state.items():
        if tensor.is_floating_point():
            expected = sum(w * t[name] for w, t in zip(record.weights, trained, strict=True))
            torch.testing.assert_close(tensor, expected, msg=name)


def test_devices_may_declare_anew_when_their_data_change():
    found = federation(fraction=0.25)
    found.round()
    server = found.server
    seen, asked = server.history.seen.copy(), server.history.asked.copy()
    latest = int(np.flatnonzero(asked == 0)[-1])
    counts = server.table.counts.copy()
    counts[latest] = [500, 500, 500, 500]
    server.learn_metadata(replace(server.table, counts=counts))
    np.testing.assert_array_equal(server.history.seen, seen)
    assert server.plan().devices[0] == latest  # never asked, and the largest now
    with pytest.raises(InputError, match="11 devices declare 4 classes"):
        server.learn_metadata(replace(server.table, counts=counts[1:]))


def test_a_class_that_was_seen_may_vanish_and_the_record_stays_one_of_numbers():
    found = federation(fraction=1.0)
    found.round()
    server = found.server
    counts = server.table.counts.copy()
    counts[:, 3] = 0
    counts[:, 0] += 1
    server.learn_metadata(replace(server.table, counts=counts))
    assert server.history.seen[3] > 0
    record = found.round()
    assert record.kl_seen is None  # no distance is that far
    json.dumps(record.as_event(), allow_nan=False)  # or no server could commit it, ever again


def test_every_device_of_every_round_draws_from_a_seed_of_its_own():
    seeds = {device_seed(s, r, d) for s in range(3) for r in range(20) for d in range(20)}
    assert len(seeds) == 1200


def test_a_silent_device_and_one_that_sends_nonsense_are_left_out_and_named():
    found = federation(fraction=0.25)
    server = found.server
    plan = server.plan()
    good = Trainer(TINY).train(found.devices[plan.devices[0]], server.state, plan.tasks[0])
    broken = replace(good, state=good.state | {"generator.layers.0.bias": torch.full((8,), np.nan)})
    record = server.finish(plan, [good, broken, None])
    assert record.took_part == plan.devices[:1]
    assert record.weights == (1.0,)
    assert record.asked == plan.devices
    assert "NaN" in record.refused[plan.devices[1]]
    assert "nothing in time" in record.refused[plan.devices[2]]
    for name, tensor in server.state.items():
        torch.testing.assert_close(tensor, good.state[name])
    assert server.history.asked.sum() == 3
    assert server.history.took_part.sum() == 1


def test_optimizer_state_of_another_shape_is_left_out_too():
    found = federation(fraction=0.25, optimizer_state="average")
    name = "generator_optimizer.0.exp_avg"
    for number in range(2):  # before the first round the server has none to compare with
        server = found.server
        plan = server.plan()
        sent = [
            Trainer(TINY).train(found.devices[device], server.state, each)
            for device, each in zip(plan.devices, plan.tasks, strict=True)
        ]
        sent[1] = replace(sent[1], state=sent[1].state | {name: torch.zeros(2)})
        record = server.finish(plan, sent)
        assert list(record.refused) == [plan.devices[1]], number
        assert server.state[name].shape == (8, 3)


def test_a_round_without_any_usable_answer_changes_nothing():
    found = federation(fraction=0.25)
    before = dict(found.server.state)
    with pytest.raises(RunError, match=r"Round 0 has failed: device-.* sent nothing in time"):
        found.server.finish(found.server.plan(), [None] * 3)
    assert same(found.server.state, before)
    assert found.server.round == 0


def test_bytes_are_counted_for_who_was_asked_and_who_answered():
    found = federation(fraction=0.25)
    found.round()
    size = sum(tensor.numel() * tensor.element_size() for tensor in found.server.state.values())
    assert sorted(found.server.bytes_per_device().tolist()) == [0] * 9 + [2 * size] * 3


def test_weak_devices_do_a_quarter_and_count_a_quarter():
    found = federation(weak_devices=0.5, weighting="kl", fraction=1.0, partition="iid")
    plan = found.server.plan()
    loads = [each.load for each in plan.tasks]
    assert loads.count(Load(4, 2)) == 6  # 3 iterations, halved and rounded to even
    assert loads.count(Load(8, 3)) == 6


# -- simulation -----------------------------------------------------------------------------------


def test_same_seed_same_bits_another_seed_others():
    runs = [federation(seed=seed) for seed in (3, 3, 4)]
    records = [[run.round() for _ in range(3)] for run in runs]
    assert records[0] == records[1]
    assert same(runs[0].server.state, runs[1].server.state)
    assert not same(runs[0].server.state, runs[2].server.state)


def test_images_are_those_of_the_servers_generator():
    found = federation()
    found.round()
    images = found.images(5, seed=1)
    assert images.shape == (5, *IMAGE)
    assert torch.equal(images, found.images(5, seed=1))
    assert not torch.equal(images, found.images(5, seed=2))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"fraction": 0.05}, ConfigError, "a fraction of 0.05 of 12 devices is 0.6 devices"),
        ({"gar": "krum", "f": 2}, BoundError, "krum needs n >= 7 inputs to tolerate f=2 faults"),
        ({"gar": "monna", "f": 1}, ConfigError, "trusts the row of the node"),
        ({"gar": "median", "f": 1, "optimizer_state": "average"}, ConfigError, "be averaged"),
        ({"f": 2}, ConfigError, "A weighted mean bears no lie, and f is 2"),
        ({"attack": "reverse"}, ConfigError, "An attack needs liars"),
        ({"liars": 3}, ConfigError, "3 liars need a lie"),
        ({"liars": 12, "attack": "reverse"}, ConfigError, "one at least must be honest"),
        ({"liars": 1, "attack": "label-flip"}, ConfigError, "lies in the labels"),
        ({"liars": 1, "attack": "optimal-little-is-enough"}, ConfigError, "give --gar"),
        ({"liars": 1, "metadata_attack": "larger"}, ConfigError, "Did you mean large"),
        ({"optimizer_state": "keep"}, ConfigError, "must be reset or average, got 'keep'"),
        ({"sampling": "chance"}, ConfigError, "is not a sampling"),
        ({"weighting": "klm"}, ConfigError, "Did you mean kl"),
        ({"generator_every": 9, "local_steps": 8}, ConfigError, "would never step"),
        ({"local_steps": 0}, ConfigError, "local_steps must be within 1..100000"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_before_anything_is_trained(given, error, message):
    with pytest.raises(error, match=f"(?i){message}"):
        federation(**given)


def test_a_device_without_data_and_a_class_that_nobody_has_are_refused():
    devices = [data(), replace(data(), rows=np.array([], np.intp))]
    with pytest.raises(InputError, match=r"device-1 has no sample: it cannot train. Leave it out"):
        simulated(TINY, devices, classes=4, settings=settings(devices=2))
    with pytest.raises(ConfigError, match="No device has a sample of: class 4"):
        simulated(TINY, [data()] * 2, classes=5, settings=settings(devices=2))
    simulated(TINY, [data()] * 2, classes=5, settings=settings(devices=2, missing_classes="allow"))


@pytest.mark.slow
def test_a_robust_rule_holds_where_the_mean_does_not():
    def moved(**given):
        """How far three rounds take the generator's first weights."""
        found = federation(fraction=1.0, **given)
        for _ in range(3):
            found.round()
        name = "generator.layers.0.weight"
        return (found.server.state[name] - STATE[name]).norm().item()

    honest = moved()
    assert moved(attack="reverse", liars=2) > 5 * honest
    assert moved(attack="reverse", f=2, gar="trimmed-mean") < 1.5 * honest


@pytest.mark.parametrize("attack", ["little-is-enough", "gaussian", "drop", "mimic"])
def test_attacks_of_the_library_are_told_on_changes(attack):
    plain, lied_to = federation(fraction=1.0), federation(fraction=1.0, attack=attack, liars=3)
    plain.round()
    record = lied_to.round()
    assert not same(plain.server.state, lied_to.server.state)
    assert len(record.refused) == (3 if attack == "drop" else 0)


def test_a_round_of_liars_alone_goes_on():
    found = federation(fraction=0.1, attack="little-is-enough", liars=11)
    assert [len(found.round().took_part) for _ in range(3)] == [1, 1, 1]


def test_an_attack_that_knows_the_rule_is_shown_it():
    found = federation(fraction=1.0, attack="optimal-little-is-enough", f=2, gar="nnm+trimmed-mean")
    assert len(found.round().took_part) == 12


def test_a_rule_is_applied_to_changes_and_buffers_become_medians():
    names = frozenset({"generator.w"})
    before = {"generator.w": torch.tensor([1.0, 1.0]), "generator.mean": torch.tensor([0.0])}
    sent = [
        {"generator.w": torch.tensor([1.0 + k, 1.0]), "generator.mean": torch.tensor([float(k)])}
        for k in (1, 2, 100)
    ]
    found = Robust("median", 3, 1, names).join(before, sent, [1, 1, 1], seed=0)
    assert found["generator.w"].tolist() == [3.0, 1.0]
    assert found["generator.mean"].tolist() == [2.0]
    with pytest.raises(InputError, match="A change of 3 numbers is not one of 2 parameters"):
        Layout(names).changed(before, np.zeros(3, np.float32))


def test_a_rule_that_steps_from_its_last_aggregate_remembers_it():
    names = frozenset({"w"})
    rule = Robust("centered-clipping(tau=1.0)", 3, 1, names)
    before = {"w": torch.zeros(2)}
    for _ in range(3):
        sent = [{"w": torch.tensor([5.0, 0.0])}] * 3
        rule.join(before, sent, [1, 1, 1], seed=0)
    assert rule.last[0] > 1.5  # one step a round from where it was; from zero it stays near 1


@pytest.mark.parametrize("claim", METADATA_ATTACKS)
def test_false_counts_are_declared_and_bounded_by_sampling(claim):
    found = federation(liars=1, metadata_attack=claim, fraction=0.25)
    honest = federation(fraction=0.25)
    lying = np.flatnonzero((found.server.table.counts != honest.server.table.counts).any(axis=1))
    assert len(lying) == 1
    for _ in range(8):
        found.round()
    fair = 8 * 3 / 12
    assert found.server.history.asked[lying[0]] <= 2 * fair


def test_noised_counts_are_what_the_server_sees():
    exact, found = federation(), federation(noise_epsilon=0.5)
    assert (exact.server.table.counts != found.server.table.counts).any()


def test_networks_that_are_not_finite_any_more_end_the_run():
    gan = replace(TINY, optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1e30))
    found = federation(gan=gan)
    with pytest.raises(RunError, match=r"diverged|not finite"):
        _ = [found.round() for _ in range(5)]


@pytest.mark.heavy
def test_lsgan_learns_the_mean_of_flat_images():
    """A whole run in little: grey images of one level each, and the generator finds the level.

    It passes it and comes back, after five to seven rounds, as the processor rounds: so the nearest
    of eight counts.
    """
    level = 40
    images = torch.full((60, 1, 16, 16), level, dtype=torch.uint8)
    images += torch.randint(0, 20, images.shape, generator=torch.Generator().manual_seed(0)).byte()
    devices = [DeviceData(images, torch.zeros(60, dtype=torch.int64)) for _ in range(2)]
    chosen = settings(devices=2, fraction=1.0, local_steps=20, batch=16)
    gan = replace(
        gan_for("lsgan(width=0.125)", (1, 16, 16)),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=2e-3, betas=(0.5, 0.999)),
    )
    found = simulated(gan, devices, classes=1, settings=chosen)
    target = (level + 9.5) / 127.5 - 1
    away = [abs(found.images(64, seed=0).mean().item() - target)]
    for _ in range(8):
        found.round()
        away.append(abs(found.images(64, seed=0).mean().item() - target))
    assert min(away) < 0.5 * away[0]
