"""A liar's plan in time: whom it answers, in which phase, how late, and before whom."""

import numpy as np
import pytest

from garfield import ConfigError, Plan
from garfield.apps.settings import Settings
from garfield.core.errors import UnknownName
from garfield.nodes.byzantine import LyingOutbox, Timing, parse_plan, said
from garfield.nodes.plan import BEHAVIOURS, drawn
from garfield.nodes.timing import TERMS, Speech, Withheld
from garfield.transport.contract import NEWEST, Gone, Key, NotYet, Ready

ONE = np.ones(4, np.float32)
GRADIENT = Key("gradient", 4)


def outbox_of(text, name="me", **plan):
    return LyingOutbox(parse_plan(text, Plan(**{"n": 4, "f": 1, **plan})), name)


def told(text, asker="server-0", key=GRADIENT, **plan):
    """What a liar by this plan says under a key that its node has published."""
    outbox = outbox_of(text, **plan)
    outbox.publish(key, ONE)
    answer = outbox.answer(asker, key)
    if isinstance(answer, Ready):
        return "truth" if np.array_equal(answer.payload, ONE) else "lie"
    return "nothing" if isinstance(answer, NotYet) else answer


PROPOSAL = Key("proposal", 4)


@pytest.mark.parametrize(
    ("text", "asker", "key", "expected"),
    [
        ("reverse, withhold(from=server-1)", "server-1", GRADIENT, "nothing"),
        ("reverse, withhold(from=server-1)", "server-0", GRADIENT, "lie"),
        ("reverse, withhold(from=a|server-0|b)", "server-0", GRADIENT, "nothing"),
        ("withhold(from=server-1)", "server-0", GRADIENT, "truth"),
        ("reverse, withhold(kind=proposal)", "server-0", PROPOSAL, "nothing"),
        ("reverse, withhold(kind=proposal)", "server-0", GRADIENT, "lie"),
        ("reverse, withhold(from=server-1, kind=proposal)", "server-1", GRADIENT, "lie"),
        ("reverse, withhold(from=server-1, kind=proposal)", "server-0", PROPOSAL, "lie"),
        ("reverse, withhold(from=server-1, kind=proposal)", "server-1", PROPOSAL, "nothing"),
        ("reverse, withhold(from=a), withhold(kind=proposal)", "a", GRADIENT, "nothing"),
        ("reverse, withhold(from=a), withhold(kind=proposal)", "b", PROPOSAL, "nothing"),
        ("reverse, never", "server-0", GRADIENT, "nothing"),
        ("silence", "server-0", GRADIENT, "nothing"),
        ("silence, only(to=server-1)", "server-0", GRADIENT, "truth"),
        ("silence, only(to=server-1)", "server-1", GRADIENT, "nothing"),
        ("reverse, only(to=server-1)", "server-0", GRADIENT, "truth"),
        ("reverse, only(to=server-1)", "server-1", GRADIENT, "lie"),
        ("reverse, only(to=a), withhold(from=server-0)", "server-0", GRADIENT, "nothing"),
        ("reverse, phase(kind=proposal)", "server-0", GRADIENT, "truth"),
        ("reverse, phase(kind=proposal)", "server-0", PROPOSAL, "lie"),
        ("reverse, phase(kind=proposal), never", "server-0", GRADIENT, "truth"),
        ("reverse, phase(kind=model|gradient)", "server-0", GRADIENT, "lie"),
        ("reverse, alternate", "server-0", Key("gradient", 4), "lie"),
        ("reverse, alternate", "server-0", Key("gradient", 5), "nothing"),
        ("reverse, alternate(every=9)", "server-0", Key("gradient", 7), "lie"),
        ("reverse, alternate(every=9)", "server-0", Key("gradient", 8), "nothing"),
        ("equivocate, withhold(from=server-1)", "server-0", GRADIENT, "lie"),
        ("equivocate(attack=reverse(factor=-3)), withhold(from=a)", "a", GRADIENT, "nothing"),
        ("reverse, ahead(by=7)", "server-0", GRADIENT, Gone(11)),
    ],
)
def test_what_an_asker_is_told(text, asker, key, expected):
    assert told(text, asker, key) == expected


def test_whatever_it_does_to_others_a_liar_tells_itself_the_truth():
    for text in ("reverse, never", "silence", "reverse, ahead", "reverse, withhold(from=me)"):
        assert told(text, "me") == "truth"


@pytest.mark.parametrize(
    ("text", "after_s"),
    [
        ("reverse", 0.0),
        ("reverse, late", 0.05),
        ("reverse, late(s=0.2)", 0.2),
        ("reverse, last", 1.8),
        ("reverse, last(share=0.5)", 1.0),
        ("reverse, last(share=1)", 2.0),
        ("last(share=0.5)", 1.0),
        ("equivocate, last", 1.8),
        ("drip, late(s=1)", 1.0),
        ("reverse, late, only(to=server-1)", 0.0),
        ("reverse, late, phase(kind=model)", 0.0),
    ],
)
def test_how_long_an_answer_is_kept_back(text, after_s):
    outbox = outbox_of(text, timeout_s=2.0)
    outbox.publish(GRADIENT, ONE)
    assert outbox.answer("server-0", GRADIENT).after_s == pytest.approx(after_s)


