"""States, databases and servers for tests of a federated training's state."""

import itertools
import json
import os
import signal
import time
from contextlib import contextmanager

import torch

from garfield.core.errors import LeaseLost
from garfield.fedgan.state import LearningState, StateDatabase, open_state_database, wait_to_lead
from tests.postgres_server import running_postgres

DATABASES = ("sqlite", "postgresql")
WAIT_S = 60.0  # for what takes a moment on a quiet machine
_numbers = itertools.count()


def state(round_, value=None, *, devices=None, choices=None, size=5):
    value = float(round_) if value is None else value
    return LearningState(
        round_, {"generator.weight": torch.full((size,), value)}, {"random": [round_, "x"]},
        {"device-0": {"counts": [3, 4]}} if devices is None else devices,
        [f"device-{round_}"] if choices is None else choices,
    )  # fmt: skip


@contextmanager
def somewhere(kind, directory):
    """Where the state of a run that nobody has seen can be kept; also the PostgreSQL, if one."""
    if kind == "sqlite":
        yield directory / "state.sqlite", None
    else:
        with running_postgres() as server:
            yield server.url(), server


def new_run():
    """A name that no test has used: they share a PostgreSQL."""
    return f"run-{os.getpid()}-{next(_numbers)}"


def until(condition, what="it"):
    """Wait for an event that other threads, processes or the clock bring about; what it gave."""
    deadline = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen in {WAIT_S:g} s"
        time.sleep(0.01)
    return found


# -- a server in a process of its own -------------------------------------------------------------


def serve(channel, where, run, record, lease_s, rounds, fault):
    """Lead when it can, and commit round after round: `rounds` of them, or until told to end.

    `fault` is a signal to itself in some round: before its commit, or in the middle of it.
    """
    torch.set_num_threads(1)
    database = open_state_database(where, run)
    told = _Record(record, channel.name)
    if fault and fault["place"] == "in commit":
        _strike_in_commit(fault, told)
    done = 0

    def goes_on():
        return done < rounds if rounds is not None else not told_to_end(record).exists()

    while goes_on():
        with wait_to_lead(database, channel.name, lease_s=lease_s) as primary:
            token = primary.token.number
            try:
                latest = primary.latest()
                if latest is None:
                    primary.commit(state(0, size=50_000))
                    latest = primary.latest()
                done = latest.round
                while goes_on():
                    attempt = primary.begin(done + 1)
                    if fault and fault["place"] == "before commit" and fault["round"] == done + 1:
                        _strike(fault, told)
                    chosen = [channel.name, token, attempt]
                    primary.commit(state(done + 1, choices=chosen, size=50_000))
                    done += 1
                    told.write(round=done, token=token, attempt=attempt)
            except LeaseLost as lost:
                told.write(lost=token, why=str(lost))


def told_to_end(record):
    """The file whose existence ends servers that were given no number of rounds."""
    return record.with_suffix(".end")


class _Record:
    """Lines that outlive the process."""

    def __init__(self, path, name):
        self._path, self._name = path, name

    def write(self, **line):
        with self._path.open("a") as file:
            file.write(json.dumps({"name": self._name, **line}) + "\n")


def _strike(fault, told):
    signalled = signal.Signals[fault.pop("signal")]
    fault["round"] = None  # once
    told.write(struck=signalled.name)
    os.kill(os.getpid(), signalled)


def _strike_in_commit(fault, told):
    prune = StateDatabase._prune

    def struck(self, sql):
        if self._kept(sql)[0][0] == fault["round"]:
            _strike(fault, told)
        prune(self, sql)

    StateDatabase._prune = struck


def lines(record):
    whole = record.read_text().splitlines(keepends=True) if record.exists() else []
    return [json.loads(line) for line in whole if line.endswith("\n")]
