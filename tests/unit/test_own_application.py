"""An application of a user's: one file, and it has its command line."""

import json
import subprocess
import sys

import pytest

from garfield.apps import APPLICATIONS
from garfield.apps.settings import Settings, settings_of_applications
from garfield.core.config import read_toml
from garfield.core.errors import ConfigError
from garfield.runs import user_files
from tests.command import invoke

pytest.importorskip("torch")

OWN = '''
from __future__ import annotations

from dataclasses import dataclass

from garfield.apps import Application, Run, application
from garfield.core.errors import ConfigError


@dataclass(frozen=True)
class Pauses:
    """Settings of paused alone."""

    rest_every: int = 10
    """Steps from one step that is left out to the next."""
    why: str = "tired"
    """The reason given."""


class Paused(Application[Pauses]):
    own = Pauses

    def check(self, settings):
        if self.own_of(settings).rest_every < 2:
            raise ConfigError("rest_every must be at least 2.")
        super().check(settings)


@application("paused", Paused)
def paused(ps, run: Run[Pauses]):
    """One trusted server that leaves out a step now and then."""
    for t in ps.steps(run.steps):
        gradients = ps.get_gradients(t, run.numbers.q_w)
        update = run.join_gradients(gradients)
        ps.update_model(update * (t % run.own.rest_every != 0))
        run.after_step(ps, run)
'''
TINY = ("--model", "digits_mlp", "--data", "digits", "--workers", 3, "--steps", 2, "--batch", 8)


@pytest.fixture
def own(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(OWN)
    yield path
    APPLICATIONS.remove("paused")
    user_files._loaded.pop(path, None)
    sys.modules.pop("garfield_user_mine", None)


def test_it_runs_from_the_command_line(own, tmp_path):
    words = ("train", "--app", "paused", "--rest-every", 3, *TINY, "--simulate", "--json")
    done = invoke(["--load", own, *words, "--out", tmp_path / "x"])
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert (summary["app"], summary["rest_every"], summary["why"]) == ("paused", 3, "tired")
    kept = read_toml(tmp_path / "x/config.toml")
    assert kept["rest_every"] == 3
    assert str(own) in kept["load"]


@pytest.mark.slow
def test_it_runs_from_a_file_and_is_resumed(own, tmp_path):
    path = tmp_path / "c.toml"
    path.write_text('load = ["mine.py"]\napp = "paused"\n[paused]\nrest-every = 4\n')
    words = ("--config", path, *TINY, "--simulate", "--out", tmp_path / "x")
    done = invoke(["train", *words])
    assert done.exit_code == 0, done.output
    assert read_toml(tmp_path / "x/config.toml")["rest_every"] == 4
    more = invoke(["train", "--resume", tmp_path / "x", "--steps", 3, "--json"])
    assert more.exit_code == 0, more.output
    assert json.loads(more.stdout)["rest_every"] == 4


def test_its_settings_are_checked_and_shown_like_ours(own, tmp_path):
    def refused(*words):
        done = invoke(["--load", own, "train", *words, "--out", tmp_path / "x"])
        assert done.exit_code == 2
        return done.stderr

    assert "--rest-evry. Did you mean --rest-every?" in refused("--rest-evry", 3)
    assert "rest_every must be a whole number" in refused("--rest-every", "often")
    assert "rest_every must be at least 2." in refused("--app", "paused", "--rest-every", 1)
    assert "ssmw does not use rest_every. Leave it out." in refused("--rest-every", 3)
    shown = invoke(["--load", own, "train", "--help"]).stdout
    assert "Only for paused" in shown
    assert "Steps from one step that is left out to the next." in " ".join(shown.split())
    assert not (tmp_path / "x").exists()


@pytest.mark.heavy
def test_it_runs_in_processes(own, tmp_path):
    words = ("--load", own, "train", "--app", "paused", "--rest-every", 3, *TINY, "--json")
    done = subprocess.run(
        [sys.executable, "-m", "garfield", *map(str, words), "--out", str(tmp_path / "x")],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 2


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (
            'steps: int = 3\n    """Steps."""',
            "steps cannot be a setting of paused: it is one of every",
        ),
        (
            'code: int = 3\n    """Code."""',
            "code cannot be a setting of paused: it is one of draco",
        ),
    ],
)
def test_a_name_that_means_something_else_already_is_refused(own, field, message):
    own.write_text(OWN.replace('why: str = "tired"', field))
    user_files.load(own)
    with pytest.raises(ConfigError, match=message):
        Settings.of(app="paused")


def test_a_name_and_kind_may_be_shared_with_another_application(own):
    own.write_text(OWN.replace("rest_every: int = 10", "redundancy: int = 5").replace(
        "rest_every", "redundancy"
    ))  # fmt: skip
    user_files.load(own)
    assert len(settings_of_applications()["redundancy"]) == 2
    assert Settings.of(app="paused").own.redundancy == 5
    assert Settings.of(app="paused", redundancy=0).own.redundancy == 0
    assert Settings.of(app="ssmw", redundancy=0).check().app == "ssmw"  # draco's default
