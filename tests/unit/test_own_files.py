"""A user's own file: what its rules may do with rows, what is checked of them, `garfield check`."""

import json
import shlex

import numpy as np
import pytest
import torch

import garfield
from garfield import ATTACKS, GARS, STAGES, InputError, gar, stage
from garfield.kernels import read, torch_everywhere
from garfield.models import MODELS
from garfield.runs import user_files
from tests import snippets
from tests.command import invoke

ROWS = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)


@pytest.fixture(autouse=True)
def nothing_registered_is_left(monkeypatch):
    before = {registry.kind: list(registry) for registry in (GARS, STAGES, ATTACKS, MODELS)}
    monkeypatch.setattr(user_files, "_loaded", {})
    yield
    for registry in (GARS, STAGES, ATTACKS, MODELS):
        for name in set(registry) - set(before[registry.kind]):
            registry.remove(name)


def own(function, **says):
    return gar("own", needs=lambda f: 2 * f + 1, **says)(function)


# -- rows as an array -----------------------------------------------------------------------------


@pytest.mark.parametrize("mixed", [False, True])
def test_rows_are_an_array_wherever_one_is_wanted(mixed):
    rows, whole = read(ROWS)[0], ROWS
    if mixed:
        turned = np.roll(np.eye(5), 1, axis=0)
        rows, whole = rows.mixed(turned), ROWS[[4, 0, 1, 2, 3]]
    assert rows.shape == (5, 4)
    assert rows.ndim == 2
    assert rows[0].dtype == np.float32
    np.testing.assert_array_equal([*rows], whole)
    np.testing.assert_array_equal(np.asarray(rows), whole)
    np.testing.assert_array_equal(np.asarray(rows, np.float64), whole)
    np.testing.assert_array_equal(rows[-1], whole[-1])
    np.testing.assert_array_equal(rows[1:3].matrix(), whole[1:3])
    np.testing.assert_array_equal(rows[whole[:, 0] > 0].matrix(), whole[whole[:, 0] > 0])
    np.testing.assert_array_equal(rows[:, 2], whole[:, 2])
    assert rows[2, 3] == whole[2, 3]
    np.testing.assert_array_equal(np.mean(rows, axis=0), whole.mean(axis=0))
    with pytest.raises(IndexError, match="5 is out of bounds"):
        rows[5]


def test_rows_on_torch_are_tensors_and_nobody_writes_to_the_callers():
    given = torch.from_numpy(ROWS.copy())
    with torch_everywhere():
        rows = read(given)[0]
        assert torch.equal(torch.stack([*rows]), given)
        rows[0].zero_()
    np.testing.assert_array_equal(given, ROWS)
    np.testing.assert_array_equal(np.asarray(rows), ROWS)
    with pytest.raises(InputError, match=r"failed: ValueError: .*read-only \(.*test_own_files"):
        own(lambda rows, *, f: rows[0].__iadd__(1))(ROWS, f=0)


def test_a_rule_that_returns_one_of_its_rows_returns_a_copy():
    given = ROWS.copy()
    result = own(lambda rows, *, f: rows[3])(given, f=1)
    result[:] = 7
    np.testing.assert_array_equal(given, ROWS)


@pytest.mark.parametrize("look", [lambda r: [*r], np.asarray, lambda r: r.matrix(), lambda r: r[0]])
def test_who_looks_at_elements_sees_no_row_that_is_not_finite(look):
    seen = []

    def rule(rows, *, f):
        look(rows)
        seen.append((rows.n, f))
        return rows.median()

    rows = ROWS.copy()
    rows[2, 1] = np.nan
    found = own(rule)(rows, f=2, explain=True)
    assert seen == [(4, 1)]
    assert found.set_aside == {2: "non-finite"}


