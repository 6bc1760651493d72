"""Training a network with PyTorch: rows as tensors, epochs, early stopping, and checks of what the network returns."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.core.imports import torch
from offpolicy.core.progress import PassProgress
from offpolicy.models.rewards.base import FitShape
from offpolicy.models.rewards.sample import PAIRS, FitRows

one_at_a_time = threading.RLock()
"""Training seeds the random numbers that all threads share, so only one model is trained at a time."""


def require_torch() -> Any:
    return torch('this reward model needs PyTorch: pip install "offpolicy[torch]"')


@dataclass(frozen=True)
class Training:
    """How a network is trained, and its name in error messages."""

    name: str
    learning_rate: float
    weight_decay: float
    epochs: int
    batch: int
    patience: int | None
    holdout: float
    device: str | None
    seed: int
    rows: int

    @classmethod
    def of(cls, model: Any, **fixed: Any) -> Training:
        """From the settings of a reward model, which are checked; `fixed` are those that it does not have."""
        settings = {f.name: getattr(model, f.name) for f in fields(cls) if hasattr(model, f.name)}
        training = cls(**{"name": type(model).__name__, **settings, **fixed})
        training._check()
        return training

    def _check(self) -> None:
        limits = {
            "learning_rate": (self.learning_rate > 0, "a number above 0"),
            "weight_decay": (self.weight_decay >= 0, "a number that is 0 or more"),
            "epochs": (self.epochs >= 1, "1 or more"),
            "batch": (self.batch >= 1, "a number of rows, 1 or more"),
            "patience": (self.patience is None or self.patience >= 1, "a number of epochs, 1 or more, or None"),
            "rows": (self.rows >= 1, "the largest number of rows to train on, 1 or more"),
            "holdout": (0 < self.holdout < 1, "a share of the rows between 0 and 1"),
        }
        for setting, (valid, what) in limits.items():
            if not valid:
                raise InputError(f"{self.name}: {setting} is {getattr(self, setting)!r}; give {what}.")

    def held_out(self, rows: int) -> int:
        """The number of rows that early stopping is based on."""
        return 0 if self.patience is None or rows < 2 else min(max(round(self.holdout * rows), 1), rows - 1)

    def run(self, make: Callable[[], Any], data: Tensors, progress: bool | None) -> tuple[Any, int]:
        """A trained module on the CPU, and its number of epochs. The global random state is restored afterwards."""
        torch = require_torch()
        device = self._device()
        on_gpu = device.type == "cuda"
        gpus = [torch.cuda.current_device() if device.index is None else device.index] if on_gpu else []
        with one_at_a_time, torch.random.fork_rng(devices=gpus), torch.enable_grad():
            torch.default_generator.manual_seed(self.seed)
            for gpu in gpus:
                torch.cuda.default_generators[gpu].manual_seed(self.seed)
            net = checked(make(), self.name).to(device)
            with PassProgress("training", self.epochs * (len(data) - self.held_out(len(data))), progress) as report:
                epochs = self._fit(net, data.to(device), report)
        if not all(bool(torch.isfinite(value).all()) for value in net.state_dict().values()):
            raise self._diverged(epochs)
        return net.cpu().eval().requires_grad_(False), epochs

    def _fit(self, net: Any, data: Tensors, report: PassProgress) -> int:
        torch = require_torch()
        order = torch.Generator().manual_seed(self.seed)
        shuffled = torch.randperm(len(data), generator=order).to(data.reward.device)
        count = self.held_out(len(data))
        held, train = data.at(shuffled[:count]), data.at(shuffled[count:])
        fused = data.reward.device.type in ("cpu", "cuda")
        moving = [p for p in net.parameters() if p.requires_grad]
        optimiser = torch.optim.AdamW(moving, lr=self.learning_rate, weight_decay=self.weight_decay, fused=fused)
        least, best_epoch, best_weights = math.inf, 0, None
        for epoch in range(1, self.epochs + 1):
            self._require_finite(self._epoch(net.train(), train, optimiser, order, report), epoch)
            held_loss = self._require_finite(mean_loss(net.eval(), held), epoch) if count else 0.0
            if count and held_loss < least:
                least, best_epoch = held_loss, epoch
                best_weights = {name: value.detach().clone() for name, value in net.state_dict().items()}
            if count and self.patience is not None and epoch - best_epoch >= self.patience:
                break
        if best_weights is not None:
            net.load_state_dict(best_weights)
        return epoch

    def _epoch(self, net: Any, train: Tensors, optimiser: Any, order: Any, report: PassProgress) -> float:
        torch = require_torch()
        total = torch.zeros((), device=train.reward.device)
        for rows in torch.randperm(len(train), generator=order).to(train.reward.device).split(self.batch):
            optimiser.zero_grad()
            batch_loss = loss(net, train.at(rows))
            batch_loss.backward()
            optimiser.step()
            total += batch_loss.detach()
            report(len(rows))
        return float(total)

    def _require_finite(self, loss: float, epoch: int) -> float:
        if not math.isfinite(loss):
            raise self._diverged(epoch)
        return loss

    def _diverged(self, epoch: int) -> InputError:
        return InputError(
            f"{self.name}: the loss became NaN or infinite in epoch {epoch}. The usual cause is a learning rate that is too "
            f"high: learning_rate is {self.learning_rate:g}, try {self.learning_rate / 10:g}. Contexts, features or rewards "
            "on very large scales are another."
        )

    def _device(self) -> Any:
        torch = require_torch()
        try:
            device = torch.device(self.device or ("cuda" if torch.cuda.is_available() else "cpu"))
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"{self.name}: device is {self.device!r}, which cannot be used here: {reason}") from None
        return device


@dataclass(frozen=True)
class Tensors:
    """Rows as tensors. `weight` has mean 1, or is None if all rows count the same."""

    context: Any
    action: Any
    features: Any
    reward: Any
    weight: Any

    @classmethod
    def of(cls, rows: FitRows, context: FloatArray, features: FloatArray, reward: FloatArray) -> Tensors:
        weight = None if rows.weight is None else floats(rows.weight / rows.weight.mean())
        return cls(floats(context), codes(rows.shape, rows.action), floats(features), floats(reward), weight)

    def __len__(self) -> int:
        return len(self.reward)

    def _each(self, change: Callable[[Any], Any]) -> Tensors:
        return Tensors(*(None if values is None else change(values) for values in vars(self).values()))

    def at(self, rows: Any) -> Tensors:
        return self._each(lambda values: values[rows])

    def to(self, device: Any) -> Tensors:
        return self._each(lambda values: values.to(device))


def floats(values: FloatArray) -> Any:
    return require_torch().from_numpy(np.array(values, dtype=np.float32, order="C"))


def codes(shape: FitShape, action: IntArray) -> Any:
    """The codes of the actions; all 0 if the model must not use the identity."""
    return indices(np.zeros(len(action), np.int64) if shape.inputs == "features" else action)


def indices(values: IntArray) -> Any:
    """A copy, since arrays of a log may be read-only, which PyTorch warns about."""
    return require_torch().from_numpy(np.array(values, dtype=np.int64))


def loss(net: Any, rows: Tensors) -> Any:
    errors = (forward(net, rows.context, embed(net, rows.action, rows.features)) - rows.reward) ** 2
    return errors.mean() if rows.weight is None else (errors * rows.weight).mean()


def mean_loss(net: Any, rows: Tensors) -> float:
    with require_torch().no_grad():
        parts = map(rows.at, blocks(len(rows)))
        mean: float = sum(float(loss(net, part)) * len(part) for part in parts) / len(rows)
    return mean


def blocks(rows: int) -> Iterator[slice]:
    for start in range(0, rows, PAIRS):
        yield slice(start, min(start + PAIRS, rows))


def checked(net: Any, name: str) -> Any:
    if not isinstance(net, require_torch().nn.Module) or not callable(getattr(net, "embed", None)):
        raise InputError(
            f"{name}: module returned a {type(net).__name__}; it must return a torch.nn.Module with the methods "
            "embed(action, features) and forward(context, embedding)."
        )
    if not any(p.requires_grad for p in net.parameters()):
        raise InputError(f"{name}: the module has no parameters to train.")
    return net


def embed(net: Any, action: Any, features: Any) -> Any:
    e = net.embed(action, features)
    shape = tuple(getattr(e, "shape", ()))
    if len(shape) != 2 or shape[0] != len(action) or not shape[1]:
        raise InputError(
            f"Torch: embed returned {described(e)} for {len(action)} rows; it must return shape ({len(action)}, k): one "
            "embedding per row."
        )
    return e


def forward(net: Any, context: Any, e: Any) -> Any:
    q = net(context, e)
    if tuple(getattr(q, "shape", ())) != (len(e),):
        raise InputError(
            f"Torch: forward returned {described(q)} for {len(e)} rows; it must return shape ({len(e)},): one expected "
            "reward per row (a last layer of one unit needs .squeeze(1))."
        )
    return q


def described(value: Any) -> str:
    return f"shape {tuple(value.shape)}" if hasattr(value, "shape") else f"a {type(value).__name__}"
