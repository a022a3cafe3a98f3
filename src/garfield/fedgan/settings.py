"""The settings of a federated GAN; without torch, so that help does not wait for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from garfield.core.bounds import Seed, Within
from garfield.core.config import check_numbers, settings_of
from garfield.core.errors import ConfigError
from garfield.runs.recording import Recording

MOST_PROCESSES = 16
"""Devices that run as processes of one machine: each takes about 445 MB."""

MOST_STEPS, MOST_BATCH = 100_000, 65_536
"""What a device does in a round, whichever server asks: more would never end."""

_CHOICES = {
    "missing_classes": ("refuse", "allow"),
    "optimizer_state": ("reset", "average"),
    "late_devices": ("complete", "abort"),
}


@dataclass(frozen=True)
class DeviceSettings:
    """Which devices there are, and what data each of them has."""

    devices: Annotated[int, Within(1)] = 80
    """How many devices there are."""
    partition: str = "skewed"
    """Who has which samples: skewed (section 6.4 of the thesis), iid, or "dirichlet(alpha=1)"."""
    max_class: Annotated[int, Within(1)] = 5
    """With skewed data: classes that a device has at most."""
    max_samples: Annotated[int, Within(1)] = 3000
    """With skewed data: samples of a class that a device has at most."""
    missing_classes: str = "refuse"
    """What to do about a class that no device has: refuse, or allow."""
    weak_devices: Annotated[float, Within(0, 1)] = 0.0
    """The share of devices with half the memory and half the compute; they get half the batch and
    half the iterations."""
    noise_epsilon: Annotated[float | None, Within(0, above=True)] = None
    """Noise on the counts that devices declare: differentially private by this epsilon. (none)"""
    clusters: Annotated[int | None, Within(2)] = None
    """Devices have no labels: they count their images by so many clusters instead. (by label)"""
    cluster_features: str = "auto"
    """Features that clusters are found by: auto, pixels, small-cnn, or efficientnet."""
    public_images: str | None = None
    """Images that clusters are fitted to, folder:DIR or a data set. (sums that devices send)"""

    def __post_init__(self) -> None:
        check_numbers(self)
        _check_choices(self)
        if self.clusters is None and (self.public_images or self.cluster_features != "auto"):
            raise ConfigError("Features and public images are for clusters: give --clusters too.")
        if self.noise_epsilon is not None and self.tells_sums:
            raise ConfigError(
                "Noised counts beside sums that are not noised would promise what they do not "
                "keep. Give --public-images to fit clusters to, or leave out --noise-epsilon."
            )

    @property
    def tells_sums(self) -> bool:
        """Devices send sums of features, for clusters to be fitted to them."""
        return self.clusters is not None and self.public_images is None


@dataclass(frozen=True)
class RoundSettings:
    """What happens in a round."""

    rounds: Annotated[int, Within(1)] = 300
    """How many rounds to train for."""
    fraction: Annotated[float, Within(0, 1, above=True)] = 0.025
    """The share of devices that train in a round: C."""
    local_steps: Annotated[int, Within(1, MOST_STEPS)] = 30
    """Iterations of a device in a round: E."""
    batch: Annotated[int, Within(1, MOST_BATCH)] = 50
    """Samples in a batch: B."""
    generator_every: Annotated[int, Within(1)] = 1
    """Iterations of the discriminator for one of the generator."""
    optimizer_state: str = "reset"
    """What becomes of optimizers between rounds: reset on every device, or average like weights."""
    sampling: str = "balanced"
    """Who trains: balanced, so that classes are seen in proportion, or random."""
    weighting: str = "kl"
    """How devices count: kl, thesis (equation 6.3 as printed), uniform, or samples."""
    seed: Seed = 0
    """Fixes all randomness."""

    def __post_init__(self) -> None:
        check_numbers(self)
        _check_choices(self)
        if self.generator_every > self.local_steps:
            raise ConfigError(
                f"The generator would never step: once in {self.generator_every} iterations, and a "
                f"device has {self.local_steps} in a round. Set --generator-every to "
                f"{self.local_steps} at most."
            )


@dataclass(frozen=True)
class LieSettings:
    """Devices that lie, and what bears them."""

    gar: str | None = None
    """A rule on what devices changed, as in nnm+trimmed-mean, instead of the weighted mean."""
    f: Annotated[int, Within(0)] = 0
    """How many devices of a round may lie: what the rule has to bear."""
    attack: str | None = None
    """How some devices lie about what they learned, as in little-is-enough."""
    metadata_attack: str | None = None
    """How they lie about what they have: large, or rare."""
    liars: Annotated[int | None, Within(0)] = None
    """How many devices lie, of all. (as many as f)"""

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.lying and not (self.attack or self.metadata_attack) and self.liars:
            raise ConfigError(f"{self.liars} liars need a lie: give --attack or --metadata-attack.")
        if (self.attack or self.metadata_attack) and not self.lying:
            raise ConfigError("An attack needs liars: give --liars, or --f.")
        if self.f and not self.gar:
            raise ConfigError(
                f"A weighted mean bears no lie, and f is {self.f}. Give a rule, as in "
                "--gar nnm+trimmed-mean, or say --liars instead of --f."
            )

    @property
    def lying(self) -> int:
        """How many devices lie."""
        return self.f if self.liars is None else self.liars


@dataclass(frozen=True)
class PrivacySettings:
    """A discriminator trained with differential privacy, and what each device may spend of it."""

    dp_epsilon: Annotated[float | None, Within(0, above=True)] = None
    """Train the discriminator by DP-SGD; a device stops when it has spent so much. (no privacy)"""
    dp_delta: Annotated[float, Within(0, 1, above=True, below=True)] = 1e-5
    """The probability with which epsilon may not hold; well below one over a device's images."""
    dp_clip: Annotated[float, Within(0, above=True)] = 1.0
    """The norm to which the gradient of each real image is clipped."""
    dp_noise: Annotated[float, Within(0, above=True)] = 1.0
    """Standard deviation of the noise on the sum of clipped gradients, in clips."""

    def __post_init__(self) -> None:
        check_numbers(self)
        others = (self.dp_delta, self.dp_clip, self.dp_noise)
        if self.dp_epsilon is None and others != (1e-5, 1.0, 1.0):
            raise ConfigError("Clipping, noise and delta need a budget: give --dp-epsilon too.")


