"""GuanYu: servers and workers may lie, and no message has to arrive in time.

The rounds are those of `msmw`, three a step: workers pull models and join them,
servers pull gradients and take a step, servers pull each other's models and join
those. What makes it GuanYu are its rules and numbers, on each side by itself:

    F, for gradients    Multi-Krum
    M, for models       coordinate-wise median, at workers and among servers
    n ≥ 3f + 3          so 5 servers with 1 liar are refused
    2f + 3 ≤ q ≤ n − f  replies waited for: no round depends on anybody who may be silent

A third of the machines is the most that an asynchronous network allows.

The lecture is short here; assumed: q = n − f unless set, since its upper end lets in the
most honest vectors (its remark that a larger f makes training faster per update fits the
lower end, q = 2f + 3). The learning rate falls as γ / (1 + decay · t): its sum diverges and
that of its squares does not, as the proof wants; the contraction by the median outruns what
liars can add only once steps are small. Momentum stays at the workers, as everywhere here.

El Mhamdi, Guerraoui, Guirguis, Rouault: "SGD: Decentralized Byzantine Resilience", 2019.
"""

from garfield.apps.application import Numbers, Run, app
from garfield.apps.msmw import msmw
from garfield.apps.options import Options
from garfield.core.errors import BoundError, ConfigError
from garfield.gars import Rule
from garfield.nodes.server import Server

DECAY = 0.01
"""By default: half the rate after 100 steps."""


def _a_third_of_each(numbers: Numbers, gar: Rule, model_gar: Rule, options: Options) -> None:
    if numbers.synchronous:
        raise ConfigError("guanyu is asynchronous. Choose msmw to wait for everybody.")
    for rule, what, its in ((gar, "gradients", "multi-krum"), (model_gar, "models", "median")):
        if rule.name != its:
            raise ConfigError(
                f"guanyu joins {what} by {its}, got {rule.name}. Choose msmw for other rules."
            )
    if not options.training.learning_rate_decay > 0:
        raise ConfigError(
            "guanyu converges with a decreasing learning rate only. Set learning_rate_decay "
            f"above 0, to {DECAY} say; the rate at step t is learning_rate / (1 + decay · t)."
        )
    _within("workers", numbers.n_w, numbers.f_w, numbers.q_w, "gradient_quorum")
    _within("servers", numbers.n_ps, numbers.f_ps, numbers.q_ps, "model_quorum")
    gar.check(numbers.q_w, numbers.f_w)
    model_gar.check(numbers.q_ps, numbers.f_ps)


def _within(who: str, n: int, f: int, q: int, setting: str) -> None:
    if n < 3 * f + 3:
        raise BoundError(
            f"guanyu needs n >= {3 * f + 3} {who} (3f + 3) to tolerate f={f} of them, got n={n}. "
            f"Add {who} or lower f."
        )
    if not 2 * f + 3 <= q <= n - f:
        raise BoundError(
            f"guanyu's {setting} must be within {2 * f + 3}..{n - f} (2f + 3 to n - f) for {n} "
            f"{who} with f={f}, got {q}."
        )


@app(
    "guanyu",
    check=_a_third_of_each,
    several_servers=True,
    options=("gradient_quorum", "model_quorum"),
    defaults={"asynchronous": True, "learning_rate_decay": DECAY},
)
def guanyu(ps: Server, run: Run) -> None:
    """Asynchronous: up to a third of servers and of workers may lie, and messages be late."""
    msmw(ps, run)
