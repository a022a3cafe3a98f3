"""MLflow, in an environment that has it: `make` installs none, as it brings 24 packages along."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[2]
VERSION = "mlflow-skinny==3.17.2"
READ = """
import json, os, sys
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
from mlflow import MlflowClient
about = json.load(open(sys.argv[1]))
client = MlflowClient(tracking_uri=about["tracking_uri"])
run = client.get_run(about["run"])
curve = [(m.step, m.value) for m in client.get_metric_history(about["run"], "server-0/accuracy")]
print(json.dumps({"status": run.info.status, "parameters": run.data.params,
                  "metrics": run.data.metrics, "curve": curve}))
"""


@pytest.fixture(scope="module")
def around(tmp_path_factory):
    """An environment in which mlflow can be imported, and nothing else is different."""
    target = tmp_path_factory.mktemp("mlflow")
    pinned = ["-c", str(ROOT / "constraints.txt")]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--target", str(target), *pinned, VERSION],
        check=True, capture_output=True, timeout=250,
    )  # fmt: skip
    path = [str(ROOT / "src"), os.environ.get("PYTHONPATH", ""), str(target)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW")}
    return {**kept, "PYTHONPATH": os.pathsep.join(path)}


def run(around, *words):
    done = subprocess.run(
        [sys.executable, *words], env=around, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_run_and_its_resumption_are_one_run_of_mlflow(around, tmp_path):
    train = ("-m", "garfield", "train", "--simulate", "--model", "digits_mlp", "--data", "digits")
    out = tmp_path / "runs" / "first"
    run(around, *train, "--workers", "3", "--gar", "median", "--steps", "10",
        "--evaluate-every", "5", "--log", "mlflow", "--out", str(out))  # fmt: skip
    run(around, "-m", "garfield", "train", "--resume", str(out), "--steps", "15")
    assert (tmp_path / "runs" / "mlruns").is_dir()
    found = json.loads(run(around, "-c", READ, str(out / "mlflow.json")))
    summary = json.loads((out / "summary.json").read_text())
    assert found["status"] == "FINISHED"
    assert (found["parameters"]["gar"], found["parameters"]["workers"]) == ("median", "3")
    assert [step for step, _ in found["curve"]] == [5, 10, 15]
    assert found["metrics"]["accuracy"] == pytest.approx(summary["accuracy"])
    assert found["curve"][-1][1] == pytest.approx(summary["accuracy"])
