"""The tree of errors: one root, one place, and what a command ends with."""

import ast
import re
from pathlib import Path

import pytest

import garfield
from garfield.core import errors
from garfield.core.errors import ConfigError, GarfieldError, RunError

EVERY = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, GarfieldError)
]


def _bases(path):
    """Of every class in a file, by name, as it writes them."""
    classes = [node for node in ast.walk(ast.parse(path.read_text())) if type(node) is ast.ClassDef]
    return {
        node.name: {ast.unparse(base).split(".")[-1] for base in node.bases} for node in classes
    }


@pytest.mark.slow
def test_no_error_is_defined_anywhere_else():
    known = {error.__name__ for error in EVERY}
    for path in Path(garfield.__file__).parent.rglob("*.py"):
        if path != Path(errors.__file__):
            derived = [name for name, bases in _bases(path).items() if bases & known]
            assert not derived, path


def test_nothing_raises_the_root_itself():
    for path in Path(garfield.__file__).parent.rglob("*.py"):
        assert "raise GarfieldError" not in path.read_text(), path


def test_every_error_is_exported():
    assert all(getattr(garfield, error.__name__) is error for error in EVERY)
    assert {error.__name__ for error in EVERY} <= set(garfield.__all__)


def test_the_tree_in_the_docstring_is_the_tree():
    drawn = re.findall(r"^[│├└─ ]*([A-Z]\w+)(?= {2}|$)", errors.__doc__, flags=re.MULTILINE)
    assert set(drawn) == {error.__name__ for error in EVERY}
    assert len(drawn) == len(EVERY)


def test_a_failed_run_ends_with_1_and_everything_else_with_2():
    for error in EVERY:
        assert error.exit_code == (1 if issubclass(error, RunError) else 2)
    assert not issubclass(RunError, ConfigError)


def test_errors_are_also_what_python_would_have_raised():
    assert issubclass(errors.UnknownName, KeyError)
    assert issubclass(errors.MissingDependency, ImportError)
    assert issubclass(errors.InputError, ValueError)
    assert str(errors.UnknownName("a rule", "medain", ["median"])) == (
        "medain is not a rule. Did you mean median?"
    )
