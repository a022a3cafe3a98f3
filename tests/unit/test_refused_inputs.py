"""Whatever is wrong with what was given, it is told in one line, with exit code 2 or 1."""

import contextlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import benchmarks.__main__ as benchmarks
from garfield.attacks import ATTACKS
from garfield.attacks import parse as parse_attack
from garfield.core.bounds import Within
from garfield.core.errors import ConfigError, GarfieldError, InputError
from garfield.core.registry import Parameters
from garfield.data.partitions import PARTITIONS
from garfield.data.partitions import parse as parse_partition
from garfield.gars import GARS, gar, parse
from garfield.preaggregation import STAGES
from tests.command import invoke

TINY = ("train", "--data", "digits", "--model", "digits_mlp", "--steps", 2, "--simulate")
ODD = ("'x'", "1.5", "-1.5", "True", "None", "[1, 2]", "{}", "b'x'", "1j", "1e999", "-1", "0",
       "9" * 400)  # fmt: skip


def refused(*words):
    done = invoke(words)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    return line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--gar", "bucketing(s='x')+median"), "bucketing.s must be a whole number, got 'x'"),
        (("--gar", "multi-krum(m=1.5)"), "multi-krum.m must be a whole number or None, got 1.5"),
        (("--gar", "multi-krum(m=[1,2])"), r"multi-krum.m must be .*, got \[1, 2\]"),
        (("--gar", "centered-clipping(tau='a')"), "centered-clipping.tau must be a number or None"),
        (("--gar", "bulyan(base='nobody')"), "nobody is not a rule"),
        (("--seed", "9" * 23), r"seed must be within 0\.\.9223372036854775807, got 9{23}"),
        (("--weight-decay", "inf"), "weight_decay must be at least 0 and finite, got inf"),
        (("--learning-rate", "nan"), "learning_rate must be positive and finite, got nan"),
        (("--steps", "1e20"), "steps must be a whole number, got '1e20'"),
        (("--steps", "1" + "0" * 20), "steps must be within 1..1000000000000, got 10{20}"),
        (("--batch", "1" + "0" * 8), r"batch must be within 1\.\.1497 \(samples of digits\)"),
        (("--workers", "1" + "0" * 9), "workers must be within 1..100000, got 1000000000"),
        (("--partition", "dirichlet(alpha='x')"), "dirichlet.alpha must be a number, got 'x'"),
    ],
)
def test_a_wrong_setting_is_one_line(tmp_path, words, message):
    line = refused(*TINY, "--out", tmp_path / "run", *words)
    assert re.search(message, line), line
    assert not (tmp_path / "run").exists()


def _texts():
    """Every parameter of every extension that is named by text, with every odd value."""
    kinds = (
        (GARS, {"f"}, "{}", parse), (STAGES, {"f"}, "{}+median", parse),
        (ATTACKS, set(), "{}", parse_attack),
        (PARTITIONS, {"workers", "rng"}, "{}", parse_partition),
    )  # fmt: skip
    for registry, given, form, read in kinds:
        for name, entry in registry.items():
            for parameter in Parameters(name, entry.function, frozenset(given)).defaults:
                yield pytest.param(name, parameter, form, read, id=f"{name}-{parameter}")


@pytest.mark.parametrize(("name", "parameter", "form", "read"), [*_texts()])
def test_a_parameter_that_cannot_be_is_refused_when_it_is_read(name, parameter, form, read):
    """What is not refused then, can be used: a rule aggregates, or says in our words why not."""
    refusals = 0
    for value in ODD:
        try:
            found = read(form.format(f"{name}({parameter}={value})"))
        except ConfigError:
            refusals += 1
            continue
        if read is parse:
            with contextlib.suppress(GarfieldError):
                assert found(np.eye(15), f=1).shape == (15,)
    assert refusals >= 5  # the list, the dict, the bytes, the complex number, infinity


# -- text of the user's that looks like markup ----------------------------------------------------