def test_the_newest_model_is_lied_about_as_any_other_and_claims_run_ahead():
    asked = Key("model", NEWEST, 3)  # of step 3 at least
    for text, step in (("reverse(factor=-1)", 6), ("reverse(factor=-1), ahead(by=1)", 7)):
        outbox = outbox_of(text)
        outbox.publish(Key("model", 6), ONE)
        answer = outbox.answer("a", asked)
        np.testing.assert_array_equal(answer.payload, -ONE)
        assert answer.step == step
        assert outbox.answer("me", asked).step == 6


def test_one_that_claims_to_be_ahead_is_so_even_where_it_is_behind():
    outbox = outbox_of("reverse, ahead(by=100)")
    outbox.publish(Key("model", 2), ONE)
    assert outbox.answer("a", Key("model", NEWEST, 50)).step == 102
    assert isinstance(outbox_of("reverse").answer("a", Key("model", NEWEST, 50)), NotYet)


# -- first ----------------------------------------------------------------------------------------


def test_one_that_is_first_lies_about_a_step_it_has_not_reached_from_its_last_vector():
    outbox = outbox_of("reverse(factor=-2), first")
    assert isinstance(outbox.answer("a", Key("gradient", 0)), NotYet)  # it knows no length yet
    outbox.publish(Key("gradient", 0), 3 * ONE)
    early = outbox.answer("a", Key("gradient", 1))
    np.testing.assert_array_equal(early.payload, -6 * ONE)
    outbox.publish(Key("gradient", 1), 5 * ONE)
    for asker in "ab":  # and sticks to it
        np.testing.assert_array_equal(outbox.answer(asker, Key("gradient", 1)).payload, -6 * ONE)
    assert isinstance(outbox.answer("a", Key("model", 1)), NotYet)  # it never had one
    assert isinstance(outbox_of("reverse").answer("a", Key("gradient", 1)), NotYet)


def test_one_that_is_first_and_knows_all_lies_about_what_the_honest_said_last():
    looked = []

    def spy(key, length):
        looked.append(key.step)
        return {"b": ONE, "c": 3 * ONE}

    outbox = outbox_of("fall-of-empires(epsilon=1), first", spy=spy)
    outbox.publish(Key("gradient", 0), 9 * ONE)
    np.testing.assert_array_equal(outbox.answer("a", Key("gradient", 1)).payload, -2 * ONE)
    assert looked == [0]  # nobody has said anything about step 1


def test_an_answer_never_waits_for_a_spy():
    """It is given in the transport's own thread, which a spy would wait for."""
    looked = []
    for text in ("fall-of-empires, first", "fall-of-empires"):
        outbox = outbox_of(text, hasty=True, remembers=True, spy=lambda k, n: looked.append(k.step))
        outbox.publish(Key("gradient", 0), ONE)
        before = len(looked)
        outbox.answer("a", Key("gradient", 1))
        assert len(looked) == before > 0


def test_a_hasty_liar_lies_at_once_about_what_it_saw_last_and_looks_afterwards():
    rows = {0: 2 * ONE, 1: 4 * ONE, 2: 8 * ONE}
    outbox = outbox_of(
        "fall-of-empires(epsilon=1)", hasty=True, remembers=True,
        spy=lambda key, length: {"b": rows[key.step], "c": rows[key.step]},
    )  # fmt: skip

    def told(step):
        return outbox.answer("a", Key("gradient", step)).payload[0]

    outbox.publish(Key("gradient", 0), ONE)
    assert told(0) == -2  # there was nothing to remember
    assert told(1) == -2  # before it has been there
    outbox.publish(Key("gradient", 1), ONE)
    outbox.publish(Key("gradient", 2), ONE)
    assert told(2) == -4
    assert told(3) == -8


def test_lies_about_steps_to_come_are_not_kept_for_ever():
    outbox = outbox_of("reverse, first")
    outbox.publish(Key("gradient", 0), ONE)
    for step in range(1, 100):
        assert isinstance(outbox.answer("a", Key("gradient", step)), Ready)
    assert len(outbox._early) < 10


def test_an_early_equivocation_is_told_each_asker_differently():
    outbox = outbox_of("equivocate(attack=reverse), first")
    outbox.publish(Key("gradient", 0), ONE)
    a, b = (outbox.answer(name, Key("gradient", 1)).payload for name in "ab")
    assert a[0] != b[0]


# -- redrawn --------------------------------------------------------------------------------------

NAMES = tuple(f"worker-{i}" for i in range(7))


