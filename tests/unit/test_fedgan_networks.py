"""The networks that come with federated GANs, and what a user's own have to be."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from garfield.core.errors import ConfigError, InputError, UnknownName
from garfield.fedgan.gan import GANS, Gan, gan
from garfield.fedgan.networks import gan_for

SHAPES = [
    ("lsgan", (1, 28, 28)),
    ("lsgan(width=0.25)", (1, 28, 28)),
    ("lsgan(width=0.25)", (3, 32, 32)),
    ("lsgan(width=0.25)", (3, 64, 64)),
    ("dcgan(ngf=8)", (3, 64, 64)),
    ("dcgan(ngf=8, ndf=4)", (1, 64, 64)),
]


def parameters(network):
    return sum(each.numel() for each in network.parameters())


@pytest.mark.parametrize("classes", [None, 7])
@pytest.mark.parametrize(("name", "image"), SHAPES)
def test_images_and_scores_have_the_shapes_that_were_asked_for(name, image, classes):
    made = gan_for(name, image, classes=classes)
    generator, discriminator = made.build(seed=1)
    labels = () if classes is None else (torch.tensor([0, 6, 3, 3, 1]),)
    images = generator(made.noise(5), *labels)
    assert images.shape == (5, *image)
    assert images.dtype == torch.float32
    assert images.abs().max() <= 1
    assert discriminator(images, *labels).shape == (5,)


@pytest.mark.parametrize(("name", "image"), SHAPES)
def test_every_parameter_gets_a_gradient(name, image):
    made = gan_for(name, image, classes=3)
    generator, discriminator = made.build(seed=1)
    labels = torch.tensor([0, 1, 2])
    fake = generator(made.noise(3), labels)
    made.generator_loss(discriminator(fake, labels)).backward()
    made.discriminator_loss(
        discriminator(torch.zeros(3, *image), labels), discriminator(fake.detach(), labels)
    ).backward()
    for network in (generator, discriminator):
        for parameter_name, parameter in network.named_parameters():
            assert parameter.grad is not None, parameter_name
            assert parameter.grad.isfinite().all(), parameter_name


def test_lsgan_has_the_layers_that_it_says():
    generator, discriminator = gan_for("lsgan", (1, 32, 32)).build(seed=0)
    dense = 100 * 128 * 64 + 128 * 64
    convolutions = 128 * 128 * 9 + 128 + 128 * 64 * 9 + 64 + 64 * 9 + 1
    assert parameters(generator) == dense + convolutions + 2 * (128 + 128 + 64)
    maps = [(1, 16), (16, 32), (32, 64), (64, 128)]
    assert parameters(discriminator) == sum(i * o * 9 + o for i, o in maps) + 2 * 224 + 513
    assert 4 * (parameters(generator) + parameters(discriminator)) < 5e6  # bytes, a few MB


def test_dcgan_is_the_classic_one():
    generator, discriminator = gan_for("dcgan", (3, 64, 64)).build(seed=0)
    assert parameters(generator) == 3_576_704  # Radford et al., as in PyTorch's tutorial
    assert parameters(discriminator) == 2_765_568 + 1  # and the bias of its score


def test_the_discriminator_of_a_quarter_width_lsgan_is_the_full_one():
    full, quarter = (gan_for(name, (1, 28, 28)).build(0) for name in ("lsgan", SHAPES[1][0]))
    assert parameters(quarter[1]) == parameters(full[1])
    assert parameters(quarter[0]) < parameters(full[0]) / 4


def test_weights_depend_on_the_seed_alone_and_leave_torchs_state():
    made = gan_for("lsgan(width=0.25)", (1, 28, 28))
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, again, other = (made.build(seed)[0].state_dict() for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["dense.weight"], other["dense.weight"])


def test_weights_start_small():
    generator, _ = gan_for("dcgan(ngf=16)", (3, 64, 64)).build(seed=2)
    weight = generator.layers[0].weight
    assert weight.std().item() == pytest.approx(0.02, rel=0.05)


def test_labels_change_what_is_made_and_how_it_is_judged():
    made = gan_for("lsgan(width=0.25)", (1, 28, 28), classes=2)
    generator, discriminator = made.build(seed=0)
    generator.eval(), discriminator.eval()
    z = made.noise(4)
    ones, zeros = torch.ones(4, dtype=torch.int64), torch.zeros(4, dtype=torch.int64)
    assert not torch.equal(generator(z, ones), generator(z, zeros))
    images = torch.rand(4, 1, 28, 28)
    assert not torch.equal(discriminator(images, ones), discriminator(images, zeros))


def test_images_are_generated_in_evaluation_mode_and_the_mode_is_put_back():
    made = gan_for("lsgan(width=0.25)", (1, 28, 28))
    generator, _ = made.build(seed=0)
    buffers = {name: buffer.clone() for name, buffer in generator.named_buffers()}
    z = made.noise(9, torch.Generator().manual_seed(1))
    whole = made.generate(generator, z)
    assert generator.training
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in generator.named_buffers())
    # by batches of 2 as by one of 9: nothing depends on who is in the batch
    torch.testing.assert_close(made.generate(generator, z, batch=2), whole, atol=1e-5, rtol=0)


def test_labels_are_asked_for_by_conditional_generators_only():
    plain, conditional = (gan_for("lsgan(width=0.25)", (1, 28, 28), classes=c) for c in (None, 4))
    generator, _ = conditional.build(0)
    with pytest.raises(InputError, match="needs labels: conditional_on is 4"):
        conditional.generate(generator, conditional.noise(2))
    with pytest.raises(InputError, match="takes no labels"):
        plain.generate(generator, plain.noise(2), torch.zeros(2, dtype=torch.int64))


@pytest.mark.parametrize(
    ("name", "image", "message"),
    [
        ("lsgan", (1, 30, 30), "multiple of 4 from 16 to 64, not 30×30"),
        ("lsgan", (1, 28, 32), "square images"),
        ("lsgan", (1, 128, 128), "not 128×128"),
        ("lsgan", (0, 28, 28), "at least 1 channel, got 0"),
        ("lsgan(width=0)", (1, 28, 28), r"width must be within 1/16..4, got 0"),
        ("lsgan(wide=1)", (1, 28, 28), r"wide is not a parameter of lsgan. Did you mean width"),
        ("lsgan(width='a')", (1, 28, 28), "lsgan.width must be a number"),
        ("dcgan", (1, 28, 28), "images of 64×64, not 28×28. Scale your images, or choose lsgan"),
        ("dcgan(ngf=0)", (3, 64, 64), "ngf must be at least 1, got 0"),
    ],
)
def test_what_no_network_can_make_is_refused(name, image, message):
    with pytest.raises(ConfigError, match=message):
        gan_for(name, image)


def test_a_misspelt_gan_is_named_with_its_nearest():
    with pytest.raises(UnknownName, match=r"lsgna is not a GAN. Did you mean lsgan\?"):
        gan_for("lsgna", (1, 28, 28))


def test_a_gan_of_ones_own_is_one_decorator():
    @gan("lines")
    def lines(image, *, classes=None, hidden=3):
        """One line of pixels."""
        return replace(
            gan_for("lsgan", (1, 28, 28)),
            generator=lambda: nn.Linear(4, hidden),
            latent=4,
            conditional_on=classes,
        )

    try:
        assert GANS["lines"].about == "One line of pixels."
        made = gan_for("lines(hidden=6)", (1, 1, 6))
        assert isinstance(made, Gan)
        assert made.build(0)[0](made.noise(2)).shape == (2, 6)
    finally:
        GANS.remove("lines")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"latent": 0}, "latent must be at least 1"), ({"conditional_on": 0}, "Leave it None")],
)
def test_numbers_of_a_gan_are_checked(wrong, message):
    with pytest.raises(ConfigError, match=message):
        replace(gan_for("lsgan", (1, 28, 28)), **wrong)