# -- what is checked of answers -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda rows: rows.median() / 0, r"returned -?inf at coordinate 0 \(4 of 4 are not finite"),
        (lambda rows: np.zeros(4, int), "returned numbers of dtype int64. Return floats"),
        (lambda rows: np.zeros(4, complex), "returned numbers of dtype complex128"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_an_answer_that_is_no_finite_vector_of_floats_is_named(answer, told):
    with pytest.raises(InputError, match=f"The rule own {told}"):
        own(lambda rows, *, f: answer(rows))(ROWS, f=1)


def test_rows_that_are_not_finite_are_blamed_before_the_rule_that_saw_them():
    rows = ROWS.copy()
    rows[1] = np.inf
    found = own(lambda rows, *, f: np.mean(rows.rows, axis=0))(rows, f=1, explain=True)
    assert found.set_aside == {1: "non-finite"}
    np.testing.assert_allclose(found.vector, np.delete(ROWS, 1, axis=0).mean(axis=0), rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda rows: np.asarray(rows), r"returned a ndarray of shape \(5, 4\).*rows\.mixed"),
        (lambda rows: rows[:2], r"returned a NativeRows of shape \(2, 4\)"),
        (lambda rows: 1 / 0, r"failed: ZeroDivisionError: .*test_own_files\.py"),
    ],
)
def test_a_pre_aggregation_that_makes_no_such_rows_is_named(make, told):
    made = stage("own-stage")(lambda rows, *, f: make(rows))
    with pytest.raises(InputError, match=f"The pre-aggregation own-stage {told}"):
        garfield.chain(made, "median")(ROWS, f=1)


# -- garfield check -------------------------------------------------------------------------------

MODEL = """
import torch
from garfield.models import MODELS, Model

class Net(torch.nn.Module):
    def __init__(self, classes, channels):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(channels * 16, 8), torch.nn.BatchNorm1d(8),
            torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(8, {outputs})
        )

    def forward(self, images):
        return self.layers(images)

MODELS.add("net", Model("net", Net, image=(1, 4, {height}), parameters={parameters}))
"""


def checked(tmp_path, text, *words):
    (tmp_path / "own.py").write_text(text)
    return invoke(["check", tmp_path / "own.py", *words])


def test_a_model_is_held_to_its_contract(tmp_path):
    good = {"outputs": "classes", "height": 4, "parameters": None}
    done = checked(tmp_path, MODEL.format(**good))
    assert done.exit_code == 0, done.output
    assert "model net" in done.stdout
    assert "all 9 promises kept" in done.stdout


@pytest.mark.parametrize(
    ("wrong", "promise", "why", "line"),
    [
        ({"outputs": 10}, "From each sample it makes a score", "3 classes: it returned (6, 10)", 5),
        ({"height": 5}, "From each sample it makes a score", "mat1 and mat2", 14),
        ({"parameters": 7}, "It has as many parameters", "It states 7 parameters, and has 242", 5),
    ],
)
def test_what_a_model_breaks_is_told_with_line_and_input(tmp_path, wrong, promise, why, line):
    says = {"outputs": "classes", "height": 4, "parameters": None, **wrong}
    done = checked(tmp_path, MODEL.format(**says), "--json")
    assert done.exit_code == 1
    [model] = json.loads(done.stdout)
    first = model["broken"][0]
    assert first["promise"].startswith(promise)
    assert why in first["why"]
    assert (first["file"], first["line"]) == (str(tmp_path / "own.py"), line)
    if promise.startswith("From"):
        assert "inputs (6, 1, 4, " in first["given"]


OWN_NET = """
import numpy as np
import torch

def load():
    rng = np.random.default_rng(0)
    x = (100 * rng.standard_normal((40, 5))).astype(np.float32)
    return x, {targets}, x[:8], ({targets})[:8]

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = torch.nn.Linear(5, 7), torch.nn.Linear(7, {outputs})

    def forward(self, x):
        return {forward}
"""
TO_CLASSES, TO_NUMBERS = "rng.integers(0, 3, 40)", "x.sum(axis=1)"
FORWARD = "self.out(self.hidden(x).tanh())"


