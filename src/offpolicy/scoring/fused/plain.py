"""The same sums with PyTorch alone, one block of rounds × actions after the other: on any device, in any precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from offpolicy.scoring.fused.forms import Form, Forms, FusedSums, Run, Tensor

BLOCK_ELEMENTS = 1 << 20
"""Elements of a block: 8 MB for the caches of a processor."""
DEVICE_BYTES = 1 << 26
"""The same on a GPU: 64 MB."""


@dataclass(frozen=True)
class BlockProbabilities:
    """π, π0 and (if `pooled`) the shares of each pooling, for all actions of some rounds."""

    run: Run
    target: Tensor
    target_norm: Tensor
    logging: Tensor | None
    logging_norm: Tensor | None
    shares: list[Tensor]

    @classmethod
    def of(cls, forms: Forms, run: Run, pooled: bool = True) -> BlockProbabilities:
        rows = slice(run.start, run.stop)
        target, norm = _softmax(forms.target, rows)
        logging, norm0 = (None, None) if forms.logging is None else _softmax(forms.logging, rows)
        pools = zip(forms.pools if pooled else (), run.slots, strict=False)
        shares = [form.scores(rows, slot).exp_() for form, slot in pools]
        return cls(run, target, norm, logging, norm0, shares)


def _softmax(form: Form, rows: slice) -> tuple[Tensor, Tensor]:
    scores = form.scores(rows, 0)
    norm = scores.logsumexp(dim=1)
    return scores.sub_(norm[:, None]).exp_(), norm


def rows_at_once(forms: Forms) -> int:
    left = forms.target.left
    most = DEVICE_BYTES // left.element_size() if left.is_cuda else BLOCK_ELEMENTS
    return max(1, most // forms.n_actions)


def row_sums(torch: Any, forms: Forms) -> FusedSums:
    """The sums over the actions of each round."""
    left = forms.target.left
    new = torch.empty((2 + 2 * len(forms.pools) + len(forms.models), forms.rounds), dtype=left.dtype, device=left.device)
    pools = len(forms.pools)
    above, below, baselines = new[2 : 2 + pools], new[2 + pools : 2 + 2 * pools], new[2 + 2 * pools :]
    for run in (piece for whole in forms.runs for piece in whole.cut(rows_at_once(forms))):
        rows, cells = slice(run.start, run.stop), BlockProbabilities.of(forms, run)
        new[0, rows] = cells.target_norm
        if cells.logging is not None:
            new[1, rows] = cells.logging_norm
            for j, share in enumerate(cells.shares):
                above[j, rows] = (cells.target * share).sum(dim=1)
                below[j, rows] = (cells.logging * share).sum(dim=1)
        for r, (form, slot) in enumerate(zip(forms.models, run.slots[pools:], strict=True)):
            baselines[r, rows] = ((cells.target @ form.right[slot]) * form.left[rows]).sum(dim=1)
            if form.bias.numel():
                baselines[r, rows] += cells.target @ form.bias[slot]
    return FusedSums(new[0], None if forms.logging is None else new[1], above, below, baselines)
