"""Every piece of Python in the documents is run, page by page, and the tutorial's commands too.

A page's pieces share a namespace and an empty directory. What they take for granted (some rows, a
model) is in `GIVEN`. One that needs a cluster or a store has `<!-- not run: why -->` above it.
"""

import re
import shlex
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

import garfield
from garfield.apps import APPLICATIONS
from garfield.attacks import ATTACKS
from garfield.cli.app import run
from garfield.elastic.policy import POLICIES
from garfield.models import MODELS
from garfield.runs import user_files

ROOT = Path(__file__).parents[2]
REGISTRIES = (garfield.GARS, ATTACKS, APPLICATIONS, POLICIES, MODELS)
FENCE = re.compile(
    r"^(?:<!-- not run: (?P<why>[^\n]+) -->\n)?```(?P<kind>python|bash)\n(?P<text>.*?)^```",
    re.M | re.S,
)
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"))
    if "```python" in path.read_text()
)
COMMANDS_RUN = {"docs/tutorial.md"}


@dataclass(frozen=True)
class Piece:
    kind: str
    text: str
    line: int
    why_not: str | None


def pieces(page):
    text = (ROOT / page).read_text()
    return [
        Piece(it["kind"], it["text"], text[: it.start("text")].count("\n") + 1, it["why"])
        for it in FENCE.finditer(text)
    ]


def _rows():
    rows = np.random.default_rng(0).normal(1.0, 0.1, (17, 50)).astype(np.float32)
    rows[9] = np.nan
    return {"np": np, "rows": rows, "rounds": [rows, rows]}


def _contributing():
    from garfield.apps import Run, application
    from garfield.apps.application import Application
    from garfield.core.types import Vector
    from garfield.kernels import Rows

    return {
        "gar": garfield.gar, "Rows": Rows, "Vector": Vector, "dataclass": dataclass, "Run": Run,
        "Application": Application, "application": application, "Server": garfield.Server,
    }  # fmt: skip


def _elastic_job():
    model = torch.nn.Linear(4, 2)
    data = torch.utils.data.TensorDataset(torch.randn(128, 4), torch.arange(128) % 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return {
        "model": model, "optimizer": optimizer, "data": data,
        "loss_of": torch.nn.functional.cross_entropy,
    }  # fmt: skip


GIVEN = {
    "README.md": _rows,
    "CONTRIBUTING.md": _contributing,
    "docs/elastic-jobs.md": _elastic_job,
}


@pytest.fixture
def as_it_was():
    """Registries without what a page registers."""
    with ExitStack() as stack:
        for registry in REGISTRIES:
            before = dict(registry._entries)

            def restore(registry=registry, before=before):
                registry._entries.clear()
                registry._entries.update(before)

            stack.callback(restore)
        yield


def test_pieces_that_are_not_run_say_why():
    left_out = [piece for page in PAGES for piece in pieces(page) if piece.why_not is not None]
    assert all(len(piece.why_not) > 20 for piece in left_out)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_shows_works(page, as_it_was, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(user_files, "_loaded", {})
    namespace = {"__name__": "snippets", **GIVEN.get(page, dict)()}
    for piece in pieces(page):
        if piece.why_not is not None:
            continue
        if piece.kind == "python":
            if named := re.match(r"# (\w+\.py)\n", piece.text):  # a file of the user's
                Path(named[1]).write_text(piece.text)
                user_files.load(Path(named[1]))
                continue
            padded = "\n" * (piece.line - 1) + piece.text  # errors then tell the page's own lines
            exec(compile(padded, str(ROOT / page), "exec"), namespace)
        elif page in COMMANDS_RUN:
            for command in piece.text.replace("\\\n", " ").splitlines():
                _command(command)


def _command(line):
    program, *words = shlex.split(line, comments=True)
    assert program == "garfield"
    code = run(words)
    assert code == 0 or (code == 1 and "vanilla" in words), line  # averaged lies may diverge
