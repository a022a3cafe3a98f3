"""From settings to running nodes: in one process, as processes here, or one on each machine."""
