"""What the exit codes of `garfield` mean."""

DONE = 0
FAILED = 1
"""A run failed or diverged, or what it needs could not be had."""
REFUSED = 2
"""A setting is wrong or a part is not installed; nothing was started."""
INTERRUPTED = 130
