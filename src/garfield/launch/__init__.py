"""Turns a training's settings into running nodes: simulated, as processes here, or one a machine.

`training` is a whole run; `processes` and `simulate` run its nodes, `cluster` one of many on
several machines, each by way of `node`. `assemble` builds them from `settings`. `local` and
`peers` are for scripts of one's own.
"""
