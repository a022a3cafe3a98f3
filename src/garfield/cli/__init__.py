"""`garfield …`: turns settings into objects through the registries, and nothing else.

`app` holds the command line, its global options and what happens to errors; each other
module holds one command, imported when it is asked for. What is computed or drawn comes
from `garfield.report` and below: `garfield --help` must not wait for numpy.
"""

import sys


def main() -> None:
    """The entry point."""
    from garfield.cli.app import run

    sys.exit(run(sys.argv[1:]))
