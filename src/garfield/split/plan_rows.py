"""From a plan to the rows that `garfield split plan` shows: one for every place to cut."""

from __future__ import annotations

from garfield.report.split_plan import PlanFacts, SplitRow
from garfield.split.planner import Plan, Situation, predict
from garfield.split.profile import ModelProfile

STREAMED = "input, as stored"


def plan_facts(profile: ModelProfile, situation: Situation, plan: Plan) -> PlanFacts:
    """What the rows are about."""
    return PlanFacts(
        model=profile.model,
        batch=situation.samples,
        bandwidth_bps=situation.bandwidth_bps,
        stored_bytes=situation.stored_bytes,
        input_bytes=situation.input_bytes,
        planner=plan.planner,
        why=plan.why,
        frozen_layer=profile.layers[situation.freeze].name if situation.freeze >= 0 else "none",
    )


def plan_rows(
    profile: ModelProfile,
    situation: Situation,
    plan: Plan,
    *,
    egress_per_gb: float | None = None,
    samples: int | None = None,
) -> list[SplitRow]:
    """Split 0 and every cut up to the last frozen layer.

    With a price for a gigabyte that leaves the store and the number of samples of an epoch, each
    row says what the epoch's bytes would cost.
    """
    rows = []
    for split in range(situation.max_split + 1):
        layer = profile.layers[split - 1] if split else None
        at = predict(situation, split) if situation.costs is not None else None
        sent = situation.sample_bytes(split)
        priced = egress_per_gb is not None and samples is not None
        rows.append(
            SplitRow(
                split=split,
                layer=layer.name if layer else STREAMED,
                shape=layer.shape if layer else profile.input_shape,
                output_bytes=sent,
                forward_s=layer.forward_s if layer else None,
                memory_bytes=layer.memory_bytes if layer else None,
                candidate=split in plan.candidates,
                chosen=split == plan.split,
                bytes_per_iteration=situation.iteration_bytes(split),
                iteration_s=at.iteration_s if at else None,
                bound_by=at.bound_by if at else None,
                epoch_cost=sent * (samples or 0) / 1e9 * (egress_per_gb or 0) if priced else None,
            )
        )
    return rows
