"""The server: Flower's FedAvg, with a rule of garfield's in place of its mean."""

import json
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from garfield.flower import Robust

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, and say which weights came of it and who was left out."""
    config = context.run_config
    nodes = int(config["nodes"])
    strategy = FedAvg(min_train_nodes=nodes, min_available_nodes=nodes, fraction_evaluate=0.0)
    if config["gar"]:
        strategy = Robust(strategy, gar=str(config["gar"]), f=int(config["f"]))
    start = ArrayRecord({"weights": Array(np.zeros(3, np.float32))})
    result = strategy.start(grid=grid, initial_arrays=start, num_rounds=int(config["rounds"]))
    if config["report"]:
        last = getattr(strategy, "last", None)
        told = {
            "weights": result.arrays["weights"].numpy().tolist(),
            "metrics": {r: dict(m) for r, m in result.train_metrics_clientapp.items()},
            "excluded": None if last is None else dict(last.excluded),
        }
        Path(str(config["report"])).write_text(json.dumps(told))
