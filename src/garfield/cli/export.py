"""`garfield export`: a run's model as named tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from garfield.cli.exit_codes import DONE
from garfield.cli.shared import AsJson, print_json, print_line


def export(
    run: Annotated[Path, Parameter(metavar="RUN", help="A directory of garfield train.")],
    file: Annotated[Path, Parameter(metavar="FILE.safetensors", help="What to write.")],
    /,
    *,
    server: Annotated[
        str | None,
        Parameter(help="Whose model, of several. (the first not known to lie)"),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Write the model that a run has trained as named tensors, which load without this library.

    The names are those of the model's own state dict, or of its Keras variables; the file is in
    the format of safetensors, and says in its header which run it is of.
    """
    from garfield.cli.train import read_settings
    from garfield.core.errors import ConfigError
    from garfield.runs.run_directory import RunDirectory

    if (weights := run / "weights" / "generator.safetensors").is_file():
        raise ConfigError(f"{run} is of garfield fedgan train, which has written {weights} itself.")
    directory = RunDirectory(run)
    directory.check_old()
    settings = read_settings(directory.config)
    from garfield.launch.export import export_model

    found = export_model(settings, directory, file, server)
    if as_json:
        print_json(found)
    else:
        print_line(
            f"{found.path}: {found.tensors} tensors, {found.numbers} numbers, of {found.server} "
            f"at step {found.step}."
        )
    return DONE
