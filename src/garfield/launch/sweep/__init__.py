"""Grids of runs: `garfield sweep grid.toml`, and `garfield.sweep` from Python.

`grid` and `planning` are pure: from a file to cells, and which of them can be run. `pool` runs
cells in processes that stay warm, `cell_process` is their side of it, `directory` what is left
behind, and `running` the whole of it. Tables and pictures are made in `garfield.report`.
"""

from garfield.launch.sweep.running import Sweep, sweep

__all__ = ["Sweep", "sweep"]
