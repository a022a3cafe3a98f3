"""A training script as a user of a local cluster would write it, with a record of every sample.

    python elastic_local_script.py DIRECTORY EPOCHS

Records go to DIRECTORY. Steps are slow until there is a file `hurry` in it: so a test decides when
the training may end, and no machine is too fast or too slow for it.
"""

import json
import os
import sys
from pathlib import Path

import torch

from garfield.elastic.job import ElasticOptions, ElasticTraining
from garfield.elastic.job.environment import MEMBER
from tests.elastic_job_worker import digits, network, optimizer_of, seed_of, train

SLOW_S, HURRY = 0.2, "hurry"


def main(directory, epochs):
    member = os.environ[MEMBER]
    model = network(seed_of(member))
    options = ElasticOptions(poll_s=0.02, collective_timeout_s=10.0)
    with (
        (directory / f"{member}.jsonl").open("w", buffering=1) as record,
        ElasticTraining(model, optimizer_of(model), digits(), options) as job,
    ):

        def write(**what):
            record.write(json.dumps(what) + "\n")

        train(job, {"epochs": epochs, "pace_s": SLOW_S, "hurry": directory / HURRY}, write)
        write(end="left" if job.left else "finished", step=job.step_number)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), int(sys.argv[2]))
