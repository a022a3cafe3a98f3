"""What a run bears besides lies: said before it starts, with the number of nodes that would."""

import numpy as np
import pytest

from garfield.apps import Run
from garfield.apps.application import one_framework
from garfield.apps.bearing import Join, cautions, halves_meet
from garfield.apps.run import Numbers
from garfield.apps.settings import Settings
from garfield.core.errors import BoundError, ConfigError
from garfield.gars import GARS, parse

TRIMMED, MEDIAN, KRUM = GARS["trimmed-mean"], GARS["median"], GARS["multi-krum"]


def servers(n, f, q=None, rule=TRIMMED):
    return Join("servers", rule, n, f, n if q is None else q)


def workers(n, f, q=None, rule=TRIMMED):
    return Join("workers", rule, n, f, n if q is None else q)


@pytest.mark.parametrize(
    ("join", "least"),
    [(servers(3, 1), 3), (servers(5, 1), 4), (servers(9, 2), 7), (servers(5, 0), 5),
     (workers(7, 2, rule=KRUM), 7), (servers(9, 2, q=6), 6)],
)  # fmt: skip
def test_a_round_never_joins_fewer_rows_than_the_rule_needs_nor_fewer_than_honest_nodes(
    join, least
):
    assert join.least == least


@pytest.mark.parametrize(
    ("n", "f", "rule", "silent"),
    [(3, 1, TRIMMED, 0), (4, 1, TRIMMED, 1), (9, 1, TRIMMED, 1), (6, 2, TRIMMED, 1),
     (7, 2, TRIMMED, 2), (7, 2, KRUM, 0)],
)  # fmt: skip
def test_beyond_what_the_rule_needs_up_to_f_may_be_silent(n, f, rule, silent):
    assert servers(n, f, rule=rule).silent() == silent


@pytest.mark.parametrize(
    ("join", "together"),
    [(servers(4, 1), True), (servers(3, 1), False), (servers(7, 2), True), (servers(6, 2), False),
     (servers(4, 1, rule=MEDIAN), False), (servers(6, 1, q=5), True), (servers(5, 1, q=4), False),
     (servers(11, 2, q=9), True), (servers(10, 2, q=8), False)],
)  # fmt: skip
def test_the_trimmed_mean_keeps_servers_together_if_enough_are_heard(join, together):
    assert join.keeps_together() is together


@pytest.mark.parametrize(("n", "f", "least"), [(12, 1, 7), (5, 1, 4), (6, 1, 4), (4, 0, 3)])
def test_two_halves_meet_in_an_honest_server(n, f, least):
    halves_meet(n, f, least)
    with pytest.raises(BoundError, match=f"wait for {least} or more"):
        halves_meet(n, f, least - 1)


def said(gradients, models):
    return " ".join(cautions(gradients, models))


def test_a_run_with_nodes_enough_or_without_faults_says_nothing():
    assert said(workers(8, 2), servers(6, 1)) == ""
    assert said(workers(3, 0), servers(2, 0, rule=MEDIAN)) == ""


def test_what_cannot_be_borne_is_said_with_the_number_that_could():
    at_the_bound = said(workers(5, 2), servers(3, 1))
    assert "5 workers bear 2 that lie, and no silent one" in at_the_bound
    assert "7 workers would bear both" in at_the_bound
    assert "3 servers bear 1 that lie, and no silent one" in at_the_bound
    assert "4 servers would bear both" in at_the_bound
    assert "5 servers would do it though 1 do not" in at_the_bound
    assert "trimmed-mean and 4 servers would keep them together" in at_the_bound
    assert "only 1 that say nothing" in said(workers(6, 2), servers(6, 1))
    laggards = said(workers(8, 2), servers(4, 1))
    assert laggards.startswith("Of 4 servers, one that falls behind")
    assert "silent" not in laggards


def test_asynchronous_runs_are_told_of_what_concerns_them():
    told = said(workers(5, 1, q=4), servers(5, 1, q=4))
    assert "trimmed-mean and 6 servers would keep them together" in told
    assert "silent one" not in told


def test_peers_are_told_once():
    peers = Join("nodes", TRIMMED, 3, 1, 3)
    assert said(peers, peers).count("3 nodes bear 1 that lie") == 1


# -- what a run refuses ---------------------------------------------------------------------------

