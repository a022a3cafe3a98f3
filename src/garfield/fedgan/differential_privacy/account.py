"""What a device's rounds have cost so far, and whether it can pay for another.

One step of DP-SGD is a Gaussian mechanism on a Poisson sample: every image is in the batch with
probability q = min(1, B / n), the sum of gradients clipped to C gets noise of standard deviation
σ · C. Its Rényi divergence at each of some orders is computed by Opacus; those of all steps of all
rounds add up, and the best order gives

    ε = min over α of  RDP(α) + log((α − 1) / α) − (log δ + log α) / (α − 1)

Abadi et al., CCS 2016; Mironov, Talwar and Zhang, 2019; Balle et al., AISTATS 2020. Images are
drawn that way indeed (`private_networks`), so the accounting is of what is done. A device that has
no more images than a batch gains nothing by sampling: q = 1.

A round is paid for as a whole and **before** it is trained, and on a device of its own the account
is a file, on the disk before anything is computed: a crash may waste budget, never overdraw it.
A device that cannot pay for a round as large as it is asked for takes no part in it, nor later.
"""

from __future__ import annotations

import json
import math
import secrets
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from garfield.core.errors import BudgetSpent, InputError
from garfield.core.files import write_json
from garfield.fedgan.differential_privacy.from_opacus import privacy_analysis
from garfield.fedgan.load import Load
from garfield.fedgan.settings import PrivacySettings

ORDERS = (1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 3.0, 3.5, 4.0, 4.5, *range(5, 64), 128, 256, 512)
"""Those of TensorFlow Privacy: any set gives a true bound, and whole ones are quick to compute."""


class PrivacyAccount:
    """What one device has spent of its (ε, δ)."""

    def __init__(
        self, limits: PrivacySettings, *, path: Path | None = None, secret: int | None = None
    ) -> None:
        """Goes on from the file at `path`, if there is one, and keeps it up to date.

        `secret` is what the device's noise is drawn from, by default of the operating system; a
        server that knew it could take the noise off. Simulations give one to repeat themselves.
        """
        self.limits, self.path = limits, path
        self.rounds = 0
        """That were paid for."""
        self._secret = secrets.randbits(128) if secret is None else secret
        self._steps: dict[tuple[float, float], int] = {}  # by noise and sampling rate
        if path is not None and path.exists():
            self._read(path)

    @property
    def budget(self) -> float:
        """ε that may be spent."""
        return math.inf if self.limits.dp_epsilon is None else self.limits.dp_epsilon

    @property
    def epsilon(self) -> float:
        """ε spent so far."""
        return epsilon_of(self._steps, self.limits.dp_delta)

    def epsilon_after(self, load: Load, samples: int) -> float:
        """ε spent after a round of that load, on so many images."""
        return epsilon_of(self._with(load, samples), self.limits.dp_delta)

    def can_pay(self, load: Load, samples: int) -> bool:
        """Whether a round of that load, on so many images, stays within the budget."""
        return self.epsilon_after(load, samples) <= self.budget

    def pay(self, load: Load, samples: int) -> None:
        """Charge a round before it is trained; BudgetSpent if there is not enough for all of it."""
        after = self.epsilon_after(load, samples)
        if after > self.budget:
            raise BudgetSpent(
                f"A round of {load.steps} batches of {load.batch} from {samples} images would "
                f"bring ε from {self.epsilon:.3g} to {after:.3g}, beyond the {self.budget:g} that "
                "this device may spend: it takes no part any more."
            )
        self._steps = self._with(load, samples)
        self.rounds += 1
        if self.path is not None:
            write_json(self.path, self.as_json())

    def round_seed(self) -> int:
        """What the round paid for last draws from, noise included; another one for every round."""
        return int(np.random.default_rng((self._secret, self.rounds)).integers(2**63))

    def as_json(self) -> dict[str, Any]:
        """What is kept on the device. The secret is not: another one does as well."""
        return {
            "rounds": self.rounds,
            "steps": [
                {"noise": noise, "rate": rate, "count": count}
                for (noise, rate), count in self._steps.items()
            ],
        }

    def _read(self, path: Path) -> None:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            steps = {
                (float(each["noise"]), float(each["rate"])): int(each["count"])
                for each in content["steps"]
            }
            self.rounds = int(content["rounds"])
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise InputError(
                f"{path} cannot be read ({problem}), so nobody knows what this device has spent. "
                "Bring the file back; without it the device's budget is gone."
            ) from None
        self._steps = steps

    def _with(self, load: Load, samples: int) -> dict[tuple[float, float], int]:
        key = (self.limits.dp_noise, sampling_rate(load.batch, samples))
        return self._steps | {key: self._steps.get(key, 0) + load.steps}


def sampling_rate(batch: int, samples: int) -> float:
    """q: the probability with which each image is in a batch."""
    return min(1.0, batch / samples)


def epsilon_of(steps: dict[tuple[float, float], int], delta: float) -> float:
    """ε of so many steps of each noise and sampling rate, all together."""
    if not steps:
        return 0.0
    total = sum(count * _divergence(noise, rate) for (noise, rate), count in steps.items())
    with warnings.catch_warnings():
        # that the best order is the first or last: the bound is true, only not the tightest
        warnings.simplefilter("ignore", UserWarning)
        epsilon, _ = privacy_analysis().get_privacy_spent(orders=ORDERS, rdp=total, delta=delta)
    return max(0.0, float(epsilon))


@lru_cache(maxsize=10_000)
def _divergence(noise: float, rate: float) -> npt.NDArray[np.float64]:
    """(orders,) Rényi divergence of one step."""
    found = privacy_analysis().compute_rdp(q=rate, noise_multiplier=noise, steps=1, orders=ORDERS)
    return np.asarray(found, dtype=np.float64)
