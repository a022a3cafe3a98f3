"""What came of a run, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from garfield.report.plain_tables import lines_table
from garfield.report.scores import ACCURACY, shown
from garfield.report.tables import duration


def summary_table(summary: Mapping[str, Any]) -> Table:
    """One line per question that a reader has."""
    return lines_table(_lines(summary))


def _lines(summary: Mapping[str, Any]) -> dict[str, str]:
    sent = summary["bytes_sent"]
    return {
        **_score(summary),
        "steps": f"{summary['steps']} of {summary['total_steps']}",
        "pace": _pace(summary),
        "a step": _step(summary["breakdown"]),
        "traffic": f"{_size(sent)} sent by all nodes" if sent else "",
        "left out": _counted(summary["left_out"]),
        "suspected": _counted(summary.get("suspected", {})),
        "variance": _variance(summary),
        "filters": _filters(summary.get("filters", {})),
        "silent": _misbehaviour(summary["silent"]),
        "lied": _misbehaviour(summary["liars"]),
        "excluded": ", ".join(summary.get("excluded", ())),
    }


def _score(summary: Mapping[str, Any]) -> dict[str, str]:
    """The last score, under the name of its metric, and which way is better if it is not plain."""
    metric, loss = summary.get("metric") or ACCURACY, summary["loss"]
    value = summary["accuracy"] if metric == ACCURACY else summary["score"]
    told = shown(metric, value)
    if loss is not None and value is not None:
        told += f" (loss {loss:.3g})"
    if metric != ACCURACY:
        told += ", larger is better" if summary["larger_is_better"] else ", smaller is better"
    return {metric: told}


def percent(share: float | None) -> str:
    return "not evaluated" if share is None else f"{100 * share:.1f} %"


def rate(per_s: float | None) -> str:
    return "–" if per_s is None else f"{per_s:.1f}"


def _pace(summary: Mapping[str, Any]) -> str:
    batches = rate(summary["batches_per_s"])
    return f"{rate(summary['updates_per_s'])} updates/s, {batches} batches/s"


def _step(parts: Mapping[str, float]) -> str:
    return ", ".join(f"{name.removesuffix('_s')} {duration(s)}" for name, s in parts.items() if s)


def _counted(times_of: Mapping[str, int], most: int = 6) -> str:
    often = sorted(times_of.items(), key=lambda item: -item[1])
    told = ", ".join(f"{name} {times}×" for name, times in often[:most])
    return f"{told} and {len(often) - most} others" if len(often) > most else told


def _variance(summary: Mapping[str, Any]) -> str:
    """Whether honest gradients varied little enough for the rule, where that is known."""
    held, ratio = summary.get("variance_held"), summary.get("variance_ratio")
    if held is None:
        return ""
    deviation = "" if ratio is None else f", σ = {ratio:.2g} |∇L|"
    return f"{summary['gar']}'s condition held in {percent(held)} of steps{deviation}"


def _filters(found: Mapping[str, Any]) -> str:
    """LiuBei's: what its workers made of servers' models."""
    told = (("honest", found.get("false_rejections")), ("lying", found.get("lies_rejected")))
    shares = [
        f"{100 * share:.1f} % of {who} servers' models" for who, share in told if share is not None
    ]
    return f"refused {' and '.join(shares)}" if shares else ""


def _misbehaviour(blamed: Mapping[str, Mapping[str, Any]]) -> str:
    return "; ".join(
        f"{name} {about['times']}× ({_reasons(about['reasons'])})" for name, about in blamed.items()
    )


def _reasons(found: Mapping[str, Mapping[str, Any]], most: int = 3) -> str:
    """The weightiest, each with its count where there are several."""
    faults = list(found.values())
    if len(faults) == 1:
        return str(faults[0]["detail"])
    told = [f"{fault['times']}× {fault['detail']}" for fault in faults[:most]]
    return ", ".join([*told, "…"] if len(faults) > most else told)


def _size(count: int) -> str:
    """Bytes in words."""
    return f"{count / 1e9:,.1f} GB" if count >= 1e10 else f"{count / 1e6:,.1f} MB"
