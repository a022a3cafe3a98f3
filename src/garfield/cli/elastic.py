"""`garfield elastic`: training jobs that are scaled. Each command is imported when asked for."""

from __future__ import annotations

from cyclopts import App

app = App(name="elastic", help="Share a cluster among training jobs that are scaled as they train.")

_COMMANDS = {
    "up": "Start a cluster of processes on this machine, or start it again.",
    "submit": "Give the cluster a job to train.",
    "status": "Show the cluster and its jobs.",
    "logs": "Show what a job's workers print.",
    "cancel": "End a job.",
    "down": "End the cluster; jobs that are not done go on when it is up again.",
    "demo": "Train three real jobs on four slots, first as they start, then scaled by ERA.",
    "simulate": "Compare policies on the same simulated jobs, from profiles of real models.",
    "operate": "Share out a Kubernetes cluster among its ElasticJobs.",
    "replay": "Take recorded decisions again, by the same policy or another, and compare.",
}

for _name, _about in _COMMANDS.items():
    app.command(f"garfield.cli.elastic_{_name}:{_name}", name=_name, help=_about)
