"""DRACO's claim: the model is that of training without liars (Chen et al., ICML 2018)."""

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("greenlet")

import torch

from garfield.apps.draco import DracoServer, DracoSettings, DracoWorker, draco
from garfield.apps.run import Numbers, Run
from garfield.apps.settings import Settings
from garfield.attacks import ATTACKS
from garfield.coding import CODES, make_code
from garfield.core.errors import BoundError, ConfigError, DecodingError
from garfield.gars import GARS
from garfield.launch.node_checkpoints import NodeCheckpoints
from garfield.launch.simulate import simulate
from garfield.nodes.byzantine import BEHAVIOURS, LyingOutbox, Plan, parse_plan
from garfield.nodes.outbox import Outbox
from garfield.transport.simulated import Simulation

SMALL = Settings.of(
    app="draco", model="digits_mlp", data="digits", workers=6, f_workers=1, steps=5, batch=8,
    evaluate_every=0, timeout_s=1.0, simulate=True,
)  # fmt: skip
every_code = pytest.mark.parametrize("code", sorted(CODES))


def ignore(event):
    pass


def vector(server):
    found = np.empty(server.model.size + server.model.tail, np.float32)
    server.model.read(found)
    return found


def trained(settings, sink=ignore, **more):
    return vector(simulate(settings, sink, **more)["server-0"])


@pytest.fixture(scope="module")
def without_liars():
    return {code: trained(SMALL.updated(code=code)) for code in CODES}


def apart(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


@pytest.mark.slow
@every_code
@pytest.mark.parametrize("attack", sorted({*ATTACKS, *BEHAVIOURS}))
def test_under_any_attack_the_trained_model_is_that_without(without_liars, code, attack):
    found = trained(SMALL.updated(code=code, byzantine_workers=1, worker_attack=attack))
    if code == "repetition":
        assert found.tobytes() == without_liars[code].tobytes()
    else:
        assert apart(found, without_liars[code]) < 1e-6


@every_code
def test_two_neighbours_who_collude_are_undone(code):
    settings = SMALL.updated(code=code, workers=15, f_workers=2, steps=3)
    attacked = settings.updated(byzantine_workers=2, worker_attack="little-is-enough")
    assert apart(trained(attacked), trained(settings)) <= (0 if code == "repetition" else 1e-6)


@every_code
def test_without_liars_it_is_plain_training_on_all_batches(without_liars, code):
    """Momentum at the server is that of averaged workers with momentum."""
    plain = trained(SMALL.updated(app="vanilla", f_workers=0))
    assert apart(without_liars[code], plain) < 1e-5


@every_code
def test_the_run_says_who_lied(code):
    told = []
    trained(SMALL.updated(code=code, byzantine_workers=1, worker_attack="reverse"), told.append)
    for event in told:
        assert event["trusted"] == [f"worker-{i}" for i in range(5)]
        assert list(event["set_aside"]) == ["worker-5"]
    assert len(told) == 5


@every_code
def test_a_silent_worker_is_an_erasure_and_said_to_be_silent(without_liars, code):
    told = []
    settings = SMALL.updated(code=code, byzantine_workers=1, worker_attack="silence")
    assert apart(trained(settings, told.append), without_liars[code]) < 1e-6
    assert list(told[0]["silent"]) == ["worker-5"]
    assert told[0]["trusted"] == [f"worker-{i}" for i in range(5)]


@every_code
def test_more_liars_than_allowed_for_end_the_run_with_a_reason(code):
    with pytest.raises(DecodingError, match=r"server-0 cannot decode step 0\. .*f=1"):
        trained(SMALL.updated(code=code, byzantine_workers=2, worker_attack="random"))


@every_code
def test_going_on_without_the_slowest_needs_more_redundancy_and_gives_the_same(code):
    settings = SMALL.updated(code=code, workers=8, redundancy=4)
    expected = trained(settings)
    attacked = settings.updated(byzantine_workers=1, worker_attack="reverse", asynchronous=True)
    assert apart(trained(attacked), expected) <= (0 if code == "repetition" else 1e-6)
    with pytest.raises(BoundError, match="redundancy >= 4 to undo f=1"):
        attacked.updated(workers=6, redundancy=3).check()


@every_code
def test_interrupted_and_resumed_it_ends_at_the_same_model(tmp_path, code):
    settings = SMALL.updated(code=code, steps=8)

    def sink(event):
        if event["step"] == 5:
            raise KeyboardInterrupt

    checkpoints = NodeCheckpoints(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        trained(settings, sink, checkpoints=checkpoints)
    resumed = checkpoints.resumed(settings.server_names, settings.honest_servers)
    assert resumed.start.step == 5
    np.testing.assert_array_equal(trained(settings, checkpoints=resumed), trained(settings))


# -- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"workers": 7, "redundancy": 3}, BoundError, "r=3 does not divide n=7. Take r=7, or n=6"),
        ({"redundancy": 2}, BoundError, r"r >= 3 \(2f \+ 1\) to undo f=1"),
        ({"workers": 4, "f_workers": 2}, BoundError, "r=5 .* there are 4"),
        ({"code": "huffman"}, ConfigError, "huffman is not a code"),
        ({"servers": 2}, ConfigError, "draco has one server, got 2"),
        ({"gar": "median"}, ConfigError, r"draco joins gradients by repetition code \(r=3\)"),
        (
            {"packet_loss": 0.1},
            ConfigError,
            "draco does not use packet_loss. It knows: code, redundancy",
        ),
    ],
)
def test_what_cannot_be_decoded_is_refused_before_anything_starts(changes, error, text):
    with pytest.raises(error, match=text):
        SMALL.updated(**changes).check()


