"""The command line: global options, the commands, and what happens to errors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from garfield.cli import advise, certs, data, demo, doctor, listings, node, resilience, train
from garfield.core.errors import GarfieldError
from garfield.launch.user_files import load


class Commands(TyperGroup):
    """Shows errors of ours as one line; exit code 2, as for a misspelt option, or 1 for a run."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except GarfieldError as error:
            line = " ".join(str(error).split())
            typer.secho(f"Error: {line}", fg=typer.colors.RED, err=True)
            raise typer.Exit(error.exit_code) from None


app = typer.Typer(
    name="garfield",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    epilog="Exit codes: 0 done, 1 failed, 2 a setting is wrong or a part is not installed, "
    "130 interrupted.",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        import garfield

        typer.echo(f"garfield {garfield.__version__}")
        raise typer.Exit


@app.callback()
def garfield(
    load_files: Annotated[
        list[Path] | None,
        typer.Option(
            "--load",
            metavar="FILE.py",
            help="Import a file of yours first: rules and attacks registered there are then "
            "known by name. May be given several times, before the command.",
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Robust distributed learning: training that survives machines that lie, crash or stall."""
    for path in load_files or []:
        load(path)


def _paragraphs(text: str | None) -> str:
    """A docstring for any width of terminal: typer keeps the line breaks of ours."""
    return "\n\n".join(" ".join(part.split()) for part in (text or "").split("\n\n"))


for _command in (
    demo.demo,
    train.train,
    node.node,
    certs.certs,
    resilience.resilience,
    advise.advise,
    listings.rules,
    listings.attacks,
    doctor.doctor,
):
    app.command(help=_paragraphs(_command.__doc__))(_command)
app.add_typer(data.app)
