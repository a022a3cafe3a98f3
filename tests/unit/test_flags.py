"""A command whose flags are the fields of a dataclass: all that a new system needs."""

from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from cyclopts import App, CycloptsError, Parameter

from garfield.cli.flags import Flags, spelt_out
from garfield.core.config import flattened, made, read_toml, settings_of


@dataclass(frozen=True)
class Sampling:
    """Who takes part in a round."""

    devices: int = 100
    """How many there are."""
    balanced: bool = True
    """Choose them so that their classes balance."""


@dataclass(frozen=True)
class Settings:
    rounds: int = 10
    """How often they meet."""
    only: tuple[str, ...] = ()
    """Devices to ask, with commas."""
    sampling: Sampling = field(default_factory=Sampling)


def panels():
    found = settings_of(Settings)
    return {group or "Run": [s for s in found if s.group == group] for group in ("", "sampling")}


@pytest.fixture
def system(tmp_path):
    """Runs the command of a system with some words, its file of settings among them."""
    seen = []

    def command(
        *,
        given: Annotated[dict[str, Any], Flags(panels)],
        loud: Annotated[bool, Parameter(negative=())] = False,
    ) -> None:
        """Run it."""
        content = flattened(read_toml(tmp_path / "x.toml"), settings_of(Settings))
        seen.append((made(Settings, content | given), loud))

    app = App(exit_on_error=False, print_error=False, result_action="return_value")
    app.default(spelt_out(command))
    (tmp_path / "x.toml").write_text("rounds = 3\n[sampling]\nbalanced = false\n")

    def run(*words):
        app([str(word) for word in words])
        return seen[-1]

    return run


def test_flags_win_over_the_file_and_the_file_over_defaults(system):
    assert system() == (Settings(rounds=3, sampling=Sampling(balanced=False)), False)
    chosen = Settings(5, ("a", "b"), Sampling(7, balanced=True))
    words = ("--rounds", 5, "--only", "a,b", "--devices", 7, "--balanced", "--loud")
    assert system(*words) == (chosen, True)
    assert system("--no-balanced")[0].sampling.balanced is False


def test_what_is_not_a_flag_or_a_value_is_refused(system):
    with pytest.raises(CycloptsError, match=r"Did you mean --rounds\?"):
        system("--round", 3)
    with pytest.raises(CycloptsError, match="rounds must be a whole number, got 'few'"):
        system("--rounds", "few")


def test_help_shows_each_with_its_documentation_default_and_panel(system, capsys):
    system_help = App(exit_on_error=False)

    @system_help.default
    @spelt_out
    def command(*, given: Annotated[dict[str, Any], Flags(panels)]) -> None:
        """Run it."""

    system_help(["--help"], result_action="return_value")
    shown = " ".join(capsys.readouterr().out.split())
    for part in ("─ Run ─", "─ sampling ─", "How often they meet. [default: 10]", "--devices"):
        assert part in shown
