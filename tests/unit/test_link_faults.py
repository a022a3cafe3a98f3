"""What one pull meets behind a link that fails, on a virtual clock."""

import numpy as np
import pytest

from garfield.core.silence import NOT_NEEDED, no_answer
from garfield.transport.contract import Key, Ready, first
from garfield.transport.faults import Faults, LinkFault, cut_off
from garfield.transport.simulated import Simulation

NAMES = ("worker-0", "worker-1", "worker-2")
ALWAYS = range(10**9)


def pulled(*schedule, until, timeout_s=1.0, step=4):
    """By worker-0 from worker-1 and worker-2; and the virtual time that it took."""
    simulation, faults, found = Simulation(), Faults(schedule), []
    transports = [faults.around(simulation.transport(name)) for name in NAMES]
    for transport in transports:
        transport.serve(_Always(np.ones(4, np.float32)))

    def program():
        found.append(transports[0].pull(
            NAMES[1:], Key("gradient", step), length=4, until=until, timeout_s=timeout_s
        ))  # fmt: skip

    simulation.spawn(program)
    simulation.run()
    return found[0], simulation.now_s


class _Always:
    def __init__(self, vector):
        self._vector = vector

    def answer(self, asker, key):
        return Ready(self._vector)

    def watch(self, wake):
        pass


def test_whoever_is_not_needed_is_not_waited_for_behind_a_fault_either():
    replies, took_s = pulled(LinkFault("drop", "*", "worker-1", ALWAYS), until=first(1))
    assert (replies.names, took_s) == (("worker-2",), 0.0)
    assert replies.silent == {"worker-1": NOT_NEEDED}


def test_a_drop_costs_the_deadline_and_no_more():
    replies, took_s = pulled(LinkFault("drop", "*", "worker-1", ALWAYS), until=first(2))
    assert (replies.names, took_s) == (("worker-2",), 1.0)
    assert replies.silent == {"worker-1": no_answer(1)}


def test_a_delayed_answer_comes_late_and_an_early_one_is_kept():
    slow = LinkFault("delay", "worker-0", "worker-1", ALWAYS, delay_s=0.4)
    replies, took_s = pulled(slow, until=first(2))
    assert (replies.names, took_s) == (("worker-1", "worker-2"), 0.4)
    assert not replies.silent


def test_a_delay_beyond_the_deadline_is_silence():
    slow = LinkFault("delay", "worker-0", "worker-1", ALWAYS, delay_s=4.0)
    replies, took_s = pulled(slow, until=first(2))
    assert (replies.names, took_s) == (("worker-2",), 1.0)


@pytest.mark.parametrize("step", [2, 6])
def test_a_fault_strikes_at_its_steps_only(step):
    replies, took_s = pulled(*cut_off("worker-1", range(3, 6)), until=first(2), step=step)
    assert (replies.names, took_s) == (("worker-1", "worker-2"), 0.0)


def test_nobody_is_cut_off_from_itself():
    assert Faults(cut_off("worker-1", ALWAYS)).between("worker-1", "worker-1") is None
