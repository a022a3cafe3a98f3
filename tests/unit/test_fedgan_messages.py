"""What servers and devices say to each other: exact, ordered, and refused if it cannot be true."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from hypothesis.extra import numpy as arrays

from garfield.core.errors import InputError, RunError
from garfield.fedgan.nodes.messages import (
    CLUSTERS,
    About,
    AboutClusters,
    Announcement,
    ClusterNotice,
    Report,
)
from garfield.fedgan.nodes.state_vector import StateLayout
from garfield.fedgan.nodes.turn import LARGEST_TOKEN, turn
from garfield.transport.contract import NEWEST

FLOATS = arrays.arrays(
    np.float32, some.integers(0, 7), elements=some.floats(-(2.0**60), 2.0**60, width=32)
)
WHOLE = arrays.arrays(
    np.int64, arrays.array_shapes(min_dims=0, max_dims=2), elements=some.integers(-(2**40), 2**40)
)


@given(FLOATS, WHOLE, some.lists(some.booleans(), max_size=5))
def test_a_state_is_the_same_to_the_bit_after_its_journey(floats, whole, flags):
    state = {
        "weights": torch.from_numpy(floats),
        "halves": torch.from_numpy(floats).bfloat16(),
        "counts": torch.from_numpy(whole),
        "flags": torch.tensor(flags, dtype=torch.bool),
        "small": torch.tensor([-3, 7], dtype=torch.int8),
    }
    layout = StateLayout.of(state)
    vector = layout.to_vector(state)
    assert (vector.dtype, vector.shape) == (np.float32, (layout.length,))
    again = layout.to_state(vector)
    assert [*again] == [*state]
    for name, tensor in state.items():
        assert again[name].dtype == tensor.dtype
        assert torch.equal(again[name], tensor)


@pytest.mark.parametrize(
    "written",
    [(0.5, 0.0), (0.0, -1.0), (0.0, 2.0**24), (2.0**25, 0.0), (0.0, 0.25), (1.0, 0.0)],
)
def test_whole_numbers_that_no_network_has_are_refused(written):
    layout = StateLayout.of({"seen": torch.tensor(3, dtype=torch.int16)})
    with pytest.raises(InputError, match=r"^seen "):
        layout.to_state(np.array(written, np.float32))


@pytest.mark.parametrize("halves", [(2.0**24, 0.0), (-(2.0**24), 0.0), (2.0**24, 5.0)])
def test_a_whole_number_that_could_not_be_sent_on_is_refused(halves):
    layout = StateLayout.of({"seen": torch.tensor(3)})
    with pytest.raises(InputError, match=r"^seen is not made of whole numbers\."):
        layout.to_state(np.array(halves, np.float32))


@pytest.mark.parametrize("sign", [1, -1])
def test_no_liar_drives_a_counter_to_where_nobody_can_send_it_on(sign):
    """Rounds of the mean of one that claims the most, and one that has counted on."""
    state = {"seen": torch.tensor(0)}
    layout = StateLayout.of(state)
    lie = layout.to_vector({"seen": torch.tensor(sign * (2**48 - 1))})
    for _ in range(60):
        honest = layout.to_state(layout.to_vector({"seen": state["seen"] + sign * 30}))
        mean = (layout.to_state(lie)["seen"].double() + honest["seen"].double()) / 2
        state = {"seen": mean.round().to(torch.int64)}
    assert abs(int(state["seen"])) <= 2**40


@pytest.mark.parametrize("dtype", [torch.int64, torch.int16, torch.uint8, torch.bool])
@pytest.mark.parametrize("size", [2.0**20, 2.0**44, -(2.0**20), -(2.0**44)])
def test_no_sum_of_changes_leaves_a_counter_beyond_what_can_be_sent_on(dtype, size):
    state = {"seen": torch.ones(2, dtype=dtype)}
    layout = StateLayout.of(state)
    for _ in range(5):
        state = layout.changed(state, np.array([size, size, 0.0, size]))
        again = layout.to_state(layout.to_vector(state))
        assert torch.equal(again["seen"], state["seen"])
    end = torch.iinfo(dtype) if dtype is not torch.bool else None
    most, least = (1, 0) if end is None else (min(end.max, 2**40), max(end.min, -(2**40)))
    assert state["seen"].tolist() == [most if size > 0 else least] * 2


@given(some.integers(-(2**39), 2**39), some.integers(-(2**20), 2**20))
def test_a_change_of_a_counter_is_as_small_as_what_it_counted(at, steps):
    """Also where it passes a multiple of 2²⁴: devices behind masks send no large numbers."""
    before = {"seen": torch.tensor([at]), "weight": torch.tensor([0.5])}
    after = {"seen": torch.tensor([at + steps]), "weight": torch.tensor([0.25])}
    layout = StateLayout.of(before)
    change = layout.change(before, after)
    assert (change.dtype, np.abs(change).max()) == (np.float32, max(abs(steps), 0.25))
    again = layout.changed(before, change.astype(np.float64))
    assert all(torch.equal(again[name], after[name]) for name in after)


def test_what_cannot_travel_is_named():
    with pytest.raises(InputError, match=r"^net\.scale is torch\.float64, .* Keep it as a float32"):
        StateLayout.of({"net.scale": torch.zeros(2, dtype=torch.float64)})
    huge = {"seen": torch.tensor(2**48)}
    with pytest.raises(InputError, match=r"^seen has a number of 2⁴⁸ or more"):
        StateLayout.of(huge).to_vector(huge)
    layout = StateLayout.of({"weights": torch.zeros(3)})
    with pytest.raises(InputError, match=r"A state has 3 numbers, got \(2,\)"):
        layout.to_state(np.zeros(2, np.float32))


def test_a_later_primarys_first_turn_is_beyond_all_of_the_one_before():
    turns = [turn(token, attempt) for token in (1, 2, 9) for attempt in (1, 2, 2**20 - 1)]
    assert turns == sorted(set(turns))
    assert turn(LARGEST_TOKEN, 2**20 - 1) < 2**32 < NEWEST
    with pytest.raises(RunError, match="Begin another run"):
        turn(LARGEST_TOKEN + 1, 1)
    with pytest.raises(RunError, match="Resume the run"):
        turn(1, 2**20)


ABOUT = About("lsgan", (1, 28, 28), ("shirt", "bag"), False, "reset")
CLUSTERED = About(
    "lsgan", (1, 28, 28), ("cluster 0", "cluster 1"), False, "reset",
    clusters=AboutClusters("pixels 8", tells_sums=True),
)  # fmt: skip
NOTICE = ClusterNotice("pixels 8", (4, 64), 64 * "a", final=True, seed=3)

SAID, TOLD = Announcement(1).as_json(), NOTICE.as_json()


def test_documents_are_read_as_they_were_written():
    for about in (ABOUT, CLUSTERED):
        assert About.read(about.as_json()) == about
    for notice in (NOTICE, ClusterNotice("pixels 8", (4, 64), None, final=False, seed=0)):
        assert ClusterNotice.read(CLUSTERS.read(CLUSTERS.to_payload(notice.as_json()))) == notice
    for said in (
        Announcement(3, frozenset({1, 5})), Announcement(9, ended="all rounds are over"),
        Announcement(0, clusters=2**20 + 3),
    ):  # fmt: skip
        assert Announcement.read(said.as_json()) == said
    for report in (Report(0.25, -1.5, 2), Report(0.0, 0.0, 0, epsilon=1.5, spent=True)):
        assert Report.read("device-1", report.as_json()) == report
    diverged = Report(float("nan"), float("-inf"), 0).as_json()
    assert Report.read("device-1", diverged).discriminator_loss == -1e300


@pytest.mark.parametrize(
    ("read", "content", "told"),
    [
        (About.read, {}, "does not say what is trained"),
        (About.read, ABOUT.as_json() | {"image": [1, 28]}, "channels, height and width"),
        (About.read, ABOUT.as_json() | {"image": [1, 28, True]}, "channels, height and width"),
        (About.read, ABOUT.as_json() | {"classes": [3]}, "Classes are names"),
        (About.read, ABOUT.as_json() | {"gan": None}, "gan is a text"),
        (Announcement.read, {"round": 1}, "announces nothing"),
        (Announcement.read, SAID | {"round": -1}, "has a number"),
        (Announcement.read, SAID | {"devices": [-2]}, "Devices are numbers"),
        (Announcement.read, SAID | {"ended": 3}, "ends with a reason"),
        (Announcement.read, SAID | {"clusters": -1}, "Clusters are those of a turn"),
        (Announcement.read, SAID | {"clusters": True}, "Clusters are those of a turn"),
        (About.read, ABOUT.as_json() | {"clusters": "pixels 8"}, "Clusters have a key"),
        (About.read, ABOUT.as_json() | {"clusters": {"key": "pixels 8"}}, "Clusters have a key"),
        (AboutClusters.read, {"key": 8, "tells_sums": True}, "Clusters have a key"),
        (AboutClusters.read, {"key": "pixels 8", "tells_sums": 1}, "Clusters have a key"),
        (ClusterNotice.read, {"key": "pixels 8"}, "tells of no clusters"),
        (ClusterNotice.read, TOLD | {"more": 1}, "tells of no clusters"),
        (ClusterNotice.read, TOLD | {"key": None}, "named by a text"),
        (ClusterNotice.read, TOLD | {"shape": [4]}, "rows of features"),
        (ClusterNotice.read, TOLD | {"shape": [4, 0]}, "rows of features"),
        (ClusterNotice.read, TOLD | {"shape": [4, 2**40]}, "rows of features"),
        (ClusterNotice.read, TOLD | {"shape": [4, 64.0]}, "rows of features"),
        (ClusterNotice.read, TOLD | {"digest": "abc"}, "have a SHA-256"),
        (ClusterNotice.read, TOLD | {"digest": 64 * "A"}, "have a SHA-256"),
        (ClusterNotice.read, TOLD | {"digest": None}, "that are published have centroids"),
        (ClusterNotice.read, TOLD | {"final": 1}, "that are published have centroids"),
        (ClusterNotice.read, TOLD | {"seed": -1}, "whole number of 63 bits"),
        (ClusterNotice.read, TOLD | {"seed": 2**63}, "whole number of 63 bits"),
    ],
)
def test_what_no_server_says_is_refused(read, content, told):
    with pytest.raises(InputError, match=told):
        read(content)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"generator_loss": "low"}, "device-4 reports a loss"),
        ({"discriminator_loss": True}, "device-4 reports a loss"),
        ({"generator_loss": 1.7e308}, "device-4 reports a loss"),  # two add up to infinity
        ({"metadata": -1}, "metadata of version -1"),
        ({"metadata": 1.0}, "metadata of version"),
        ({"more": 1}, "must report losses and metadata"),
        ({"epsilon": -1.0}, "to have spent -1.0 of its privacy"),
        ({"epsilon": True}, "to have spent True of its privacy"),
    ],
)
def test_a_report_that_cannot_be_true_is_refused_by_name(changes, told):
    with pytest.raises(InputError, match=told):
        Report.read("device-4", Report(0.1, 0.2, 0).as_json() | changes)
