"""Liars of an asynchronous run over gRPC: whatever they must know first, they are heard."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("grpc")

from garfield.apps.settings import Settings
from garfield.launch.processes import run_processes

STEPS = 60


@pytest.mark.heavy
def test_most_rows_of_an_omniscient_liar_are_used():
    """Five of six gradients are taken, and five of six workers must compute theirs first."""
    events = []
    settings = Settings.of(
        app="ssmw", asynchronous=True, model="digits_mlp", data="digits", workers=6, batch=8,
        byzantine_workers=1, worker_attack="little-is-enough", steps=STEPS, evaluate_every=0,
    )  # fmt: skip
    run_processes(settings.check(), events.append)
    silent = [e["silent"] for e in events if e["event"] == "step" and e["node"] == "server-0"]
    used = sum("worker-5" not in names for names in silent)
    assert len(silent) == STEPS
    assert used > STEPS / 2  # it was none
