"""When a round goes on, and for how long it waits: decisions of what was heard, and of time."""

from math import inf, log2

import pytest

from garfield.core.errors import ConfigError
from garfield.core.silence import gone
from garfield.nodes.patience import REPLIES, Patience
from garfield.nodes.quorum import Progress, Quorum, left_s

T = 10.0


# -- how many rows ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "f", "needs", "safe"),
    [(3, 1, 3, 3), (4, 1, 3, 3), (5, 1, 3, 4), (9, 3, 9, 9), (12, 3, 9, 9), (13, 3, 9, 10)],
)
def test_where_nobody_is_trusted_a_rule_gets_what_it_needs_for_all_faults(n, f, needs, safe):
    quorum = Quorum.of_all(n, f, needs=lambda f: needs)
    assert (quorum.wanted, quorum.safe_without(0), quorum.bare_without(0)) == (n, safe, safe)


def test_a_trusted_server_may_go_on_with_fewer():
    quorum = Quorum.of_all(7, 2, needs=lambda f: 2 * f + 3, trusted=True)
    assert (quorum.safe_without(0), quorum.bare_without(0)) == (7, 5)


def test_who_has_proved_to_be_faulty_cannot_be_among_the_others():
    quorum = Quorum.of_all(7, 2, needs=lambda f: 2 * f + 3)
    assert [quorum.safe_without(proven) for proven in (0, 1, 2, 3)] == [7, 5, 5, 5]


def test_without_a_rule_all_are_needed_where_nobody_is_trusted():
    assert Quorum.of_all(7, 2, needs=None).bare_without(0) == 7


@pytest.mark.parametrize("q", [0, 6])
def test_an_impossible_quorum_is_refused(q):
    with pytest.raises(ConfigError, match=f"quorum of {q} is impossible with 5"):
        Quorum.of_first(q, 5, 1)


# -- how long ---------------------------------------------------------------------------------


def waits(quorum, heard, open_, patience=None, **since):
    return left_s(quorum, Progress(heard, open_, **since), patience or Patience(T))


UNTRUSTED = Quorum.of_all(7, 2, needs=lambda f: 2 * f + 1)
TIGHT = Quorum.of_all(7, 2, needs=lambda f: 2 * f + 3, trusted=True)


def test_a_round_ends_when_all_are_heard():
    assert waits(UNTRUSTED, 7, [], safe_since_s=0.0) == 0


def test_short_of_rows_it_waits_for_as_long_as_it_takes():
    assert waits(UNTRUSTED, 4, ["a", "b", "c"]) == inf


def test_with_rows_enough_it_waits_for_the_peer_with_the_most_credit():
    patience = Patience(T)
    patience.missed("a", 8.0, in_full=False)
    patience.missed("b", 3.0, in_full=False)
    assert waits(UNTRUSTED, 5, ["a", "b"], patience, safe_since_s=1.0) == pytest.approx(6.0)
    assert waits(UNTRUSTED, 5, ["a"], patience, safe_since_s=1.0) == pytest.approx(1.0)
    assert waits(UNTRUSTED, 5, ["a"], patience, safe_since_s=2.5) == 0


def test_a_trusted_server_charges_nobody_before_it_has_waited_in_full():
    since = {"bare_since_s": 4.0}
    assert waits(TIGHT, 6, ["a"], **since) == pytest.approx(T - 4.0)
    patience = Patience(T)
    patience.missed("a", T, in_full=False)  # no credit, and still it was never waited for in full
    assert waits(TIGHT, 6, ["a"], patience, **since) == pytest.approx(T - 4.0)
    patience.missed("a", 0.0, in_full=True)
    assert waits(TIGHT, 6, ["a"], patience, **since) == 0
    assert waits(TIGHT, 5, ["a", "b"], patience, **since) == pytest.approx(T - 4.0)


def test_what_comes_late_makes_a_peer_one_to_be_waited_for_again():
    patience = Patience(T)
    patience.missed("a", 0.0, in_full=True)
    patience.came_late(["a"])
    assert not patience.is_charged("a")
    assert waits(TIGHT, 6, ["a"], patience, bare_since_s=0.0) == T


def test_a_round_that_others_have_left_behind_is_given_up():
    behind = Progress(1, ["a", "b"], gone_since_s=0.0)
    assert left_s(UNTRUSTED, behind, Patience(T)) == 0  # 1 + 2 can never be 5
    maybe = Progress(3, ["a", "b"], gone_since_s=4.0)
    assert left_s(UNTRUSTED, maybe, Patience(T)) == pytest.approx(T - 4.0)


# -- the ledger -------------------------------------------------------------------------------


def test_time_waited_is_deducted_and_replies_in_time_refill_it_ever_more_rarely():
    patience = Patience(T)
    patience.missed("a", 7.0, in_full=False)
    for refill in range(4):
        for _ in range(REPLIES * 2**refill - 1):
            patience.answered("a")
        assert patience.credit_s("a") == pytest.approx(3.0)
        patience.answered("a")
        assert patience.credit_s("a") == T
        patience.missed("a", 7.0, in_full=False)


@pytest.mark.parametrize("rounds", [10, 100, 3000])
def test_one_peer_costs_one_asker_no_more_than_the_bound(rounds):
    """It spends all its credit whenever it has some, and answers at once when it has none."""
    patience, cost_s = Patience(T), 0.0
    for _ in range(rounds):
        spent_s = patience.credit_s("a")
        cost_s += spent_s
        patience.answered("a", spent_s)
    assert cost_s <= T * (1 + log2(1 + rounds / REPLIES)) + 1e-9


def test_peers_have_ledgers_of_their_own():
    patience = Patience(T)
    patience.missed("a", T, in_full=True)
    assert (patience.credit_s("a"), patience.credit_s("b")) == (0, T)
    assert (patience.is_charged("a"), patience.is_charged("b")) == (True, False)


# -- who claims to be further on than its only server ------------------------------------------


def test_nobody_honest_is_past_a_server_that_leads_unless_more_say_so_than_may_lie():
    past = {name: gone(9) for name in "ab"}
    leading, following = (
        Quorum.of_all(7, 2, needs=lambda f: 2 * f + 3, trusted=True, leads=leads)
        for leads in (True, False)
    )
    assert (leading.proven(past), following.proven(past)) == (2, 0)
    assert leading.proven({**past, "c": gone(9)}) == 0  # it must have gone back itself
    assert leading.safe_without(2) == 5
