"""The tool that changes the code in one place at a time: what it changes, and what it says."""

import json
import textwrap

import pytest

from tools import mutants
from tools.mutant_runner import Chosen
from tools.mutants import KnownTests, Mutant, changed_lines, same_program, sample, summary
from tools.mutations import mutations


def changed(source):
    """What each change makes of the lines it touches."""
    code = textwrap.dedent(source).strip().encode() + b"\n"
    found = mutations(code)
    for each in found:
        compile(each.applied(code), "changed", "exec")  # still a program
    return {changed_lines(code, each)[1] for each in found}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("ok = a < b", {"ok = a <= b"}),
        ("ok = (a) == (b)", {"ok = (a) != (b)"}),
        ("ok = a is not b", {"ok = a is b"}),
        ("ok = a not in b", {"ok = a in b"}),
        ("ok = a <= b < c", {"ok = a < b < c", "ok = a <= b <= c"}),
        ("x = a - b", {"x = a + b"}),
        ("x = a // b ** c", {"x = a * b ** c", "x = a // b * c"}),
        ("x = a and(b)", {"x = a or (b)"}),
        ("x = not a", {"x = a"}),
        ("x = -(a + b)", {"x = (a + b)", "x = -(a - b)"}),
        ("x = 3", {"x = 4", "x = 2"}),
        ("x = 0", {"x = 1", "x = (-1)"}),
        ("x = 0.5", {"x = 1.5"}),
        ("x = True", {"x = False"}),
        ("x = max(a, b)", {"x = min(a, b)", "x = a", "x = b"}),
        ("x = rows.min()", {"x = rows.max()"}),
        ("x = rows[k:]", {"x = rows[k + 1:]"}),
        ("x = rows[a, :n - f]", {"x = rows[a, :(n - f) + 1]", "x = rows[a, :n + f]"}),
        ("x = a if b else c", {"x = a if not (b) else c"}),
        ("self.x = a", {"pass"}),
        ("x.append(a)", {"pass"}),
        ("self.x += a", {"pass", "self.x -= a"}),
        ("λ = a  # λ − μ\nx = λ < b  # λ < μ", {"x = λ <= b  # λ < μ"}),
        ("x = (a  # not <\n     < b)", {"<= b)"}),
    ],
)
def test_every_kind_of_change_is_made(source, expected):
    assert changed(source) == expected


def test_statements_are_left_out_and_functions_left_early():
    found = changed("""
        def f(a) -> None:
            if a:
                raise ValueError("a must be 0, got " + str(a + 1))
            a.clear()
            for b in a:
                if b:
                    continue
    """)
    assert found == {"return\nif a:", "if not (a):", "pass", "if not (b):"}


@pytest.mark.parametrize(
    "source",
    [
        '"""1 < 2"""',
        "from a import b",
        "x: int",
        "def f(a: Literal[1] = b) -> Literal[2]: return a",
        "assert a < b, 'x'",
        "def __repr__(self):\n    return a + b",
        "x = f'{a + 1}'",
        "x = 'a' + b",
        "if TYPE_CHECKING:\n    x = 1",
        "class A(Protocol):\n    def f(self, a=1): ...",
        "@dataclass(frozen=True)\nclass A:\n    pass",
        "x = zip(a, b, strict=True)",
    ],
)
def test_what_no_test_should_depend_on_stays_as_it_is(source):
    assert changed(source) == set()


def test_a_bound_in_a_decorator_is_changed_and_its_name_is_not():
    found = changed('@gar("krum", needs=lambda f: f + b, order=3)\ndef krum(rows): return rows')
    assert found == {'@gar("krum", needs=lambda f: f - b, order=3)'}


def test_a_change_knows_the_function_around_it():
    source = b"x = 1\nclass A:\n  y = 2\n  def f(self):\n    def g():\n      return a < b\n"
    places = {(each.line, each.function) for each in mutations(source)}
    assert places == {(1, ""), (3, ""), (6, "A.f.<locals>.g")}


def of(text, path="a/b.py", at=0):
    source = text.encode()
    mutation = mutations(source)[at]
    return Mutant(path, mutation, source, *changed_lines(source, mutation))


KNOWN = KnownTests({
    "t.py::wide": {"seconds": 0.1, "functions": ["a/b.py:f", "a/b.py:g", "c.py:h"]},
    "t.py::narrow": {"seconds": 0.1, "functions": ["a/b.py:f"]},
    "t.py::slow": {"seconds": 9.0, "functions": ["a/b.py:f"]},
    "t.py::near": {"seconds": 0.1, "functions": ["a/other.py:f"]},
})  # fmt: skip


def test_tests_that_call_the_function_are_run_the_most_specific_first():
    assert list(KNOWN.noticing(of("def f():\n    return a < b"))) == [
        "t.py::narrow", "t.py::wide", "t.py::slow",
    ]  # fmt: skip
    hurried = mutants.replace(KNOWN, most_s=1.0)
    assert list(hurried.noticing(of("def f():\n    return a < b"))) == [
        "t.py::narrow",
        "t.py::wide",
    ]
    assert KNOWN.noticing(of("def unknown():\n    return a < b")) == {}


