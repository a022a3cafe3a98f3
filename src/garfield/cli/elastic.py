"""`garfield elastic`: training jobs that are scaled. Each command is imported when asked for."""

from __future__ import annotations

from cyclopts import App

app = App(name="elastic", help="Share a cluster among training jobs that are scaled as they train.")

_COMMANDS = {
    "simulate": "Compare policies on the same simulated jobs, from profiles of real models.",
    "replay": "Take recorded decisions again, by the same policy or another, and compare.",
}

for _name, _about in _COMMANDS.items():
    app.command(f"garfield.cli.elastic_{_name}:{_name}", name=_name, help=_about)
