"""Simulated runs: the same turns and the same bits, however many threads compute."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from garfield.apps.settings import Settings
from garfield.core.errors import GarfieldError
from garfield.launch.simulate import _Work, simulate
from garfield.models import build
from garfield.transport.simulated import Simulation

RUN = Settings.of(
    model="digits_mlp", data="digits", workers=7, byzantine_workers=1, worker_attack="reverse",
    steps=4, batch=8, simulate=True,
)  # fmt: skip


def final_model(settings: Settings, threads: int) -> np.ndarray:
    servers = simulate(settings, lambda event: None, threads=threads)
    model = servers[settings.honest_servers[0]].model
    vector = np.empty(model.size + model.tail, np.float32)
    model.read(vector)
    return vector


@pytest.mark.parametrize("app", ["ssmw", "decentralized"])
def test_the_final_model_is_the_same_however_many_threads_compute(app: str) -> None:
    settings = RUN.updated(app=app)
    assert final_model(settings, 1).tobytes() == final_model(settings, 3).tobytes()


def test_turns_are_the_same_however_many_threads_there_are() -> None:
    def went_on(threads: int) -> list[tuple[int, int]]:
        simulation, order = Simulation(threads), []

        def program(name: int) -> None:
            for part in range(3):
                order.append((part, simulation.work(lambda: name)))

        for name in range(5):
            simulation.spawn(lambda name=name: program(name))
        simulation.run()
        return order

    assert went_on(3) == went_on(1)
    assert sorted(went_on(3)) == [(part, name) for part in range(3) for name in range(5)]


def test_others_have_their_turns_while_work_is_done() -> None:
    simulation, said = Simulation(2), []
    simulation.spawn(lambda: said.append(simulation.work(lambda: "worked")))
    simulation.spawn(lambda: said.append("turned"))
    simulation.run()
    assert said == ["turned", "worked"]


def test_work_that_fails_fails_the_run() -> None:
    simulation = Simulation(2)

    def fail() -> None:
        raise GarfieldError("no gradient")

    simulation.spawn(lambda: simulation.work(fail))
    with pytest.raises(GarfieldError, match="no gradient"):
        simulation.run()


def test_models_that_draw_random_numbers_draw_them_in_turns() -> None:
    def drawn(threads: int) -> list[float]:
        simulation, found = Simulation(threads), []
        work = _Work(simulation)
        torch.manual_seed(0)
        for _ in range(8):
            simulation.spawn(lambda: found.append(work.do(lambda: float(torch.rand(9999).sum()))))
        simulation.run()
        return found

    assert drawn(4) == drawn(1)


def test_channels_last_changes_the_layout_and_not_the_answer() -> None:
    module = build("mnist_cnn", seed=0)
    images = torch.rand(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    formats: list[bool] = []
    module[3].register_forward_pre_hook(
        lambda _, inputs: formats.append(inputs[0].is_contiguous(memory_format=torch.channels_last))
    )
    plain = images
    for layer in build("mnist_cnn", seed=0):  # layer by layer: without the network's own hook
        plain = layer(plain)
    torch.testing.assert_close(module(images), plain)
    assert formats == [True]


@pytest.mark.parametrize(("attack", "gradients"), [("fall-of-empires", 6 * 4), ("reverse", 7 * 4)])
def test_a_gradient_that_no_lie_is_made_of_is_not_computed(attack: str, gradients: int) -> None:
    told: list[int] = []
    settings = RUN.updated(worker_attack=attack)
    simulate(settings, lambda event: told.append(event["computed"]))
    assert told[-1] == gradients
