"""`garfield fedgan sample`: images of a run's generator."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from garfield.cli.exit_codes import DONE
from garfield.cli.shared import AsJson, WholeNumber, print_json, print_line


def sample(
    run: Annotated[Path, Parameter(metavar="RUN", help="The directory of a run.")],
    /,
    *,
    n: Annotated[
        WholeNumber, Parameter(help="How many images.", validator=validators.Number(gte=1))
    ] = 100,
    seed: Annotated[
        WholeNumber,
        Parameter(help="Fixes the noise.", validator=validators.Number(gte=0, lt=2**63)),
    ] = 0,
    label: Annotated[
        str | None,
        Parameter(help="With a conditional GAN: the class to draw, by name. (all in turn)"),
    ] = None,
    out: Annotated[
        Path | None, Parameter(metavar="DIR", help="Where to put the images. (RUN/samples)")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Draw images from the generator of a run.

    Every image becomes a PNG file, and all of them together grid.png.
    """
    from garfield.core.errors import ConfigError, UnknownName

    weights = run / "weights" / "generator.safetensors"
    if not weights.is_file():
        raise ConfigError(
            f"{run} holds no generator: {weights} is not there. Give the directory of a run of "
            "garfield fedgan train that has held a round at least."
        )
    import torch

    from garfield.fedgan.pictures import write_each, write_grid
    from garfield.fedgan.saved_weights import read_generator

    gan, generator, about = read_generator(weights)
    labels = None
    if label is not None and gan.conditional_on is None:
        raise ConfigError("This generator takes no label: the run was not --conditional.")
    if label is not None and label not in about.classes:
        raise UnknownName("a class", label, about.classes)
    if gan.conditional_on is not None:
        labels = torch.arange(n) % gan.conditional_on
        if label is not None:
            labels = torch.full((n,), about.classes.index(label))
    z = gan.noise(n, torch.Generator().manual_seed(seed))
    images = gan.generate(generator, z, labels)
    directory = out or run / "samples"
    paths = write_each(images, directory)
    write_grid(images, directory / "grid.png")
    if as_json:
        print_json(
            {
                "directory": str(directory), "images": [path.name for path in paths],
                "grid": "grid.png", "round": about.round, "seed": seed,
            }
        )  # fmt: skip
    else:
        print_line(f"{n} images of round {about.round} are in {directory}/, and grid.png of all.")
    return DONE