@pytest.mark.parametrize(
    ("code", "workers", "f", "least"),
    [("repetition", 18, 2, 6), ("repetition", 7, 1, 7), ("repetition", 10, 2, 5),
     ("repetition", 6, 0, 1), ("cyclic", 18, 2, 5)],
)  # fmt: skip
def test_the_redundancy_is_the_least_that_works_unless_it_is_said(code, workers, f, least):
    settings = SMALL.updated(code=code, workers=workers, f_workers=f).check()
    assert settings.rule_name == f"{code} code (r={least})"
    assert make_code(code, workers, f).r == least


def test_other_applications_do_not_know_its_options():
    with pytest.raises(ConfigError, match="ssmw does not use redundancy"):
        SMALL.updated(app="ssmw", redundancy=3).check()


# -- nodes by hand: buffers of the model ----------------------------------------------------------


class Stored:
    """Batches of random numbers, each a function of the step."""

    def __init__(self, seed):
        self._seed = seed

    def batch(self, step):
        rng = np.random.default_rng((self._seed, step))
        return rng.normal(self._seed, 2, (8, 4)).astype(np.float32), rng.integers(0, 2, 8)


def module():
    torch.manual_seed(0)
    norm = torch.nn.BatchNorm1d(3)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), norm, torch.nn.Linear(3, 2))


def with_batch_norm(name, attack=None, *, steps=3, n=6):
    """The server at the end of a run of a model that has running statistics."""
    simulation, code = Simulation(), make_code(name, n, 1)
    workers = [f"worker-{i}" for i in range(n)]
    net = module()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    server = DracoServer(
        net, optimizer, transport=simulation.transport("server-0"), workers=workers, f_w=1
    )
    own = DracoSettings(code=name)
    run = Run(steps, Numbers(n, 1), GARS["average"], GARS["median"], own)
    simulation.spawn(lambda: draco(server, run))
    for place, who in enumerate(workers):
        lies = attack is not None and place == 2
        outbox = LyingOutbox(parse_plan(attack, Plan(n=n)), who) if lies else Outbox()
        worker = DracoWorker(
            module(), [Stored(k) for k in range(n)], place=place, code=code, outbox=outbox,
            transport=simulation.transport(who), servers=["server-0"],
        )  # fmt: skip
        simulation.spawn(lambda w=worker: w.serve(lambda: server.step == steps))
    simulation.run(until=lambda: server.step == steps)
    return server


@every_code
def test_batch_norm_statistics_are_protected_like_gradients(code):
    honest, attacked = with_batch_norm(code), with_batch_norm(code, "reverse")
    assert apart(vector(attacked), vector(honest)) <= (0 if code == "repetition" else 1e-6)
    assert honest.model.tail == 6


@every_code
def test_batch_norm_statistics_are_the_mean_over_all_batches(code):
    means = []
    for k in range(6):
        fresh = module()
        fresh(torch.from_numpy(Stored(k).batch(0)[0]))
        means.append(fresh[1].running_mean.numpy())
    found = with_batch_norm(code, steps=1).model.module[1].running_mean.numpy()
    np.testing.assert_allclose(found, np.mean(means, axis=0), rtol=1e-5)
