"""Pre-aggregation: rows to rows, chained in front of any rule by name ("nnm+multi-krum")."""

from garfield.preaggregation.bucketing import bucketing
from garfield.preaggregation.clipping import arc, clipping
from garfield.preaggregation.nnm import nnm
from garfield.preaggregation.stage import STAGES, Stage, stage

__all__ = ["STAGES", "Stage", "arc", "bucketing", "clipping", "nnm", "stage"]
