"""What any long run needs, whatever it runs.

`heap`, `threads` and `lifeline` prepare a process; `run_directory` is what a run leaves
behind. Nothing here knows of training: the systems above say what their processes do.
"""
