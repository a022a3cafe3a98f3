"""What a client measures before an epoch, whom it asks, and when it plans anew."""

import logging
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from garfield.core.errors import ConfigError, SplitError, UnknownName
from garfield.core.files import as_json
from garfield.split import plan_view
from garfield.split.client import bandwidth, planning
from garfield.split.client.data_set import DataSet
from garfield.split.client.loader import SplitLoader
from garfield.split.client.planning import MeasuredTimes, planned
from garfield.split.client.server_speed import ServerSpeed, measured_speed
from garfield.split.client.servers import Servers, ServerSettings
from garfield.split.models import load
from garfield.split.plan_view import PlanSettings, view
from garfield.split.planner import PLANNERS, predict
from garfield.split.profile import profile_sizes
from garfield.split.settings import Loading
from tests.split_data import SMALL, ours, put_clothes
from tests.split_servers import PretendedServers

IDLE = {"waiting": 0, "running": 0, "workers": 2, "service_s": 0.1}
FULL = {"waiting": 40, "running": 2, "workers": 2, "service_s": 60.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("stored")


@pytest.fixture(scope="module")
def url(folder):
    return put_clothes(folder / "bytes")


@pytest.fixture
def timed(monkeypatch):
    """Both sides as fast as each other; how often they were timed."""
    calls = []

    def measured(loader):
        calls.append(loader)
        sizes = profile_sizes(loader.model, loader.input_shape)
        layers = tuple(replace(each, forward_s=1e-4) for each in sizes.layers)
        client = replace(sizes, layers=layers, train_s=1e-4, freeze=loader.freeze)
        slower = tuple(replace(each, forward_s=2e-4) for each in layers)
        return MeasuredTimes(client, replace(client, layers=slower), ServerSpeed(0.01, 0.02, 0.004))

    monkeypatch.setattr(planning, "measured_times", measured)
    return calls


def loader_of(url, servers, **loading):
    given = {"transforms": SMALL} | loading
    model = load("resnet18", classes=10)
    return SplitLoader(
        DataSet.open(url, ours()), model, servers, batch=10, loading=Loading(**given)
    )


def test_a_planner_that_is_none_is_refused_also_where_the_split_is_given(url):
    with pytest.raises(UnknownName, match="foo is not a planner"):
        loader_of(url, PretendedServers(), split=2, planner="foo")


def test_images_too_small_for_the_model_are_refused_by_their_transforms(url):
    data, model = DataSet.open(url, ours()), load("alexnet", classes=10)
    with pytest.raises(ConfigError, match="does not take images of 3×32×32"):
        SplitLoader(data, model, None, loading=Loading(baseline=True, transforms=SMALL))


# -- how busy servers are -----------------------------------------------------------------


@contextmanager
def telling(status):
    """A server that tells this status and nothing else."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            body = status if isinstance(status, bytes) else as_json(status).encode()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}"
        finally:
            http.shutdown()
            thread.join()


@contextmanager
def talking_to(*statuses, gone=0):
    """The client's side of servers that tell these, and of some that have gone."""
    with ExitStack() as stack:
        with ExitStack() as ended:
            urls = [ended.enter_context(telling({})) for _ in range(gone)]
        urls += [stack.enter_context(telling(status)) for status in statuses]
        servers = Servers(urls, ServerSettings(give_up_s=0.0))
        stack.callback(servers.close)
        yield servers


def test_all_servers_that_answer_are_asked_for_their_load():
    with talking_to({"load": IDLE}, b"no JSON", {"load": FULL}, gone=2) as servers:
        load = planning.servers_load(servers)
    assert (load.requests, load.workers, load.service_s) == (42, 4, 60.0)


def test_where_no_server_answers_planning_says_what_each_did():
    with talking_to(gone=2) as servers, pytest.raises(SplitError, match="No server gave"):
        servers.statuses()


def test_a_busy_server_beside_a_free_one_counts(url, timed):
    """The first has nothing to do; requests would go to both."""
    busy = planned(loader_of(url, PretendedServers(1e6, [IDLE, FULL])), None)
    free = planned(loader_of(url, PretendedServers(1e6, [IDLE, IDLE])), None)
    assert free.split > 0
    assert busy.split == 0
    assert "queue" in busy.why


# -- from one epoch to the next -----------------------------------------------------------


def test_what_has_not_changed_is_not_planned_anew(url, timed):
    servers = PretendedServers(1e6, [IDLE])
    loader = loader_of(url, servers)
    first = planned(loader, None)
    again = planned(loader, first)
    assert servers.probes == 2 * (servers.probes // 2) > 0  # the link was measured both times
    assert again.plan is first.plan
    assert len(timed) == 1


def test_a_server_that_others_fill_is_left_alone_from_the_next_epoch_on(url, timed):
    servers = PretendedServers(1e6, [IDLE])
    loader = loader_of(url, servers)
    free = planned(loader, None)
    servers.loads = [FULL]
    busy = planned(loader, free)
    servers.loads = [IDLE]
    later = planned(loader, busy)
    assert [free.split > 0, busy.split, later.split] == [True, 0, free.split]
    assert len(timed) == 1  # the load is asked for, and nothing is timed again


def test_a_link_that_changes_is_planned_for_with_times_measured_anew(url, timed):
    servers = PretendedServers(1e6, [IDLE])
    loader = loader_of(url, servers)
    first = planned(loader, None)
    servers.bps = 5e5
    second = planned(loader, first)
    assert second.situation.bandwidth_bps == pytest.approx(5e5)
    assert len(timed) == 2


# -- one rank for all ----------------------------------------------------------------------


@pytest.mark.parametrize(("ranks", "sizes"), [(1, [32] * 4), (2, [16] * 8), (100, [8] * 64)])
def test_as_many_requests_measure_a_server_as_all_ranks_have_under_way(folder, ranks, sizes):
    url = put_clothes(folder / "long", counts=(60, 60))
    servers = PretendedServers(seconds={"forward": 1.0})
    loader = loader_of(url, servers)
    loader.sampler = replace(loader.sampler, batch=100, ranks=ranks)
    measured_speed(loader)
    assert servers.extracted == [8, *sizes]
    assert servers.opened == ([len(sizes)] if ranks > 1 else [])


def test_ranks_without_a_group_plan_each_for_itself(url):
    for rank in range(2):
        servers = PretendedServers(1e6)
        loader = loader_of(url, servers, planner="thesis", rank=rank, ranks=2)
        assert planned(loader, None).bandwidth.bps == pytest.approx(1e6)


# -- features that are to be kept ------------------------------------------------------------


def test_a_plan_to_stream_where_features_are_to_be_kept_is_told_with_the_remedy(folder, caplog):
    jpegs = put_clothes(folder / "jpegs", kind="jpeg")
    loader = loader_of(jpegs, PretendedServers(), materialise=True)
    with caplog.at_level(logging.WARNING):
        first = planned(loader, None)
        assert first.split == 0
        (said,) = caplog.messages
        planned(loader, first)
    assert "Nothing is materialised" in said
    assert first.why in said
    assert "--split N, at most 12" in said
    assert len(caplog.messages) == 1  # not in every epoch


def test_nothing_is_said_where_features_are_kept_or_nobody_asked_for_it(folder, url, caplog, timed):
    jpegs = put_clothes(folder / "others", kind="jpeg")
    assert planned(loader_of(url, PretendedServers(), materialise=True), None).split > 0
    assert planned(loader_of(jpegs, PretendedServers()), None).split == 0
    assert not caplog.messages


# -- what a command shows ------------------------------------------------------------------


@pytest.mark.parametrize("named", sorted(PLANNERS))
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_command_plans_what_a_training_would(url, timed, monkeypatch, named, ranks):
    # both measure the link, and receiving takes the processor another moment each time
    monkeypatch.setattr(bandwidth, "time", SimpleNamespace(process_time=lambda: 0.0))
    servers = PretendedServers(2e6, [{**IDLE, "running": 1}])
    monkeypatch.setattr(plan_view, "Servers", lambda *_: servers)
    more = {"planner": named, "transforms": SMALL, "features": "float16"}
    found = view(
        PlanSettings(
            data=url, server=("http://127.0.0.1:1",), batch=10, ranks=ranks, store=ours(), **more
        )
    )
    loader = loader_of(url, servers, ranks=ranks, **more)
    training = planned(loader, None)
    assert (found.split, found.why) == (training.split, training.why)
    known = timed[0] and planning.measured_times(loader).added_to(
        training.situation, training.bandwidth
    )
    assert known.iterations == 5  # of 43 samples
    assert known.workers == ranks
    assert known.costs.client_prepare_s > 0
    expected = [predict(known, split).iteration_s for split in range(loader.freeze + 2)]
    assert [row.iteration_s for row in found.rows if row.frozen] == pytest.approx(expected)
    assert found.server_timed
    assert not found.not_known


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bandwidth": "1Gbps"}, "Without --data and --server no server is timed"),
        ({"server": ("http://127.0.0.1:1",)}, "Without --data no server is timed"),
        ({"bandwidth": "1Gbps", "times": False}, "No layer was timed"),
    ],
)
def test_the_command_says_what_it_does_not_know(monkeypatch, tmp_path, given, said):
    monkeypatch.setenv("GARFIELD_DATA", str(tmp_path))
    monkeypatch.setattr(plan_view, "Servers", lambda *_: PretendedServers())
    found = view(PlanSettings(transforms=SMALL, samples=1000, **given))
    assert found.not_known.startswith(said)
    assert "may choose another split" in found.not_known


def test_a_server_that_tells_no_times_is_said_to_have_told_none(url, monkeypatch, tmp_path):
    monkeypatch.setenv("GARFIELD_DATA", str(tmp_path))
    monkeypatch.setattr(plan_view, "Servers", lambda *_: PretendedServers())
    found = view(PlanSettings(data=url, server=("x",), transforms=SMALL, store=ours()))
    assert found.not_known.startswith("No server told its times")
    assert not found.server_timed
