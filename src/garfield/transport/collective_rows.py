"""The memory of a collective: rows of float32, each with its step behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

STEP = 2  # float32 places that an int64 takes


@dataclass
class SteppedRows:
    """Rows of one collective, each with its step behind it, where the backend wants them."""

    host: np.ndarray[Any, np.dtype[np.float32]]
    tensor: Any
    """The same memory for gloo, a GPU's for nccl."""

    @classmethod
    def make(cls, rows: int, length: int, device: str) -> SteppedRows:
        import torch

        host = np.zeros((rows, length + STEP), np.float32)
        return cls(host, torch.from_numpy(host).to(device))

    def put(self, vector: Any, step: int) -> None:
        self.host[0, :-STEP] = vector
        self.host[0, -STEP:].view(np.int64)[0] = step
        if self.tensor.is_cuda:
            self.tensor[0].copy_(_tensor(self.host[0]))

    def get(self) -> np.ndarray[Any, np.dtype[np.float32]]:
        if self.tensor.is_cuda:
            _tensor(self.host).copy_(self.tensor)
        return self.host


def _tensor(array: Any) -> Any:
    import torch

    return torch.from_numpy(array)
