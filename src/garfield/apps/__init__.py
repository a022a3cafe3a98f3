"""Applications: one algorithm per file, each read from top to bottom."""

from garfield.apps.aggregathor import aggregathor
from garfield.apps.application import APPLICATIONS, Application, Peers, SeveralServers, application
from garfield.apps.crash_tolerant import crash_tolerant
from garfield.apps.decentralized import decentralized
from garfield.apps.draco import draco
from garfield.apps.guanyu import guanyu
from garfield.apps.liubei import liubei
from garfield.apps.msmw import msmw
from garfield.apps.run import Numbers, Run
from garfield.apps.ssmw import ssmw
from garfield.apps.vanilla import vanilla

__all__ = [
    "APPLICATIONS", "Application", "Numbers", "Peers", "Run", "SeveralServers", "aggregathor",
    "application", "crash_tolerant", "decentralized", "draco", "guanyu", "liubei", "msmw", "ssmw",
    "vanilla",
]  # fmt: skip
