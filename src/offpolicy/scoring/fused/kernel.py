"""`FusedKernel`: the kernel on a device. Vectors of rounds and actions go in, sums by round come out."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray
from offpolicy.core.device import Device
from offpolicy.models.posteriors.base import Pooling
from offpolicy.policies.base import Factors
from offpolicy.ratios.pools import BlockRows, Both, PoolSums, Sides
from offpolicy.scoring.fused import plain
from offpolicy.scoring.fused.batch import DeviceBatch
from offpolicy.scoring.fused.forms import Form, Forms, FusedSums, Run, Tensor
from offpolicy.scoring.fused.launch import Launcher
from offpolicy.scoring.kernel import (
    Baselines,
    BlockInput,
    BlockSums,
    Kernel,
    NumpyKernel,
    Probabilities,
    TargetMass,
)  # fmt: skip

CHECKED_ROWS = 512
DEVICE_ROWS = 3 * 132 * 128
"""Rounds of a batch: on an H200, three tiles for each of its multiprocessors, so that none of them waits for another."""
SENT_AT_ONCE, AT_ONCE = 3, 2
"""How many batches are on the device, and are computed, at a time: one is launched while another is read."""
ACCURACY = {"tf32": 5e-3, "high": 1e-4, "float64": 1e-9}


def kernel_on(device: Device | None) -> Kernel:
    """The kernel of an accelerator, or that of the processor."""
    return NumpyKernel() if device is None else FusedKernel(device)


@dataclass
class Slots:
    """The tables of several versions of a pooling or of models, stacked on the device in the order of their first use."""

    made: Callable[[Any], tuple[Tensor, ...]]
    stack: Callable[[Sequence[Tensor]], Tensor]
    tables: tuple[Tensor, ...] = ()
    _slots: dict[Any, int] = field(default_factory=dict)

    def of(self, versions: Mapping[Any, Any], keys: Sequence[Any]) -> list[int]:
        """The slot of each key; tables that were stacked before keep their slots."""
        new = {key: version for key, version in versions.items() if key not in self._slots}
        if new:
            made = list(zip(*(self.made(version) for version in new.values()), strict=True))
            before = self.tables or ((),) * len(made)
            self.tables = tuple(self.stack([*old, *more]) for old, more in zip(before, made, strict=True))
            self._slots.update({key: len(self._slots) + k for k, key in enumerate(new)})
        return [self._slots[key] for key in keys]


@final
@dataclass
class FusedKernel(Kernel):
    """On a GPU or on CPU tensors, with PyTorch, and with Triton where it runs. Tables of actions are sent once."""

    device: Device
    error: float | None = None
    checked: int = 0
    _first: tuple[int, Forms] | None = None
    _slots: dict[Any, Slots] = field(default_factory=dict)
    _sent: dict[int, tuple[Any, Tensor]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _places: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(SENT_AT_ONCE))
    _turns: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(AT_ONCE))

    def __reduce__(self) -> Any:
        return FusedKernel, (self.device,)

    @cached_property
    def _launcher(self) -> Launcher | None:
        """Triton, on a GPU or in its interpreter. On a GPU, float64 is left to PyTorch, whose products use matrix units."""
        if self.device.cuda and self.device.precision == "float64":
            return None
        return Launcher(self.device) if self.device.cuda or os.environ.get("TRITON_INTERPRET") == "1" else None

    @cached_property
    def _half(self) -> bool:
        """Whether factors have half precision: the 11 significant bits of TF32, at twice its rate."""
        return self.device.precision == "tf32" and self.device.cuda

    @property
    def fuses(self) -> bool:
        return True

    @property
    def batch_rows(self) -> int:
        return DEVICE_ROWS

    @property
    def accuracy(self) -> float:
        return ACCURACY[self.device.precision]

    def report(self) -> dict[str, Any] | None:
        if self._first is not None:
            self._compare(self._first[1])
            self._first = None
        report: dict[str, Any] = {"device": self.device.described, "precision": self.device.precision}
        if self.error is not None:
            report |= {"largest_relative_error_of_a_weight": self.error, "rounds_checked_in_float64": self.checked}
        return report

    def release(self) -> None:
        with self._lock:
            self._slots.clear()
            self._sent.clear()
            if self._launcher is not None:
                self._launcher.release()

    # Blocks of probabilities that policies compute themselves stay on the processor.

    def sums(self, p: Probabilities, block: BlockInput) -> BlockSums:
        return NumpyKernel().sums(p, block)

    def near(self, pooling: Pooling, block: BlockRows, sides: Sides, masses: Both) -> PoolSums:
        return NumpyKernel().near(pooling, block, sides, masses)

    def mass(self, p: Probabilities, omega: FloatArray, counted: FloatArray) -> TargetMass:
        return NumpyKernel().mass(p, omega, counted)

    def fused(self, target: Factors, logging: Factors | None, blocks: Sequence[BlockInput]) -> list[BlockSums]:
        with self._places:
            batch = self._batch(target, logging, blocks)
            self._remember(batch.forms, min(int(block.rounds.batch.row.min()) for block in blocks))
            with self._turns:
                rows = batch.read(self._row_sums(batch.forms, self._half), blocks)
                if self._half and not rows.finite:  # beyond half precision
                    rows = batch.read(self._row_sums(batch.forms, half=False), blocks)
        return batch.block_sums(rows, blocks)

    def _row_sums(self, forms: Forms, half: bool) -> FusedSums:
        return plain.row_sums(self.device.torch, forms) if self._launcher is None else self._launcher.row_sums(forms, half)

    def _remember(self, forms: Forms, first_row: int) -> None:
        """Keep the first rounds, whose weights are compared with float64. Batches arrive in any order."""
        if forms.logging is not None:
            with self._lock:
                if self._first is None or first_row < self._first[0]:
                    self._first = first_row, forms.head(CHECKED_ROWS)

    def _compare(self, first: Forms) -> None:
        """The largest error of a weight in these rounds."""
        exact = plain.row_sums(self.device.torch, first.with_used_slots().to(self.device.torch.float64))
        found = self._row_sums(first, self._half)
        if self._half and not bool(found.finite):
            found = self._row_sums(first, half=False)
        pairs = [(a / b, c / d) for a, b, c, d in zip(*exact.both, *found.both, strict=True)]
        pairs.append(((exact.logging - exact.target).exp(), (found.logging - found.target).double().exp()))
        self.error = max(float(((now.double() - true) / true).abs().amax()) for true, now in pairs)
        self.checked = first.rounds
        if self._launcher is not None:
            self._launcher.release()

    def _batch(self, target: Factors, logging: Factors | None, blocks: Sequence[BlockInput]) -> DeviceBatch:
        """What a batch is computed from, on the device."""
        device, torch, kind = self.device, self.device.torch, self.device.kind
        batch_rows = [len(block.rounds.batch) for block in blocks]
        action = device.tensor(np.concatenate([block.rounds.batch.codes for block in blocks]), torch.int64)
        x = device.tensor(np.concatenate([block.x for block in blocks], axis=1).T, kind)
        empty = torch.empty(0, dtype=kind, device=device.name)

        def policy(factors: Factors) -> Form:
            return Form(device.tensor(factors.left, kind), self._once(factors.right), empty, empty)

        slots: list[list[int]] = []
        pools = []
        for j in range(len(blocks[0].pools)):
            poolings = [block.pools[j][0] for block in blocks]
            versions, keys = {id(each): each for each in poolings}, [id(each) for each in poolings]
            shape = poolings[0].weight.shape
            at, (right, bias, points) = self._placed(("pool", j, shape), self._pool_tables, versions, keys)
            slot = device.tensor(np.repeat(at, batch_rows), torch.int64)
            pools.append(Form(points[slot, action], right, bias, -bias[slot, action]))
            slots.append(at)
        models = []
        columns = blocks[0].baselines.parts[0].columns if blocks[0].baselines.parts else []
        if columns:
            folds = {block.baselines.folds: block.baselines for block in blocks}
            of_blocks = [block.baselines.folds for block in blocks]
            at, tables = self._placed(("models", tuple(columns)), self._model_tables, folds, of_blocks)
            context = x[:, :-1].contiguous()
            for r in range(len(columns)):
                models.append(Form(context, tables[2 * r], tables[2 * r + 1], empty))
                slots.append(at)
        edges = np.cumsum([0, *batch_rows]).tolist()
        runs: list[Run] = []
        for k, own_slots in enumerate(zip(*slots, strict=True) if slots else [()] * len(blocks)):
            if runs and runs[-1].slots == own_slots:
                runs[-1] = Run(runs[-1].start, edges[k + 1], own_slots)
            else:
                runs.append(Run(edges[k], edges[k + 1], own_slots))
        forms = Forms(runs, policy(target), None if logging is None else policy(logging), pools, models, action)
        return DeviceBatch(device, forms, columns, self._lock)

    def _placed(
        self, key: Any, made: Callable[[Any], tuple[Tensor, ...]], versions: Mapping[Any, Any], keys: Sequence[Any]
    ) -> tuple[list[int], tuple[Tensor, ...]]:
        """The slot of each key, and the tables; these are sent once, by the thread that needs them first."""
        with self._lock:
            slots = self._slots.setdefault(key, Slots(made, self.device.torch.stack))
            return slots.of(versions, keys), slots.tables

    def _once(self, table: npt.NDArray[Any]) -> Tensor:
        """A table of actions as the only version, sent when it is first needed."""
        with self._lock:
            if id(table) not in self._sent:
                self._sent[id(table)] = (table, self.device.tensor(table, self.device.kind)[None])
            return self._sent[id(table)][1]

    def _pool_tables(self, pooling: Pooling) -> tuple[Tensor, ...]:
        """Weight and bias of each action, and z of the rounds with that action."""
        send, kind = self.device.tensor, self.device.kind
        points = pooling.affine(send(pooling.embedding.table))
        return send(pooling.weight, kind), send(pooling.bias, kind), points.to(kind)

    def _model_tables(self, baselines: Baselines) -> tuple[Tensor, ...]:
        """For each model, the slopes of each action, and the intercept."""
        sent = ((self.device.tensor(coef), origin) for coef, origin in baselines.parts[0].linear)
        both = ((coef[:, :-1].contiguous(), coef[:, -1] - origin) for coef, origin in sent)
        return tuple(table.to(self.device.kind) for pair in both for table in pair)
