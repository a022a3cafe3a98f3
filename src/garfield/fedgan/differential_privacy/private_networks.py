"""One device's training with a private discriminator: DP-SGD on real images, nothing on others.

The discriminator's loss is a mean over real and a mean over generated images. Its step is

    g = 1/(qn) · ( Σ over real x of clip(∇ℓ(x), C) + N(0, σ²C²) )  +  ∇ loss of generated ones

with real images in the batch by a coin of probability q = min(1, B / n) each. Generated images are
made of noise and of weights that are private already, so their gradient is taken as it is (Abadi
et al., CCS 2016; Xie et al., DPGAN, 2018). What would tell of real images besides is left out:

- generated images are B each time, however many real ones a batch has; their classes are drawn
  evenly, not those of the real ones;
- a batch without any real image is a step as well, of noise;
- the loss that is reported is that on generated images, with 0 for the score of every real one;
- an image whose gradient is not finite is left out of the sum: clipped, it would make all of it
  NaN, and weights of a server that lies can be such that one image alone has such a gradient;
- all is drawn from the device's own secret, not from the server's seed.

Gradients of single images, clipping and noise are Opacus'. It needs layers that keep images apart:
batch norm is refused, group norm (Wu and He, ECCV 2018) takes its place.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from garfield.core.errors import ConfigError
from garfield.fedgan.averaging import State, network_state, optimizer_state
from garfield.fedgan.device import (
    DeviceData,
    Task,
    Update,
    begun_from,
    drawing_from,
    frozen,
    stepped,
)
from garfield.fedgan.differential_privacy.account import PrivacyAccount, sampling_rate
from garfield.fedgan.differential_privacy.from_opacus import (
    clipping,
    per_sample_gradients,
    problems_of,
)
from garfield.fedgan.gan import Gan
from garfield.fedgan.settings import PrivacySettings


class PrivateNetworks:
    """Two networks to train on, the discriminator by DP-SGD; simulated devices share them."""

    def __init__(self, gan: Gan, limits: PrivacySettings) -> None:
        self.gan, self.limits = gan, limits
        self.networks = gan.build(seed=0)
        check_private(gan, self.networks[1])
        self._by_image = per_sample_gradients(self.networks[1])
        self._by_image.disable_hooks()

    def train(self, data: DeviceData, state: State, task: Task, seed: int) -> Update:
        """Do the task, beginning from that state, and draw all of it from the seed."""
        optimizers = begun_from(self.gan, self.networks, state, task)
        rate = sampling_rate(task.load.batch, len(data))
        private = clipping(
            optimizers[1], noise=self.limits.dp_noise, clip=self.limits.dp_clip,
            expected_batch=rate * len(data),
        )  # fmt: skip
        with drawing_from(seed), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Full backward hook is firing", UserWarning)
            losses = self._iterate(optimizers[0], private, data, task, rate, seed)
        kept = optimizer_state(optimizers) if task.keeps_optimizer else {}
        return Update(network_state(self.networks) | kept, *losses)

    def _iterate(
        self, generator_steps: torch.optim.Optimizer, private: Any, data: DeviceData, task: Task,
        rate: float, seed: int,
    ) -> tuple[float, float]:  # fmt: skip
        gan, (generator, discriminator) = self.gan, self.networks
        generator.train()
        discriminator.train()
        coins = np.random.default_rng(seed)
        generator_loss = discriminator_loss = torch.tensor(0.0)
        for step in range(1, task.load.steps + 1):
            picked = np.flatnonzero(coins.random(len(data)) < rate)
            both = step % task.generator_every == 0
            asked = self._classes(task.load.batch)
            with torch.set_grad_enabled(both):
                fake = generator(gan.noise(task.load.batch), *asked)
            discriminator_loss = self._discriminate(
                private, data.batch(picked), fake.detach(), asked
            )
            if both:
                with frozen(discriminator):
                    generator_loss = gan.generator_loss(discriminator(fake, *asked))
                    stepped(generator_steps, generator_loss)
        return float(generator_loss.detach()), float(discriminator_loss.detach())

    def _discriminate(
        self, private: Any, real: tuple[Tensor, Tensor], fake: Tensor, asked: tuple[Tensor, ...]
    ) -> Tensor:
        """A step of the discriminator; the loss on generated images."""
        gan, (_, discriminator) = self.gan, self.networks
        images, labels = real
        parameters = list(discriminator.parameters())
        private.zero_grad(set_to_none=True)
        scores = discriminator(fake, *asked)
        loss = gan.discriminator_loss(torch.zeros_like(scores), scores)
        loss.backward()  # type: ignore[no-untyped-call]
        of_fakes = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
            # what a batch without images leaves
            parameter.grad_sample = torch.zeros(0, *parameter.shape)  # type: ignore[attr-defined]
        if len(images):
            given = () if gan.conditional_on is None else (labels,)
            with self._one_gradient_per_image():
                found = gan.discriminator_loss(self._by_image(images, *given), scores.detach())
                private.zero_grad(set_to_none=True)
                found.backward()  # type: ignore[no-untyped-call]
            _leave_out_what_is_not_finite(parameters)
        private.pre_step()  # the gradient of real images is clipped and noised now
        for parameter, extra in zip(parameters, of_fakes, strict=True):
            if extra is not None and parameter.grad is not None:
                parameter.grad += extra
        private.original_optimizer.step()
        return loss

    def _classes(self, count: int) -> tuple[Tensor, ...]:
        """Classes to generate: any, not those of real images."""
        if self.gan.conditional_on is None:
            return ()
        return (torch.randint(self.gan.conditional_on, (count,)),)

    @contextmanager
    def _one_gradient_per_image(self) -> Iterator[None]:
        self._by_image.enable_hooks()
        try:
            yield
        finally:
            self._by_image.disable_hooks()


class PrivateTrainer:
    """What a device trains with: its networks, and its account, which pays for every task."""

    def __init__(self, networks: PrivateNetworks, account: PrivacyAccount) -> None:
        self.gan, self.account = networks.gan, account
        self._networks = networks

    def train(self, data: DeviceData, state: State, task: Task) -> Update:
        """Pay for the task and do it; BudgetSpent, and nothing done, if there is not enough left.

        The update says what was spent so far, and whether there is too little for another such
        task.
        """
        self.account.pay(task.load, len(data))
        update = self._networks.train(data, state, task, self.account.round_seed())
        return Update(
            update.state, update.generator_loss, update.discriminator_loss,
            epsilon=self.account.epsilon, spent=not self.account.can_pay(task.load, len(data)),
        )  # fmt: skip


def _leave_out_what_is_not_finite(parameters: Sequence[nn.Parameter]) -> None:
    """Take an image whose gradient is not finite, anywhere, for one without any."""
    by_image = [p.grad_sample for p in parameters]  # type: ignore[attr-defined]
    finite = [rows.reshape(len(rows), -1).isfinite().all(1) for rows in by_image]
    left_out = ~torch.stack(finite).all(0)
    for rows in by_image:
        rows[left_out] = 0.0


def check_private(gan: Gan, discriminator: nn.Module) -> None:
    """Raise ConfigError unless what one real image does to a gradient can be bounded."""
    for name, layer in discriminator.named_modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            raise ConfigError(
                f"The discriminator has batch norm ({name}), which mixes the images of a batch: "
                "what one of them does cannot be bounded. Take group norm: "
                '--gan "lsgan(group_norm=True)", or nn.GroupNorm in networks of your own.'
            )
    kept = [name for name, _ in discriminator.named_buffers()]
    if kept:
        raise ConfigError(
            f"The discriminator keeps {kept[0]} besides its weights, which no noise would cover. "
            "Take layers without buffers."
        )
    problems = problems_of(discriminator)
    if problems:
        raise ConfigError(f"The discriminator cannot be trained privately: {problems[0]}")
    _check_separable(gan)


def _check_separable(gan: Gan) -> None:
    """A real image's gradient may hang neither on other real ones nor on how many they are."""
    fake = torch.tensor([0.1, -0.4, 0.7])
    few, many = torch.tensor([0.3, -0.2]), torch.tensor([0.3, 0.9, -1.1, 0.4])
    (one, of_few), (other, of_many) = (_slopes(gan, real, fake) for real in (few, many))
    if not torch.allclose(one, other, atol=1e-5) or not torch.allclose(of_few, of_many, atol=1e-5):
        raise ConfigError(
            "The discriminator's loss does not keep real images apart: it must be a mean over real "
            "ones of a function of each one's score, plus the same for generated ones."
        )


def _slopes(gan: Gan, real: Tensor, fake: Tensor) -> tuple[Tensor, Tensor]:
    """What the first real score does to the loss, times their number; and every generated one."""
    real, fake = real.clone().requires_grad_(), fake.clone().requires_grad_()
    of_real, of_fake = torch.autograd.grad(gan.discriminator_loss(real, fake), (real, fake))
    return len(real) * of_real[0], of_fake
