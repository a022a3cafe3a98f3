"""The parts of Opacus that are used, imported when they are: it takes seconds."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from garfield.core.errors import MissingDependency

_MISSING = (
    "Differentially private training needs Opacus, which is not installed. "
    "Install it with: pip install 'garfield-ml[fedgan-private]'"
)


def privacy_analysis() -> ModuleType:
    """From steps of a sampled Gaussian mechanism to Rényi divergences, and from these to ε."""
    try:
        from opacus.accountants.analysis import rdp
    except ImportError:
        raise MissingDependency(_MISSING) from None
    return rdp  # type: ignore[no-any-return]


def per_sample_gradients(module: Any) -> Any:
    """The module with hooks that leave one gradient per image in `grad_sample`."""
    try:
        from opacus.grad_sample import GradSampleModule
    except ImportError:
        raise MissingDependency(_MISSING) from None
    return GradSampleModule(module, loss_reduction="mean")


def problems_of(module: Any) -> list[str]:
    """Why Opacus cannot train it, if it cannot."""
    try:
        from opacus.validators import ModuleValidator
    except ImportError:
        raise MissingDependency(_MISSING) from None
    return [str(problem) for problem in ModuleValidator.validate(module, strict=False)]


def clipping(optimizer: Any, *, noise: float, clip: float, expected_batch: float) -> Any:
    """The optimizer with clipped and noised gradients: (Σ clipped + N(0, (noise · clip)²)) / B."""
    try:
        from opacus.optimizers import DPOptimizer
    except ImportError:
        raise MissingDependency(_MISSING) from None
    return DPOptimizer(
        optimizer, noise_multiplier=noise, max_grad_norm=clip, expected_batch_size=expected_batch
    )
