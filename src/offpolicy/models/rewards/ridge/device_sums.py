"""Sums by action on a device: the rows of each part of the log are sent there, sorted by key, and summed run by run.

Means and products are centred and merged as `Gram` does it, in double precision. Every sum is taken in a fixed order, so
that a result does not depend on the threads of the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from offpolicy.core.device import Device
from offpolicy.data.batch import CHUNK_ROWS, Batch
from offpolicy.models.rewards.base import FitStatistic
from offpolicy.models.rewards.ridge.packed import Packed, normalised
from offpolicy.statistics.base import State
from offpolicy.statistics.gram import Gram

Tensor = Any
SENT_ROWS = CHUNK_ROWS // 4
MOST_AT_ONCE = 512
"""The longest run that one thread of a device sums; longer ones are summed in pieces."""


@dataclass(frozen=True)
class DeviceGramPass(FitStatistic):
    """`Gram` with one covariance for all actions, of (context, rewards) by (group, action), on a device.

    The state of a part of the log is its rows, on the device; merging adds them to the sums.
    """

    gram: Gram

    @property
    def batch_rows(self) -> int:
        """Many rows at a time, so that the device has much to do, but few enough that several threads send them."""
        return SENT_ROWS if self.shape.most_rows is None else min(SENT_ROWS, self.shape.most_rows)

    @property
    def _device(self) -> Device:
        assert self.shape.device is not None
        return self.shape.device

    def zero(self) -> State:
        return {"rows": []}

    def fold(self, state: State, batch: Batch) -> State:
        send, weight = self._device.tensor, self.shape.weights(batch)
        key = self.shape.group(batch) * self.shape.n_actions + batch.action
        sent = None if weight is None else send(weight)
        state["rows"].append(Rows(send(key), send(batch.context), send(batch.reward), sent))
        return state

    def merge(self, a: State, b: State) -> State:
        if "n" not in a:
            a |= self._empty()
        for rows in b["rows"]:
            self._add(a, rows)
        return a

    def finish(self, state: State) -> Packed:
        groups, actions = self.shape.groups, self.shape.n_actions
        self._device.load_solvers()
        state = normalised({name: values for name, values in state.items() if name != "rows"}, self.shape)
        shaped = {name: state[name].reshape(groups, actions, *state[name].shape[1:]) for name in self.gram.by_key}
        return Packed(self.gram, {**state, **shaped}, groups)

    def _empty(self) -> State:
        torch, gram = self._device.torch, self.gram
        columns = gram.size + gram.rewards
        shapes = {"n": (), "square": (), "mean": (columns,), "m2": (len(gram.pairs[0]),)}
        zeros = {name: (gram.keys, *shape) for name, shape in shapes.items()} | {"xx": (gram.shared, gram.size, gram.size)}
        return {name: torch.zeros(s, dtype=torch.float64, device=self._device.name) for name, s in zeros.items()}

    def _add(self, state: State, rows: Rows) -> None:
        """Add rows to the sums of their keys (Chan's merge)."""
        torch, size = self._device.torch, self.gram.size
        key, values, weight = rows.ordered(torch)
        keys, lengths = torch.unique_consecutive(key, return_counts=True)
        n = run_sums(torch, weight, lengths)
        mean = run_sums(torch, values * weight[:, None], lengths) / n.where(n > 0, 1.0)[:, None]
        values -= mean.repeat_interleave(lengths, dim=0)
        weighted = values * weight[:, None]
        left, right = (torch.as_tensor(each, device=key.device) for each in self.gram.pairs)
        m2 = run_sums(torch, weighted[:, left] * values[:, right], lengths)
        for group, some in self._groups(key):
            state["xx"][group] += weighted[some, :size].T @ values[some, :size]
        before = state["n"][keys]
        total = before + n
        share = n / total.where(total > 0, 1.0)
        delta, cross = mean - state["mean"][keys], before * share
        state["m2"][keys] += m2 + delta[:, left] * delta[:, right] * cross[:, None]
        state["mean"][keys] += delta * share[:, None]
        state["n"][keys] = total
        state["square"][keys] += run_sums(torch, weight**2, lengths)
        for group, some in self._groups(keys):
            moved = delta[some, :size]
            state["xx"][group] += (moved * cross[some, None]).T @ moved

    def _groups(self, key: Tensor) -> list[tuple[int, slice]]:
        """The run of each group in ascending keys."""
        torch = self._device.torch
        first = torch.arange(self.shape.groups + 1, device=key.device) * self.shape.n_actions
        edges = torch.searchsorted(key, first).tolist()
        return [(g, slice(*edges[g : g + 2])) for g in range(self.shape.groups) if edges[g + 1] > edges[g]]


@dataclass(frozen=True)
class Rows:
    """Rows on the device: their keys, columns and weights."""

    key: Tensor
    context: Tensor
    reward: Tensor
    weight: Tensor | None

    def ordered(self, torch: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Ascending keys, with the columns (context and rewards) and weights of their rows."""
        key, order = self.key.sort(stable=True)
        weight = torch.ones_like(self.reward[:, 0]) if self.weight is None else self.weight[order]
        return key, torch.cat([self.context[order], self.reward[order]], dim=1), weight


def run_sums(torch: Any, values: Tensor, lengths: Tensor) -> Tensor:
    """The sums over consecutive runs of rows with these lengths. Long runs are summed in pieces, and these summed again."""
    pieces = (lengths + MOST_AT_ONCE - 1) // MOST_AT_ONCE
    if int(pieces.max()) > 1:
        run = torch.repeat_interleave(pieces)
        place = torch.arange(len(run), device=run.device) - (pieces.cumsum(0) - pieces)[run]
        own = (lengths[run] - place * MOST_AT_ONCE).clip(max=MOST_AT_ONCE)
        return run_sums(torch, torch.segment_reduce(values, "sum", lengths=own, unsafe=True), pieces)
    return torch.segment_reduce(values, "sum", lengths=lengths, unsafe=True)
