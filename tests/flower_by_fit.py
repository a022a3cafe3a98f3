"""A server and clients of Flower's older kind, each a process: run in Flower's environment.

python -m tests.flower_by_fit server PORT NODES REPORT | client PORT NUMBER LIE
"""

import json
import sys
from pathlib import Path

import flwr
import numpy as np

TRUTH = np.array([2.0, -1.0, 0.5], np.float32)


class Client(flwr.client.NumPyClient):
    def __init__(self, number, lie):
        self.rng, self.lie = np.random.default_rng(number), lie

    def fit(self, parameters, config):
        [weights] = parameters
        weights = weights + 0.5 * (TRUTH - weights) + 0.01 * self.rng.standard_normal(3)
        examples, loss = 40, 0.5
        if self.lie == "nan":
            weights = weights * np.nan
        elif self.lie == "shape":
            weights = np.ones((7, 7))
        elif self.lie == "examples":
            weights, examples, loss = -1000 * weights, 10**9, 1e9
        return [weights.astype(np.float32)], examples, {"loss": loss}

    def evaluate(self, parameters, config):
        loss = 1e9 if self.lie == "examples" else float(np.abs(parameters[0] - TRUTH).mean())
        return loss, 10**9 if self.lie == "examples" else 40, {}


def serve(port, nodes, report):
    from garfield.flower import Robust

    start = flwr.common.ndarrays_to_parameters([np.zeros(3, np.float32)])
    strategy = flwr.server.strategy.FedAvg(
        min_fit_clients=nodes, min_evaluate_clients=nodes, min_available_clients=nodes,
        initial_parameters=start, fit_metrics_aggregation_fn=lambda pairs: pairs[0][1],
    )  # fmt: skip
    robust = Robust(strategy, gar="multi-krum", f=3)
    seen = []
    aggregate = robust.aggregate_fit

    def noted(server_round, results, failures):
        parameters, metrics = aggregate(server_round, results, failures)
        weights = flwr.common.parameters_to_ndarrays(parameters)[0].tolist()
        seen.append(
            {"weights": weights, "metrics": metrics, "excluded": dict(robust.last.excluded)}
        )
        return parameters, metrics

    robust.aggregate_fit = noted
    config = flwr.server.ServerConfig(num_rounds=3, round_timeout=60)
    history = flwr.server.start_server(
        server_address=f"127.0.0.1:{port}", config=config, strategy=robust
    )
    told = {"rounds": seen, "losses": [loss for _, loss in history.losses_distributed]}
    Path(report).write_text(json.dumps(told))


if __name__ == "__main__":
    role, port, *rest = sys.argv[1:]
    if role == "server":
        serve(int(port), int(rest[0]), rest[1])
    else:
        client = Client(int(rest[0]), rest[1]).to_client()
        flwr.client.start_client(server_address=f"127.0.0.1:{port}", client=client)
