"""What came of a split fine-tuning: its events summed up, as numbers and as a table.

A batch's bytes are those that arrived while it was waited for and trained on; as requests go
ahead of training, only sums over an epoch say what was needed. What was told of steps after the
one that a resumed run began with was lost, and is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import nan
from typing import Any

from rich.table import Table

from garfield.core.events import Event
from garfield.report.plain_tables import lines_table


@dataclass(frozen=True)
class SplitHistory:
    """The events of a run that count."""

    began: Event
    """The first of them: model, freeze, layers, sizes."""
    batches: Sequence[Event]
    evaluations: Sequence[Event]
    extractions: Sequence[Event]
    """What was put beside the data before an epoch, or before a judgement."""
    ends: Sequence[Event]
    """One per part of the run that came to its end."""

    @classmethod
    def of(cls, events: Iterable[Event]) -> SplitHistory:
        began: Event = {}
        batches: list[Event] = []
        evaluations: list[Event] = []
        extractions: list[Event] = []
        ends: list[Event] = []
        for event in events:
            kind = event["event"]
            if kind == "batch":
                # JSON has no number for the loss that a training diverged with
                batches.append(event if event["loss"] is not None else {**event, "loss": nan})
            elif kind == "evaluated":
                evaluations.append(event)
            elif kind == "extracted":
                extractions.append(event)
            elif kind == "done":
                ends.append(event)
            elif kind in ("began", "resumed"):
                began = began or event
                step = event["step"]
                batches = [batch for batch in batches if batch["step"] <= step]
                evaluations = [each for each in evaluations if each["step"] <= step]
        return cls(began, batches, evaluations, extractions, ends)

    @property
    def epochs(self) -> list[list[Event]]:
        """The batches of each epoch."""
        return [list(of_one) for _, of_one in groupby(self.batches, lambda event: event["epoch"])]


def split_summary(events: Iterable[Event]) -> dict[str, Any]:
    """What summary.json holds of a run."""
    history = SplitHistory.of(events)
    batches, epochs = history.batches, history.epochs
    seconds = sum(each["wait_s"] + each["compute_s"] for each in batches)
    received = sum(each["received_bytes"] for each in batches)
    samples = sum(each["samples"] for each in batches)
    return {
        "time_s": seconds,
        "iterations": len(batches),
        "samples": samples,
        "samples_per_s": samples / seconds if seconds else None,
        "received_bytes": received,
        "bytes_per_iteration": received / len(batches) if batches else None,
        "bytes_per_sample": received / samples if samples else None,
        "stored_bytes_per_sample": history.began.get("stored_bytes"),
        "uploaded_bytes": sum(each["uploaded_bytes"] for each in history.ends),
        "split": batches[-1]["split"] if batches else None,
        "freeze": history.began.get("freeze"),
        "model": history.began.get("model"),
        "epochs": [_epoch(each) for each in epochs],
        "loss": batches[-1]["loss"] if batches else None,
        **_accuracy(history),
        "wait_s": sum(each["wait_s"] for each in batches),
        "compute_s": sum(each["compute_s"] for each in batches),
        "peak_memory_client_bytes": max((each["peak_bytes"] for each in batches), default=None),
        "peak_memory_server_bytes": _server_peak(history) or None,
        "retries": sum(each["retries"] for each in history.ends),
        "cache_hits": sum(each["cache_hits"] for each in history.ends),
        "features_remade": sum(each.get("features_remade", 0) for each in history.ends),
        "extraction": _extraction(history),
        "all_in_store": bool(history.began.get("all_in_store")),
        "result": history.ends[-1].get("result") if history.ends else None,
    }


def _server_peak(history: SplitHistory) -> int:
    """The most that a server's workers held together, since it started; 0 if no server told."""
    told = (each.get("server_peak_bytes", 0) for each in (*history.batches, *history.ends))
    return max(told, default=0)


