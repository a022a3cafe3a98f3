"""Applications: one algorithm per file, each read from top to bottom."""

from garfield.apps.app import APPS, App, Run
from garfield.apps.crash_tolerant import crash_tolerant
from garfield.apps.decentralized import decentralized
from garfield.apps.msmw import msmw
from garfield.apps.ssmw import ssmw
from garfield.apps.vanilla import vanilla

__all__ = [
    "APPS", "App", "Run", "crash_tolerant", "decentralized", "msmw", "ssmw", "vanilla",
]  # fmt: skip
