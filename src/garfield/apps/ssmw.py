"""SSMW: a single server, trusted, and multiple workers, some of which lie (listing 3.1)."""

from garfield.apps.application import application
from garfield.apps.run import NoSettings, Run
from garfield.nodes.server import Server


@application("ssmw")
def ssmw(ps: Server, run: Run[NoSettings]) -> None:
    """One trusted server, a robust rule: workers may lie."""
    for t in ps.steps(run.steps):
        gradients = ps.get_gradients(t, run.numbers.q_w)
        ps.update_model(run.join_gradients(gradients))
        run.after_step(ps, run)