@pytest.mark.parametrize(("targets", "outputs"), [(TO_CLASSES, 3), (TO_NUMBERS, 1)])
def test_a_model_that_is_not_registered_is_tried_on_its_data(
    tmp_path, monkeypatch, targets, outputs
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(
        OWN_NET.format(targets=targets, outputs=outputs, forward=FORWARD)
    )
    done = invoke(["check", "own.py:Net", "--data", "own.py:load"])
    assert (done.exit_code, done.stdout) == (0, "model Net (own.py:10): all 9 promises kept\n")


@pytest.mark.parametrize(
    ("targets", "outputs", "forward", "why", "line"),
    [
        (TO_CLASSES, 4, FORWARD, "(6, 5) samples, 3 classes: it returned (6, 4), not (6, 3)", 10),
        (TO_CLASSES, 3, "self.out(x)", "mat1 and mat2 shapes cannot be multiplied", 16),
        (TO_CLASSES, 3, f"{FORWARD} / 0", "some scores are not finite", 10),
        (TO_NUMBERS, 2, FORWARD, "Outputs have the shape (6, 2) and targets (6,)", 10),
        (TO_NUMBERS, 1, f"{FORWARD}.detach()", "does not require grad", 10),
    ],
)
def test_what_such_a_model_breaks_is_told(
    tmp_path, monkeypatch, targets, outputs, forward, why, line
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(
        OWN_NET.format(targets=targets, outputs=outputs, forward=forward)
    )
    done = invoke(["check", "own.py:Net", "--data", "own.py:load", "--json"])
    assert done.exit_code == 1
    [model] = json.loads(done.stdout)
    assert why in model["broken"][0]["why"]
    assert model["broken"][0]["line"] == line


def test_a_model_without_images_is_told_to_be_untried_and_how_to_try_it(tmp_path):
    text = MODEL.format(outputs="classes", height=4, parameters=None)
    done = checked(tmp_path, text.replace("image=(1, 4, 4), ", ""))
    assert done.exit_code == 0
    assert "model net" in done.stdout
    assert "not tried, as it states no image=" in done.stdout
    assert "garfield check FILE.py:NAME --data" in done.stdout
    alone = invoke(["check", f"{tmp_path / 'own.py'}:Net"])
    assert alone.exit_code == 2
    assert "own.py:Net needs data to be tried on" in alone.stderr


STAGE_AND_ATTACKS = """
from garfield import attack, gar, stage

@stage("own-nothing", translates=True)
def nothing(rows, *, f):
    return rows

@attack("own-wrong", knows="own", aliases=["own-alias"])
def wrong(view):
    return view.own[:2] * 3

@gar("own-good", needs=lambda f: 2 * f + 1)
def good(rows, *, f):
    return rows.median()
"""


def test_each_thing_of_a_file_is_told_and_one_that_fails_does_not_blame_the_others(tmp_path):
    done = checked(tmp_path, STAGE_AND_ATTACKS, "--json")
    found = {each["name"]: each for each in json.loads(done.stdout)}
    assert done.exit_code == 1
    assert [(each["kind"], len(each["broken"]) > 0) for each in found.values()] == [
        ("rule", False), ("pre-aggregation", False), ("attack", True),
    ]  # fmt: skip
    assert found["own-wrong"]["broken"][0]["line"] == 8
    assert "own-wrong" in ATTACKS  # it was only out of the way
    assert "own-alias" in ATTACKS


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = 1", "registers no rule, attack, pre-aggregation or model. Put @gar"),
        ("import nowhere", "line 1, failed to load: ModuleNotFoundError"),
        ("from garfield import gar\n@gar('median', needs=len)\ndef m(rows, *, f): ...",
         "line 2, failed to load: ConfigError: median is already a rule"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_tried_is_refused(tmp_path, text, told):
    done = checked(tmp_path, text)
    assert done.exit_code == 2
    assert told in done.stderr


def test_a_file_named_from_here_is_refused_with_its_line_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.py").write_text("x = 1\n\nimport nowhere\n")
    assert "bad.py, line 3, failed to load" in invoke(["check", "bad.py"]).stderr


def test_check_needs_a_file():
    assert "check needs a file" in invoke(["check"]).stderr


# -- the page -------------------------------------------------------------------------------------

PAGE = "own-rule-and-attack.md"
SMALL = {"kappa": ["--budget", "200"], "resilience": ["--rounds", "1"], "train": ["--steps", "3"]}


@pytest.mark.slow
def test_the_journey_of_an_author_goes_as_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine, shortest = snippets.blocks(PAGE, "python")
    (tmp_path / "mine.py").write_text(mine)
    (tmp_path / "shortest.py").write_text(
        f"import numpy as np\nfrom garfield import gar\n\n\n{shortest}"
    )
    right, wrong, compare, train = snippets.blocks(PAGE, "console")
    for session, code in ((right, 0), (wrong, 1)):
        command, _, printed = session.partition("\n")
        done = invoke(shlex.split(command)[2:])
        assert (done.exit_code, done.stdout) == (code, printed)
    for command in (*compare.splitlines(), *train.splitlines()):
        words = shlex.split(command)[2:]
        done = invoke([*words, *SMALL[words[2]]])
        assert done.exit_code == 0, done.output
        assert "middle-half" in done.output
