"""Clusters on a virtual clock: jobs from measured profiles, policies that see what jobs report.

step_time, profiles    how long a step takes: a published model, fitted to published measurements
workload, traces       which jobs arrive when, and how long they train
running_job            one job's progress, and what it reports
cluster                the events: arrivals, rounds, ends
outcome                what came of it, as numbers
"""
