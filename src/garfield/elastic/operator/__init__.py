"""The operator: shares out a Kubernetes cluster's GPUs among ElasticJobs.

    settings          what can be set
    serving           from settings to a running operator
    handlers          kopf: watches, the webhook's server, probes. Tells the loop that it is time
    loop, leadership  takes turns, as long as this operator leads
    reconciler        one turn: look, examine, decide, converge
    job_writer        all that is written about one job
    specification, capacity, worker_pods, intent      pure: what is read, and what should be
    objects, status   pure: what is written
    webhook, metrics  what others ask us

Pods are made and deleted, and generations proposed, by the operator; workers do the rest among
themselves (`elastic/job`), through the status of their ElasticJob.
"""
