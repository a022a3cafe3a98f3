"""`garfield …`: turns settings into objects through the registries, and nothing else.

`app` holds the command line, its global options and what happens to errors; each other
module holds one command, imported when it is asked for. What is computed or drawn comes
from `garfield.report` and below: `garfield --help` must not wait for numpy.
"""

import sys


def main() -> None:
    """The entry point."""
    from garfield.runs import interrupts

    interrupts.raise_once()
    try:
        from garfield.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        from garfield.cli.exit_codes import INTERRUPTED as code  # noqa: N811
    interrupts.ignore()
    sys.exit(code)
