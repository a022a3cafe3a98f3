"""The models of Table 3.1: their sizes, their shapes, and that they can learn."""

import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from garfield.core.errors import ConfigError, MissingDependency, UnknownName
from garfield.data import Batches, fashion_small
from garfield.models import MODELS, Model, build

TABLE = {
    "mnist_cnn": 79_510,
    "cifarnet": 1_756_426,
    "inception": 5_602_874,
    "resnet50": 23_539_850,
    "resnet200": 62_697_610,
    "vgg11": 128_807_306,  # the table calls it VGG19
}

every_model = pytest.mark.parametrize("name", MODELS)
every_small_model = pytest.mark.parametrize(
    "name", ["digits_mlp", "mnist_cnn", "cifarnet", "inception"]
)


def weightless(name, **settings):
    """The model without memory for its weights."""
    with torch.device("meta"):
        return build(name, **settings)


def count(network):
    return sum(parameter.numel() for parameter in network.parameters())


def batch_for(name, size=2, classes=10):
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(size, *MODELS[name].image, generator=generator)
    return images, torch.arange(size) % classes


@every_model
def test_a_model_has_as_many_parameters_as_it_says(name):
    assert count(weightless(name)) == MODELS[name].parameters


@pytest.mark.parametrize(("name", "parameters"), TABLE.items())
def test_the_counts_are_those_of_the_table(name, parameters):
    assert MODELS[name].parameters == MODELS[name].table == parameters


def test_vgg19_is_larger_than_the_table_says_and_owns_up_to_it():
    assert MODELS["vgg19"].table == 128_807_306
    assert MODELS["vgg19"].parameters - MODELS["vgg19"].table == 10_803_904


@pytest.mark.slow
@every_model
def test_an_image_of_the_models_own_shape_becomes_one_score_per_class(name):
    network = weightless(name, classes=7)
    images = torch.empty(3, *MODELS[name].image, device="meta")
    assert network(images).shape == (3, 7)


@pytest.mark.slow
@every_model
def test_other_channels_are_taken_when_asked_for(name):
    channels, height, width = MODELS[name].image
    network = weightless(name, channels=channels + 1)
    assert network(torch.empty(2, channels + 1, height, width, device="meta")).shape == (2, 10)


@every_model
def test_other_frameworks_can_lay_out_the_same_layers(name):
    for layer in weightless(name).modules():
        assert not isinstance(getattr(layer, "padding", 0), str)
        assert not getattr(layer, "ceil_mode", False)
        assert not isinstance(layer, nn.modules.dropout._DropoutNd)


@every_small_model
def test_every_parameter_gets_a_gradient_and_the_first_loss_is_that_of_guessing(name):
    network = build(name, seed=0)
    images, labels = batch_for(name, size=10)
    loss = nn.functional.cross_entropy(network(images), labels)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(10), abs=0.4)
    for parameter in network.parameters():
        assert torch.isfinite(parameter.grad).all()
        assert parameter.grad.abs().max() > 0


@every_small_model
def test_a_gradient_can_be_computed_again_bit_for_bit(name):
    images, labels = batch_for(name)

    def gradient():
        network = build(name, seed=3)
        loss = nn.functional.cross_entropy(network(images), labels)
        return torch.autograd.grad(loss, list(network.parameters()))

    assert all(torch.equal(a, b) for a, b in zip(gradient(), gradient(), strict=True))


def test_resnet50_runs_and_its_last_stage_sees_more_than_a_pixel():
    network = build("resnet50", seed=0).eval()
    with torch.no_grad():
        features = network[:-5](torch.zeros(1, 3, 32, 32))
        assert features.shape == (1, 2048, 2, 2)
        assert torch.isfinite(network[-5:](features)).all()


def test_inception_shifts_but_does_not_scale_after_its_norms():
    norms = [layer for layer in weightless("inception").modules() if hasattr(layer, "running_var")]
    assert len(norms) == 57
    assert all(norm.weight is None and norm.bias is not None for norm in norms)


@pytest.mark.slow
def test_mnist_cnn_learns_to_tell_clothes_apart():
    data = fashion_small()
    batches = Batches.of(data, np.arange(2000), batch=32, seed=0)
    network = build("mnist_cnn", seed=0)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
    for step in range(80):
        images, labels = map(torch.from_numpy, batches.batch(step))
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images), labels).backward()
        optimizer.step()
    with torch.no_grad():
        guesses = network(torch.from_numpy(data.images("test"))).argmax(1).numpy()
    assert (guesses == data.y_test).mean() > 0.6


def test_a_seed_fixes_the_weights_and_leaves_torchs_random_state_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, second = build("digits_mlp", seed=1), build("digits_mlp", seed=1)
    assert torch.equal(torch.rand(3), expected)
    assert all(map(torch.equal, first.state_dict().values(), second.state_dict().values()))
    assert not torch.equal(first[1].weight, build("digits_mlp", seed=2)[1].weight)


def test_without_a_seed_weights_come_from_torchs_random_state():
    torch.manual_seed(5)
    first = build("digits_mlp")
    assert not torch.equal(first[1].weight, build("digits_mlp")[1].weight)
    torch.manual_seed(5)
    assert torch.equal(first[1].weight, build("digits_mlp")[1].weight)


def test_a_misspelt_name_is_told_the_nearest():
    with pytest.raises(UnknownName, match=r"resnet_50 is not a model\. Did you mean resnet50\?"):
        build("resnet_50")


@pytest.mark.parametrize("settings", [{"classes": 0}, {"channels": -1}])
def test_numbers_below_one_are_refused(settings):
    ((setting, value),) = settings.items()
    with pytest.raises(ConfigError, match=f"{setting} must be at least 1, got {value}"):
        build("cifarnet", **settings)


def test_a_model_of_ones_own_is_known_by_name():
    def line(classes=2, channels=1):
        return nn.Sequential(nn.Flatten(), nn.Linear(4 * channels, classes))

    MODELS.add("line", Model("line", line, image=(1, 2, 2)))
    try:
        assert build("line", classes=3)(torch.zeros(5, 1, 2, 2)).shape == (5, 3)
    finally:
        MODELS.remove("line")


def test_listing_the_models_does_not_import_torch():
    script = (
        "import sys, garfield.models as m; "
        "print(len(m.MODELS), m.MODELS['vgg19'].parameters, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["8", "139611210", "False"]


@pytest.mark.parametrize("make", [lambda: build("cifarnet"), lambda: MODELS["cifarnet"].build()])
def test_without_torch_the_command_that_installs_it_is_told(monkeypatch, make):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependency, match=r"pip install 'garfield-ml\[torch\]'"):
        make()


@pytest.mark.parametrize("name", ["mnist_cnn", "cifarnet"])
def test_pooling_before_the_relu_changes_no_bit(name):
    model = build(name, seed=0)
    layers = list(model)
    for i in [i for i, layer in enumerate(layers) if isinstance(layer, nn.MaxPool2d)]:
        layers[i], layers[i + 1] = layers[i + 1], layers[i]
    usual = nn.Sequential(*layers)  # the same weights
    images = torch.randn(4, *MODELS[name].image, generator=torch.Generator().manual_seed(0))
    found = []
    for one in (model, usual):
        model.zero_grad()
        outputs = one(images.to(memory_format=torch.channels_last))
        outputs.square().sum().backward()
        found.append([outputs, *(p.grad.clone() for p in model.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