def _extraction(history: SplitHistory) -> dict[str, Any] | None:
    """What it took to extract features once, and what an epoch over them takes since.

    Extracting for training is part of `time_s`; an epoch's own time is told without it.
    """
    if not history.extractions:
        return None
    spent = dict.fromkeys((each["epoch"] for each in history.extractions), 0.0)
    for each in history.extractions:
        spent[each["epoch"]] += each["seconds"] if each["of"] == "training" else 0.0
    epochs = [_epoch(each) for each in history.epochs]
    training = [each["time_s"] - spent.get(each["epoch"], 0.0) for each in epochs]
    return {
        "seconds": sum(each["seconds"] for each in history.extractions),
        "objects_made": sum(each["made"] for each in history.extractions),
        "objects_found": sum(each["objects"] - each["made"] for each in history.extractions),
        "stored_bytes": sum(each["stored_bytes"] for each in history.extractions),
        "epoch_s": sum(training) / len(training) if training else None,
    }


def _accuracy(history: SplitHistory) -> dict[str, Any]:
    """On what was held out; else on the last epoch's samples, as they were trained on."""
    if history.evaluations:
        return {"accuracy": history.evaluations[-1]["accuracy"], "accuracy_of": "held-out samples"}
    if not history.epochs:
        return {"accuracy": None, "accuracy_of": None}
    last = history.epochs[-1]
    right, count = (sum(each[what] for each in last) for what in ("right", "samples"))
    return {"accuracy": right / count, "accuracy_of": "training samples, in the last epoch"}


def _epoch(batches: Sequence[Event]) -> dict[str, Any]:
    return {
        "epoch": batches[0]["epoch"],
        "split": batches[-1]["split"],
        "time_s": sum(each["wait_s"] + each["compute_s"] for each in batches),
        "received_bytes": sum(each["received_bytes"] for each in batches),
        "loss": sum(each["loss"] for each in batches) / len(batches),
    }


def split_table(summary: Mapping[str, Any]) -> Table:
    """One line per question that a reader has."""
    return lines_table(_lines(summary))


def _lines(summary: Mapping[str, Any]) -> dict[str, str]:
    accuracy = summary["accuracy"]
    split, in_store = summary["split"], summary["all_in_store"]
    where = f"{split} layers at the server"
    if in_store:
        where = "none: all layers ran, and were trained, at the server"
    elif split == 0:
        where = "plain streaming: every layer ran here"
    peaks = [
        f"{size(summary[f'peak_memory_{side}_bytes'])} at the {side}"
        for side in ("client", "server")
        if summary[f"peak_memory_{side}_bytes"]
    ]
    waited = summary["wait_s"] / summary["time_s"] if summary["time_s"] else 0.0
    waiting = "" if in_store else f", {waited:.0%} of it waiting for features"
    return {
        "accuracy": f"{100 * accuracy:.1f} % of {summary['accuracy_of']}" if accuracy is not None
        else "",
        "loss": f"{summary['loss']:.4g}" if summary["loss"] is not None else "",
        "time": f"{summary['time_s']:.1f} s for {summary['iterations']} iterations{waiting}",
        "split": where if split is not None else "",
        "received": f"{size(summary['received_bytes'])}, "
        f"{size(summary['bytes_per_iteration'] or 0)} an iteration",
        "weights put": size(summary["uploaded_bytes"]) if summary["uploaded_bytes"] else "",
        "trained layers": f"{summary['result']} in the store" if summary["result"] else "",
        "peak memory": ", ".join(peaks),
        "extracted once": _extraction_line(summary.get("extraction")),
        "from cache": f"{summary['cache_hits']} samples" if summary["cache_hits"] else "",
        "retries": str(summary["retries"]) if summary["retries"] else "",
    }  # fmt: skip


def _extraction_line(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return ""
    made, there = found["objects_made"], found["objects_found"]
    line = f"features of {made} objects in {found['seconds']:.1f} s, {there} were there"
    if made:
        line += f"; {size(found['stored_bytes'])} put beside the data"
    if found["epoch_s"] is not None:
        line += f"; then {found['epoch_s']:.1f} s an epoch"
    return line


def size(count: float) -> str:
    """Bytes in words."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{count / unit:,.3g} {name}"
    return f"{count:.0f} B"
