"""`garfield …`: turns settings into objects through the registries, and nothing else.

`app` holds the command and its global options, each other module one command.
What is computed or drawn comes from `garfield.report` and below, imported when
a command runs: `garfield --help` must not wait for numpy.
"""


def main() -> None:
    """The entry point."""
    from garfield.cli.app import app

    app()
