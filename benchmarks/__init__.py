"""Claims of speed, each with the run that shows it: ``python -m benchmarks [NAME ...]``.

A benchmark is a module here that has a QUESTION, `add_options(group)` and
`run(options, console)`, which prints its tables and returns what goes to
results/NAME.json. Put a file here and it is run. They need Linux.
"""
