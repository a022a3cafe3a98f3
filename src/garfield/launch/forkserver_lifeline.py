"""For the forkserver alone to import, before it forks: it ends with the launcher."""

from garfield.launch.lifeline import die_with_parent

die_with_parent()
