"""Decentralized: no server; every node owns data and a model (listing 3.3).

Each step a node gathers everybody's gradients and joins them; where data are not
identically distributed, contraction rounds then bring the joined gradients of
different nodes together; last, nodes join their models.
"""

from garfield.apps.application import Numbers, Run, app
from garfield.apps.options import Options
from garfield.core.errors import ConfigError
from garfield.gars import Rule
from garfield.nodes.server import Server, contract


def _peers(numbers: Numbers, gar: Rule, model_gar: Rule, options: Options) -> None:
    if (numbers.n_w, numbers.f_w) != (numbers.n_ps, numbers.f_ps):
        raise ConfigError("Without servers, every node is both: give --workers only.")
    gar.check(numbers.q_w, numbers.f_w)
    model_gar.check(numbers.q_ps, numbers.f_ps)


@app("decentralized", check=_peers, several_servers=True, peers=True)
def decentralized(node: Server, run: Run) -> None:
    """Peer to peer, no server at all: any node may lie."""
    q, f = run.numbers.q_w, run.numbers.f_w
    for t in node.steps(run.steps):
        gradients = node.get_gradients(t, q)
        gradient = run.join_gradients(gradients)
        gradient = contract(node, gradient, run.gar, rounds=run.contractions, q=q, f=f)
        node.update_model(gradient)
        models = node.get_models(q)
        node.write_model(run.join_models(models))
        run.after_step(node, run)
