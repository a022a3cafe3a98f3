"""For the forkserver alone to import, before it forks: it ends with the launcher."""

from garfield.runs.process import die_with_parent

die_with_parent()
