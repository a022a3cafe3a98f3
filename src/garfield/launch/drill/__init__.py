"""Rehearse faults on a training run: what is done is drawn from a seed, what must hold is checked.

    schedule     which faults, whom, when: data drawn from a seed, printable and replayable
    rehearsal    one drill: fault after fault, each followed by the question whether all goes on
    nodes        a stage of `garfield node` processes over TCP or TLS, whose links are `wires`
    launcher     a stage of one `garfield train` over sealed memory, interrupted and resumed
    simulated    a stage in one process, on a virtual clock
    checks       what must hold afterwards, as named violations

`garfield drill` runs one for an operator's own settings, and `make soak` hundreds.
"""
