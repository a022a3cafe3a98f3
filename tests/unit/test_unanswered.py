"""Who does not answer, and for how long: what decides that a node is frozen."""

from garfield.launch.unanswered import Unanswered


class World:
    """A clock, and processes of which some answer."""

    def __init__(self, *names):
        self.now_s, self.alive, self.asked = 0.0, set(names), []

    def probe(self, name):
        self.asked.append(name)
        return name in self.alive


def after(world, unanswered, names, seconds, step_s=0.5):
    for _ in range(round(seconds / step_s)):
        world.now_s += step_s
        found = unanswered.for_s(names)
    return found


def watched(*alive):
    world = World(*alive)
    return world, Unanswered(world.probe, lambda: world.now_s)


def test_seconds_add_up_only_while_nobody_answers():
    world, unanswered = watched("server-1")
    assert after(world, unanswered, ["server-0", "server-1"], 10) == 0
    world.alive.clear()
    assert after(world, unanswered, ["server-0", "server-1"], 4) == 4
    world.alive.add("server-0")
    assert after(world, unanswered, ["server-0", "server-1"], 1) == 0


def test_nobody_is_asked_more_than_once_a_second():
    world, unanswered = watched("server-0")
    after(world, unanswered, ["server-0"], 3, step_s=0.1)
    assert len(world.asked) in (2, 3)  # tenths do not add up to the digit


def test_time_that_the_launcher_was_stopped_itself_does_not_count():
    world, unanswered = watched()
    assert after(world, unanswered, ["server-0"], 600, step_s=600) == 2
