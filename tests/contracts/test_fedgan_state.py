"""What every database that keeps a federated training's state promises."""

import threading
import time
from itertools import pairwise

import pytest
import torch

from garfield.core.errors import ConfigError, DivergedError, InputError, LeaseLost, RunError
from garfield.fedgan.state import (
    LearningState,
    Primary,
    RoundChoices,
    Token,
    open_state_database,
    round_seed,
    wait_to_lead,
)
from garfield.fedgan.state.database import MOST_TRIES
from tests.fedgan_states import DATABASES, new_run, somewhere, state, until

LONG_S = 1000.0
SHORT_S = 0.05


@pytest.fixture(scope="module", params=DATABASES)
def place(request, tmp_path_factory):
    with somewhere(request.param, tmp_path_factory.mktemp("state")) as (where, _):
        yield where


@pytest.fixture
def opened(place):
    """Opens the state of one new run, as often as is asked."""
    databases, run = [], new_run()

    def open_again():
        databases.append(open_state_database(place, run))
        return databases[-1]

    yield open_again
    for database in databases:
        database.close()


@pytest.fixture
def database(opened):
    return opened()


def led(database, name="server-0", lease_s=LONG_S):
    return until(lambda: database.acquire(name, lease_s), "a lease")


def counts(database, *tables):
    with database._backend.reading() as sql:
        asked = "SELECT COUNT(*) FROM fedgan_{} WHERE run = ?"
        return [sql.rows(asked.format(table), database.run)[0][0] for table in tables]


# -- who leads ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_of_several_servers_one_leads_until_its_lease_has_run_out(opened):
    first, second = opened(), opened()
    assert first.leader() is None
    token = first.acquire("server-0", 0.5)
    assert second.acquire("server-1", LONG_S) is None
    assert first.acquire("server-0", LONG_S) is None  # a name is no proof
    assert second.leader().name == "server-0"
    assert 0 < second.leader().left_s <= 0.5
    later = led(second, "server-1")
    assert (token.number, later.number) == (1, 2)
    assert first.leader().name == "server-1"


def test_the_clock_is_the_databases_own(opened, monkeypatch):
    first, second = opened(), opened()
    token = first.acquire("server-0", LONG_S)
    for clock in ("time", "monotonic"):
        monkeypatch.setattr(time, clock, lambda: 1e12)
    assert second.acquire("server-1", LONG_S) is None
    second.renew(token)
    assert 0 < second.leader().left_s <= LONG_S


def test_a_lease_that_is_renewed_does_not_run_out(opened):
    first, second = opened(), opened()
    token = first.acquire("server-0", 0.5)
    until(lambda: first.leader().left_s < 0.3)
    first.renew(token)
    assert second.leader().left_s > 0.3


def test_a_lease_that_is_given_back_is_free_at_once(opened):
    first, second = opened(), opened()
    token = first.acquire("server-0", LONG_S)
    first.release(token)
    assert second.acquire("server-1", LONG_S).number == 2
    first.release(token)  # of somebody else by now
    assert first.acquire("server-0", LONG_S) is None


def test_of_many_who_try_at_once_one_leads(opened):
    databases, tokens = [opened() for _ in range(8)], []
    together = threading.Barrier(len(databases))

    def try_to_lead(i):
        together.wait()
        tokens.append(databases[i].acquire(f"server-{i}", LONG_S))

    threads = [threading.Thread(target=try_to_lead, args=[i]) for i in range(len(databases))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(tokens) == len(databases)
    assert [token.number for token in tokens if token is not None] == [1]


def test_who_has_lost_the_lease_can_do_nothing_more(opened):
    first, second = opened(), opened()
    old = led(first, lease_s=SHORT_S)
    first.commit(old, state(0))
    new = led(second, "server-1")
    said = r"server-0 has token 1 of .*, and server-1 has taken over with token 2: round 1 is not"
    with pytest.raises(LeaseLost, match=said):
        first.commit(old, state(1, 77.0))
    with pytest.raises(LeaseLost, match="not renewed"):
        first.renew(old)
    with pytest.raises(LeaseLost, match="does not begin"):
        first.begin_round(old, 1)
    assert counts(first, "states", "choices", "attempts") == [1, 1, 0]
    second.commit(new, state(1))
    assert first.latest().tensors["generator.weight"][0] == 1.0


def test_a_lease_that_ran_out_and_that_nobody_took_still_commits(database):
    token = led(database, lease_s=SHORT_S)
    until(lambda: database.leader().left_s < 0)
    database.commit(token, state(0))
    assert database.latest().round == 0


# -- states ---------------------------------------------------------------------------------------


def test_a_state_comes_back_as_it_was(opened):
    first, second = opened(), opened()
    assert first.latest() is None
    tensors = {
        "generator.weight": torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0)),
        "discriminator.norm.num_batches_tracked": torch.tensor(7),
        "discriminator.half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        "generator.transposed": torch.arange(6.0).reshape(2, 3).T,
        "random.cpu": torch.get_rng_state(),
        "generator.empty": torch.empty(0),
        "mask": torch.tensor([True, False]),
    }
    document = {"seed": 2**63 - 1, "names": ["Zoë", "\x00", "\ud800", "?%s"], "deep": [[[{}]]]}
    devices = {"device-0": {"counts": [1, 2], "memory_mb": 512.5, "gpu": None}}
    first.commit(led(first), LearningState(0, tensors, document, devices))
    found = second.latest()
    assert (found.round, found.document, found.devices) == (0, document, devices)
    assert found.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found.tensors[name].dtype == tensor.dtype
        assert torch.equal(found.tensors[name], tensor)


