"""The primitives all rules share, on compiled code or on torch."""

from garfield.kernels.gathered import Gathered, gather
from garfield.kernels.instructions import isa, isas, set_isa
from garfield.kernels.kinds import Kind, read, torch_everywhere
from garfield.kernels.parallel import set_threads, threads
from garfield.kernels.rows import NonFinite, Rows

__all__ = [
    "Gathered", "Kind", "NonFinite", "Rows", "gather", "isa", "isas", "read", "set_isa",
    "set_threads", "threads", "torch_everywhere",
]  # fmt: skip
