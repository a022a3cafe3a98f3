"""Guarantees per team: kept where the team can use them, lent out where it does not."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from garfield.core.errors import ConfigError
from garfield.elastic.policy import Job, JobRequest, parse
from garfield.elastic.policy.guaranteed import (
    Guaranteed,
    check_guarantees,
    read_guarantees,
)
from garfield.elastic.policy.policy import check_decision
from garfield.elastic.policy.snapshot import on_one_node
from tests.elastic_snapshots import drawn

TEAMS = ("red", "blue", "")


def job(name, arrival, workers=0, **request):
    asked = JobRequest(**{"team": name.rstrip("0123456789"), **request})
    made = Job(name, asked, arrival)
    return made.given(workers, asked.batch) if workers else made


def workers_of(policy, gpus, *jobs, asked="decide"):
    snapshot = on_one_node(gpus, jobs)
    decision = policy.decide(snapshot) if asked == "decide" else policy.admit(snapshot)
    return {name: share.workers for name, share in decision.shares.items()}


def test_what_a_team_does_not_use_is_lent():
    lending = Guaranteed(policy="static", teams="red:4")
    borrowers = [job(f"blue{at}", at, start_workers=2) for at in range(4)]
    assert set(workers_of(lending, 8, *borrowers).values()) == {2}


def test_borrowers_give_back_in_the_next_round():
    shares = workers_of(
        Guaranteed(policy="era", teams="red:4"), 8,
        job("blue1", 0, workers=8), job("red1", 1, start_workers=4),
    )  # fmt: skip
    assert shares == {"blue1": 4, "red1": 4}
    alone = workers_of(parse("afs-p"), 8, job("blue1", 0, workers=8, min_workers=8,
        start_workers=8), job("red1", 1))  # fmt: skip
    assert alone == {"blue1": 8, "red1": 0}


def test_borrowers_that_cannot_shrink_are_suspended_the_latest_first():
    stubborn = {"min_workers": 4, "start_workers": 4, "max_workers": 4}
    shares = workers_of(
        Guaranteed(policy="static", teams="red:4"), 8, job("blue1", 0, 4, **stubborn),
        job("blue2", 1, 4, **stubborn), job("red1", 2, start_workers=4),
    )  # fmt: skip
    assert shares == {"blue1": 4, "blue2": 0, "red1": 4}


def test_a_job_larger_than_its_team_s_guarantee_is_decided_on_with_all_the_others():
    shares = workers_of(
        Guaranteed(policy="era", teams="red:2"), 8,
        job("red1", 0, min_workers=4, start_workers=4), job("blue1", 1, workers=4),
    )  # fmt: skip
    assert shares == {"red1": 4, "blue1": 4}


def test_between_rounds_teams_below_their_guarantee_start_first():
    guaranteed = Guaranteed(policy="era", teams="red:2")
    jobs = [job("blue1", 0, 2), job("blue2", 1, start_workers=2), job("red1", 2, start_workers=2)]
    assert workers_of(guaranteed, 4, *jobs, asked="admit") == {"blue1": 2, "blue2": 0, "red1": 2}
    assert workers_of(guaranteed, 6, *jobs, asked="admit") == {"blue1": 2, "blue2": 2, "red1": 2}
    assert workers_of(parse("era"), 4, *jobs, asked="admit")["red1"] == 0


@st.composite
def clusters(draw, lost):
    rng = random.Random(draw(st.integers(0, 2**32 - 1)))
    snapshot = drawn(rng, False, lost)
    jobs = [
        replace(each, request=replace(each.request, team=rng.choice(TEAMS)))
        for each in snapshot.jobs
    ]
    red = rng.randint(0, snapshot.gpus)
    teams = f"red:{red},blue:{rng.randint(0, snapshot.gpus - red)}"
    return replace(snapshot, jobs=tuple(jobs)), teams


@pytest.mark.parametrize("inside", ["era", "static", "autoscaler", "afs-p"])
@settings(max_examples=60)
@given(cluster=clusters(lost=True))
def test_no_team_has_less_than_it_would_alone_on_its_guarantee(inside, cluster):
    snapshot, teams = cluster
    decision = Guaranteed(policy=inside, teams=teams).decide(snapshot)
    check_decision(snapshot, decision)
    for team, promised in read_guarantees(teams).items():
        own = tuple(each for each in snapshot.jobs if each.request.team == team)
        alone = parse(inside).decide(on_one_node(promised, own))
        assert sum(decision[each.name].workers for each in own) >= min(promised, alone.gpus)


@pytest.mark.parametrize("inside", ["era", "static"])
@settings(max_examples=60)
@given(cluster=clusters(lost=False))
def test_between_rounds_nobody_loses_workers_for_a_guarantee(inside, cluster):
    snapshot, teams = cluster
    decision = Guaranteed(policy=inside, teams=teams).admit(snapshot)
    check_decision(snapshot, decision)
    for each in snapshot.running:
        assert decision[each.name].workers == each.workers


@settings(max_examples=60)
@given(cluster=clusters(lost=True))
def test_without_guarantees_nothing_differs(cluster):
    snapshot, _ = cluster
    assert Guaranteed(policy="era", teams="").decide(snapshot) == parse("era").decide(snapshot)


def test_more_guaranteed_than_there_is_after_a_loss_keeps_the_first_named():
    shares = workers_of(
        Guaranteed(policy="era", teams="red:4,blue:4"), 4,
        job("blue1", 0, workers=4), job("red1", 1, workers=4),
    )  # fmt: skip
    assert shares == {"blue1": 0, "red1": 4}


@pytest.mark.parametrize("text", ["red", "red:x", ":3", "red:1,red:2", "red:-1"])
def test_guarantees_that_cannot_be_read_are_refused(text):
    with pytest.raises(ConfigError, match="does not tell a team's guarantee"):
        read_guarantees(text)


def test_guarantees_beyond_the_cluster_are_refused():
    check_guarantees({"red": 3, "blue": 1}, 4)
    with pytest.raises(ConfigError, match="2 teams are guaranteed 5 GPUs, and there are 4"):
        check_guarantees({"red": 3, "blue": 2}, 4)
