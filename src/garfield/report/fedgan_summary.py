"""What came of a federated GAN: its events summed up, as numbers and as a table.

What was told of rounds after the one that a resumed run began with was lost, and is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from garfield.core.events import Event
from garfield.report.plain_tables import lines_table, plain_table

_JUDGED = ("fid", "fid_label", "modes", "class_kl", "accuracy_trained_on_generated")


@dataclass(frozen=True)
class FedganHistory:
    """The events of a run that count."""

    began: Event
    """The first of them: networks, data, devices, classes."""
    rounds: Sequence[Event]
    evaluations: Sequence[Event]
    ended: str = ""
    """Why it ended before its time, if it did."""

    @classmethod
    def of(cls, events: Iterable[Event]) -> FedganHistory:
        began: Event = {}
        ended = ""
        rounds: list[Event] = []
        evaluations: list[Event] = []
        for event in events:
            kind = event["event"]
            if kind == "round":
                rounds.append(event)
            elif kind == "evaluated":
                evaluations.append(event)
            elif kind == "done":
                ended = event.get("note", "")
            elif kind in ("began", "resumed"):
                began, ended = began or event, ""
                over = event["round"]
                rounds = [each for each in rounds if each["round"] < over]
                evaluations = [each for each in evaluations if each["round"] <= over]
        return cls(began, rounds, evaluations, ended)

    @property
    def judged(self) -> list[Event]:
        """The evaluations that a judge took part in."""
        return [each for each in self.evaluations if each.get("fid") is not None]

    @property
    def privacy(self) -> dict[str, Any]:
        """ε that any device has spent at most, and how many have spent all; empty without DP."""
        if self.began.get("epsilon_budget") is None:
            return {}
        spent = {
            *self.began["spent"],
            *(each for event in self.rounds for each in event.get("spent", ())),
        }
        found = [each for event in self.rounds for each in event.get("epsilon", {}).values()]
        return {
            "epsilon": max(found, default=0.0),
            "epsilon_budget": self.began["epsilon_budget"],
            "delta": self.began["delta"],
            "devices_spent": len(spent),
        }

    def time_s(self, over: int) -> float:
        """Seconds that so many rounds took."""
        return float(sum(each["seconds"] for each in self.rounds[:over]))


def fedgan_summary(events: Iterable[Event]) -> dict[str, Any]:
    """What summary.json holds of a run."""
    history = FedganHistory.of(events)
    rounds, judged = history.rounds, history.judged
    last = rounds[-1] if rounds else {}
    seconds = history.time_s(len(rounds))
    samples = sum(each["samples"] for each in rounds)
    declared = sum(history.began.get("per_class", ()))
    best = min(judged, key=lambda each: each["fid"], default=None)
    return {
        **{name: judged[-1].get(name) if judged else None for name in _JUDGED},
        "best_fid": best["fid"] if best else None,
        "best_fid_round": best["round"] if best else None,
        "rounds": len(rounds),
        "time_s": seconds,
        "evaluation_s": sum(each["seconds"] for each in history.evaluations),
        "bytes_per_device": last.get("bytes_per_device", 0.0),
        "most_bytes_of_a_device": last.get("most_bytes_of_a_device", 0),
        "samples": samples,
        "samples_per_s": samples / seconds if seconds else None,
        "declared_epochs": sum(last.get("seen", ())) / declared if declared else None,
        "kl_seen": last.get("kl_seen"),
        "refused": sum(len(each["refused"]) for each in rounds),
        "generator_loss": last.get("generator_loss"),
        "discriminator_loss": last.get("discriminator_loss"),
        "ended": history.ended,
        **history.privacy,
        **{
            name: history.began.get(name)
            for name in (
                "gan",
                "data",
                "devices",
                "devices_a_round",
                "sampling",
                "weighting",
                "gar",
            )
        },
    }


def fedgan_table(summary: Mapping[str, Any]) -> Table:
    """One line per question that a reader has."""
    return lines_table(_lines(summary))


def _lines(summary: Mapping[str, Any]) -> dict[str, str]:
    joined = summary["gar"] or f"{summary['weighting']} weights"
    lines = {
        "trained": f"{summary['gan']} on {summary['data']}, {summary['devices']} devices, "
        f"{summary['devices_a_round']} a round; {summary['sampling']} sampling, {joined}",
        "rounds": f"{summary['rounds']} in {summary['time_s']:.1f} s, "
        f"{summary['samples_per_s'] or 0:.0f} samples/s",
        "seen": f"{summary['declared_epochs'] or 0:.2f} declared epochs"
        + (f", KL {summary['kl_seen']:.4f}" if summary["kl_seen"] is not None else ""),
        "traffic": f"{summary['bytes_per_device'] / 1e6:.2f} MB a device on average, "
        f"{summary['most_bytes_of_a_device'] / 1e6:.2f} MB at most",
        "refused": f"{summary['refused']} answers" if summary["refused"] else "",
    }
    if "epsilon" in summary:
        lines["privacy"] = (
            f"ε ≤ {summary['epsilon']:.2f} of {summary['epsilon_budget']:g} for any device, "
            f"δ = {summary['delta']:g}; {summary['devices_spent']} have none left for a round"
        )
    if summary["fid"] is not None:
        modes = "" if summary["modes"] is None else f"; {summary['modes']} modes"
        spread = "" if summary["class_kl"] is None else f"; KL of classes {summary['class_kl']:.3f}"
        lines = {summary["fid_label"]: f"{summary['fid']:.2f}{modes}{spread}"} | lines
        right = summary["accuracy_trained_on_generated"]
        if right is not None:
            lines["trained on images"] = (
                f"a classifier is right on {100 * right:.1f} % of real ones"
            )
    return lines


def comparison_table(runs: Mapping[str, Mapping[str, Any]]) -> Table:
    """Runs side by side, a line each."""
    judged = next((each["fid_label"] for each in runs.values() if each["fid"] is not None), None)
    table = plain_table(
        "", *([judged, "modes"] if judged else []), "KL seen", "declared epochs", "seconds",
        "MB a device", right=6 if judged else 4,
    )  # fmt: skip
    for name, each in runs.items():
        quality = [f"{each['fid']:.1f}", str(each["modes"])] if judged else []
        table.add_row(
            name, *quality, "–" if each["kl_seen"] is None else f"{each['kl_seen']:.4f}",
            f"{each['declared_epochs'] or 0:.2f}",
            f"{each['time_s']:.1f}", f"{each['bytes_per_device'] / 1e6:.2f}",
        )  # fmt: skip
    return table
