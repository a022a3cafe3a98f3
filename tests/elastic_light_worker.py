"""A worker that keeps to the agreement of its job and trains nothing: it starts in a blink.

It counts steps instead, `--pace` seconds each, and finishes at `--until`, or when there is a file
`--until-file`; a checkpoint holds the count. What a daemon does about workers can be tested with it
by the dozen.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from garfield.elastic.job.environment import CHECKPOINTS, JOB, MEMBER
from garfield.elastic.job.on_sqlite import SqliteCoordination


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--until", type=int, default=10**9)
    parser.add_argument("--until-file", type=Path)
    parser.add_argument("--pace", type=float, default=0.02)
    parser.add_argument("--code-at-end", type=int, default=0)
    parser.add_argument("--deaf", action="store_true", help="never leaves by itself")
    asked = parser.parse_args()
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    agreed = SqliteCoordination(os.environ[JOB], create=False)
    member, saved = os.environ[MEMBER], Path(os.environ[CHECKPOINTS]) / "step"
    step = int(saved.read_text()) if saved.exists() else 0
    sys.stdout.write(f"{member} begins at step {step}\n")
    agreed.report(member, {"state": "waiting"})
    joined = False
    while True:
        view = agreed.read()
        rank = view.generation.rank_of(member)
        if view.finished:
            sys.exit(asked.code_at_end)
        if not asked.deaf and (told or (joined and rank is None)):
            agreed.report(member, {"state": "left", "step": step})
            sys.exit(0)
        if rank is not None:
            joined = True
            step += 1
            if rank == 0:
                agreed.begin(view.generation.number)
                partial = saved.with_suffix(f".{member}")
                partial.write_text(str(step))
                partial.replace(saved)
            report(agreed, member, view, step)
            is_told = asked.until_file is not None and asked.until_file.exists()
            if rank == 0 and (is_told or step >= asked.until):
                agreed.finish()
        time.sleep(asked.pace)


def report(agreed, member, view, step):
    workers, batch = len(view.generation.members), view.batch.allowed
    measured = {"throughput": 100.0 * workers, "cpu": 0.9, "rss_bytes": 2**20}
    where = {"generation": view.generation.number, "step": step, "workers": workers}
    told = {"state": "training", "batch": batch, "time": time.time()}
    agreed.report(member, {**where, **told, **measured})


if __name__ == "__main__":
    main()
