"""Ranks that train together over a split cut at the same layer, and measure the link once."""

import numpy as np
import pytest

pytest.importorskip("torch")

from garfield.core.errors import SplitError
from garfield.split.client.data_set import DataSet
from garfield.split.client.loader import SplitLoader
from garfield.split.client.planning import planned
from garfield.split.models import load
from garfield.split.settings import Loading
from tests.ddp_ranks import run
from tests.split_data import SMALL, ours, put_clothes
from tests.split_servers import PretendedServers

pytestmark = pytest.mark.slow

FAST, SLOW = 1e9, 1e3


@pytest.fixture
def url(tmp_path):
    return put_clothes(tmp_path / "data")


def planned_by(rank, ranks, url, links, group_is_theirs=True):
    """Plans of as many epochs as links are given, each rank's own; and what came of them."""
    servers = PretendedServers()
    loading = Loading(planner="thesis", transforms=SMALL)
    if group_is_theirs:
        loading = Loading(planner="thesis", transforms=SMALL, rank=rank, ranks=ranks)
    data = DataSet.open(url, ours())
    loader = SplitLoader(data, load("resnet18", classes=10), servers, batch=10, loading=loading)
    splits, told, before = [], "", None
    for bps in links:
        servers.bps = bps[rank]
        try:
            before = planned(loader, before)
            splits.append(before.split)
        except SplitError as problem:
            told = str(problem)
    return {"splits": np.array(splits), "probes": np.array(servers.probes), "told": np.array(told)}


def test_the_first_rank_measures_and_all_cut_where_it_says(url, tmp_path):
    """Each by itself would plan for its own part of the link: 0 B/s here, all of it there."""
    first, second = run(planned_by, 2, tmp_path, url, [(FAST, SLOW), (SLOW, FAST), (SLOW, None)])
    assert first["splits"].tolist() == second["splits"].tolist()
    assert first["splits"][0] < first["splits"][1] == first["splits"][2]
    assert first["probes"] > 0
    assert second["probes"] == 0


def test_where_the_first_rank_cannot_plan_the_others_hear_of_it(url, tmp_path):
    first, second = run(planned_by, 2, tmp_path, url, [(None, FAST), (FAST, FAST)])
    assert first["told"] == "The link is cut."
    assert "Rank 0 could not plan" in str(second["told"])
    assert first["splits"].tolist() == second["splits"].tolist() != []  # and they go on together


def test_a_group_of_others_is_left_alone(url, tmp_path):
    """Two trainings of one rank each, in a group that is for something else."""
    first, second = run(planned_by, 2, tmp_path, url, [(FAST, SLOW)], False)
    assert first["splits"][0] < second["splits"][0]
