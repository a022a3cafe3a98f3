"""The command line: global options, the commands, and what happens to errors."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from cyclopts import App, CycloptsError, Group, Parameter, UnknownOptionError
from cyclopts.help import DefaultFormatter

from garfield.cli.exit_codes import DONE, FAILED, INTERRUPTED, REFUSED
from garfield.cli.help_columns import columns
from garfield.cli.shared import be_quiet, print_error
from garfield.core.errors import ConfigError, GarfieldError, UnknownName

_OPTIONS = Group("Options", sort_key=-1)
_log = logging.getLogger(__name__)


class Command(NamedTuple):
    """A command that is imported only when it is asked for."""

    target: str
    """module:attribute of a function, or of an App that holds commands of its own."""
    about: str
    """The first line of the function's docstring, for the list of commands."""


COMMANDS = {
    "demo": Command(
        "garfield.cli.demo:demo",
        "Train three times on real data: averaging, averaging under attack, robust under attack.",
    ),
    "train": Command(
        "garfield.cli.train:train",
        "Train a model on this machine, with some of the nodes lying if you like.",
    ),
    "sweep": Command(
        "garfield.cli.sweep:sweep",
        "Run a grid of settings, simulated, and show what came of it in tables and pictures.",
    ),
    "export": Command(
        "garfield.cli.export:export",
        "Write the model that a run has trained as named tensors, which load without this library.",
    ),
    "node": Command(
        "garfield.cli.node:node",
        "Run one node of a cluster; the others may be there already, or come later.",
    ),
    "certs": Command(
        "garfield.cli.certs:certs",
        "Make certificates, so that nobody can pose as a node of the cluster.",
    ),
    "drill": Command(
        "garfield.cli.drill:drill",
        "Rehearse faults with settings of your own, on processes of this machine.",
    ),
    "check": Command(
        "garfield.cli.check:check",
        "Hold your own rules, attacks, pre-aggregations and models to what is asked of ours.",
    ),
    "resilience": Command(
        "garfield.cli.resilience:resilience",
        "Show how far each rule lands from the honest mean under each attack.",
    ),
    "kappa": Command(
        "garfield.cli.kappa:kappa",
        "Search for the worst that f liars can do to a rule, and show it beside theory.",
    ),
    "variance": Command(
        "garfield.cli.variance:variance",
        "Measure how much honest gradients vary, and say which rules bear it.",
    ),
    "advise": Command(
        "garfield.cli.advise:advise",
        "Say which rules n, f and d allow, what each costs here, and which one to take.",
    ),
    "rules": Command(
        "garfield.cli.listings:rules",
        "List the aggregation rules: what they need, cost, and when to choose them.",
    ),
    "attacks": Command(
        "garfield.cli.listings:attacks",
        "List the attacks: what the attacker knows, what it sends, and when.",
    ),
    "doctor": Command(
        "garfield.cli.doctor:doctor",
        "Say what is installed here, what is missing, and how fast aggregation runs.",
    ),
    "reproduce": Command(
        "garfield.cli.reproduce:reproduce",
        "Make a figure or table of a paper again, and set its numbers beside ours.",
    ),
    "completion": Command(
        "garfield.cli.completion:completion",
        "Print what teaches your shell the commands and their flags.",
    ),
    "data": Command("garfield.cli.data:app", "List data sets, and fetch them."),
    "split": Command(
        "garfield.cli.split:app",
        "Fine-tune on data in an object store, the first layers beside it.",
    ),
    "elastic": Command(
        "garfield.cli.elastic:app",
        "Share a cluster among training jobs that are scaled as they train.",
    ),
    "fedgan": Command(
        "garfield.cli.fedgan:app", "Train a GAN on data that never leaves its devices."
    ),
}
"""Every command by name, in the order of `garfield --help`."""


