"""Servers in processes of their own that are killed and frozen: two can never both commit."""

import random
import signal
from contextlib import contextmanager

import psutil
import pytest

from garfield.fedgan.state import open_state_database
from garfield.runs import attached
from tests import fedgan_states
from tests.fedgan_states import DATABASES, lines, new_run, somewhere, told_to_end, until
from tests.forkservers import with_a_forkserver_of_its_own
from tests.marks import heavy_but

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=heavy_but(DATABASES, "sqlite"))
def place(request, tmp_path_factory):
    with_a_forkserver_of_its_own()
    attached.preload(["torch", "tests.fedgan_states"])
    with somewhere(request.param, tmp_path_factory.mktemp("state")) as (where, _):
        yield where


class Servers:
    """The servers of one run, what they told, and what the database has of them."""

    def __init__(self, where, directory):
        self.run, self._where = new_run(), where
        self.record = directory / "record.jsonl"
        self.database = open_state_database(where, self.run)
        self._processes = {}

    def start(self, name, *, rounds, lease_s=0.5, fault=None):
        arguments = (self._where, self.run, self.record, lease_s, rounds, fault)
        self._processes[name] = attached.start(fedgan_states.serve, name, arguments)

    def end(self):
        """Those that were given no number of rounds."""
        told_to_end(self.record).touch()

    def signal(self, name, number):
        self._processes[name].signal(number)

    def is_alive(self, name):
        return self._processes[name].exit_code is None

    def wait_until_frozen(self, name):
        process = psutil.Process(self._processes[name].pid)
        until(lambda: process.status() == psutil.STATUS_STOPPED, f"{name} frozen")

    def join(self, name):
        self._processes[name].join()
        return self._processes[name].exit_code

    def rounds(self):
        latest = self.database.latest()
        return -1 if latest is None else latest.round

    def has_lost(self, token):
        """Whether the lease of that token is over: run out, or taken by another already."""
        leader = self.database.leader()
        return leader.token != token or leader.left_s < 0

    def told(self, what):
        return [line for line in lines(self.record) if what in line]

    def assert_whole(self, rounds):
        """Every round was committed once, tokens never fell, and what was told is there."""
        history = [(found.round, found.token, *found.choices) for found in self.database.history()]
        assert [round_ for round_, *_ in history] == list(range(1, rounds + 1))
        tokens = [token for _, token, *_ in history]
        assert tokens == sorted(tokens)
        for line in self.told("round"):
            committed = line["round"], line["token"], line["name"], line["token"], line["attempt"]
            assert committed in history
        assert self.database.latest().tensors["generator.weight"].eq(rounds).all()

    def close(self):
        for process in self._processes.values():
            process.signal(signal.SIGKILL)
            process.join()
            process.close()
        self.database.close()


@contextmanager
def servers_on(place, directory):
    servers = Servers(place, directory)
    try:
        yield servers
    finally:
        servers.close()


@pytest.mark.parametrize("where", ["before commit", "in commit"])
def test_a_primary_that_is_killed_loses_its_round_and_no_other(place, tmp_path, where):
    with servers_on(place, tmp_path) as servers:
        fault = {"round": 4, "place": where, "signal": "SIGKILL"}
        servers.start("server-0", rounds=8, fault=fault)
        assert servers.join("server-0") == -signal.SIGKILL
        assert servers.rounds() == 3
        servers.start("server-1", rounds=8)
        assert servers.join("server-1") == 0
        servers.assert_whole(8)
        attempts = {line["round"]: line["attempt"] for line in servers.told("round")}
        assert attempts[4] == 1  # and with another seed than the one that ended its server
        assert attempts[5] == 0


def test_a_primary_that_wakes_up_after_its_lease_commits_nothing(place, tmp_path):
    with servers_on(place, tmp_path) as servers:
        fault = {"round": 3, "place": "before commit", "signal": "SIGSTOP"}
        servers.start("server-0", rounds=6, fault=fault)
        servers.wait_until_frozen("server-0")
        servers.start("server-1", rounds=6)
        until(lambda: servers.rounds() >= 3, "a round of the other server")
        servers.signal("server-0", signal.SIGCONT)
        assert (servers.join("server-0"), servers.join("server-1")) == (0, 0)
        servers.assert_whole(6)
        assert [(line["name"], line["lost"]) for line in servers.told("lost")] == [("server-0", 1)]


def test_a_primary_that_wakes_up_in_the_middle_of_its_commit_has_done_it_or_not(place, tmp_path):
    with servers_on(place, tmp_path) as servers:
        fault = {"round": 3, "place": "in commit", "signal": "SIGSTOP"}
        servers.start("server-0", rounds=6, fault=fault)
        servers.wait_until_frozen("server-0")
        servers.start("server-1", rounds=6)
        if servers.database.serves_one_host:  # nobody can end a frozen writer's transaction
            assert servers.rounds() == 2
        else:
            until(lambda: servers.rounds() >= 3, "a round of the other server")
        servers.signal("server-0", signal.SIGCONT)
        assert (servers.join("server-0"), servers.join("server-1")) == (0, 0)
        servers.assert_whole(6)


@pytest.mark.heavy
def test_servers_that_are_killed_and_frozen_at_any_moment_never_both_commit(place, tmp_path):
    drawn, names = random.Random(7), ["server-0", "server-1", "server-2"]
    with servers_on(place, tmp_path) as servers:
        for name in names:
            servers.start(name, rounds=None, lease_s=0.2)
        for _ in range(12):  # by strikes, not by rounds: of those there are many between two looks
            seen = servers.rounds()
            until(lambda seen=seen: servers.rounds() > seen, "a round")
            leader = servers.database.leader()
            if drawn.random() < 0.3:
                servers.signal(leader.name, signal.SIGKILL)
                servers.join(leader.name)
                servers.start(leader.name, rounds=None, lease_s=0.2)
            else:
                servers.signal(leader.name, signal.SIGSTOP)
                until(lambda token=leader.token: servers.has_lost(token), "the end of a lease")
                servers.signal(leader.name, signal.SIGCONT)
        servers.end()
        for name in names:
            servers.join(name)
        servers.assert_whole(servers.rounds())
        assert servers.database.leader().token > 2
