"""Clusters on a virtual clock: jobs from measured profiles, policies that see what jobs report.

step_time, profiles    how long a step takes: a published model, fitted to published measurements
"""
