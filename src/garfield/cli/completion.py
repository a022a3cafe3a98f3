"""`garfield completion`: the words of this command line, for a shell to complete."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from garfield.cli.exit_codes import DONE
from garfield.cli.shared import print_line, print_note


def completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish"], Parameter(metavar="SHELL", help="bash, zsh or fish.")
    ],
    /,
    *,
    install: Annotated[
        bool, Parameter(help="Put it where the shell looks, and say where that is.")
    ] = False,
) -> int:
    """Print what teaches your shell the commands and their flags.

    Try it with: eval "$(garfield completion bash)". With --install it is there in every new shell.
    """
    from garfield.cli.app import COMMANDS, command_line

    line = command_line(COMMANDS)
    if install:
        print_note(f"Installed as {line.install_completion(shell=shell)}. Open a new shell.")
    else:
        print_line(line.generate_completion(shell=shell))
    return DONE
