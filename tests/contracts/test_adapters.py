"""One contract for the adapters of both frameworks, and for one that a user might write."""

import numpy as np
import pytest

from garfield.adapters.adapt import adapt
from garfield.testing import check_adapter
from garfield.testing.adapters import ADAPTER_CHECKS, Trial
from garfield.testing.promises import keep

INPUTS, CLASSES, SAMPLES = 6, 3, 12
OPTIMIZERS = ("sgd", "momentum", "adam", "decreasing")


def batch():
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((SAMPLES, INPUTS)).astype(np.float32)
    return inputs, rng.integers(0, CLASSES, SAMPLES)


def in_torch(optimizer):
    torch = pytest.importorskip("torch")
    nn, optim = torch.nn, torch.optim

    def make():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            model = nn.Sequential(
                nn.Linear(INPUTS, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, CLASSES)
            )
        chosen = {
            "sgd": lambda p: optim.SGD(p, lr=0.05),
            "momentum": lambda p: optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
            "adam": lambda p: optim.Adam(p, lr=0.01),
            "decreasing": lambda p: optim.SGD(p, lr=0.05, momentum=0.9),
        }[optimizer](model.parameters())
        falling = optim.lr_scheduler.LambdaLR(chosen, lambda step: 1 / (1 + step))
        return adapt(
            model, optimizer=chosen, scheduler=falling if optimizer == "decreasing" else None
        )

    return make


def in_keras(optimizer):
    pytest.importorskip("tensorflow")
    import keras
    from keras import layers, optimizers

    def make():
        def start(seed):
            return keras.initializers.GlorotUniform(seed)

        model = keras.Sequential(
            [
                keras.Input((INPUTS,)),
                layers.Dense(5, kernel_initializer=start(1)),
                layers.BatchNormalization(momentum=0.9),
                layers.Activation("tanh"),
                layers.Dense(CLASSES, kernel_initializer=start(2)),
            ]
        )
        chosen = {
            "sgd": lambda: optimizers.SGD(0.05),
            "momentum": lambda: optimizers.SGD(0.05, momentum=0.9, weight_decay=0.01),
            "adam": lambda: optimizers.Adam(0.01),
            "decreasing": lambda: optimizers.SGD(0.05, momentum=0.9),
        }[optimizer]()
        falling = (lambda step: 0.05 / (1 + step)) if optimizer == "decreasing" else None
        return adapt(model, optimizer=chosen, scheduler=falling)

    return make


class Line:
    """A model in numpy alone: least squares, one weight per input, and the last batch's mean."""

    layout = (("weights", (INPUTS,)), ("seen", (INPUTS,)))
    size, tail = INPUTS, INPUTS

    def __init__(self):
        self.weights = np.linspace(-1, 1, INPUTS).astype(np.float32)
        self.seen = np.zeros(INPUTS, np.float32)
        self.rate, self.steps = 0.01, 0

    def read(self, out):
        out[: self.size], out[self.size :] = self.weights, self.seen

    def write(self, vector):
        self.write_body(vector[: self.size])
        self.write_tail(vector[self.size :])

    def write_body(self, body):
        self.weights = np.array(body)

    def write_tail(self, tail):
        self.seen = np.array(tail)

    def gradient(self, batch, out):
        inputs, targets = batch
        self.seen = inputs.mean(axis=0)
        wrong = inputs @ self.weights - targets
        out[: self.size], out[self.size :] = 2 * wrong @ inputs / len(inputs), self.seen
        return float(np.mean(wrong**2))

    def step(self, gradient):
        self.weights = self.weights - np.float32(self.rate / (1 + self.steps)) * gradient
        self.steps += 1

    def skip(self, steps):
        self.steps += steps

    def evaluate(self, batches):
        found = [((x @ self.weights - y) ** 2, np.rint(x @ self.weights) == y) for x, y in batches]
        if not found:
            return 0.0, 0.0
        losses, right = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return float(right.mean()), float(losses.mean())

    def state(self):
        return {"steps": self.steps}

    def restore(self, state):
        self.steps = state["steps"]


every_check = pytest.mark.parametrize("check", ADAPTER_CHECKS, ids=lambda check: check.__name__)


@every_check
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    "framework",
    [in_torch, pytest.param(in_keras, marks=pytest.mark.slow)],
    ids=["torch", "tensorflow"],
)
def test_every_adapter_keeps_the_promise(framework, optimizer, check):
    keep(check, Trial(framework(optimizer), batch()), framework.__name__)


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_a_gradient_is_the_frameworks_own(framework):
    make = (in_torch if framework == "torch" else in_keras)("sgd")
    adapter, (inputs, targets) = make(), batch()
    found = np.empty(adapter.size + adapter.tail, np.float32)
    adapter.gradient((inputs, targets), found)
    plain = make().module
    if framework == "torch":
        import torch

        plain.zero_grad()
        outputs = plain.train()(torch.from_numpy(inputs))
        loss = torch.nn.functional.cross_entropy(outputs, torch.from_numpy(targets))
        expected = [part.numpy() for part in torch.autograd.grad(loss, list(plain.parameters()))]
    else:
        import keras
        import tensorflow as tf

        with tf.GradientTape() as tape:
            outputs = plain(inputs, training=True)
            crossed = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            loss = crossed(targets, outputs)
        expected = [part.numpy().T for part in tape.gradient(loss, plain.trainable_variables)]
    flat = np.concatenate([part.reshape(-1) for part in expected])
    np.testing.assert_allclose(found[: adapter.size], flat, atol=1e-6)


def test_an_adapter_of_ones_own_can_be_held_to_it():
    check_adapter(Line, batch())


@pytest.mark.parametrize(
    ("method", "broken", "promise"),
    [
        ("write_body", lambda self, body: setattr(self, "weights", body), "view of what was wri"),
        ("gradient", lambda self, batch, out: out.fill(1.0) or 1.0, "is the slope of the loss"),
        ("step", lambda self, gradient: None, "have not moved"),
        ("state", lambda self: {"steps": 0}, "After three more steps, models differ"),
        ("evaluate", lambda self, batches: (2.0, 0.0), "share of right predictions is 2"),
        ("skip", lambda self, steps: self.weights.fill(0.0), "The model has moved"),
    ],
)
def test_what_a_wrong_adapter_breaks_is_said(monkeypatch, method, broken, promise):
    monkeypatch.setattr(Line, method, broken)
    with pytest.raises(AssertionError, match=f"Line breaks a promise: .*{promise}"):
        check_adapter(Line, batch())
