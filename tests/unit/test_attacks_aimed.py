"""Attacks with memory and aim: takeover, one coordinate, mimic over rounds, pulling apart."""

import numpy as np
import pytest

import garfield
from garfield import Plan
from garfield.attacks import View, parse
from garfield.attacks.takeover import taking_over
from garfield.nodes.plan import parse_plan


def rng_of(seed):
    return np.random.default_rng(seed)


def lies_of(text, honest, f=1, **more):
    return parse(text).rows(honest, f=f, rng=rng_of(0), **more)


# -- takeover -------------------------------------------------------------------------------------


@pytest.mark.parametrize("f", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_liars_set_the_average_to_the_vector_of_their_choice(f, seed):
    honest = rng_of(seed).normal(3, 2, size=(9, 40))
    taken = garfield.GARS["average"]([*honest, *lies_of("takeover", honest, f)], f=0)
    np.testing.assert_allclose(taken, -honest.mean(axis=0), atol=1e-9)
    taken = garfield.GARS["average"]([*honest, *lies_of("takeover(value=7)", honest, f)], f=0)
    np.testing.assert_allclose(taken, 7)


@pytest.mark.parametrize("seed", range(5))
def test_one_liar_sets_any_linear_rule(seed):
    rng = rng_of(seed)
    honest, weights, target = rng.normal(size=(6, 20)), rng.normal(size=7), rng.normal(size=20)
    lie = taking_over(target, honest, weights[:6], weights[6])
    np.testing.assert_allclose(weights @ np.vstack([honest, lie]), target, atol=1e-9)


def test_a_robust_rule_is_not_taken_over():
    honest = rng_of(1).normal(3, 1, size=(9, 40))
    answer = garfield.GARS["krum"]([*honest, *lies_of("takeover", honest)], f=1)
    assert answer @ honest.mean(axis=0) > 0


# -- one coordinate -------------------------------------------------------------------------------

DIMENSIONS = (100, 1_000, 10_000, 100_000)


def shifts(rule, f, seed):
    """How far the attack moves its coordinate of the rule's answer, at the smallest n, by d."""
    n = garfield.GARS[rule].needs(f)
    found = []
    for d in DIMENSIONS:
        honest = rng_of(seed).standard_normal((n - f, d)).astype(np.float32)
        rows = [*honest, *lies_of("one-coordinate(coordinate=3)", honest, f)]
        answer = garfield.GARS[rule](rows, f=f)
        found.append(float(np.abs(answer[3] - honest[:, 3].mean())))
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize("f", [1, 2, 4])
@pytest.mark.parametrize("rule", ["krum", "multi-krum"])
def test_rules_that_judge_whole_rows_are_moved_by_the_order_of_root_d(rule, f):
    """At n = 2f + 3 and σ = 1, Krum takes a lie that is √(f d) off: its two honest neighbours
    are then as far as the f + 1 of an honest row. Multi-Krum takes f of them among n − f − 2 rows.
    """
    share = 1 if rule == "krum" else f / (garfield.GARS[rule].needs(f) - f - 2)
    for seed in range(3):
        moved = shifts(rule, f, seed) / np.sqrt(f * np.array(DIMENSIONS))
        assert (moved >= 0.75 * share).all()
        assert (moved <= 1.25 * share).all()


@pytest.mark.parametrize("f", [1, 2, 4])
def test_bulyan_is_moved_by_no_more_than_the_honest_values_differ(f):
    for seed in range(3):
        assert (shifts("bulyan", f, seed) <= 3).all()  # deviations, whatever d


def test_the_coordinate_must_be_there():
    with pytest.raises(garfield.ConfigError, match=r"within 0\.\.4, got 5"):
        lies_of("one-coordinate(coordinate=5)", np.ones((4, 5)))


# -- mimic ----------------------------------------------------------------------------------------


def different_workers(seed, h=8, d=30, noise=1.0):
    """Honest rows round by round: each worker has a bias of its own, the third by far the most."""
    rng = rng_of(seed)
    direction = rng.standard_normal(d)
    biases = np.outer(rng.uniform(-1, 1, h), direction / np.linalg.norm(direction))
    biases[3] = 6 * direction / np.linalg.norm(direction)
    while True:
        yield 2 + biases + noise * rng.standard_normal((h, d)) / np.sqrt(d)


def victims(seed, rounds, text="mimic(learn=5)", names=None):
    memory, found = {}, []
    for honest, _ in zip(different_workers(seed), range(rounds), strict=False):
        view = View(own=honest[0], honest=honest, n=10, f=2, rng=rng_of(0), memory=memory,
                    names=names or ())  # fmt: skip
        lie = parse(text)(view)
        found.append(int(np.flatnonzero((honest == lie).all(axis=1))[0]))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_mimic_settles_on_who_differs_most_and_keeps_to_it(seed):
    assert victims(seed, 12) == [3] * 12


@pytest.mark.parametrize("seed", range(20))
def test_the_victim_stays_when_all_are_alike_and_only_noise_tells_them_apart(seed):
    """Chosen anew each round, it would be somebody else in most rounds."""
    rng, memory = rng_of(seed), {}
    lies, rounds = [], rng.standard_normal((40, 8, 30))
    for honest in rounds:
        lies.append(lies_of("mimic(learn=4)", honest, 2, memory=memory)[0])
    later = [
        int(np.flatnonzero((h == lie).all(axis=1))[0]) for h, lie in zip(rounds, lies, strict=True)
    ][4:]
    assert len(set(later)) == 1


def test_the_victim_is_known_by_name_not_by_position():
    names, memory, rounds = tuple("abcdefgh"), {}, different_workers(0)
    for step, honest in zip(range(8), rounds, strict=False):
        here = [i for i in range(8) if not (step >= 4 and i == step - 4)]  # one is silent: a, b, …
        view = View(
            own=honest[0], honest=honest[here], names=tuple(names[i] for i in here),
            n=10, f=2, rng=rng_of(0), memory=memory,
        )  # fmt: skip
        lie = parse("mimic(learn=3)")(view)
        if 3 in here:
            np.testing.assert_array_equal(lie, honest[3])
        else:  # then another of those that are there
            assert (honest[here] == lie).all(axis=1).any()


def test_the_memory_is_of_one_direction_whatever_the_number_of_rounds():
    memory = {}
    for honest, _ in zip(different_workers(1), range(30), strict=False):
        lies_of("mimic", honest, 2, memory=memory)
    assert memory["rounds"] == 10
    assert len(memory["strayed"]) == 8
    assert np.linalg.norm(memory["direction"]) == pytest.approx(1)


# -- pull apart -----------------------------------------------------------------------------------


def faces(text, honest):
    return [
        parse(text)(View(own=honest[0], honest=honest, n=10, f=2, rng=rng_of(0), side=side))
        for side in (1, -1)
    ]


def test_each_half_of_the_askers_is_told_one_edge_of_the_honest_rows():
    honest = rng_of(0).normal(5, 1, size=(8, 30))
    upper, lower = faces("pull-apart", honest)
    np.testing.assert_array_equal(upper, honest.max(axis=0))
    np.testing.assert_array_equal(lower, honest.min(axis=0))
    farther, _ = faces("pull-apart(reach=3)", honest)
    mean = honest.mean(axis=0)
    np.testing.assert_allclose(farther - mean, 3 * (upper - mean))


def test_along_the_spread_the_two_faces_are_the_two_rows_farthest_apart():
    honest = rng_of(0).standard_normal((8, 30)) * 0.01
    honest[2, 4], honest[6, 4] = 3, -3
    told = faces("pull-apart(edge='spread')", honest)
    rows = {int(np.flatnonzero((honest == face).all(axis=1))[0]) for face in told}
    assert rows == {2, 6}


def spread_after(steps, model_rule, seed=0):
    """How far five honest servers of seven are apart, whose workers and peers pull them so.

    The rounds of msmw by hand: 7 workers and 7 servers, two of each lie; learning rate 1.
    """
    rng = rng_of(seed)
    plan = parse_plan("pull-apart", Plan(askers=tuple("abcde")))
    models = np.zeros((5, 6))

    def told(honest, asker, kind):
        side = plan.side(asker, kind)
        view = View(own=honest[0], honest=honest, n=7, f=2, rng=rng, side=side)
        return [plan.attack(view)] * 2

    for _ in range(steps):
        gradients = rng.standard_normal((5, 6))
        proposals = np.stack([
            model - garfield.GARS["median"]([*gradients, *told(gradients, asker, "gradient")], f=2)
            for model, asker in zip(models, plan.askers, strict=True)
        ])  # fmt: skip
        models = np.stack([
            garfield.GARS[model_rule]([*proposals, *told(proposals, asker, "proposal")], f=2)
            for asker in plan.askers
        ])  # fmt: skip
    return np.ptp(models, axis=0).max()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_median_of_models_lets_honest_servers_drift_apart_and_the_trimmed_mean_does_not(seed):
    short, long = (spread_after(steps, "median", seed) for steps in (20, 80))
    assert 3 < long / short < 5  # as fast at the end as at the beginning
    assert long > 40
    assert max(spread_after(steps, "trimmed-mean", seed) for steps in (20, 80)) < 5
