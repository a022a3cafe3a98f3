"""A federated GAN in Flower: a server or a client, each a process of Flower's own environment.

    python -m benchmarks.flower_gan server PORT SETTINGS REPORT
    python -m benchmarks.flower_gan client PORT SETTINGS NUMBER

A client trains by our own `Trainer`, so that what differs from our federation is the federation.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from garfield.core.config import made
from garfield.fedgan.averaging import State, network_state
from garfield.fedgan.device import Task, Trainer
from garfield.fedgan.gan import Gan
from garfield.fedgan.image_data import dataset_for, devices_of
from garfield.fedgan.load import Load
from garfield.fedgan.networks import gan_for
from garfield.fedgan.settings import FedganSettings

_MOST_BYTES = 1 << 30  # of a message


def train(port: int, given: dict[str, Any], number: int) -> None:
    """Be a client, which trains as our devices do, until the server ends."""
    flwr: Any = import_module("flwr")
    settings, gan = _told(given)
    data, trainer = devices_of(dataset_for(settings), settings)[number], Trainer(gan)
    load = Load(settings.training.batch, settings.training.local_steps)

    def fit(_: Any, parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, Any]:
        state: State = {
            name: torch.from_numpy(part).reshape(old.shape).to(old.dtype)
            for (name, old), part in zip(
                network_state(trainer.networks).items(), parameters, strict=True
            )
        }
        at = int(config["round"])
        task = Task(at, load, 1, seed=1000 * at + number, keeps_optimizer=False)
        found = trainer.train(data, state, task).state
        return [part.numpy() for part in found.values()], len(data), {}

    client = type("Client", (flwr.client.NumPyClient,), {"fit": fit})()
    flwr.client.start_client(
        server_address=f"127.0.0.1:{port}", client=client.to_client(),
        grpc_max_message_length=_MOST_BYTES,
    )  # fmt: skip


def serve(port: int, given: dict[str, Any], report: Path) -> None:
    """Flower's FedAvg over all clients; the moments at which rounds ended are written down."""
    flwr: Any = import_module("flwr")
    settings, gan = _told(given)
    first = [part.numpy() for part in network_state(gan.build(seed=0)).values()]
    devices, ended = settings.population.devices, []
    fed_avg = flwr.server.strategy.FedAvg

    def aggregate_fit(self: Any, server_round: int, results: Any, failures: Any) -> Any:
        found = fed_avg.aggregate_fit(self, server_round, results, failures)
        if failures or len(results) < devices:
            raise RuntimeError(f"round {server_round}: {len(results)} results, {failures}")
        ended.append(time.time())
        return found

    strategy = type("Noted", (fed_avg,), {"aggregate_fit": aggregate_fit})(
        fraction_fit=1.0, fraction_evaluate=0.0, min_fit_clients=devices,
        min_available_clients=devices, on_fit_config_fn=lambda number: {"round": number},
        initial_parameters=flwr.common.ndarrays_to_parameters(first),
    )  # fmt: skip
    flwr.server.start_server(
        server_address=f"127.0.0.1:{port}", strategy=strategy,
        config=flwr.server.ServerConfig(num_rounds=settings.training.rounds),
        grpc_max_message_length=_MOST_BYTES,
    )  # fmt: skip
    report.write_text(json.dumps(ended))


def _told(given: dict[str, Any]) -> tuple[FedganSettings, Gan]:
    settings = made(FedganSettings, given)
    return settings, gan_for(settings.gan, dataset_for(settings).image)


if __name__ == "__main__":
    role, at, text, last = sys.argv[1:]
    torch.set_num_threads(1)
    if role == "server":
        serve(int(at), json.loads(text), Path(last))
    else:
        train(int(at), json.loads(text), int(last))
