"""Workers measure the noise of their gradients as they exchange them."""

import pytest
import torch
from torch import nn

from tests.elastic_job_cluster import Cluster
from tests.elastic_job_worker import digits, network, seed_of

pytestmark = pytest.mark.slow


def true_scale(model):
    """From every sample's own gradient: the variance over the squared norm of the mean."""
    rows = []
    for image, label in digits():
        model.zero_grad()
        nn.functional.cross_entropy(model(image[None]), label[None]).backward()
        rows.append(torch.cat([each.grad.flatten() for each in model.parameters()]))
    gradients = torch.stack(rows)
    mean = gradients.mean(0)
    return float((gradients - mean).square().sum(1).mean() / mean.square().sum())


@pytest.mark.heavy
def test_two_workers_find_the_noise_scale_of_a_model_that_does_not_move(tmp_path):
    options = {"batch": 8, "learning_rate": "adascale", "collective_timeout_s": 120.0}
    with Cluster(tmp_path, options=options, lr_factor=0.0, pace_s=0.0) as cluster:
        cluster.propose("w0", "w1")
        cluster.start("w0", "w1")
        cluster.wait_for_steps("w1", 400)
        reports = cluster.agreed.reports()
        found = [reports[name]["noise_scale"] for name in ("w0", "w1")]
        truth = true_scale(network(seed_of("w0")))
        for scale in found:
            assert scale == pytest.approx(truth, rel=0.4)  # averaged over fifty steps
