"""Settings from flags and files: one source, and clear refusals."""

import dataclasses
import json

import pytest

from garfield.apps import APPLICATIONS
from garfield.apps.settings import Settings, all_settings, from_toml
from garfield.core.config import as_toml, read_toml
from garfield.core.errors import ConfigError
from garfield.data import load
from garfield.gars import GARS
from garfield.launch.assemble import evaluation_batches
from tests.command import invoke

TINY = ("--model", "digits_mlp", "--data", "digits", "--workers", "3", "--simulate")


def garfield(*words):
    return invoke(words)


def test_every_setting_has_a_flag_with_its_docstring_and_default():
    found = {setting.name: setting for setting in all_settings()}
    for name, application in APPLICATIONS.items():
        values = Settings(app=name).values()
        assert values.keys() <= found.keys()
        assert all(values[key] == found[key].default for key in values if key != "app")
        assert values.keys() >= {field.name for field in dataclasses.fields(application.own)}
    for name, setting in found.items():
        assert setting.about.endswith("."), name
    shown = garfield("train", "--help").stdout
    assert all(setting.flag in shown for setting in found.values())


def test_settings_survive_the_way_through_a_file(tmp_path):
    settings = Settings.of(app="msmw", servers=4, learning_rate=1e-5, f_workers=2, seed=7)
    path = tmp_path / "config.toml"
    path.write_text(as_toml(settings.values()))
    assert from_toml(read_toml(path)) == settings


BEFORE_GROUPS = """
lossy-workers = 0
loss = 0.0
fill = "random"
lossy-models = false
code = "repetition"
redundancy = 3
gather-every = 0
gradient-quorum = 0
model-quorum = 0
app = "draco"
model = "mnist_cnn"
framework = "torch"
data = "fashion-small"
# data-dir is not set
workers = 10
servers = 1
byzantine-workers = 0
byzantine-servers = 0
# f-workers is not set
# f-servers is not set
gar = "multi-krum"
model-gar = "median"
worker-attack = "none"
server-attack = "none"
steps = 200
batch = 32
learning-rate = 0.05
learning-rate-decay = 0.0
momentum = 0.0
weight-decay = 0.0
partition = "iid"
contractions = 0
asynchronous = false
evaluate-every = 20
test-images = 0
checkpoint-every = 0
timeout-s = 10.0
give-up-s = 60.0
seed = 0
simulate = false
exclude = "worker-8"
transport = "grpc"
"""


