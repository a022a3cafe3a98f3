"""The server's part of a round: choose devices, give them tasks, join what they send.

    plan = server.plan()                    # who trains, and what each of them does
    ...                                     # somebody carries state and tasks to devices and back
    record = server.finish(plan, updates)   # the next state, and what is written down

Whoever carries (a simulation, a transport) is not known here. A device that sent nothing in time,
or what cannot be used, is None or refused by name; the round goes on with the others, and what is
recorded is who really took part. If nobody did, the state stays as it was and RunError says so;
whoever carries may then `abandon` the round, which counts as held by nobody, and hold the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from garfield.core.errors import DivergedError, InputError, RunError
from garfield.fedgan.averaging import State, check_alike
from garfield.fedgan.device import Task, Update
from garfield.fedgan.joining import Joining, Robust
from garfield.fedgan.load import LoadModel
from garfield.fedgan.metadata import MetadataTable
from garfield.fedgan.sampling import SamplingHistory, kl_of_seen, sampler
from garfield.fedgan.weighting import WEIGHTINGS, RoundShares, kl_divergence, weights


@dataclass(frozen=True)
class RoundRules:
    """How rounds are held."""

    devices_a_round: int
    load: LoadModel
    sampling: str = "balanced"
    weighting: str = "kl"
    generator_every: int = 1
    keeps_optimizer: bool = False
    seed: int = 0


@dataclass(frozen=True)
class RoundPlan:
    """Who trains in a round, and what each of them does."""

    round: int
    devices: tuple[int, ...]
    tasks: tuple[Task, ...]
    seed: int
    """What all randomness of the round is drawn from, with its number."""


@dataclass(frozen=True)
class RoundRecord:
    """What is written down of a round."""

    round: int
    asked: tuple[int, ...]
    took_part: tuple[int, ...]
    refused: dict[int, str]
    """Why what a device sent was not used, or that it sent nothing."""
    weights: tuple[float, ...]
    """Of those who took part."""
    samples: int
    """That were trained on: batch times iterations, over all who took part."""
    generator_loss: float | None
    """The mean of the last ones; None if nobody took part."""
    discriminator_loss: float | None
    kl_seen: float | None
    """Divergence of all samples that the server has seen through devices from everybody's; None
    where it is not finite (`kl_of_seen`)."""
    seen: tuple[int, ...]
    """Declared samples of each class that took part so far."""
    epsilon: dict[int, float] = field(default_factory=dict)
    """What devices that took part have spent of their privacy so far, of those with an account."""
    spent: tuple[int, ...] = ()
    """Who has spent all of it, and is asked no more."""

    def as_event(self) -> dict[str, Any]:
        """A line of metrics; it speaks of privacy only where there are accounts of it."""
        event = {
            "event": "round", **vars(self),
            "refused": {str(device): why for device, why in self.refused.items()},
            "epsilon": {str(device): spent for device, spent in self.epsilon.items()},
        }  # fmt: skip
        return event if self.epsilon or self.spent else _without(event, "epsilon", "spent")


class FederatedServer:
    """The learning state of federated GANs, and what is known of its devices."""

    def __init__(
        self, state: State, table: MetadataTable, rules: RoundRules, joining: Joining
    ) -> None:
        self.state = state
        WEIGHTINGS[rules.weighting]  # a name that is none is told before the first round
        self.rules, self.joining = rules, joining
        self.update_bytes: int | None = None
        """What a device sends back in a round, if that is not a state as it is."""
        self.history = SamplingHistory(*table.counts.shape)
        self.learn_metadata(table)

    def learn_metadata(self, table: MetadataTable) -> None:
        """Take over what devices declare; again when their data change.

        Who was asked and what was seen so far stays: it was true then.
        """
        known = (len(self.history.asked), len(self.history.seen))
        if table.counts.shape != known:
            raise InputError(
                f"{table.counts.shape[0]} devices declare {table.counts.shape[1]} classes, and the "
                f"training is one of {known[0]} devices and {known[1]} classes."
            )
        self.table = table
        self._divergence = kl_divergence(table.counts)
        self._samples = table.counts.sum(axis=1).astype(np.float64)
        self._sampler = sampler(self.rules.sampling, table.counts)

    @property
    def round(self) -> int:
        """How many rounds are over."""
        return self.history.rounds

    @property
    def over(self) -> bool:
        """Too few devices are left for another round; a robust rule needs as many as ever."""
        least = self.rules.devices_a_round if isinstance(self.joining, Robust) else 1
        return int(np.count_nonzero(~self.history.gone)) < least

    @property
    def state_bytes(self) -> int:
        """What is sent to a device in a round, and by it unless `update_bytes` says otherwise."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.state.values())

    def bytes_per_device(self) -> np.ndarray:
        """(devices,) bytes of learning state sent to and by each so far."""
        back = self.state_bytes if self.update_bytes is None else self.update_bytes
        moved: np.ndarray = self.history.asked * self.state_bytes + self.history.took_part * back
        return moved

    def plan(self, seed: int | None = None) -> RoundPlan:
        """Choose the devices of the next round, and what each of them does.

        Another `seed` than that of the rules is for a round that is tried again.
        """
        rules, number = self.rules, self.round
        seed = rules.seed if seed is None else seed
        rng = np.random.default_rng((seed, number, _SAMPLING))
        chosen = self._sampler.choose(self.history, rules.devices_a_round, rng)
        if not chosen:
            raise RunError(f"Round {number} has no device to ask.")
        tasks = tuple(
            Task(
                number,
                rules.load.of(self.table.memory_mb[device], self.table.compute[device]),
                rules.generator_every,
                device_seed(seed, number, device),
                rules.keeps_optimizer,
            )
            for device in chosen
        )
        return RoundPlan(number, tuple(chosen), tasks, seed)

    def finish(
        self,
        plan: RoundPlan,
        updates: Sequence[Update | None],
        silent: Mapping[int, str] | None = None,
    ) -> RoundRecord:
        """Join what the devices of a plan have sent, in its order; None: nothing in time.

        `silent` says why, where more is known than that.
        """
        usable, refused = self._sifted(plan, updates, silent or {})
        used = [place for place, update in enumerate(usable) if update is not None]
        if not used:
            raise RunError(
                f"Round {plan.round} has failed: {'; '.join(refused.values())}. The networks are "
                "those of the round before."
            )
        shares = self._weights(plan, used)
        every = [0.0] * len(usable)
        for place, weight in zip(used, shares, strict=True):
            every[place] = weight
        states = [None if update is None else update.state for update in usable]
        seed = int(np.random.default_rng((plan.seed, plan.round, _JOINING)).integers(2**63))
        joined = self.joining.join(self.state, states, every, seed)
        losses = [
            (update.generator_loss, update.discriminator_loss)
            for update in usable
            if update is not None
        ]
        record = self._held(plan, used, joined, losses, refused)
        there = [update for update in usable if update is not None]
        told = zip(record.took_part, there, strict=True)
        return self.with_accounts(record, {d: (u.epsilon, u.spent) for d, u in told})

    def with_accounts(
        self, record: RoundRecord, told: Mapping[int, tuple[float | None, bool]]
    ) -> RoundRecord:
        """The record with what devices say of their privacy; who has spent it is asked no more."""
        spent = tuple(device for device, (_, is_spent) in told.items() if is_spent)
        self.history.leave(spent)
        found = {device: epsilon for device, (epsilon, _) in told.items() if epsilon is not None}
        return replace(record, epsilon=found, spent=spent)

    def finish_joined(
        self, plan: RoundPlan, joined: Mapping[int, tuple[float, float] | None], state: State,
        refused: Mapping[int, str],
    ) -> RoundRecord:  # fmt: skip
        """Take over a state that was joined elsewhere, out of what these devices have sent.

        `joined` are their last losses, None if not told; it was done by `shares_of` them, as when
        a server sees nothing but the sum.
        """
        check_alike(state, self.state, "The sum")
        used = [place for place, device in enumerate(plan.devices) if device in joined]
        losses = [told for place in used if (told := joined[plan.devices[place]]) is not None]
        return self._held(plan, used, state, losses, dict(refused))

    def _held(
        self, plan: RoundPlan, used: list[int], state: State,
        losses: Sequence[tuple[float, float]], refused: dict[int, str],
    ) -> RoundRecord:  # fmt: skip
        self.state = state
        self._check_finite(plan.round)
        took_part = tuple(plan.devices[place] for place in used)
        self.history.record(plan.devices, took_part, self.table.counts)
        return self._record(plan, losses, took_part, refused, self._weights(plan, used))

    def shares_of(self, plan: RoundPlan) -> dict[int, float]:
        """How much each device of a plan counts; of some of them, in proportion to each other."""
        shares = self._weights(plan, list(range(len(plan.devices))))
        return dict(zip(plan.devices, shares, strict=True))

    def _check_finite(self, number: int) -> None:
        if not all(t.isfinite().all() for t in self.state.values() if t.is_floating_point()):
            raise DivergedError(
                f"The networks are not finite any more after round {number}. Lower the "
                "learning rate, or choose a robust rule if devices may lie: --gar."
            )

    def abandon(self, plan: RoundPlan, refused: Mapping[int, str]) -> RoundRecord:
        """Let a round pass in which nothing is learned: who was asked counts as asked."""
        self.history.record(plan.devices, (), self.table.counts)
        return self._record(plan, (), (), dict(refused), [])

    def _sifted(
        self, plan: RoundPlan, updates: Sequence[Update | None], silent: Mapping[int, str]
    ) -> tuple[list[Update | None], dict[int, str]]:
        """What can be used, None in place of the rest, and why not."""
        usable: list[Update | None] = []
        refused: dict[int, str] = {}
        like = self.state
        for device, update in zip(plan.devices, updates, strict=True):
            try:
                if update is None:
                    raise InputError(silent.get(device, f"device-{device} sent nothing in time"))
                wanted = like
                if self.rules.keeps_optimizer and not any(map(_of_optimizer, like)):
                    # before the first round there are none: all must be like the first ones sent
                    wanted = like | {k: v for k, v in update.state.items() if _of_optimizer(k)}
                check_alike(update.state, wanted, f"device-{device}")
                like = wanted
            except InputError as problem:
                refused[device] = str(problem)
                update = None
            usable.append(update)
        return usable, refused

    def _weights(self, plan: RoundPlan, used: list[int]) -> list[float]:
        at = [plan.devices[place] for place in used]
        load = [plan.tasks[place].load.relative(self.rules.load.full) for place in used]
        found: list[float] = weights(
            self.rules.weighting,
            RoundShares(
                self._divergence[at], self._samples[at], self._samples.sum(), np.array(load)
            ),
        ).tolist()
        return found

    def _record(
        self, plan: RoundPlan, losses: Sequence[tuple[float, float]], took_part: tuple[int, ...],
        refused: dict[int, str], shares: list[float],
    ) -> RoundRecord:  # fmt: skip
        loads = {d: t.load for d, t in zip(plan.devices, plan.tasks, strict=True)}
        return RoundRecord(
            plan.round, plan.devices, took_part, refused, tuple(shares),
            samples=sum(loads[device].batch * loads[device].steps for device in took_part),
            generator_loss=_mean([of_generator for of_generator, _ in losses]),
            discriminator_loss=_mean([of_discriminator for _, of_discriminator in losses]),
            kl_seen=kl_of_seen(self.history, self.table.counts),
            seen=tuple(self.history.seen.tolist()),
        )  # fmt: skip


_SAMPLING, _JOINING, _TRAINING = 1, 2, 3  # so that no two draw the same numbers


def _mean(losses: Sequence[float]) -> float | None:
    return float(np.mean(losses)) if losses else None


def _without(event: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in names}


def _of_optimizer(name: str) -> bool:
    return name.partition(".")[0].endswith("_optimizer")


def device_seed(seed: int, number: int, device: int) -> int:
    """What a device draws from in a round; torch takes 63 bits."""
    rng = np.random.default_rng((seed, number, _TRAINING, device))
    return int(rng.integers(2**63))
