"""Rows as torch tensors, worked where they live: the vectors never leave their device.

Only (n, n) numbers come back to the CPU. Columns are taken in chunks, so the
memory beyond the input stays a small multiple of one chunk of n rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from garfield.core.types import Flags, Indices, Matrix
from garfield.kernels.rows import Rows

if TYPE_CHECKING:
    from torch import Tensor

CHUNK = 1 << 20  # columns at once; large, since launching a GPU kernel costs microseconds


class TorchRows(Rows):
    """1-D tensors of float32 or float64 on one device."""

    def __init__(
        self,
        rows: Sequence[Tensor],
        mix: Matrix | None = None,
        present: Sequence[Tensor] | None = None,
    ) -> None:
        import torch

        super().__init__(len(rows), len(rows[0]), mix)
        self.torch = torch
        self.rows = rows
        self.present = present
        self.dtype, self.device = rows[0].dtype, rows[0].device

    def median(self) -> Tensor:
        def middle(ranked: Tensor, count: Tensor) -> Tensor:
            low, high = (count - 1) // 2, count // 2
            return 0.5 * self._rank(ranked, low) + 0.5 * self._rank(ranked, high)

        return self._ranked(middle)

    def trimmed_mean(self, f: int) -> Tensor:
        def middle_mean(ranked: Tensor, count: Tensor) -> Tensor:
            drop = ((count - 1) // 2).clamp(max=f)
            return self._mean_of_ranks(ranked, drop, count - 2 * drop)

        return self._ranked(middle_mean)

    def mean_near_median(self, k: int) -> Tensor:
        f = self.n - k

        def window_mean(ranked: Tensor, count: Tensor) -> Tensor:
            low, high = (count - 1) // 2, count // 2
            mid = 0.5 * self._rank(ranked, low) + 0.5 * self._rank(ranked, high)
            kept = (count - f).clamp(min=1)
            first = self.torch.zeros_like(count)
            for s in range(f):  # the window moves past s while x[s + kept] is nearer than x[s]
                right = (kept + s).clamp(max=self.n - 1)
                nearer = 0.5 * ranked[s] + 0.5 * self._rank(ranked, right) < mid
                first += ((first == s) & (kept + s < count) & nearer).to(first.dtype)
            return self._mean_of_ranks(ranked, first, kept)

        return self._ranked(window_mean)

    def columns(self, index: Indices) -> Matrix:
        at = self.torch.from_numpy(np.asarray(index)).to(self.device)
        picked = self.torch.stack([row[at] for row in self.rows]).double().cpu().numpy()
        return picked if self.mix is None else np.asarray(self.mix @ picked)

    def _row(self, i: int) -> Tensor:
        if self.mix is not None:
            row: Tensor = self.weighted_sum(np.eye(self.n)[i])
            return row
        return self.rows[i].clone()  # as nothing keeps a tensor from being written to

    def _matrix(self) -> Tensor:
        return self.torch.cat([block for _, block in self._blocks()], dim=1)

    def subset(self, index: Indices) -> TorchRows:
        if self.mix is None:
            present = None if self.present is None else [self.present[i] for i in index]
            part = TorchRows([self.rows[i] for i in index], present=present)
        else:
            part = TorchRows(self.rows, self.mix[index])
        if self._sq_dists is not None:
            part._sq_dists = self._sq_dists[np.ix_(index, index)]
        return part

    # -- one chunk at a time --------------------------------------------------------

    def _blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """(n, chunk) of the rows, mixed if they are."""
        mix = None if self.mix is None else self.torch.from_numpy(self.mix).to(self.device)
        for lo in range(0, self.d, CHUNK):
            part = slice(lo, min(lo + CHUNK, self.d))
            block = self.torch.stack([row[part] for row in self.rows])
            yield part, block if mix is None else (mix @ block.double()).to(self.dtype)

    def _with_mix(self, mix: Matrix | None) -> TorchRows:
        return TorchRows(self.rows, mix)

    def _appended(self, row: Tensor, mix: Matrix | None) -> TorchRows:
        return TorchRows([*self.rows, row.to(self.device, self.dtype)], mix)

    def _dists(self, *, wide: bool) -> Matrix:
        total = self.torch.zeros((self.n, self.n), dtype=self.torch.float64, device=self.device)
        for _, narrow in self._blocks():
            block = narrow.double() if wide else narrow
            for i in range(self.n - 1):
                gaps = block[i + 1 :] - block[i]
                total[i, i + 1 :] += gaps.mul_(gaps).sum(1, dtype=self.torch.float64)
        return (total + total.T).cpu().numpy()

    def _dists_to(self, point: Tensor | None) -> Matrix:
        total = self.torch.zeros(self.n, dtype=self.torch.float64, device=self.device)
        for part, narrow in self._blocks():
            block = narrow.double()
            gaps = block if point is None else block - point[part].to(self.device).double()
            total += (gaps * gaps).sum(1)
        return total.cpu().numpy()

    def _sum(self, base_weights: Matrix, divisor: float, out: Tensor | None) -> tuple[Tensor, bool]:
        into = out
        if into is None:
            into = self.torch.empty(self.d, dtype=self.dtype, device=self.device)
        finite = True
        live = np.flatnonzero(base_weights).tolist()
        for lo in range(0, self.d, CHUNK):
            part = slice(lo, min(lo + CHUNK, self.d))
            total = self.torch.zeros_like(into[part], dtype=self.torch.float64)
            for i in live:
                total += float(base_weights[i]) * self.rows[i][part].double()
            into[part] = (total / divisor).to(self.dtype)
            finite = finite and bool(self.torch.isfinite(into[part]).all())
        return into, finite

    def _non_finite(self) -> Flags:
        values = self.rows
        if self.present is not None:
            values = [row[here] for row, here in zip(self.rows, self.present, strict=True)]
        return np.array([not bool(self.torch.isfinite(x).all()) for x in values])

    # -- order statistics -------------------------------------------------------------

    def _ranked(self, read_off: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """read_off(sorted columns, how many of each are present), for all columns."""
        out = self.torch.empty(self.d, dtype=self.dtype, device=self.device)
        for part, block in self._blocks():
            if self.present is None:
                count = self.torch.full((block.shape[1],), self.n, device=self.device)
            else:
                here = self.torch.stack([mask[part] for mask in self.present])
                count = here.sum(0)
                block = block.masked_fill(~here, self.torch.finfo(self.dtype).max)
            if not bool(self.torch.isfinite(block).all()):
                self.require_finite()
            ranked = block.sort(dim=0).values
            out[part] = read_off(ranked, count.clamp(min=1)).masked_fill(count == 0, 0.0)
        return out

    @staticmethod
    def _rank(ranked: Tensor, rank: Tensor) -> Tensor:
        return ranked.gather(0, rank[None]).squeeze(0)

    def _mean_of_ranks(self, ranked: Tensor, first: Tensor, kept: Tensor) -> Tensor:
        rank = self.torch.arange(self.n, device=self.device)[:, None]
        inside = (rank >= first) & (rank < first + kept)
        total = ranked.double().masked_fill(~inside, 0.0).sum(0)
        return (total / kept).to(self.dtype)
