"""Policies: who gets how many workers, and which batch size. Pure: no clock, no cluster, no file.

jobs, snapshot, measurement    what there is to decide about, as it was reported
decision                       what was decided, with its reasons
policy                         the contract, and the registry of all policies
throughput                     models of a job's speed, fitted to its measurements
allocation                     workers shared out exactly: equations 4.1 and 4.3
admission                      who may run at all
batch_size, learning_rate      the second dimension
era, era_marginal              the policies of the thesis, and with gains that diminish
static, autoscaler, afs_p      what they are compared with
guaranteed                     teams that are promised GPUs, around any of these
decision_log                   decisions kept with their snapshots, and decided again
"""

from garfield.elastic.policy.afs_p import AfsP
from garfield.elastic.policy.autoscaler import Autoscaler
from garfield.elastic.policy.decision import Decision, Share
from garfield.elastic.policy.era import Era
from garfield.elastic.policy.era_marginal import EraMarginal
from garfield.elastic.policy.guaranteed import Guaranteed
from garfield.elastic.policy.jobs import Job, JobRequest
from garfield.elastic.policy.measurement import Measurement
from garfield.elastic.policy.policy import POLICIES, Policy, parse, policy
from garfield.elastic.policy.snapshot import Node, Snapshot
from garfield.elastic.policy.static import Static

__all__ = [
    "POLICIES", "AfsP", "Autoscaler", "Decision", "Era", "EraMarginal", "Guaranteed", "Job",
    "JobRequest", "Measurement", "Node", "Policy", "Share", "Snapshot", "Static", "parse", "policy",
]  # fmt: skip
