"""What distances over the shipped network say of real images, noise and single classes."""

import pytest
import torch

from garfield.data import load
from garfield.fedgan.judging import judge_for
from garfield.fedgan.judging.real_images import RealImages
from garfield.fedgan.judging.shipped import SHIPPED, load_shipped
from garfield.fedgan.judging.small_cnn import accuracy, in_range
from tests.full_data import fashion


@pytest.mark.heavy
def test_ten_thousand_real_images_are_near_and_noise_and_single_classes_are_far(tmp_path):
    data = load("fashion", fashion())
    judge = judge_for(data_dir=fashion(), data="fashion", cache=tmp_path)
    assert accuracy(load_shipped("fashion"), judge.real.pixels, judge.real.labels) == pytest.approx(
        SHIPPED["fashion"].accuracy, abs=0.002
    )
    unseen = RealImages.of(data, "train")
    real = judge.score(in_range(unseen.pixels))
    assert (real.label, real.n, real.real_split) == ("FID (small CNN)", 10_000, "test")
    assert 0.05 < real.fid < 0.7
    assert real.modes == 10
    assert real.kl < 0.01

    rng = torch.Generator().manual_seed(0)
    noise = judge.score(torch.rand(10_000, 1, 28, 28, generator=rng) * 2 - 1)
    pixels, labels = torch.tensor(data.x_train).unsqueeze(1), torch.tensor(data.labels("train"))
    alone = [judge.score(in_range(pixels[labels == number])) for number in range(10)]
    assert noise.modes <= 2
    assert [each.modes for each in alone].count(1) >= 9  # shirts are taken for others surely
    assert 17 < noise.fid < 230
    assert min(each.fid for each in alone) > 100
    assert sum(each.fid for each in alone) / 10 > noise.fid
    assert min(each.kl for each in alone) > 1.5
