"""Peers that are left out by configuration: neither asked nor answered, nor counted."""

import json

import numpy as np
import pytest

from garfield.apps.settings import Settings
from garfield.core.errors import BoundError, ConfigError, UnknownName
from garfield.launch.assemble import Factory
from garfield.launch.cluster import read_cluster
from garfield.launch.simulate import simulate
from tests.command import invoke

TINY = Settings.of(
    gar="multi-krum", model="digits_mlp", data="digits", workers=7, steps=3, batch=8,
    evaluate_every=0, byzantine_workers=1, worker_attack="wrong-shape", simulate=True,
)  # fmt: skip


def test_one_that_is_excluded_is_gone_and_f_stays_as_declared():
    settings = TINY.updated(exclude="worker-6").check()
    assert settings.worker_names == tuple(f"worker-{i}" for i in range(6))
    assert (settings.numbers.n_w, settings.numbers.f_w) == (6, 1)
    assert settings.liars == ()


def test_a_list_will_do_as_well_as_a_text():
    for given in ("worker-3, worker-5", ["worker-3", "worker-5"]):
        assert TINY.updated(exclude=given).nodes.exclude == ("worker-3", "worker-5")


def test_bounds_hold_for_those_who_are_left():
    TINY.updated(workers=7, f_workers=2).check()  # multi-krum needs 2f + 3
    with pytest.raises(BoundError, match=r"multi-krum needs n >= 7 .* got n=6"):
        TINY.updated(workers=7, f_workers=2, exclude="worker-0").check()
    servers = TINY.updated(app="msmw", servers=3, byzantine_servers=1, server_attack="reverse")
    servers.check()
    with pytest.raises(BoundError, match="trimmed-mean needs n >= 3"):
        servers.updated(exclude="server-1").check()


def test_of_peers_to_peers_one_name_leaves_out_both_roles():
    settings = TINY.updated(app="decentralized", exclude="node-6").check()
    assert settings.numbers.n_w == settings.numbers.n_ps == 6
    assert "node-6" not in settings.server_names


@pytest.mark.parametrize(
    ("exclude", "error", "message"),
    [
        ("worker-66", UnknownName, r"worker-66 is not a node of this run\. Did you mean worker-6"),
        ("wroker-3", UnknownName, r"Did you mean worker-3"),
        ("server-0", ConfigError, "Without server-0 no honest server is left"),
        (",".join(f"worker-{i}" for i in range(7)), ConfigError, "no worker is left"),
        (3, ConfigError, "exclude must be a text"),
    ],
)
def test_who_cannot_be_left_out_is_refused(exclude, error, message):
    with pytest.raises(error, match=message):
        TINY.updated(exclude=exclude).check()


def test_the_others_keep_their_data_and_their_draws():
    whole, rest = (
        Factory(settings, lambda *_: None, {})
        for settings in (TINY, TINY.updated(exclude="worker-2"))
    )
    for name in ("worker-1", "worker-5"):
        a, b = (factory._batches(name, name).batch(4) for factory in (whole, rest))
        np.testing.assert_array_equal(a[0], b[0])
        np.testing.assert_array_equal(a[1], b[1])


def test_a_run_names_the_liar_and_one_without_it_names_nobody():
    told = {}
    for exclude in (None, "worker-6"):
        told[exclude] = []
        simulate(TINY.updated(exclude=exclude), told[exclude].append)
    [(liar, reasons)] = told[None][-1]["faults"].items()
    assert (liar, list(reasons)) == ("worker-6", ["wrong size"])
    assert reasons["wrong size"]["detail"] == "sent 2405 numbers instead of 4810"
    assert 2 <= reasons["wrong size"]["times"] <= 3  # it is not waited for any more
    assert "faults" not in told["worker-6"][-1]
    assert told["worker-6"][-1]["gradients"] == 6


def test_the_command_excludes_and_says_so(tmp_path):
    words = ["train", "--model", "digits_mlp", "--data", "digits", "--simulate", "--steps", "2"]
    words += ["--exclude", "worker-1,worker-4", "--out", str(tmp_path / "x")]
    done = invoke(words)
    assert done.exit_code == 0, done.output
    assert "worker-1, worker-4" in done.stdout
    summary = json.loads((tmp_path / "x/summary.json").read_text())
    assert summary["excluded"] == ["worker-1", "worker-4"]
    first = json.loads((tmp_path / "x/metrics.jsonl").read_text().splitlines()[0])
    assert first["gradients"] == 5


CLUSTER = """
[settings]
app = "ssmw"
model = "digits_mlp"
data = "digits"
workers = 3
gar = "median"
exclude = ["worker-1"]
[nodes]
server-0 = "127.0.0.1:7000"
worker-0 = "127.0.0.1:7001"
worker-1 = "127.0.0.1:7002"
worker-2 = "127.0.0.1:7003"
"""


def test_a_clusters_file_may_still_list_whom_it_excludes(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text(CLUSTER)
    assert set(read_cluster(path).roles) == {"server-0", "worker-0", "worker-2"}
    path.write_text(CLUSTER.replace('worker-1 = "127.0.0.1:7002"\n', ""))
    assert set(read_cluster(path).roles) == {"server-0", "worker-0", "worker-2"}


def test_one_that_is_excluded_from_a_cluster_cannot_be_run(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text(CLUSTER)
    words = ["node", "--cluster", str(path), "--name", "worker-1", "--out", str(tmp_path / "x")]
    done = invoke(words)
    assert done.exit_code == 2
    assert "worker-1 is excluded from this cluster by its settings" in done.stderr
    assert not (tmp_path / "x").exists()


def test_a_cluster_talks_by_grpc(tmp_path):
    path = tmp_path / "cluster.toml"
    text = CLUSTER.replace('app = "ssmw"', 'app = "vanilla"\ntransport = "gloo"')
    path.write_text(text)
    with pytest.raises(ConfigError, match="talk by gRPC"):
        read_cluster(path)
