"""What any long run needs, whatever it runs.

`supervisor` starts, hears and ends processes: `attached` ones end with it, `outliving` ones
go on without it; `supervised` is their side of it, and `process` prepares one.
`run_directory` and `checkpoints` are what a run leaves behind; `background` does what takes long
beside it. Nothing here knows of training: the systems above say what their processes do.
"""