def test_who_lies_is_drawn_anew_each_step_and_always_f_of_them():
    steps = [drawn(NAMES, 2, 0, step) for step in range(60)]
    assert all(len(set(lying)) == 2 for lying in steps)
    assert {name for lying in steps for name in lying} == set(NAMES)
    assert len(set(steps)) > 15  # of 21 pairs
    assert steps == [drawn(NAMES, 2, 0, step) for step in range(60)]
    assert steps != [drawn(NAMES, 2, 1, step) for step in range(60)]


def test_whose_turn_it_is_not_tells_the_truth():
    outboxes = {
        name: outbox_of("reverse, redrawn", name, n=7, f=2, suspects=NAMES) for name in NAMES
    }
    for step in range(20):
        key = Key("gradient", step)
        for outbox in outboxes.values():
            outbox.publish(key, ONE)
        lying = {
            name
            for name, outbox in outboxes.items()
            if not np.array_equal(outbox.answer("server-0", key).payload, ONE)
        }
        assert lying == set(drawn(NAMES, 2, 0, step))


# -- text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("reverse, withold(from=a)", "withold is not a word about when. Did you mean withhold"),
        ("revers, last", "revers is not an attack. Did you mean reverse"),
        ("reverse, mimic", "one thing is said, then when. Leave out mimic"),
        ("reverse, stall", "Leave out stall"),
        ("reverse, last(shares=1)", "shares is not a parameter of last. Did you mean share"),
        ("reverse, last(share=1.5)", "last.share must be above 0 and at most 1, got 1.5"),
        ("reverse, late(s=soon)", "late.s must be a number, got 'soon'"),
        ("reverse, alternate(every=1)", "alternate.every must be above 1"),
        ("reverse, alternate(every=2.5)", "alternate.every must be a whole number"),
        (f"reverse, alternate(every={2**31 + 1})", "every must be above 1 and at most 2.147"),
        ("reverse, withhold", "withhold needs from=, kind= or both"),
        ("reverse, only", r"only names nobody. Write it like only\(to=server-0\)"),
        ("reverse, phase(kind=proposals)", "proposals is not a kind of vector. Did you mean prop"),
        ("reverse, late(0.3)", "Write parameters as key=value"),
        ("reverse, first(now=1)", "now is not a parameter of first"),
        ("reverse, late(s=0.3", "its bracket is left open"),
    ],
)
def test_a_plan_with_a_mistake_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_plan(text)


def test_no_word_means_two_things():
    assert not set(TERMS) & set(BEHAVIOURS)
    assert parse_plan("never").timing == Timing(withheld=(Withheld(),))
    assert parse_plan("never").attack is None


def test_timing_is_a_function_that_the_search_can_call_alone():
    timing = Timing(withheld=(Withheld(frozenset({"a"})),), only=frozenset({"b"}))
    assert [timing.speech(asker, GRADIENT) for asker in "abc"] == [
        Speech.NOTHING,
        Speech.LIE,
        Speech.TRUTH,
    ]
    assert timing.askers == {"a", "b"}


def test_one_that_claims_to_be_ahead_counts_from_the_step_that_it_has_reached():
    plan = parse_plan("reverse, ahead(by=5)")
    assert said(plan, "a", GRADIENT, NotYet(), None) == Gone(5)
    assert said(plan, "a", GRADIENT, NotYet(), None, now=7) == Gone(12)


@pytest.mark.parametrize(
    ("text", "unheard"),
    [
        ("fall-of-empires", True),
        ("fall-of-empires, last, withhold(from=a)", True),
        ("fall-of-empires, only(to=a)", False),
        ("fall-of-empires, phase(kind=model)", False),
        ("fall-of-empires, redrawn", False),
        ("equivocate(attack=fall-of-empires)", False),
        ("reverse", False),
    ],
)
def test_a_liars_own_vector_may_be_left_out_only_where_nobody_is_told_of_it(text, unheard):
    assert parse_plan(text).unheard is unheard


# -- settings -------------------------------------------------------------------------------------

SMALL = {"model": "digits_mlp", "data": "digits", "workers": 7, "byzantine_workers": 1}


def test_a_plan_may_name_only_nodes_of_the_run():
    Settings.of(**SMALL, worker_attack="reverse, withhold(from=server-0)").check()
    with pytest.raises(UnknownName, match="server-3 is not a node of this run"):
        Settings.of(**SMALL, worker_attack="reverse, withhold(from=server-3)").check()


def test_servers_and_liars_in_the_data_cannot_be_redrawn():
    with pytest.raises(ConfigError, match="servers who lie stay the same"):
        Settings.of(**SMALL, app="msmw", servers=3, server_attack="reverse, redrawn").check()
    with pytest.raises(ConfigError, match="lies in the training data, which is dealt once"):
        Settings.of(**SMALL, worker_attack="label-flip, redrawn").check()


def test_redrawn_workers_are_no_liars_by_name():
    settings = Settings.of(**SMALL, worker_attack="reverse, redrawn").check()
    assert settings.liars == ()
    assert settings.numbers.f_w == 1