def test_a_survivor_is_held_to_tests_by_what_they_say_and_not_by_name_alone():
    about = {"seconds": 0.1, "functions": []}
    files = ("one", "one", "other")
    known = [KnownTests({"t.py::a": {**about, "hash": file}, "t.py::b": about}) for file in files]
    told = [each.fingerprint(["t.py::b", "t.py::a"]) for each in known]
    assert told[0] == told[1] == known[0].fingerprint(["t.py::a", "t.py::b"])
    assert told[1] != told[2]


def test_code_outside_of_functions_is_run_by_whoever_uses_its_file_or_its_folder():
    assert set(KNOWN.noticing(of("x = 1"))) == {"t.py::narrow", "t.py::wide", "t.py::slow"}
    assert set(KNOWN.noticing(of("x = 1", path="a/constants.py"))) == set(KNOWN.tests)


def test_a_sample_is_the_same_for_the_same_seed():
    many = [of("x = [1, 2, 3, 4, 5]", at=i) for i in range(10)]
    chosen = [sample(many, 4, seed) for seed in (1, 1, 2)]
    assert chosen[0] == chosen[1] != chosen[2]
    assert len(chosen[0]) == 4
    assert sample(many, 0, 1) == sample(many, 99, 1) == many


def test_changes_of_brackets_alone_are_no_changes():
    source = b"x = rows[-1]\n"
    same = [each for each in mutations(source) if same_program(source, each)]
    assert same == []
    assert same_program(source, mutations(b"x = a\nself.y = b\n")[0]) is False


class FakeSlot:
    """Notes what it is asked to run; tests of that name fail."""

    def __init__(self, failing=()):
        self.failing, self.asked = failing, []

    def ask_with(self, path, source, request):
        self.asked.append((path, source.decode(), list(request["tests"])))
        failed = next((name for name in request["tests"] if name in self.failing), "")
        return {"code": int(bool(failed)), "failed": failed}


def test_a_change_is_caught_by_the_first_test_that_fails_or_survives_all():
    mutant, tests = of("def f():\n    return a < b"), {f"t{i}": 0.1 for i in range(40)}
    slot = FakeSlot(failing={"t3", "t35"})
    caught = mutants.judge(slot, mutant, tests)
    assert (caught.state, caught.by) == ("caught", "t3")
    assert slot.asked == [("a/b.py", "def f():\n    return a <= b", list(tests)[:30])]
    slot = FakeSlot(failing={"t35"})
    assert mutants.judge(slot, mutant, tests).by == "t35"
    assert [len(names) for _, _, names in slot.asked] == [30, 10]
    assert mutants.judge(FakeSlot(), mutant, tests).state == "survived"
    assert mutants.judge(FakeSlot(), mutant, {}).state == "untested"


def test_the_share_counts_what_no_test_runs_and_not_what_changes_nothing():
    base = of("x = 1")
    states = ["caught"] * 9 + ["survived"] + ["untested"] * 2 + ["equivalent"] * 5
    told = summary([mutants.replace(base, state=state) for state in states])
    assert told.startswith("caught 9 of 12 (75 %); 1 survived, 2 in code that no test here runs")


@pytest.mark.slow
def test_the_listed_equivalents_are_changes_that_can_be_made():
    """Code moves on: what is listed and no longer there is to be removed."""
    known = mutants.read_equivalent(mutants.EQUIVALENT)
    sources = {path: (mutants.PACKAGE / path).read_bytes() for path, _, _ in known}
    found = {
        (path, *mutants.changed_lines(source, change))
        for path, source in sources.items()
        for change in mutations(source)
    }
    assert set(known) - found == set()
    assert all(len(why) > 20 for why in known.values())


def test_chosen_tests_run_alone_the_fastest_first_each_with_a_limit():
    class Item:
        def __init__(self, nodeid):
            self.nodeid, self.limits = nodeid, []

        def add_marker(self, mark):
            self.limits.append(mark.args[0])

    items = [Item("t.py::slow"), Item("t.py::other"), Item("t.py::fast")]
    chosen = Chosen({"t.py::slow": 3.0, "t.py::fast": 0.1})
    chosen.pytest_collection_modifyitems(items)
    assert chosen.files == ["t.py"]
    assert [(item.nodeid, item.limits) for item in items] == [
        ("t.py::fast", [10.0]), ("t.py::slow", [30.0]),
    ]  # fmt: skip


@pytest.mark.heavy
def test_a_change_of_a_filter_is_caught_in_a_copy_and_the_package_stays_as_it_is(
    tmp_path, monkeypatch, capsys
):
    path = mutants.PACKAGE / "filters" / "distance.py"
    before = path.read_bytes()
    monkeypatch.setattr(mutants, "KEPT", tmp_path)
    words = [str(path), "--sample", "2", "--jobs", "1", "--tests", "tests/unit/test_filters.py"]
    assert mutants.main([*words, "--json", str(tmp_path / "found.json")]) == 0
    assert "caught 2 of 2 (100 %)" in capsys.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text())
    assert all("test_filters.py::" in each["by"] for each in found)
    assert path.read_bytes() == before
