"""Elastic training on a shared cluster (ERA): jobs whose workers and batch size change as they run.

`job` is what a training script imports. Chapter 4 of the thesis describes the whole.
"""
