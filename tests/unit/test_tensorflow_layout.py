"""Vectors of a TensorFlow model are laid out as those of its twin in torch."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
torch = pytest.importorskip("torch")

import keras  # noqa: E402
from keras import layers  # noqa: E402

from garfield.adapters.adapt import adapt  # noqa: E402
from garfield.adapters.alike import check_alike  # noqa: E402
from garfield.core.errors import ConfigError  # noqa: E402
from garfield.models import MODELS, build, build_in_keras  # noqa: E402
from tests.keras_models import images, varied  # noqa: E402

TWINS = [name for name, model in MODELS.items() if model.in_keras is not None]


def small():
    return keras.Sequential([keras.Input((6,)), layers.Dense(5, "tanh"), layers.Dense(3)])


def vector_of(adapter):
    out = np.empty(adapter.size + adapter.tail, np.float32)
    adapter.read(out)
    return out


def gradient_of(adapter, batch):
    out = np.empty(adapter.size + adapter.tail, np.float32)
    loss = adapter.gradient(batch, out)
    return out, loss


def test_what_is_written_is_read_back_in_every_kind_of_layer():
    adapter = adapt(varied())
    drawn = np.random.default_rng(0).standard_normal(adapter.size + adapter.tail)
    vector = np.abs(drawn).astype(np.float32)
    adapter.write(vector)
    np.testing.assert_array_equal(vector_of(adapter), vector)


def test_kernels_travel_in_the_order_of_pytorch():
    model = varied()
    adapter = adapt(model)
    shapes = dict(adapter.layout)
    assert shapes["convolution/kernel"] == (4, 3, 3, 3)
    numbered = np.arange(adapter.size + adapter.tail, dtype=np.float32)
    adapter.write(numbered)
    kernel = np.asarray(model.get_layer("convolution").kernel)  # (height, width, in, out)
    np.testing.assert_array_equal(
        kernel, numbered[: kernel.size].reshape(4, 3, 3, 3).transpose(2, 3, 1, 0)
    )


def test_a_plain_keras_model_and_its_torch_twin_give_the_same_gradient():
    """With every layer that needs another order: also a dense one that follows a Flatten."""
    nn = torch.nn
    torch.manual_seed(0)
    twin = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, eps=1e-3), nn.Conv2d(4, 8, 3, groups=4),
        nn.ConvTranspose2d(8, 5, 2), nn.Flatten(), nn.Linear(125, 7), nn.Linear(7, 3),
    )  # fmt: skip
    one, other = adapt(twin), adapt(varied())
    check_alike({"torch": one.layout, "tensorflow": other.layout})
    other.write(vector_of(one))
    inputs, targets = images(8, 8, 3)
    expected, loss = gradient_of(one, (np.ascontiguousarray(inputs.transpose(0, 3, 1, 2)), targets))
    found, same = gradient_of(other, (inputs, targets))
    assert loss == pytest.approx(same, rel=1e-5)
    np.testing.assert_allclose(found[: one.size], expected[: one.size], atol=1e-5)
    mean = slice(one.size, one.size + 4)  # variances differ by n / (n - 1), as the frameworks do
    np.testing.assert_allclose(found[mean], expected[mean], atol=1e-5)
    assert other.tail == 8


@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize("seed", [1, 2])
def test_twins_have_equal_counts_and_from_equal_weights_equal_gradients(name, seed):
    one, other = adapt(build(name, seed=seed)), adapt(build_in_keras(name, seed=seed))
    assert one.size == other.size == MODELS[name].parameters
    check_alike({"torch": one.layout, "tensorflow": other.layout})
    weights = vector_of(one)
    other.write(weights)
    batch = images(*MODELS[name].image, classes=10, count=32)
    expected, loss = gradient_of(one, batch)
    found, same = gradient_of(other, batch)
    assert loss == pytest.approx(same, rel=1e-5)
    # as a whole: a unit at the edge of its ReLU, or two equal ones in a pool, may go either way,
    # and then moves some of the numbers; 1 batch of 4 has one, and 6e-4 was the most in 24 of them
    assert np.linalg.norm(found - expected) <= 3e-3 * np.linalg.norm(expected)
    accuracy, mean = one.evaluate([batch])
    assert (accuracy, mean) == pytest.approx(other.evaluate([batch]), rel=1e-5)


def test_weights_of_a_seed_are_the_same_again_and_others_of_another():
    first, again, other = (vector_of(adapt(build_in_keras("mnist_cnn", seed=s))) for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    torch_std = np.std(vector_of(adapt(build("mnist_cnn", seed=1))))
    assert np.std(first) == pytest.approx(torch_std, rel=0.05)


def test_models_that_differ_are_told_apart_by_the_first_tensor():
    nn = torch.nn
    one = adapt(nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4)))
    with pytest.raises(
        ConfigError, match=r"tensor 3 is 2\.weight 4×5 in torch and .*kernel 3×5 in"
    ):
        check_alike({"torch": one.layout, "tensorflow": adapt(small()).layout})
    short = adapt(nn.Sequential(nn.Linear(6, 5)))
    with pytest.raises(ConfigError, match=r"tensorflow has 2 more tensors: .*kernel 3×5, .*bias 3"):
        check_alike({"torch": short.layout, "tensorflow": adapt(small()).layout})
