"""Vanilla: one server, averaging. What every framework does; survives nothing."""

from garfield.apps.application import Numbers, Run, app, one_server
from garfield.apps.options import Options
from garfield.core.errors import ConfigError
from garfield.gars import Rule
from garfield.nodes.server import Server


def _no_faults(numbers: Numbers, gar: Rule, model_gar: Rule, options: Options) -> None:
    if numbers.f_w or not numbers.synchronous:
        raise ConfigError("vanilla tolerates no faults and waits for all. Choose ssmw instead.")
    one_server(numbers, gar, model_gar, options)


@app("vanilla", check=_no_faults, robust=False)
def vanilla(ps: Server, run: Run) -> None:
    """One server, averaging: the baseline."""
    for t in ps.steps(run.steps):
        gradients = ps.get_gradients(t, run.numbers.n_w)
        ps.update_model(run.join_gradients(gradients))
        run.after_step(ps, run)
