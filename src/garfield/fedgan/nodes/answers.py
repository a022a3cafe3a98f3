"""What devices answer: pulled by a server all at once, checked, and why not where nothing came.

A device that keeps something back costs its server no more than the time-out of that pull, however
many do so, and is left out by name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from garfield.core.errors import InputError, QuorumError
from garfield.fedgan.averaging import State
from garfield.fedgan.clustering import ClusterSums
from garfield.fedgan.metadata import DeviceMetadata
from garfield.fedgan.nodes.messages import METADATA, REPORT, SUMS, UPDATE, Report
from garfield.fedgan.nodes.state_vector import StateLayout
from garfield.transport.contract import NEWEST, Key, Replies, Transport, all_of
from garfield.transport.documents import DocumentReplies, pull_documents

SHORT_S = 10.0
"""For what needs no training."""


@dataclass(frozen=True)
class Answers:
    """What the devices of a turn have sent, by number."""

    states: dict[int, State] = field(default_factory=dict)
    reports: dict[int, Report] = field(default_factory=dict)
    silent: dict[int, str] = field(default_factory=dict)
    """Why nothing of a device can be used."""


def pull_updates(
    transport: Transport, names: Mapping[str, int], layout: StateLayout, turn: int, timeout_s: float
) -> Answers:
    """States and reports of these devices, who have so long for both."""
    replies = transport.pull(
        [*names], Key(UPDATE.name, turn), length=layout.length, until=all_of([*names]),
        timeout_s=timeout_s,
    )  # fmt: skip
    found = Answers(silent={names[name]: f"{name} {why}" for name, why in replies.silent.items()})
    for name, row in zip(replies.names, replies.rows, strict=True):
        try:
            found.states[names[name]] = layout.to_state(np.asarray(row))
        except InputError as problem:
            found.silent[names[name]] = f"{name} sent no state: {problem}"
    left_out = {names[name] for name in replies.gone}  # they may say why
    asked = {
        name: device for name, device in names.items() if device in found.states.keys() | left_out
    }
    found.reports.update(pull_reports(transport, asked, turn, found.silent))
    return found


def pull_reports(
    transport: Transport, names: Mapping[str, int], turn: int, silent: dict[int, str]
) -> dict[int, Report]:
    """What these devices tell of a turn; who tells nothing is noted as silent."""
    if not names:
        return {}
    told = pull_documents(
        transport, [*names], Key(REPORT.name, turn), until=all_of([*names]), timeout_s=SHORT_S
    )
    reports: dict[int, Report] = {}
    for name, device in names.items():
        try:
            if name not in told.documents:
                raise InputError(f"{name} sent no report: {told.replies.silent.get(name)}")
            reports[device] = Report.read(name, told.documents[name])
        except InputError as problem:
            silent[device] = str(problem)
    return reports


def pull_sums(
    transport: Transport, names: Sequence[str], turn: int, shape: tuple[int, int], most: float,
    timeout_s: float,
) -> list[ClusterSums]:  # fmt: skip
    """Sums of features by cluster of all devices, in their order, or an error that names some.

    `shape` is that of the centroids, and no feature of an image is beyond `most`.
    """
    clusters, width = shape
    replies = transport.pull(
        names, Key(SUMS.name, turn), length=clusters * (1 + width), until=all_of(names),
        timeout_s=timeout_s,
    )  # fmt: skip
    check_all_joined(names, replies, timeout_s)
    rows = dict(zip(replies.names, replies.rows, strict=True))
    return [
        ClusterSums.read(name, np.asarray(rows[name], np.float64), clusters, most) for name in names
    ]


def check_all_joined(names: Sequence[str], replies: Replies, timeout_s: float) -> None:
    """Before the first round: QuorumError unless every device has answered."""
    absent = {name: replies.silent[name] for name in names if name not in replies.names}
    if absent:
        few = ", ".join(f"{name} ({why})" for name, why in [*absent.items()][:5])
        raise QuorumError(
            f"{len(absent)} of {len(names)} devices have not joined in {timeout_s:g} s: {few}. "
            "Start them, or begin without them.",
            absent,
        )


def pull_metadata(
    transport: Transport, names: Collection[str], timeout_s: float, least: int = 0
) -> DocumentReplies:
    """What devices declare now, in that version or a later one; versions are the replies' `steps`.

    The newest is asked for, whatever a device has announced: one that announces a version and does
    not publish it answers with the old one at once, and holds nobody up.
    """
    key = Key(METADATA.name, NEWEST, least)
    return pull_documents(transport, list(names), key, until=all_of(names), timeout_s=timeout_s)


def declared_anew(
    told: DocumentReplies, versions: Mapping[str, int], classes: int
) -> tuple[dict[str, DeviceMetadata], dict[str, str]]:
    """What devices of other versions than those declare, and why what others say cannot be used."""
    found: dict[str, DeviceMetadata] = {}
    refused = {name: str(why) for name, why in told.replies.silent.items()}
    for name, document in told.documents.items():
        try:
            if told.replies.steps[name] != versions[name]:
                found[name] = DeviceMetadata.read(name, document, classes)
        except InputError as problem:
            refused[name] = str(problem)
    return found, refused
