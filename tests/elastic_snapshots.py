"""Clusters and jobs as a controller might find them, drawn from a seed: that is fast."""

import random

from hypothesis import strategies as st

from garfield.elastic.policy import Job, JobRequest, Measurement, Node, Snapshot

RATES = ("none", "linear", "sqrt", "adascale")


def snapshots(*, plain=False, lost=True):
    """Snapshots; with `plain` no bound stands in the way of using all GPUs, without `lost` all
    workers have theirs."""
    return st.integers(0, 2**32 - 1).map(lambda seed: drawn(random.Random(seed), plain, lost))


def drawn(rng, plain, lost):
    arrivals = list(range(rng.randint(0, 7)))
    rng.shuffle(arrivals)
    jobs = tuple(_job(rng, arrival, plain) for arrival in arrivals)
    taken = sum(job.workers for job in jobs)
    gpus = rng.randint(0 if lost else taken, taken + 40)
    return Snapshot((Node("a", gpus // 2, "v100"), Node("b", gpus - gpus // 2)), jobs, 240.0)


def _job(rng, arrival, plain):
    request = _request(rng, plain)
    job = Job(
        f"job-{arrival}",
        request,
        arrival,
        rescalings=rng.randint(0, 5),
        rounds=rng.randint(5, 9),
        oom_batch=_perhaps(rng, lambda: rng.randint(request.batch, 16 * request.batch)),
    )
    if rng.random() < 0.6:
        most = job.most_workers if plain else request.max_workers
        job = job.given(rng.randint(request.min_workers, most), request.batch)
    for at_s in range(rng.randint(0, 4)):
        here = job.workers and rng.random() < 0.5
        size = (job.workers, job.batch) if here else (rng.randint(1, 20), rng.randint(1, 512))
        use = [_perhaps(rng, rng.random) for _ in range(2)]
        job = job.measured(Measurement(*size, 10 ** rng.uniform(-1, 5), *use, float(at_s)))
    return job if job.workers or rng.random() < 0.7 else job.given(1, job.batch).given(0, job.batch)


def _request(rng, plain):
    powers = not plain and rng.random() < 0.3
    low = rng.choice([1, 2, 4]) if powers else rng.randint(1, 5)
    start = rng.randint(low, 8)
    batch = rng.randint(1, 128)
    return JobRequest(
        min_workers=low,
        start_workers=start,
        max_workers=rng.randint(start, 20),
        batch=batch,
        max_batch=_perhaps(rng, lambda: rng.randint(batch, 8 * batch)),
        max_global_batch=None if plain else _perhaps(rng, lambda: rng.randint(5, 99) * batch),
        powers_of_two=powers,
        learning_rate=rng.choice(RATES),
    )


def _perhaps(rng, draw):
    return draw() if rng.random() < 0.7 else None
