"""A cluster of real processes on one machine: slots, a daemon, and jobs that outlive it.

    settings, job_file   what `up` and `submit` are told
    database             what is kept: jobs with their records, workers with their slots
    daemon               the process that runs the cluster; all that it knows is in the database
    controller           what it does again and again: looks, has it decided, acts
    job_workers          one job's workers, brought to what was decided, by the steps of `plan`
    processes            worker processes, each behind a shim that outlives the daemon
    worker_process       that shim: starts a worker in its slot, and keeps its exit code
    slots                holds a slot to its share of a core
    demo, demo_job       three jobs under one policy after the other
    cluster              a running daemon, as commands find, start and end it
    events, history      what is told of jobs, and read back
    status               what `status` shows

`control/` takes the decisions, as it does for every cluster.
"""
