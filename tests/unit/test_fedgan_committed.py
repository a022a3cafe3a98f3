"""A server goes on from what was committed, as if it had held the rounds itself."""

from dataclasses import replace

import pytest

from garfield.core.config import made
from garfield.core.errors import ConfigError
from garfield.fedgan.metadata import DeviceMetadata, MetadataTable
from garfield.fedgan.nodes.committed import kept_state, new_server, restored_server
from garfield.fedgan.nodes.messages import About
from garfield.fedgan.nodes.state_vector import StateLayout
from garfield.fedgan.settings import FedganSettings
from garfield.fedgan.state.database import RoundChoices
from tests.fedgan_small import IMAGE, lsgan

DEVICES = ("device-0", "device-1", "device-2")
COUNTS = [[8, 0, 1], [0, 5, 1], [2, 2, 2]]
ABOUT = About(
    gan="lsgan(width=0.0625)", image=IMAGE, classes=("a", "b", "c"), conditional=False,
    optimizer_state="reset",
)  # fmt: skip
SETTINGS = made(FedganSettings, {"devices": 3, "fraction": 0.4, "rounds": 5, "seed": 3})


def server():
    declared = [DeviceMetadata(tuple(row)) for row in COUNTS]
    return new_server(lsgan(), ABOUT, SETTINGS, MetadataTable.of(declared, DEVICES))


def event(asked, seen):
    return {"asked": asked, "took_part": asked, "seen": seen}


def test_a_round_that_was_damaged_and_held_again_counts_once():
    held = [
        RoundChoices(0, 1, None),
        RoundChoices(1, 1, event([0], [8, 0, 1])),
        RoundChoices(1, 2, event([1], [0, 5, 1])),
        RoundChoices(2, 2, event([2], [2, 7, 3])),
    ]
    now = server()
    for asked in ([1], [2]):
        now.history.record(asked, asked, now.table.counts)
    kept = kept_state(now, ABOUT, SETTINGS, dict.fromkeys(DEVICES, 4), held[-1].choices)
    restored, versions = restored_server(kept, held, lsgan(), ABOUT, SETTINGS, DEVICES)
    assert restored.history.seen.tolist() == [2, 7, 3]
    assert restored.history.asked.tolist() == [0, 1, 1]
    assert versions == dict.fromkeys(DEVICES, 4)


def test_a_class_that_its_last_holder_has_left_holds_no_successor_up():
    now = server()
    for device in range(3):
        now.learn_metadata(now.table.changed(device, DeviceMetadata((2, 2, 0))))
    kept = kept_state(now, ABOUT, SETTINGS, dict.fromkeys(DEVICES, 4), None)
    restored, _ = restored_server(kept, [], lsgan(), ABOUT, SETTINGS, DEVICES)
    assert restored.table.per_class.tolist() == [6, 6, 0]
    assert restored.plan().devices


def test_a_state_of_other_devices_is_refused_with_both_numbers():
    kept = kept_state(server(), ABOUT, SETTINGS, dict.fromkeys(DEVICES, 0), None)
    with pytest.raises(ConfigError, match="one of 3 devices, and this server knows 2"):
        restored_server(kept, [], lsgan(), ABOUT, SETTINGS, DEVICES[:2])


def test_bytes_of_devices_behind_masks_are_counted_as_they_travel():
    plain, masked = (
        server(),
        new_server(lsgan(), replace(ABOUT, secure_aggregation=True), SETTINGS, server().table),
    )
    for each in (plain, masked):
        each.history.record([0, 1], [0], each.table.counts)
    down = plain.state_bytes
    assert plain.bytes_per_device().tolist() == [2 * down, down, 0]
    words = StateLayout.of(masked.state).length  # of 64 bits
    assert masked.bytes_per_device().tolist() == [down + 8 * words, down, 0]