@dataclass(frozen=True)
class RecordSettings:
    """What is written down, and when."""

    evaluate_every: Annotated[int, Within(0)] = 10
    """Rounds between evaluations: images, and how good they are. (0: after the last one)"""
    judge: str = "auto"
    """Features to judge images by: auto, small-cnn, efficientnet, inception, or none at all."""
    inception_weights: str | None = None
    """The path of Inception-v3 weights that you own."""
    judged_images: Annotated[int, Within(2)] = 10_000
    """Images that are drawn to be judged; a distance of fewer than 5,000 is labelled as such."""
    train_classifier: bool = True
    """After the last round, train a classifier on generated images and test it on real ones too."""
    checkpoint_every: Annotated[int, Within(1)] = 10
    """Rounds between checkpoints."""

    def __post_init__(self) -> None:
        check_numbers(self)


@dataclass(frozen=True)
class ProcessSettings:
    """Servers and devices that are processes: where, whom to wait for, and who takes over."""

    servers: Annotated[int, Within(1)] = 1
    """How many servers there are: one leads, the others take over when it is gone."""
    state: str | None = None
    """Where the state is committed: an SQLite file, or postgresql://… (OUT/state.sqlite)"""
    lease_s: Annotated[float, Within(0, above=True)] = 10.0
    """Seconds after which a server that is not heard of leads no longer."""
    round_timeout_s: Annotated[float, Within(0, above=True)] = 60.0
    """Seconds that the devices of a round have, for fetching, training and sending."""
    late_devices: str = "complete"
    """Without those who are later: complete the round, or abort it."""
    join_timeout_s: Annotated[float, Within(0, above=True)] = 120.0
    """Seconds that all devices have to join, before the first round."""
    secure_aggregation: bool = False
    """Let the server see the sum of a round's networks, and none of them. Twice the bytes."""
    listen: str | None = None
    """HOST:PORT for devices that run elsewhere (garfield fedgan device); none are started here."""
    certificates: str | None = None
    """A directory by garfield certs, with those of this server. (with --listen, none)"""

    def __post_init__(self) -> None:
        check_numbers(self)
        _check_choices(self)


