"""Elastic training: every job's workers and batch size are scaled while it trains (ERA).

    policy/      what each job gets: a pure function of a snapshot of the cluster
    control/     what every controller decides around a policy: records, reports, garbage
    simulator/   clusters and jobs on a virtual clock, from measured profiles
    local/       a cluster of real processes on one machine
    job/         what a training script imports, so that its workers may come and go
    operator/    runs jobs on Kubernetes
    kubernetes/  how workers and the operator speak with its API server

Whoever runs jobs takes a `Snapshot` of them, calls a `Policy`, and does what its `Decision` says.
After chapter 4 of the thesis (Guirguis, EPFL 2023).
"""
