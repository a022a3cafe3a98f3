"""What any long run needs, whatever it runs.

`supervisor` starts, hears and ends processes; `supervised` is their side of it, and
`outliving` what those have that go on without a supervisor; `process` prepares one.
`run_directory` and `checkpoints` are what a run leaves behind. Nothing here knows of
training: the systems above say what their processes do.
"""