@dataclass(frozen=True)
class FedganSettings:
    """All settings of a federated GAN. What is trained comes first."""

    gan: str = "lsgan"
    """Which networks: lsgan, "lsgan(width=0.25)", dcgan, "dcgan(ngf=16)", or one you registered."""
    data: str = "fashion-small"
    """Images to divide among devices: fashion, mnist, cifar10, fashion-small, or folder:DIR."""
    data_dir: str | None = None
    """Where data sets lie. ($GARFIELD_DATA, or ~/.cache/garfield)"""
    image_side: Annotated[int | None, Within(16, 64)] = None
    """With folder:DIR, the side to which images are scaled and cropped. (as they are)"""
    conditional: bool = False
    """Give both networks the class of each image."""
    simulate: bool | None = None
    """Run all devices in this process, one after the other, instead of each as its own.
    (if they are more than 16)"""
    population: DeviceSettings = field(default_factory=DeviceSettings)
    training: RoundSettings = field(default_factory=RoundSettings)
    lies: LieSettings = field(default_factory=LieSettings)
    privacy: PrivacySettings = field(default_factory=PrivacySettings)
    processes: ProcessSettings = field(default_factory=ProcessSettings)
    record: RecordSettings = field(default_factory=RecordSettings)
    recording: Recording = field(default_factory=Recording)

    def __post_init__(self) -> None:
        check_numbers(self)
        if self.lies.lying >= self.population.devices:
            raise ConfigError(
                f"{self.lies.lying} of {self.population.devices} devices lie: one at least must "
                "be honest."
            )
        if self.processes.secure_aggregation and self.lies.gar:
            raise ConfigError(
                f"Secure aggregation shows the server the sum of devices' networks and none of "
                f"them, and {self.lies.gar} has to compare them with each other. Leave one of the "
                "two out."
            )
        if self.simulated:
            self._refuse_what_is_for_processes()
        if self.processes.secure_aggregation and self.population.tells_sums:
            raise ConfigError(
                "Secure aggregation hides what each device has learned, and to fit clusters each "
                "would show sums of its features. Give --public-images to fit them to."
            )
        if self.lies.gar and self.training.optimizer_state == "average":
            raise ConfigError(
                "Optimizer state cannot be averaged beside a robust rule: liars would have their "
                "way with it. Leave --optimizer-state at reset."
            )
        if self.privacy.dp_epsilon is not None and self.population.tells_sums:
            raise ConfigError(
                "Devices that send sums of their features for clusters keep no promise of "
                "differential privacy. Give --public-images to fit clusters to."
            )

    @property
    def simulated(self) -> bool:
        """Whether devices are simulated: as was asked, else if this machine cannot hold them."""
        if self.simulate is not None:
            return self.simulate
        return self.population.devices > MOST_PROCESSES and self.processes.listen is None

    def _refuse_what_is_for_processes(self) -> None:
        given = [
            each.flag
            for each in settings_of(ProcessSettings)
            if getattr(self.processes, each.name) != each.default
        ]
        if given:
            raise ConfigError(
                f"For devices that are processes: {', '.join(given)}. These "
                f"{self.population.devices} are simulated, and send nothing. Leave it out, or take "
                f"processes: --no-simulate, with --devices {MOST_PROCESSES} at most on one machine."
            )


@dataclass(frozen=True)
class DemoSettings:
    """How long `garfield fedgan demo` is."""

    rounds: Annotated[int, Within(1)] = 16
    """Rounds of each training."""
    local_steps: Annotated[int, Within(1)] = 20
    """Iterations of a device in a round."""
    devices: Annotated[int, Within(20)] = 40
    """How many devices there are; a twentieth trains in a round."""
    max_class: Annotated[int, Within(1)] = 3
    """Classes that a device has at most."""
    judged_images: Annotated[int, Within(2)] = 5000
    """Images that are drawn to be judged."""
    seed: Seed = 0
    """Fixes all randomness."""

    def __post_init__(self) -> None:
        check_numbers(self)


def _check_choices(settings: object) -> None:
    for name, known in _CHOICES.items():
        value = getattr(settings, name, known[0])
        if value not in known:
            raise ConfigError(f"{name} must be {' or '.join(known)}, got {value!r}.")
