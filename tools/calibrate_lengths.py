"""Calibrate the lengths of simulated jobs: ``python -m tools.calibrate_lengths``.

The thesis does not say how long its jobs train. Figure 4.1 does, for Static: 15 jobs with two
GPUs each arrive four minutes apart on average, and at most 45 % of 64 GPUs are ever in use. 45 %
are 28 GPUs, so 14 jobs ran at once at the peak. The length here is the shortest, in steps of 100
s, for which the peak is that high on average over ten seeds. Nothing but Static runs: what other
policies gain has no say.
"""

from __future__ import annotations

from garfield.elastic.policy import parse
from garfield.elastic.simulator.cluster import simulate
from garfield.elastic.simulator.settings import ClusterSettings, WorkloadSettings
from garfield.elastic.simulator.workload import workload_of

SEEDS = range(10)
PEAK_GPUS = 28
STEP_S, LONGEST_S = 100.0, 20_000.0


def peak_gpus(length_s: float, seed: int) -> int:
    """The most GPUs that are in use at once under Static, in Figure 4.1."""
    jobs = workload_of(WorkloadSettings("poisson", 15, length_s=length_s, seed=seed))
    done = simulate(parse("static"), jobs, ClusterSettings()).finished
    starts = [each.started_s for each in done]
    return max(
        sum(
            each.truth.request.start_workers
            for each in done
            if each.started_s <= moment < each.finished_s
        )
        for moment in starts
    )


def calibrated() -> float:
    """The shortest average length that reaches the peak."""
    low, high = 0, int(LONGEST_S / STEP_S)
    while high - low > 1:  # the peak rises with the length
        middle = (low + high) // 2
        mean = sum(peak_gpus(STEP_S * middle, seed) for seed in SEEDS) / len(SEEDS)
        low, high = (low, middle) if mean >= PEAK_GPUS else (middle, high)
    return STEP_S * high


def main() -> None:
    length_s = calibrated()
    peaks = [peak_gpus(length_s, seed) for seed in SEEDS]
    print(f"{length_s:.0f} s: peaks of {peaks} GPUs, on average {sum(peaks) / len(peaks)}")


if __name__ == "__main__":
    main()
