"""Of several operators one leads: on a store that refuses old versions, as an API server does."""

import threading
import time
from copy import deepcopy

import pytest

from garfield.core.errors import ClusterUnreachable, ObjectAbsent, WriteConflict
from garfield.elastic.operator.leadership import Leadership


class Leases:
    """One Lease, whose writers must name its version."""

    def __init__(self):
        self._lock, self._lease, self._version = threading.Lock(), None, 0
        self.is_away = False

    def get(self, _path):
        with self._lock:
            self._check()
            if self._lease is None:
                raise ObjectAbsent("no lease")
            return deepcopy(self._lease)

    def create(self, _path, lease):
        with self._lock:
            self._check()
            if self._lease is not None:
                raise WriteConflict("there is one")
            return self._written(lease)

    def replace(self, _path, lease):
        with self._lock:
            self._check()
            if lease["metadata"]["resourceVersion"] != self._lease["metadata"]["resourceVersion"]:
                raise WriteConflict("it has changed")
            return self._written(lease)

    def _written(self, lease):
        self._version += 1
        self._lease = deepcopy(lease)
        self._lease["metadata"]["resourceVersion"] = str(self._version)
        return deepcopy(self._lease)

    def _check(self):
        if self.is_away:
            raise ClusterUnreachable("away")


def candidate(leases, name, duration_s=1.0):
    return Leadership(leases, "ns", "lease", name, duration_s)


def test_of_many_who_try_at_once_one_leads():
    leases = Leases()
    many = [candidate(leases, f"o{k}", 30) for k in range(8)]
    together = threading.Barrier(len(many))

    def run(each):
        together.wait()
        each.try_to_lead()

    threads = [threading.Thread(target=run, args=(each,)) for each in many]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(each.is_leader for each in many) == 1


@pytest.mark.slow
def test_a_silent_leader_stops_before_another_one_takes_over():
    leases = Leases()
    first, second = candidate(leases, "first"), candidate(leases, "second")
    assert first.try_to_lead()
    while not second.try_to_lead():
        time.sleep(0.01)
    assert not first.is_leader
    assert not first.try_to_lead()


@pytest.mark.slow
def test_who_renews_stays_and_who_cannot_reach_the_lease_steps_down():
    leases = Leases()
    first, second = candidate(leases, "first"), candidate(leases, "second")
    began = time.monotonic()
    while time.monotonic() - began < 1.2:  # longer than the lease holds by itself
        assert first.try_to_lead()
        assert not second.try_to_lead()
        time.sleep(0.05)
    leases.is_away = True
    while first.try_to_lead():
        time.sleep(0.05)
    assert not first.is_leader


def test_a_leader_that_ends_in_good_order_gives_the_lease_back():
    leases = Leases()
    with candidate(leases, "first", 30) as first:
        while not first.is_leader:
            time.sleep(0.01)
    assert candidate(leases, "second", 30).try_to_lead()
