"""Evaluations beside training: one at a time, of the model as it was, given up at the end."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from garfield.launch.background_evaluator import BackgroundEvaluator
from garfield.launch.reporters import ServerReporter

PATIENCE_S = 0.01


class Slow:
    """A model that is evaluated piece by piece, each when the test lets it."""

    def __init__(self):
        self.go_on, self.seen = threading.Semaphore(0), []

    def write(self, vector):
        self.vector = np.array(vector)

    def evaluate(self, pieces):
        for piece in pieces:
            assert self.go_on.acquire(timeout=30)
            self.seen.append(piece)
        return float(self.vector[0]), 0.5


@pytest.fixture
def model():
    model = Slow()
    yield model
    model.go_on.release(100)  # nobody is left waiting


@pytest.fixture
def server():
    """At step 3, its model all threes; its account empty."""
    transport = SimpleNamespace(bytes_sent=0, bytes_received=0)
    account = SimpleNamespace(communication_s=0.0, faults={})
    server = SimpleNamespace(
        name="server-0", step=3, test=["a", "b"], worker=None, heard=None, transport=transport,
        account=account, evaluate=lambda: (0.9, 0.1), workers=["worker-0"],
    )  # fmt: skip
    server.read_model = lambda: np.full(2, server.step, np.float32)
    return server


def test_a_result_is_that_of_the_model_when_it_began_however_late_it_comes(model, server):
    with BackgroundEvaluator(lambda: model, PATIENCE_S) as evaluator:
        evaluator.begin(server, {"step": 3})
        server.step = 7
        assert evaluator.busy()
        assert evaluator.result() is None
        model.go_on.release(2)
        assert evaluator.result(patiently=True) == {"step": 3, "accuracy": 3.0, "loss": 0.5}
        assert evaluator.result() is None
        assert not evaluator.busy()
    assert model.seen == ["a", "b"]


def test_leaving_gives_up_after_the_present_piece(model, server):
    with BackgroundEvaluator(lambda: model, PATIENCE_S) as evaluator:
        evaluator.begin(server, {})
    model.go_on.release(2)
    evaluator._work._pool.shutdown()
    assert model.seen == ["a"]


def test_an_evaluation_that_would_have_to_wait_is_left_out_and_the_last_is_made_in_place(
    model, server
):
    told = []
    run = SimpleNamespace(aggregation_s=0.0, explained=None)
    with BackgroundEvaluator(lambda: model, PATIENCE_S) as evaluator:
        reporter = ServerReporter(told.append, 1, total=6, evaluator=evaluator)
        for server.step in (3, 4, 5):  # the first one is still busy at the second and third
            reporter.after_step(server, run)
        assert [event["event"] for event in told] == ["step"] * 3
        model.go_on.release(2)
        server.step = 6
        reporter.after_step(server, run)
    evaluated, last = told[-2:]
    assert (evaluated["event"], evaluated["step"], evaluated["accuracy"]) == ("evaluated", 3, 3.0)
    assert evaluated["time_s"] <= told[0]["time_s"]
    assert (last["event"], last["step"], last["accuracy"]) == ("step", 6, 0.9)
