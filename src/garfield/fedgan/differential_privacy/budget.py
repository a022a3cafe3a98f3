"""Whether a privacy budget means anything, and pays for anything: before a training begins."""

from __future__ import annotations

from collections.abc import Sequence

from garfield.core.errors import ConfigError
from garfield.fedgan.differential_privacy.account import PrivacyAccount
from garfield.fedgan.load import Load
from garfield.fedgan.settings import PrivacySettings


def check_budget(limits: PrivacySettings, samples: int) -> None:
    """Of one device with so many images, which does not know yet what it will be asked for.

    ConfigError if it means nothing, or does not pay for as little as an iteration on one image.
    """
    if not samples:
        return  # whoever has none is refused for that
    _check_delta(limits, samples)
    cost = PrivacyAccount(limits).epsilon_after(Load(1, 1), samples)
    if limits.dp_epsilon is not None and cost > limits.dp_epsilon:
        raise ConfigError(
            f"The budget pays for no iteration: one on a single image of {samples} costs "
            f"ε = {cost:.3g} of {limits.dp_epsilon:g}. Raise --dp-noise (now {limits.dp_noise:g}), "
            "give the device more images, or raise --dp-epsilon."
        )


def check_budgets(limits: PrivacySettings, loads: Sequence[Load], samples: Sequence[int]) -> None:
    """Of devices that are asked for such loads a round, and have so many images.

    ConfigError if the budget means nothing, or nobody can pay for a first round.
    """
    _check_delta(limits, max(samples))
    account = PrivacyAccount(limits)
    pairs = zip(loads, samples, strict=True)
    cheapest = min(account.epsilon_after(load, count) for load, count in pairs)
    if limits.dp_epsilon is not None and cheapest > limits.dp_epsilon:
        raise ConfigError(
            f"No device can pay for a single round: the cheapest costs ε = {cheapest:.3g} "
            f"of {limits.dp_epsilon:g}. Raise --dp-noise (now {limits.dp_noise:g}), lower "
            "--batch or --local-steps, give devices more images, or raise --dp-epsilon."
        )


def _check_delta(limits: PrivacySettings, samples: int) -> None:
    if limits.dp_delta >= 1 / samples:
        raise ConfigError(
            f"A delta of {limits.dp_delta:g} allows giving away one of {samples} images whole. "
            f"Set --dp-delta well below {1 / samples:.2g}."
        )
