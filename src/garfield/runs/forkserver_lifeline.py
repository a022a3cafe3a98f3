"""Makes the process that imports it end with its parent: for the forkserver alone."""

from garfield.runs.process import die_with_parent

die_with_parent()