TINY = Settings.of(model="digits_mlp", data="digits", workers=7)
GUANYU = {"app": "guanyu", "servers": 8, "f_workers": 1, "f_servers": 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, r"steps must be within 1\.\.1000000000000, got 0"),
        ({"batch": 0}, "batch must be at least 1, got 0"),
        ({"evaluate_every": -1}, "evaluate_every must be at least 0, got -1"),
        ({"byzantine_workers": 7}, r"byzantine_workers must be within 0\.\.6 .*got 7"),
        ({"byzantine_workers": -1}, r"byzantine_workers must be within 0\.\.6 .*got -1"),
        ({"app": "msmw", "servers": 4, "byzantine_servers": 4}, r"within 0\.\.3 .*got 4"),
        ({"framework": "tortch"}, "Did you mean torch"),
        ({"app": "liubei", "servers": 3, "byzantine_servers": 1}, "needs n >= 4 servers"),
        ({"app": "liubei", "servers": 4, "asynchronous": True}, "liubei is synchronous"),
        ({"app": "liubei", "servers": 4, "gather_every": -1}, "gather_every must be at least 0"),
        ({"app": "guanyu", "workers": 5, "servers": 6, "byzantine_workers": 1}, "n >= 6 workers"),
        ({"app": "guanyu", "workers": 6, "servers": 5, "byzantine_servers": 1}, "n >= 6 servers"),
        ({"app": "guanyu", "workers": 6, "servers": 6, "gar": "median"}, "guanyu joins gradients"),
        ({**GUANYU, "asynchronous": False}, "guanyu is asynchronous"),
        ({**GUANYU, "gradient_quorum": 4}, r"gradient_quorum must be within 5\.\.6 .* got 4"),
        ({**GUANYU, "gradient_quorum": 7}, r"gradient_quorum must be within 5\.\.6 .* got 7"),
        ({**GUANYU, "model_quorum": 4}, r"model_quorum must be within 5\.\.7 .* got 4"),
        ({**GUANYU, "model_quorum": 8}, r"model_quorum must be within 5\.\.7 .* got 8"),
        ({"app": "decentralized", "contractions": -1}, "contractions must be at least 0, got -1"),
        ({"app": "decentralized", "framework": "torch,tensorflow"}, "start from the same weights"),
        ({"app": "draco", "framework": "torch,tensorflow"}, "bit for bit.* Choose one framework"),
    ],
)
def test_what_cannot_work_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        TINY.updated(**changes).check()


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 1, "batch": 1, "evaluate_every": 0, "byzantine_workers": 2},
        {"app": "liubei", "servers": 4, "byzantine_servers": 1},
        {"app": "guanyu", "workers": 6, "servers": 6, "byzantine_workers": 1},
        {**GUANYU, "gradient_quorum": 5, "model_quorum": 5},
        {"app": "crash-tolerant", "servers": 2, "f_servers": 1},
    ],
)
def test_what_just_works_is_not(changes):
    TINY.updated(**changes).check()


# -- what a run remembers -------------------------------------------------------------------------


class JumpingServer:
    """As much of a server as joining looks at."""

    rng = None

    def __init__(self):
        self.jumps = 0

    def own_row(self, kind):
        return None


def test_who_jumps_forgets_the_last_aggregate_and_nobody_else():
    """Centered clipping starts from it: far away, one round later, and at the rows after a jump."""
    near, far = np.zeros((5, 3), np.float32), np.full((5, 3), 1000.0, np.float32)
    clipping = GARS["centered-clipping"].bind(tau=1.0)
    found = {}
    for jumps in (0, 1):
        run = Run(2, Numbers(5, 1), clipping, MEDIAN)
        run.server = JumpingServer()
        run.join_gradients(list(near))
        run.server.jumps = jumps
        found[jumps] = run.join_gradients(list(far))
    assert np.abs(found[0]).max() < 10.0
    np.testing.assert_allclose(found[1], 1000.0)
    assert run.aggregation_s > 0


def test_numbers_that_are_not_given_are_one_server_that_nobody_lies_to():
    numbers = Numbers(7)
    assert (numbers.f_w, numbers.n_ps, numbers.f_ps, numbers.liars_w) == (0, 1, 0, 0)
    assert (numbers.q_w, numbers.q_ps) == (7, 1)


def test_what_applications_do_unless_told():
    guanyu = TINY.updated(app="guanyu", workers=6, servers=6).learning
    assert guanyu.rate(100) == guanyu.rate(0) / 2
    assert TINY.updated(app="aggregathor").check().lossy_links is None


def test_parameters_are_held_to_every_number_of_rows_that_can_be_joined():
    """With m = 6 all of nine servers must answer, and a round may go on with eight."""
    servers(9, 1, rule=parse("multi-krum(m=5)")).check()
    with pytest.raises(ConfigError, match=r"With 8 of n=9 rows"):
        servers(9, 1, rule=parse("multi-krum(m=6)")).check()


def test_two_frameworks_are_refused_where_all_must_compute_alike():
    both = Settings.of(app="draco", framework="torch,tensorflow")
    with pytest.raises(ConfigError, match=r"To the bit\. Choose one framework\."):
        one_framework(both, "To the bit.")
    one_framework(Settings.of(app="draco", framework="torch"), "To the bit.")


def test_vanilla_is_held_to_what_all_with_one_server_are():
    with pytest.raises(ConfigError, match="vanilla has one server, got 2"):
        Settings.of(app="vanilla", servers=2).check()


def test_servers_are_doubted_as_far_as_they_may_lie_and_are_not_known_to():
    def doubted(**changes):
        settings = TINY.updated(servers=7, **changes)
        return settings.application.doubted(settings)

    assert doubted(app="msmw", f_servers=2) == 2
    assert doubted(app="msmw", byzantine_servers=1, server_attack="reverse", f_servers=2) == 1
    assert doubted(app="msmw", byzantine_servers=2, server_attack="reverse", f_servers=1) == 0
    assert doubted(app="crash-tolerant", f_servers=2) == 0  # they crash, and do not lie
    assert doubted(app="msmw", exclude="server-6", byzantine_servers=1, f_servers=1) == 1
