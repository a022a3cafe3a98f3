"""Calls `garfield …` in this process: its exit code, standard output and standard error."""

from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO

from garfield.cli.app import run


@dataclass(frozen=True)
class Done:
    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self):
        return self.stdout + self.stderr


def invoke(words: Iterable[object]) -> Done:
    with redirect_stdout(StringIO()) as stdout, redirect_stderr(StringIO()) as stderr:
        code = run([str(word) for word in words])
    return Done(code, stdout.getvalue(), stderr.getvalue())
