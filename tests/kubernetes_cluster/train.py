"""The script that pods of the tests run: a small network on the digits, for so many epochs.

Every step is recorded in DIRECTORY/<pod>.jsonl.
"""

import argparse
import json
import logging
import os
import time
from pathlib import Path

import torch
from torch import nn

from garfield.elastic.job import ElasticOptions, ElasticTraining
from tests.elastic_job_worker import digits, network, optimizer_of


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--epochs", type=int, default=100_000)
    parser.add_argument("--pace-s", type=float, default=0.02)
    parser.add_argument("--held-mb-per-sample", type=int, default=0)
    told = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    torch.set_num_threads(1)
    member = os.environ["GARFIELD_ELASTIC_MEMBER"]
    model = network(0)
    options = ElasticOptions(
        poll_s=0.1, report_every=10, collective_timeout_s=10.0, grace_s=3.0,
        checkpoint_dir=str(told.directory / "checkpoints"), checkpoint_every=20,
    )  # fmt: skip
    loss_of = nn.CrossEntropyLoss()
    with (
        (told.directory / f"{member}.jsonl").open("w", buffering=1) as record,
        ElasticTraining(model, optimizer_of(model), digits(), options) as job,
    ):
        logging.info("%s trains", member)
        for _ in job.epochs(told.epochs):
            for images, labels in job.batches():
                with job.step():
                    held = torch.ones(len(labels), told.held_mb_per_sample, 2**18)  # of 4 bytes
                    job.backward(loss_of(job.model(images), labels))
                    del held
                record.write(
                    json.dumps({"step": job.step_number, "workers": job.workers,
                                "batch": job.batch, "generation": job.generation,
                                "time": time.time()}) + "\n"
                )  # fmt: skip
                time.sleep(told.pace_s)
    logging.info("left" if job.left else "finished")


if __name__ == "__main__":
    main()
