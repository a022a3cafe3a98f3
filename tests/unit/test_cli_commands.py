"""The commands, as a user or a script meets them."""

import importlib.metadata
import json
import logging
import subprocess
import sys

import pytest

from garfield import kernels
from garfield.attacks import ATTACKS
from garfield.cli.app import COMMANDS
from garfield.cli.shared import names
from garfield.gars import GARS
from garfield.nodes.plan import BEHAVIOURS
from garfield.nodes.timing import TERMS
from garfield.report import machine
from tests.command import invoke


@pytest.fixture
def run(monkeypatch):
    """Calls ``garfield …``; standard output and error apart."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return lambda *words: invoke(words)


def _json(result):
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


# -- the command itself ---------------------------------------------------------------------


def test_the_package_can_be_run_as_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "garfield", "--version"], capture_output=True, text=True, check=True
    )
    assert importlib.metadata.version("garfield-ml") in done.stdout


def test_help_names_every_command_and_imports_nothing_heavy():
    code = (
        "import sys, garfield.cli.app as cli\n"
        "cli.run(['--help'])\n"
        "print({'numpy', 'torch', 'matplotlib'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    commands = ["demo", "train", "node", "certs", "data", "resilience", "advise", "doctor"]
    assert all(name in done.stdout for name in commands)
    assert done.stdout.strip().endswith("set()")


def test_the_list_of_commands_says_of_each_what_its_own_help_says(run):
    for name, command in COMMANDS.items():
        shown = " ".join(run(name, "--help").stdout.split())
        assert command.about in shown, name


def test_a_misspelt_command_or_flag_is_refused_with_the_nearest_name(run):
    assert "trian is not a command. Did you mean train?" in run("trian").stderr
    refused = run("train", "--wrkers", 3)
    assert "--wrkers. Did you mean --workers?" in refused.stderr
    assert (refused.exit_code, refused.stdout) == (2, "")


def test_a_number_that_is_not_whole_is_refused_where_a_whole_one_is_meant(run):
    for words in (["advise", "--n", "3.5", "--f", 0, "--d", 9], ["train", "--workers", "3.5"]):
        refused = run(*words)
        assert refused.exit_code == 2
        assert "must be a whole number, got '3.5'" in refused.stderr


def test_of_a_flag_that_is_given_twice_the_last_counts(run):
    words = ("advise", "--n", 3, "--n", 15, "--f", 3, "--d", 100, "--json")
    assert _json(run(*words))["n"] == 15
    assert (
        "multi-krum needs n >= 9"
        in run("train", "--gar", "multi-krum", "--f-workers", 1, "--f-workers", 3).stderr
    )


def test_an_interrupted_command_exits_with_130(run, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("garfield.gars.advice.advise", interrupted)
    assert run("advise", "--n", 3, "--f", 0, "--d", 9).exit_code == 130


def test_version(run):
    assert run("--version").stdout.strip() == "garfield " + importlib.metadata.version(
        "garfield-ml"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["resilience", "--rules", "medien"], "medien is not a rule. Did you mean median?"),
        (["resilience", "--attacks", "revers"], "revers is not an attack. Did you mean reverse?"),
        (["resilience", "--n", 3, "--f", 2], "n >= f + 2"),
        (["resilience", "--picture", "x.bmp"], ".png, .svg or .pdf"),
        (["advise", "--n", 3, "--f", 3, "--d", 10], "0 <= f < n"),
        (["--load", "nowhere.py", "rules"], "nowhere.py is none"),
        (["--load"], "--load needs a file"),
    ],
)
def test_errors_are_one_line_on_stderr_and_exit_code_2(run, words, message):
    result = run(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1


# -- --debug ----------------------------------------------------------------------------------


@pytest.fixture
def _quiet_again():
    ours = logging.getLogger("garfield")
    before = ours.level, list(ours.handlers)
    yield
    ours.setLevel(before[0])
    ours.handlers[:] = before[1]


@pytest.mark.usefixtures("_quiet_again")
@pytest.mark.parametrize("debug", [[], ["--debug"]])
def test_what_nobody_foresaw_is_one_line_too_and_debug_shows_its_traceback(run, monkeypatch, debug):
    def broken(*_, **__):
        return {}["missing"]

    monkeypatch.setattr("garfield.gars.advice.advise", broken)
    result = run(*debug, "advise", "--n", 3, "--f", 0, "--d", 9)
    assert result.exit_code == 1
    assert result.stdout == ""
    *traceback, line = result.stderr.splitlines()
    assert line.startswith("Error: KeyError: 'missing'")
    assert "--debug" in line
    assert bool(traceback) == bool(debug)
    assert ("Traceback (most recent call last):" in traceback) == bool(debug)


@pytest.mark.usefixtures("_quiet_again")
def test_debug_shows_where_an_error_of_ours_comes_from(run):
    result = run("--debug", "resilience", "--rules", "medien")
    assert result.exit_code == 2
    assert "in _run" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("Error: medien is not a rule")


def test_whoever_reads_no_further_is_not_told_of_it():
    words = f"{sys.executable} -m garfield attacks | true"
    done = subprocess.run(
        ["bash", "-c", words], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stderr == ""


# -- --load -----------------------------------------------------------------------------------


@pytest.fixture
def user_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "import garfield\n"
        "@garfield.gar('my-rule', needs=lambda f: 3 * f + 1, choose='[always]')\n"
        "def my_rule(rows, *, f):\n"
        "    return rows.median()\n"
        "@garfield.attack('my-lie', knows='own')\n"
        "def my_lie(view):\n"
        "    '''Twice the truth.'''\n"
        "    return 2 * view.own\n"
    )
    yield path
    GARS.remove("my-rule")
    ATTACKS.remove("my-lie")
    sys.modules.pop("garfield_user_mine", None)


def test_a_loaded_file_makes_its_rules_and_attacks_known(run, user_file):
    listed = run("--load", user_file, "rules").stdout
    assert "my-rule" in listed
    assert "3f + 1" in listed
    assert "[always]" in listed
    attacks = {attack["name"]: attack for attack in _json(run("attacks", "--json"))}
    assert attacks["my-lie"]["formula"] == "Twice the truth."


def test_an_error_in_a_loaded_file_is_told_with_its_line(run, tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("import math\nmath.nothing\n")
    result = run("--load", path, "rules")
    assert result.exit_code == 2
    assert "broken.py, line 2, failed to load: AttributeError" in result.stderr
    path.write_text("x = (\n")
    assert "SyntaxError" in run("--load", path, "rules").stderr


# -- listings -----------------------------------------------------------------------------------


def test_rules_and_attacks_list_every_name(run):
    assert all(name in run("rules").stdout for name in GARS)
    assert all(name in run("attacks").stdout for name in (*ATTACKS, *BEHAVIOURS, *TERMS))
    rules = _json(run("rules", "--json"))
    assert [rule["name"] for rule in rules] == list(GARS)
    assert {"needs", "cost", "choose", "robust"} <= set(rules[0])
    attacks = _json(run("attacks", "--json"))
    assert {alias for attack in attacks for alias in (attack["name"], *attack["aliases"])} == {
        *ATTACKS, *BEHAVIOURS, *TERMS,
    }  # fmt: skip


# -- advise ---------------------------------------------------------------------------------------


def test_advise_prints_the_pick_and_what_the_others_need(run):
    text = " ".join(run("advise", "--n", 14, "--f", 3, "--d", 100).stdout.split())
    assert "Advised: mda." in text
    assert "bulyan (needs n >= 15)" in text


def test_advise_for_scripts_holds_times_and_reasons(run):
    told = _json(run("advise", "--n", 15, "--f", 3, "--d", 2_000_000, "--json"))
    assert told["recommended"] == "bulyan"
    bulyan = told["rules"][0]
    assert bulyan["rule"] == "bulyan"
    assert bulyan["seconds"] > 0
    assert told["columns_timed"] == 1_000_000


def test_advise_without_any_admissible_rule_says_so(run):
    text = run("advise", "--n", 5, "--f", 3, "--d", 100).stdout
    assert "Advised: none." in text


# -- doctor ---------------------------------------------------------------------------------------


@pytest.fixture
def quick_doctor(monkeypatch):
    measured = machine.speed(columns=1_000)
    monkeypatch.setattr(machine, "speed", lambda: measured)


def test_doctor_tells_what_is_here_and_how_fast(run, quick_doctor):
    told = _json(run("doctor", "--json"))
    assert told["usable"] is True
    assert {"python", "platform", "cores", "memory_bytes", "simd"} <= set(told["machine"])
    assert told["kernels"] == {
        "loaded": True, "problem": "", "isa": kernels.isa(), "isas": list(kernels.isas()),
    }  # fmt: skip
    assert [package["name"] for package in told["packages"]] == [
        "numpy", "torch", "tensorflow", "matplotlib",
    ]  # fmt: skip
    assert told["speed"]["mean_gb_per_s"] > 0
    assert set(told["speed"]["ratios"]) == {"average", "median", "multi-krum", "bulyan"}


def test_doctor_gives_the_command_for_what_is_missing(run, quick_doctor, monkeypatch):
    def version(name):
        if name in ("torch", "tensorflow", "tensorflow-cpu", "tensorflow-macos"):
            raise importlib.metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(machine.metadata, "version", version)
    result = run("doctor")
    assert result.exit_code == 0
    assert "pip install 'garfield-ml[torch]'" in result.stdout
    assert "pip install 'garfield-ml[tensorflow]'" in result.stdout


def test_doctor_exits_with_1_when_the_core_is_unusable(run, monkeypatch):
    def broken(name):
        raise ImportError("no _native here")

    monkeypatch.setattr(machine, "import_module", broken)
    result = run("doctor", "--json")
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert told["usable"] is False
    assert told["speed"] is None
    assert "no _native here" in told["kernels"]["problem"]
    assert run("doctor").exit_code == 1


# -- names ----------------------------------------------------------------------------------------


def test_names_are_split_at_commas_outside_brackets():
    given = ["median, bucketing(s=3,seed=1)+krum", "mda", "median"]
    assert names(given) == ["median", "bucketing(s=3,seed=1)+krum", "mda"]


@pytest.mark.parametrize("words", [["--days", "nan"], ["--days", "1e9"], ["--out", "/proc/nope"]])
def test_certificates_that_cannot_be_made_are_refused_in_one_line(words, tmp_path):
    done = invoke(["certs", "--names", "worker-0", "--out", tmp_path / "certs", *words])
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
    assert words[1].lstrip("1") in done.stderr or "1e+09" in done.stderr
