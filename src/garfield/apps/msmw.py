"""MSMW: multiple servers, multiple workers, some of both lie (listing 3.2).

The two variants of the thesis's evaluation (3.6.1) are settings: synchronous
with Multi-Krum, asynchronous with Bulyan. After its step every server pulls the
others' models and joins them, so that honest servers do not drift apart.
"""

from typing import Any

from garfield.apps.application import SeveralServers, application
from garfield.apps.run import Run
from garfield.nodes.server import Server


@application("msmw", SeveralServers)
def msmw(ps: Server, run: Run[Any]) -> None:
    """Replicated servers that join their models: servers and workers may lie."""
    for t in ps.steps(run.steps):
        gradients = ps.get_gradients(t, run.numbers.q_w)
        ps.update_model(run.join_gradients(gradients))
        models = ps.get_models(run.numbers.q_ps)
        ps.write_model(run.join_models(models))
        run.after_step(ps, run)