def run(words: Sequence[str]) -> int:
    """Do what the words of a command line say; its exit code. Errors are one line on stderr."""
    try:
        code = _run(list(words))
        sys.stdout.flush()  # whoever reads may be gone, which is told here rather than at exit
        return DONE if code is None else int(code)
    except UnknownOptionError as error:
        print_error(_misplaced(error.token.keyword or error.token.value) or str(error))
        return REFUSED
    except CycloptsError as error:
        print_error(str(error))
        return REFUSED
    except GarfieldError as error:
        _log.debug("Where it went wrong:", exc_info=True)
        print_error(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        print_error("Interrupted.")
        return INTERRUPTED
    except BrokenPipeError:  # as in `garfield rules | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        from garfield.core.blame import unforeseen

        _log.debug("Where it went wrong:", exc_info=True)
        print_error(unforeseen(error))
        return FAILED


def _run(words: list[str]) -> Any:
    """Take the global options, then call the command; what it returns."""
    be_quiet(False)
    rest = _global_options(words)
    wanted = rest[0] if rest else ""
    if wanted and not wanted.startswith("-") and wanted not in COMMANDS:
        raise UnknownName("a command", wanted, COMMANDS)
    return command_line([wanted])(rest)


def _global_options(words: list[str]) -> list[str]:
    """Heed --debug, -v and -q, and import the files named by --load; the words that follow."""
    while words and words[0].partition("=")[0] in ("--load", *_SWITCHES):
        option, given, path = words.pop(0).partition("=")
        if option in _SWITCHES:
            _SWITCHES[option]()
            continue
        if not given and not words:
            raise ConfigError("--load needs a file, as in: garfield --load mine.py train.")
        from garfield.runs.user_files import load

        load(Path(path if given else words.pop(0)))
    return words


def _misplaced(option: str) -> str:
    """Where an option goes that stands behind the command; nothing for any other."""
    if option not in ("--load", *_SWITCHES):
        return ""
    return f"{option} goes before the command: garfield {option} …"


def _show_log(level: int) -> None:
    """Print what our own loggers are told: every event, or what is for those who look for a
    mistake too."""
    ours = logging.getLogger("garfield")
    ours.setLevel(level)
    ours.addHandler(logging.StreamHandler())


_SWITCHES: dict[str, Callable[[], None]] = {
    "--debug": partial(_show_log, logging.DEBUG),
    "--verbose": partial(_show_log, logging.INFO),
    "-v": partial(_show_log, logging.INFO),
    "--quiet": be_quiet,
    "-q": be_quiet,
}


def command_line(wanted: Collection[str]) -> App:
    """All commands; only those that are wanted are imported, as they may be slow to."""
    line = App(
        name="garfield",
        version=_version,
        help_flags=["--help", "-h"],
        help_epilogue="Exit codes: 0 done, 1 failed, 2 a setting is wrong or a part is not "
        "installed, 130 interrupted.",
        help_format="plaintext",
        help_formatter=DefaultFormatter(column_specs=columns),
        default_parameter=Parameter(negative=(), allow_repeating=True),  # the last one counts
        group_parameters=_OPTIONS,
        exit_on_error=False,
        print_error=False,
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )

    @line.default
    def garfield(
        *,
        load: Annotated[
            list[Path] | None,
            Parameter(
                metavar="FILE.py",
                help="Import a file of yours first: rules, attacks and applications registered "
                "there are then known by name. May be given several times, before the command.",
            ),
        ] = None,
        debug: Annotated[
            bool,
            Parameter(
                help="Show the traceback of what fails, of a node's process too. Before the "
                "command.",
                show_default=False,
            ),
        ] = False,
        verbose: Annotated[
            bool,
            Parameter(
                name=("--verbose", "-v"),
                help="Print every event of a run to standard error. Before the command.",
                show_default=False,
            ),
        ] = False,
        quiet: Annotated[
            bool,
            Parameter(
                name=("--quiet", "-q"),
                help="Print results and errors only, no progress and no notes. Before the command.",
                show_default=False,
            ),
        ] = False,
    ) -> int:
        """Robust distributed learning: training that survives machines that lie, crash or stall."""
        line.help_print([])
        return REFUSED  # no command was given

    line["--help"].group = line["--version"].group = _OPTIONS
    for place, (name, (target, about)) in enumerate(COMMANDS.items()):
        if name in wanted:
            from garfield.cli.flags import spelt_out

            module, _, attribute = target.partition(":")
            command = getattr(import_module(module), attribute)
            if isinstance(command, App):
                line.command(command, name=name)
            else:
                line.command(spelt_out(command), name=name, help=_paragraphs(command.__doc__))
        else:
            line.command(target, name=name, help=about, sort_key=place)
    return line


def _paragraphs(docstring: str | None) -> str:
    """A docstring for any width of terminal: its lines are joined, its paragraphs kept."""
    return "\n\n".join(" ".join(part.split()) for part in (docstring or "").split("\n\n"))


def _version() -> str:
    import garfield

    return f"garfield {garfield.__version__}"