def test_the_last_two_states_are_kept_and_all_of_the_history(database):
    token = led(database)
    for round_ in range(80):
        devices = {"device-0": round_ // 40}
        database.commit(token, state(round_, devices=devices))
    assert counts(database, "states", "devices", "choices") == [2, 1, 80]
    assert database.latest().devices == {"device-0": 1}
    expected = [RoundChoices(i, 1, [f"device-{i}"]) for i in range(1, 80)]
    assert list(database.history()) == expected
    assert list(database.history(after=77)) == expected[77:]


def test_what_devices_declared_is_written_again_only_if_it_has_changed(database):
    token = led(database)
    database.commit(token, state(0))
    database.commit(token, state(1))
    assert counts(database, "devices") == [1]
    database.commit(token, state(2, devices={"device-0": "other"}))
    assert counts(database, "devices") == [2]  # of the state before, too


def test_rounds_follow_each_other(database):
    token = led(database)
    database.commit(token, state(4))  # of a run that was kept elsewhere before
    database.commit(token, state(5))
    for wrong in (0, 3, 7):
        with pytest.raises(RunError, match=f"Round {wrong} .* cannot follow round 5"):
            database.commit(token, state(wrong, 9.0))
    with pytest.raises(RunError, match=r"Round 4 .* was committed already"):
        database.commit(token, state(4, 9.0))
    assert [found.round for found in database.history()] == [4, 5]


def test_a_commit_may_be_repeated_and_not_changed(database):
    token = led(database)
    for _ in range(3):
        database.commit(token, state(0))
    with pytest.raises(RunError, match="committed already, differently"):
        database.commit(token, state(0, 3.0))
    assert counts(database, "states", "choices") == [1, 1]


def test_another_server_goes_on_from_what_was_committed_and_not_beside_it(opened):
    first, second = opened(), opened()
    first.commit(led(first, lease_s=SHORT_S), state(0))
    token = led(second, "server-1")
    with pytest.raises(RunError, match=r"Round 0 .* cannot follow round 0"):
        second.commit(token, state(0, 5.0))
    second.commit(token, state(1))
    assert [(found.round, found.token) for found in first.history()] == [(1, 2)]


@pytest.mark.parametrize("column", ["tensors", "document"])
def test_a_damaged_state_is_passed_over_and_done_again(database, column, caplog):
    token = led(database)
    for round_ in range(3):
        database.commit(token, state(round_))
    broken = b"\x00broken" if column == "tensors" else "{}"
    with database._backend.writing() as sql:
        sql.run(f"UPDATE fedgan_states SET {column} = ? WHERE round = 2", broken)
    assert database.latest().round == 1
    assert "round 2" in caplog.text
    database.release(token)
    again = led(database)
    database.commit(again, state(2, 8.0))
    assert database.latest().tensors["generator.weight"][0] == 8.0
    with database._backend.writing() as sql:
        sql.run(f"UPDATE fedgan_states SET {column} = ? WHERE run = ?", broken, database.run)
    with pytest.raises(RunError, match=r"All states of .* are damaged"):
        database.latest()


def test_runs_in_one_database_know_nothing_of_each_other(place, database):
    other = open_state_database(place, new_run())
    for each in (database, other):
        assert each.acquire("server-0", LONG_S).number == 1
    database.commit(Token(1, "server-0", LONG_S), state(0))
    assert other.latest() is None
    assert list(other.history(after=-1)) == []
    other.commit(Token(1, "server-0", LONG_S), state(6))
    assert database.latest().round == 0
    other.close()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"document": {"loss": float("nan")}}, "document cannot be written as JSON"),
        ({"devices": {"device-0": {1, 2}}}, "devices cannot be written as JSON"),
        ({"choices": object()}, "choices cannot be written as JSON"),
        ({"round": -1}, "count from 0, got -1"),
        ({"round": True}, "count from 0, got True"),
    ],
)
def test_what_cannot_be_kept_is_refused_and_changes_nothing(database, wrong, said):
    token = led(database)
    fields = {"round": 0, "tensors": {}, **wrong}
    with pytest.raises(InputError, match=said):
        database.commit(token, LearningState(**fields))
    assert database.latest() is None


