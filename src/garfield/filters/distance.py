"""The models filter: a server's model cannot be farther from one's own than honest steps lead.

A worker that was at θ_t with gradient g_t expects θ' = θ_t − γ_t g_t next. With G the last
step at which models were gathered, an honest server's model of step t is nearer to it than

    γ_G ‖g_G‖ ((3T + 2)(n_w − f_w) / 4 f_w + 2 ((t − 1) mod T))

The first term is what f_w lying workers can do to the servers' aggregate, the second how far
honest models move apart, step by step, since the gather.

The authors' lecture on robust distributed learning (EPFL) indexes γ and g by T · (t mod T),
which is no step of the past; T · ⌊t / T⌋ is meant, the last gather. Here t is the step of the
model that is judged, so (t − 1) mod T counts the steps since the gather from 0. With f_w = 0
the bound as printed is infinite and would refuse nothing: a run that is safe with one lying
worker is safe with none, so f_w = 1 is put in.

El Mhamdi, Guerraoui, Guirguis: "Fast Machine Learning with Byzantine Workers and Servers", 2019.
"""


def farthest(moved: float, *, since: int, period: int, n_w: int, f_w: int) -> float:
    """The largest distance allowed.

    `moved` is γ‖g‖ at the last gather, `since` how many steps were accepted after it.
    """
    f = max(1, f_w)
    return moved * ((3 * period + 2) * (n_w - f) / (4 * f) + 2 * since)
