"""Elastic training: every job's workers and batch size are scaled while it trains (ERA).

    policy/      what each job gets: a pure function of a snapshot of the cluster
    simulator/   clusters and jobs on a virtual clock, from measured profiles
    job/         what a training script imports, so that its workers may come and go

Whoever runs jobs takes a `Snapshot` of them, calls a `Policy`, and does what its `Decision` says.
After chapter 4 of the thesis (Guirguis, EPFL 2023).
"""