@pytest.mark.parametrize("lease_s", [0.0, -1.0, float("inf"), float("nan")])
def test_a_lease_has_a_duration(database, lease_s):
    with pytest.raises(ConfigError, match="lease_s"):
        database.acquire("server-0", lease_s)


# -- attempts -------------------------------------------------------------------------------------


def test_a_round_that_ends_its_server_is_another_one_next_time(opened):
    first, second = opened(), opened()
    old = led(first, lease_s=SHORT_S)
    first.commit(old, state(0))
    assert first.begin_round(old, 1) == 0
    new = led(second, "server-1")
    assert second.begin_round(new, 1) == 1
    assert second.begin_round(new, 1) == 2
    second.commit(new, state(1))
    assert second.begin_round(new, 2) == 0
    seeds = {round_seed(seed, r, a) for seed in (0, 1) for r in (1, 11) for a in (0, 1, 11)}
    assert len(seeds) == 12
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_round_is_not_tried_for_ever(database):
    token = led(database)
    assert [database.begin_round(token, 1, at_most=3) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(RunError, match=r"Round 1 of .* was begun 3 times and never committed"):
        database.begin_round(token, 1, at_most=3)


def test_a_round_that_was_given_up_is_begun_again_when_its_user_says_so(database):
    token = led(database)
    for before in range(MOST_TRIES):
        database.try_again()  # not given up yet: draws of before are not repeated
        assert database.begin_round(token, 1) == before
    with pytest.raises(RunError, match="resume then"):
        database.begin_round(token, 1)
    database.try_again()
    assert database.begin_round(token, 1) == 0


def test_a_server_that_ends_in_order_has_not_failed_at_its_round(opened):
    first, second = opened(), opened()
    token = led(first)
    first.begin_round(token, 1)
    first.release(token)
    assert second.begin_round(led(second, "server-1"), 1) == 0


@pytest.mark.parametrize(
    ("problem", "tried"),
    [
        (DivergedError("NaN"), 1),
        (ValueError("of a rule of the user's"), 1),
        (MemoryError(), 1),
        (LeaseLost("paused"), 0),
        (KeyboardInterrupt(), 0),
        (SystemExit(), 0),
    ],
)
def test_a_round_at_which_its_server_fails_is_another_one_next_time(opened, problem, tried):
    first, second = opened(), opened()

    def lead():
        with Primary(first, led(first)) as primary:
            primary.begin(1)
            raise problem

    with pytest.raises(type(problem)):
        lead()
    assert second.begin_round(led(second, "server-1"), 1) == tried


# -- the primary ----------------------------------------------------------------------------------


def test_a_primary_keeps_its_lease_for_as_long_as_it_works(opened):
    first, second = opened(), opened()
    with wait_to_lead(first, "server-0", lease_s=0.5) as primary:
        seen = [second.leader().left_s]

        def was_renewed():
            seen.append(second.leader().left_s)
            return sum(late > early for early, late in pairwise(seen)) >= 3

        until(was_renewed, "a third renewal")
        assert second.acquire("server-1", LONG_S) is None
        primary.check()
        primary.commit(state(0))
        assert primary.begin(1) == 0
        primary.commit(state(1))
        assert [found.round for found in primary.history()] == [1]
    assert second.acquire("server-1", LONG_S).number == 2


def test_a_primary_that_has_lost_its_lease_is_told(opened):
    first, second = opened(), opened()
    token = first.acquire("server-0", 0.001)
    until(lambda: second.acquire("server-1", LONG_S))
    with Primary(first, token) as primary:

        def is_told():
            try:
                primary.check()
            except LeaseLost:
                return True
            return False

        until(is_told, "that the lease is lost")
        with pytest.raises(LeaseLost, match="server-1 has taken over"):
            primary.commit(state(0))
    assert second.leader().left_s > 0


def test_who_waits_to_lead_can_be_told_to_end(opened):
    first, second = opened(), opened()
    first.acquire("server-0", LONG_S)
    ended = threading.Event()
    found = []
    waiting = threading.Thread(
        target=lambda: found.append(wait_to_lead(second, "server-1", lease_s=LONG_S, ended=ended))
    )
    waiting.start()
    ended.set()
    waiting.join()
    assert found == [None]
