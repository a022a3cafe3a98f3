"""Every error a user may meet, in one tree.

GarfieldError
├── ConfigError          a setting is wrong; nothing has started (also a ValueError)
│   ├── UnknownName      no rule, attack or parameter of that name (also a KeyError)
│   └── BoundError       n is too small for f
├── InputError           the data or vectors handed over cannot be used (also a ValueError)
│   └── AnswerNotFinite  a rule of the user's made NaN or infinity of finite rows
├── MissingDependency    an optional part is not installed (also an ImportError)
└── RunError             a run has begun, and cannot go on
    ├── QuorumError      too few valid replies; says who was silent, and why
    ├── DivergedError    the model is no longer finite: training has failed
    ├── DecodingError    more workers lied than a code can undo
    ├── NodeFailed       a process that the run cannot do without did not start, or has ended
    ├── Deadlock         a simulated node waits where nobody can wake it
    ├── CoordinationUnreachable  what an elastic job has agreed on cannot be read; worth a retry
    ├── StateUnreachable  the database of a federated training does not answer; worth a retry
    ├── BudgetSpent       a device's privacy budget does not pay for what it is asked for
    ├── LeaseLost         another server has become the primary of a federated training
    ├── ClusterError     Kubernetes' API server refused a request
    │   ├── ClusterUnreachable  it does not answer, or is overloaded; worth a retry
    │   ├── ObjectAbsent        it has no object of that name
    │   └── WriteConflict       somebody else has changed or made the object first
    └── SplitError       the store or the servers of a split training cannot go on with it
        ├── RequestRefused    a split server refused a request, or could not answer it
        ├── ObjectMissing     the store has no object of that name (also a KeyError)
        ├── ObjectDamaged     an object is not what its header or its hash says
        ├── AccessDenied      the store does not know the token, or it does not reach so far
        └── StoreUnreachable  the store does not answer, or answers with an error; worth a retry

`exit_code` is what a command ends with: 2 where something given to it must change before it
is worth trying again, 1 for a run that has failed.
"""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from garfield.core.silence import Silence


class GarfieldError(Exception):
    """The root: ``except GarfieldError`` catches all of ours and nothing else."""

    exit_code = 2
    """What a command that meets it ends with."""


class ConfigError(GarfieldError, ValueError):
    """A setting is wrong. Raised before anything starts."""


class UnknownName(ConfigError, KeyError):  # noqa: N818 (a name, not an accident)
    """Nothing goes by that name; says which name is nearest."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        known = sorted(known)
        near = get_close_matches(name, known, n=1, cutoff=0.5)
        remedy = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known) or 'none'}."
        super().__init__(f"{name} is not {kind}. {remedy}")

    __str__ = Exception.__str__  # KeyError's would print the message in quotes


class BoundError(ConfigError):
    """A rule cannot tolerate f faults among n inputs."""


class InputError(GarfieldError, ValueError):
    """Vectors of the wrong shape, dtype or kind, or more faulty ones than f."""


class AnswerNotFinite(InputError):  # noqa: N818
    """A rule that is not ours returned NaN or infinity, and its rows hold none."""


class MissingDependency(GarfieldError, ImportError):  # noqa: N818
    """An optional part of the library is not installed; the message holds the command."""


class RunError(GarfieldError):
    """A run has begun, and cannot go on."""

    exit_code = 1


class QuorumError(RunError):
    """Fewer peers than needed gave a valid reply in time; `silent` says who, and why."""

    def __init__(self, message: str, silent: Mapping[str, Silence] | None = None) -> None:
        super().__init__(message)
        self.silent = silent or {}


class DivergedError(RunError):
    """A model is NaN or infinite: what lies do to averaging, or too high a learning rate."""


class DecodingError(RunError):
    """Coded rows fit no set of gradients with f lies among them: there are more."""


class NodeFailed(RunError):  # noqa: N818
    """A process that the run cannot do without did not start, or has ended.

    Where the process could tell, its `__cause__` is a `RemoteTraceback` (`core/blame.py`).
    """


class CoordinationUnreachable(RunError):  # noqa: N818
    """What an elastic job has agreed on can be neither read nor changed now; worth a retry."""


class StateUnreachable(RunError):  # noqa: N818
    """The database that keeps a federated training's state does not answer; worth a retry."""


class BudgetSpent(RunError):  # noqa: N818
    """A device's privacy budget does not pay for what it is asked for."""


class LeaseLost(RunError):  # noqa: N818
    """Another server has become the primary of a federated training since."""


class ClusterError(RunError):
    """Kubernetes' API server refused a request."""


class ClusterUnreachable(ClusterError):  # noqa: N818
    """The API server does not answer, or is overloaded; worth a retry."""


class ObjectAbsent(ClusterError):  # noqa: N818
    """The API server has no object of that name."""


class WriteConflict(ClusterError):  # noqa: N818
    """Somebody else has changed the object since it was read, or has made one of that name."""


class Deadlock(RunError):  # noqa: N818 (the word for it)
    """A simulated node waits where nobody can wake it."""


class SplitError(RunError):
    """The store or the servers of a split training cannot go on with it."""


class RequestRefused(SplitError):  # noqa: N818
    """A split server refused a request, or could not answer it; `refusal` says why."""

    def __init__(self, message: str, refusal: str = "failed", status: int = 500) -> None:
        super().__init__(message)
        self.refusal = refusal
        self.status = status
        """The HTTP status that goes with it."""


class ObjectMissing(SplitError, KeyError):  # noqa: N818
    """The store has no object of that name."""

    __str__ = Exception.__str__  # KeyError's would print the message in quotes


class ObjectDamaged(SplitError):  # noqa: N818
    """An object is truncated or altered: not what its header or its hash says."""


class AccessDenied(SplitError):  # noqa: N818
    """The store does not know the token (401), or the token does not reach so far (403)."""

    def __init__(self, message: str, status: int = 403) -> None:
        super().__init__(message)
        self.status = status


class StoreUnreachable(SplitError):  # noqa: N818
    """The store does not answer, or answers with an error of its own; worth a retry."""
