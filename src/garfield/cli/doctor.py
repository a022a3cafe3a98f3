"""`garfield doctor`: what is installed here, what that makes usable, how fast it is."""

from __future__ import annotations

from garfield.cli.exit_codes import DONE, FAILED
from garfield.cli.shared import AsJson, console, print_json


def doctor(*, as_json: AsJson = False) -> int:
    """Say what is installed here, what is missing, and how fast aggregation runs.

    Exits with 1 if the compiled kernels do not load: nothing works without them.
    """
    from garfield.report import machine

    host, kernels, packages = machine.machine(), machine.kernels(), machine.packages()
    speed = machine.speed() if kernels.loaded else None
    if as_json:
        print_json(
            {
                "machine": host,
                "kernels": kernels,
                "packages": packages,
                "speed": speed,
                "usable": kernels.loaded,
            }
        )
    else:
        from garfield.report.tables import machine_table, speed_line

        out = console()
        out.print(machine_table(host, kernels, packages))
        out.print(speed_line(speed) if speed else "Without its kernels, garfield cannot aggregate.")
    return DONE if kernels.loaded else FAILED
