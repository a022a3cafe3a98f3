"""A node that fits a line to its own points, or lies: `--node-config 'number=3 lie="nan"'`."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

TRUTH = np.array([2.0, -1.0, 0.5], np.float32)
POINTS = 40

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Take steps of gradient descent from the server's model on the points of this node."""
    weights = message.content["arrays"]["weights"].numpy()
    rng = np.random.default_rng(int(context.node_config["number"]))
    inputs = rng.standard_normal((POINTS, len(TRUTH))).astype(np.float32)
    targets = inputs @ TRUTH + 0.1 * rng.standard_normal(POINTS).astype(np.float32)
    for _ in range(20):
        weights = weights - 0.1 * inputs.T @ (inputs @ weights - targets) / POINTS
    loss = float(np.mean((inputs @ weights - targets) ** 2))

    examples = POINTS
    lie = context.node_config.get("lie", "")
    if lie == "nan":
        weights = np.full_like(weights, np.nan)
    elif lie == "shape":
        weights = np.ones((7, 7), np.float32)
    elif lie == "examples":
        weights, examples, loss = -1000 * weights, 10**9, 1e9
    arrays = ArrayRecord({"weights": Array(weights.astype(np.float32))})
    metrics = MetricRecord({"num-examples": examples, "loss": loss})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)
