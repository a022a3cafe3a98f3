"""Gradient aggregation rules: (n, d) to (d,), one file per rule.

Every rule here is a plain function of rows (``median(rows, f=3)``), an entry of
`GARS` by name, and available through `init`.
"""

from garfield.gars.aggregator import Aggregator, init
from garfield.gars.aksel import aksel
from garfield.gars.average import average
from garfield.gars.bulyan import bulyan
from garfield.gars.caf import caf
from garfield.gars.centered_clipping import centered_clipping
from garfield.gars.choice import Choice, Explained
from garfield.gars.dnc import dnc
from garfield.gars.geometric_median import geometric_median
from garfield.gars.krum import krum, multi_krum
from garfield.gars.mda import mda
from garfield.gars.meamed import meamed
from garfield.gars.median import median
from garfield.gars.monna import monna
from garfield.gars.naming import chain, parse
from garfield.gars.rule import GARS, Rule, gar
from garfield.gars.trimmed_mean import trimmed_mean

__all__ = [
    "GARS", "Aggregator", "Choice", "Explained", "Rule", "aksel", "average", "bulyan", "caf",
    "centered_clipping", "chain", "dnc", "gar", "geometric_median", "init", "krum", "mda",
    "meamed", "median", "monna", "multi_krum", "parse", "trimmed_mean",
]  # fmt: skip