def test_the_file_of_a_run_from_before_there_were_groups_is_read(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(BEFORE_GROUPS)
    expected = {"app": "draco", "workers": 10, "redundancy": 3, "exclude": ["worker-8"]}
    expected["gar"] = "multi-krum"  # the default of those days, which nobody had chosen
    assert from_toml(read_toml(path)) == Settings.of(**expected, momentum=0.0, model_gar="median")
    assert from_toml(read_toml(path)).check().own.redundancy == 3


def test_groups_may_be_tables(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text("steps = 1\n[nodes]\nworkers = 4\n[learning]\nlearning-rate = 1\n")
    assert from_toml(read_toml(path)) == Settings.of(steps=1, workers=4, learning_rate=1.0)
    path.write_text("[nodes]\nwokers = 4\n")
    done = garfield("train", "--config", path, "--out", tmp_path / "x")
    assert done.exit_code == 2
    assert "nodes.wokers is not a setting. Did you mean nodes.workers?" in done.stderr


def test_a_file_may_leave_the_application_to_the_flags(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text("redundancy = 3\n")
    words = (*TINY, "--config", path, "--steps", 1, "--out", tmp_path / "x")
    assert "ssmw does not use redundancy" in garfield("train", *words).stderr
    done = garfield("train", *words, "--app", "draco", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["redundancy"] == 3


def test_flags_win_over_the_file(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text('steps = 9\nbatch = 8\nworker-attack = "reverse"\n')
    done = garfield("train", *TINY, "--config", path, "--steps", 2, "--out", tmp_path / "x")
    assert done.exit_code == 0, done.output
    used = read_toml(tmp_path / "x/config.toml")
    assert (used["steps"], used["batch"], used["worker_attack"]) == (2, 8, "reverse")


def test_a_flag_can_also_turn_off_what_the_file_turns_on(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text("asynchronous = true\n")
    words = ("--config", path, "--no-asynchronous", "--steps", 1, "--out", tmp_path / "x")
    assert garfield("train", *TINY, *words).exit_code == 0
    assert read_toml(tmp_path / "x/config.toml")["asynchronous"] is False


def test_no_flag_is_cut_short_in_the_help_of_a_narrow_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert "--byzantine-workers " in garfield("train", "--help").stdout


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("stpes = 3", "stpes is not a setting. Did you mean steps?"),
        ('steps = "many"', "steps must be a whole number, got 'many'"),
        ("simulate = 1", "simulate must be true or false, got 1"),
        ("steps = = 3", "cannot be read"),
    ],
)
def test_a_file_with_mistakes_is_refused(tmp_path, toml, message):
    path = tmp_path / "c.toml"
    path.write_text(toml)
    done = garfield("train", "--config", path, "--out", tmp_path / "x")
    assert done.exit_code == 2
    assert message in done.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--gar", "medain"), "medain is not a rule. Did you mean median?"),
        (("--app", "msmv"), "msmv is not an application. Did you mean msmw?"),
        (("--model", "cifarnt"), "Did you mean cifarnet?"),
        (("--worker-attack", "revers"), "Did you mean reverse?"),
        (("--model", "cifarnet"), "cifarnet takes images of 3×32×32"),
        (("--partition", "dirichle"), "Did you mean dirichlet?"),
        (("--byzantine-workers", "4"), "centered-clipping needs n >= 9 inputs to tolerate f=4"),
        (("--byzantine-workers", "3", "--gar", "multi-krum"), "multi-krum needs n >= 9"),
        (("--byzantine-workers", "3", "--asynchronous"), "f=3 faults, got n=4"),  # of 7, n - f
        (("--gar", "bucketing(s=3)+multi-krum", "--f-workers", "1"), "needs n >= 13"),
        (
            ("--app", "msmw", "--servers", "3", "--f-servers", "1", "--asynchronous"),
            "mean needs n >= 3",
        ),
        (("--gar", "average", "--f-workers", "7"), "f_workers must be within 0..6 (of the 7"),
        (("--f-workers", "-1"), "f_workers must be within 0..6"),
        (("--app", "decentralized", "--servers", "3"), "decentralized has no servers"),
        (("--server-attack", "label-flip"), "servers have none"),
        (("--data", "mnsit"), "mnsit is not a data set. Did you mean mnist?"),
        (("--model-gar", "medain"), "Did you mean median?"),
        (("--server-attack", "silense"), "Did you mean silence?"),
        (("--exclude", "worker-9"), "worker-9 is not a node of this run. Did you mean worker-"),
        (("--transport", "gloo"), "ssmw must survive faults"),
        (("--workers", "3000"), "Start at most 2000 workers"),
        (("--learning-rate", "0"), "learning_rate must be positive"),
        (("--momentum", "1"), "momentum must be within 0..1"),
        (("--data", "mnist", "--data-dir", "/nowhere"), "garfield data fetch mnist"),
        (("--resume", "/nowhere"), "holds no run: it has no config.toml"),
    ],
)
def test_bad_settings_exit_with_2_before_anything_is_written(tmp_path, words, message):
    done = garfield("train", *words, "--out", tmp_path / "x")
    assert done.exit_code == 2
    assert message in done.stderr
    assert not (tmp_path / "x").exists()


def test_a_directory_that_holds_something_is_not_written_over(tmp_path):
    (tmp_path / "precious").write_text("mine")
    done = garfield("train", *TINY, "--out", tmp_path)
    assert done.exit_code == 2
    assert "is not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_an_int_will_do_for_a_float_and_nothing_else_for_anything():
    assert Settings().updated(momentum=0).learning.momentum == 0.0
    for value in (True, "0.1", [0.1]):
        with pytest.raises(ConfigError, match="momentum must be a number"):
            Settings().updated(momentum=value)


def test_json_for_scripts(tmp_path):
    done = garfield("train", *TINY, "--steps", 2, "--out", tmp_path / "x", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["steps"] == 2


def test_an_option_that_the_application_does_not_use_is_refused():
    with pytest.raises(ConfigError, match="ssmw does not use redundancy"):
        Settings.of(app="ssmw", redundancy=3).check()


def test_an_evaluation_may_use_a_part_of_the_test_set_the_same_for_every_node():
    data = load("digits")
    first, again = (evaluation_batches(data, 100, seed=3) for _ in range(2))
    assert sum(len(labels) for _, labels in first) == 100
    assert all((a[0] == b[0]).all() for a, b in zip(first, again, strict=True))
    assert sum(len(labels) for _, labels in evaluation_batches(data)) == len(data.labels("test"))


@pytest.fixture
def _forgotten_afterwards():
    yield
    GARS.remove("rule-of-a-file")  # other tests list all rules


@pytest.mark.usefixtures("_forgotten_afterwards")
def test_a_file_may_name_files_of_its_users(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import garfield\n"
        "@garfield.gar('rule-of-a-file', needs=lambda f: f + 1)\n"
        "def rule(rows, *, f):\n"
        "    return rows.median()\n"
    )
    path = tmp_path / "c.toml"
    path.write_text('load = ["mine.py"]\ngar = "rule-of-a-file"\n')
    done = garfield("train", *TINY, "--config", path, "--steps", 1, "--out", tmp_path / "x")
    assert done.exit_code == 0, done.output
    path.write_text('load = "mine.py"\n')
    done = garfield("train", *TINY, "--config", path, "--out", tmp_path / "y")
    assert done.exit_code == 2
    assert "load must be a list of Python files" in done.stderr


def test_a_negative_number_of_test_images_is_refused():
    with pytest.raises(ConfigError, match="test_images must be at least 0, got -1"):
        Settings.of(test_images=-1).check()