@pytest.mark.slow
def test_a_directory_may_be_named_like_markup(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoke((*TINY, "--out", "x[/b]"))
    assert done.exit_code == 0, done.output
    assert "Kept in x[/b]/" in done.stdout
    assert (tmp_path / "x[" / "b]").is_dir()


# -- rules of the user's own ----------------------------------------------------------------------


@pytest.fixture
def own_rule():
    made = []

    def register(function):
        made.append("test-own")
        return gar("test-own", needs=lambda f: 1)(function)

    yield register
    GARS.remove("test-own")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda rows: rows.matrix(), r"returned a numpy.ndarray of shape \(3, 4\)"),
        (lambda rows: np.zeros(5), r"returned a numpy.ndarray of shape \(5,\)"),
        (lambda rows: __import__("torch").zeros(4), r"returned a torch.Tensor of shape \(4,\)"),
        (lambda rows: [0.0] * 4, "returned a list"),
        (lambda rows: None, "returned a NoneType"),
    ],
)
def test_a_rule_that_returns_no_vector_is_named(own_rule, answer, told):
    rule = own_rule(lambda rows, *, f: answer(rows))
    with pytest.raises(InputError, match=f"The rule test-own {told}.* shape .4,."):
        rule(np.ones((3, 4)), f=0)


def test_a_rule_that_fails_is_named_with_its_line(own_rule):
    def fails(rows, *, f):
        return rows.median() / {}["missing"]

    line = fails.__code__.co_firstlineno + 1
    with pytest.raises(InputError, match="The rule test-own failed: KeyError: 'missing'") as found:
        own_rule(fails)(np.ones((3, 4)), f=0)
    assert f"({__file__}:{line})" in str(found.value)


FAILING = """from garfield import gar

@gar('mine', needs=lambda f: 1)
def mine(rows, *, f):
    return 1 / 0
"""


@pytest.mark.slow
@pytest.mark.parametrize("where", [("--simulate",), pytest.param((), marks=pytest.mark.heavy)])
def test_a_run_says_in_which_line_the_users_rule_failed(tmp_path, where):
    own = tmp_path / "mine.py"
    own.write_text(FAILING)
    words = [sys.executable, "-m", "garfield", "--load", own, *map(str, TINY[:-1]), *where,
             "--gar", "mine", "--workers", "3", "--out", tmp_path / "run"]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert len(told) == 1
    assert "The rule mine failed: ZeroDivisionError: division by zero" in told[0]
    assert f"({own}:5)" in told[0]
    assert "Traceback" not in done.stderr


@pytest.mark.heavy
def test_debug_shows_the_traceback_of_a_process(tmp_path):
    own = tmp_path / "mine.py"
    own.write_text(FAILING)
    words = [sys.executable, "-m", "garfield", "--debug", "--load", own, *map(str, TINY[:-1]),
             "--gar", "mine", "--workers", "3", "--out", tmp_path / "run"]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert f'File "{own}", line 5, in mine\n    return 1 / 0' in done.stderr


# -- bounds and tables ----------------------------------------------------------------------------


def test_bounds_say_what_they_allow():
    assert str(Within(1)) == "at least 1"
    assert str(Within(0, above=True)) == "positive"
    assert str(Within(0, 1, below=True)) == "within 0..1, below 1"
    assert [Within(0, 1, below=True).holds(x) for x in (-1, 0, 0.5, 1)] == [
        False,
        True,
        True,
        False,
    ]
    assert not Within(2, above=True).holds(2)


def test_tables_that_are_piped_are_whole(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    done = invoke(["rules"])
    assert "…" not in done.stdout
    for rule in GARS.values():
        [line] = [line for line in done.stdout.splitlines() if line.split()[:1] == [rule.name]]
        assert line.rstrip().endswith(rule.choose)


@pytest.mark.slow
def test_help_names_every_benchmark():
    root = Path(__file__).parents[2]
    words = [sys.executable, "-m", "benchmarks", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=root, timeout=120, check=True)
    asked = [p.stem for p in (root / "benchmarks").glob("*.py") if "\nQUESTION = " in p.read_text()]
    assert len(asked) >= 12
    for name in asked:
        assert f"\n  {name} " in done.stdout


@pytest.mark.slow
def test_a_benchmark_runs_and_its_numbers_are_kept(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(benchmarks, "_write", lambda name, numbers: tmp_path / f"{name}.json")
    assert benchmarks.main(["split_scheduler", "--quick"]) == 0
    assert "split_scheduler took" in capsys.readouterr().out
