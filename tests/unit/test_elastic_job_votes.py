"""In which steps workers vote."""

from garfield.elastic.job.agreement import VoteRhythm


def held(rhythm, step_s, steps, others=10**6):
    """The steps that have a vote, with steps that long and what the others wish for."""
    found, now_s = [], 0.0
    rhythm.restart(now_s)
    for step in range(steps):
        is_due, wished = rhythm.is_due, rhythm.wished
        now_s += step_s
        rhythm.stepped(min(wished, others) if is_due else None, now_s)
        if is_due:
            found.append(step)
    return found


def test_long_steps_all_have_a_vote():
    assert held(VoteRhythm(0.1), 0.3, 5) == [0, 1, 2, 3, 4]


def test_short_steps_have_one_in_as_many_as_make_the_time():
    # the first vote is before anything is known, the second after one step
    assert held(VoteRhythm(0.1), 0.021, 20) == [0, 1, 5, 9, 13, 17]


def test_the_fewest_steps_that_anybody_wishes_for_count():
    assert held(VoteRhythm(0.1), 0.001, 9, others=3) == [0, 1, 4, 7]


def test_a_new_group_begins_with_a_vote():
    rhythm = VoteRhythm(0.1)
    held(rhythm, 0.001, 4)
    assert not rhythm.is_due
    rhythm.restart(7.0)
    assert rhythm.is_due
    assert rhythm.wished == 1
