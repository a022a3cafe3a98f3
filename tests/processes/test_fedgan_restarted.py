"""A device that is stopped, and started again with other data, in the midst of a training."""

import pytest
import torch

from garfield.fedgan.device import DeviceData, Trainer
from garfield.fedgan.networks import gan_for
from garfield.fedgan.nodes.messages import FIRST_VERSIONS
from tests.fedgan_pair import ABOUT, Pair

pytestmark = pytest.mark.slow


class Stopped(Exception):  # noqa: N818
    """Its user has stopped the device."""


class StoppedInRoundTwo(Trainer):
    """Trains twice."""

    def train(self, data, state, task):
        if task.round == 2:
            raise Stopped
        return super().train(data, state, task)


def grey(count):
    images = torch.full((count, 1, 28, 28), 120, dtype=torch.uint8)
    return DeviceData(images, torch.arange(count) % 2)


def test_what_a_device_declares_when_it_is_started_again_counts(tmp_path):
    trainer = StoppedInRoundTwo(gan_for(ABOUT.gan, ABOUT.image))
    with Pair(tmp_path, grey(16), rounds=4) as pair:
        with (
            pair.device(version=FIRST_VERSIONS - 1, trainer=trainer) as device,
            pytest.raises(Stopped),
        ):
            device.run()
        with pair.device(version=3, data=grey(40)) as device:
            assert device.run() == "all rounds are over"
        declared = pair.database.latest().devices["device-0"]
    assert declared["samples"] == [20, 20]
