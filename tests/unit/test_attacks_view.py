"""What an attacker sees, and an attack of one's own."""

import numpy as np
import pytest

import garfield
from garfield import ATTACKS, View, attack


@pytest.fixture
def registered():
    """Registers a function for one test only."""
    made = []

    def register(name, function, **options):
        made.append(name)
        return attack(name, **options)(function)

    yield register
    for name in made:
        ATTACKS.remove(name)


def view(**changes):
    whole = {
        "own": np.arange(3, dtype=np.float32),
        "honest": np.ones((4, 3), np.float32),
        "n": 6,
        "f": 2,
        "rank": 1,
        "rng": np.random.default_rng(0),
    }
    return View(**{**whole, **changes})


def test_an_attack_that_knows_nothing_can_ask_only_for_length_and_dtype(registered):
    def peek(view):
        assert (view.d, view.dtype, view.n, view.f, view.rank) == (3, np.float32, 6, 2, 1)
        assert view.honest is None
        assert view.likely is None
        assert view.names == ()
        return view.own

    peeking = registered("peek", peek, knows="nothing")
    with pytest.raises(garfield.ConfigError, match=r'only view\.d and .*knows="own"'):
        peeking(view())


def test_a_view_of_nothing_holds_no_vector_even_inside():
    blind = view().to("nothing")
    assert not any(isinstance(value, np.ndarray) for value in vars(blind).values())
    assert repr(blind) == "<view of attacker 1 of f=2 among n=6, d=3>"


def test_an_attack_that_knows_its_own_vector_sees_no_other(registered):
    seen = []
    registered("look", lambda view: seen.append(view.honest) or view.own, knows="own")
    lie = ATTACKS["look"](view())
    assert seen == [None]
    np.testing.assert_array_equal(lie, [0, 1, 2])


def test_an_attack_that_knows_all_sees_everything(registered):
    mean = registered("mean", lambda view: view.honest.mean(axis=0), knows="all")
    np.testing.assert_array_equal(mean(view()), [1, 1, 1])


@pytest.mark.parametrize("knows", ["nothing", "own", "all"])
def test_the_rule_is_hidden_from_an_attack_that_does_not_declare_to_know_it(registered, knows):
    seen = []

    def look(view):
        seen.append(view.defence)
        return np.zeros(view.d)

    registered("look", look, knows=knows)(view(defence=len))
    registered("look-at-rule", look, knows=knows, knows_rule=True)(view(defence=len))
    assert seen == [None, len]


def test_attackers_remember_what_they_noted_in_earlier_rounds(registered):
    def count(view):
        view.memory["rounds"] = view.memory.get("rounds", 0) + 1
        return np.full(view.d, float(view.memory["rounds"]))

    counting, memory = registered("count", count, knows="nothing"), {}
    assert [counting(view(memory=memory))[0] for _ in range(3)] == [1, 2, 3]
    assert counting(view())[0] == 1  # others have a memory of their own
    rows, rng = np.ones((4, 3)), np.random.default_rng(0)
    assert counting.rows(rows, f=1, rng=rng, memory=memory)[0][0] == 4


def test_an_attack_with_two_faces_is_told_for_whom_its_lie_is(registered):
    face = registered("face", lambda view: view.side * view.own, knows="own", two_faced=True)
    np.testing.assert_array_equal(face(view(side=-1)), [0, -1, -2])


def test_an_attack_of_ones_own_is_known_by_name_and_takes_parameters(registered):
    def twice(view, *, factor=2.0):
        return factor * view.own

    registered("twice", twice, knows="own")
    np.testing.assert_array_equal(ATTACKS["twice"].bind(factor=3)(view()), [0, 3, 6])
    with pytest.raises(garfield.ConfigError, match="twice is already an attack"):
        registered("twice", twice, knows="own")


def test_a_lie_too_large_for_the_wire_is_cut_off_at_the_largest_number(registered):
    big = registered("big", lambda view: np.array([1e300, -np.inf, 2.0]), knows="own")
    most = np.finfo(np.float32).max
    np.testing.assert_array_equal(big(view()), np.array([most, -most, 2], np.float32))


def test_a_lie_of_the_wrong_length_is_refused(registered):
    short = registered("short", lambda view: np.ones(2), knows="own")
    with pytest.raises(garfield.InputError, match=r"short .* shape \(2,\), not \(3,\)"):
        short(view())


def test_an_attack_must_say_what_it_knows():
    with pytest.raises(garfield.ConfigError, match="knows must be"):
        attack("psychic", knows="everything")


def test_attackers_would_honestly_have_sent_the_honest_rows_in_turn():
    honest = np.arange(6.0).reshape(3, 2)
    told = ATTACKS["sign-flip"].rows(honest, f=4, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(told, -honest[[0, 1, 2, 0]])


@pytest.mark.parametrize(
    ("changes", "error", "complaint"),
    [
        ({"f": 0}, garfield.ConfigError, "f must be in 1..n-1"),
        ({"f": 6}, garfield.ConfigError, "f=6 attackers among n=6"),
        ({"rank": 2}, garfield.ConfigError, r"rank must be within 0\.\.1 \(f - 1\), got 2"),
        ({"own": [1.0, 2.0]}, garfield.InputError, "own must be a numpy array of floats, got list"),
        ({"own": np.arange(3)}, garfield.InputError, "floats, got int64"),
        ({"own": np.ones((3, 1))}, garfield.InputError, r"shape \(d,\), not empty, got \(3, 1\)"),
        ({"own": np.ones(0)}, garfield.InputError, r"not empty, got \(0,\)"),
        ({"honest": np.ones((0, 3))}, garfield.InputError, r"\(h, d\), not empty, got \(0, 3\)"),
        ({"honest": np.ones((4, 2), np.float32)}, garfield.InputError, "2 × float32.* 3 × float32"),
        ({"honest": np.ones((4, 3))}, garfield.InputError, "3 × float64.* 3 × float32"),
        ({"likely": np.ones((4, 3))}, garfield.InputError, "likely rows are 3 × float64"),
        ({"names": ("a", "b")}, garfield.InputError, "4 honest rows have 2 names"),
    ],
)
def test_a_view_that_cannot_be_is_refused(changes, error, complaint):
    with pytest.raises(error, match=complaint):
        view(**changes)


@pytest.mark.parametrize("honest", [[], np.ones(4), np.ones((0, 3))])
def test_lies_need_honest_rows_to_stand_beside(honest):
    with pytest.raises(garfield.InputError, match=r"honest must be of shape \(h, d\), not empty"):
        ATTACKS["zero"].rows(honest, f=1, rng=np.random.default_rng(0))
