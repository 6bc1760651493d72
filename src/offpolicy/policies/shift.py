"""`Shift`: the logging policy with all actions moved, such as "prices 5% higher"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, final

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.data.batch import Batch
from offpolicy.data.box import Box, box
from offpolicy.data.estimated_logging import EstimatedLogging
from offpolicy.data.log import Log
from offpolicy.policies.base import Policy
from offpolicy.policies.conversion import as_policy
from offpolicy.policies.density import DensityPolicy
from offpolicy.policies.nodes import Nodes


@final
@dataclass(frozen=True)
class Shift(DensityPolicy):
    """What the logging policy would have earned if it had taken every action a little higher, or lower.

    An action that would leave the box stays as it was logged. The log needs its logging policy (`logging=`), since the
    density of actions other than the logged one is needed.

    Parameters
    ----------
    by : float or sequence of float, optional
        What is added to each action; one number per dimension if actions are vectors.
    times : float or sequence of float, optional
        What each action is multiplied by: 1.05 makes prices 5% higher.

    References
    ----------
    Díaz Muñoz and van der Laan (2012). Population intervention causal effects based on stochastic interventions. Biometrics.

    Examples
    --------
    >>> import offpolicy as op
    >>> price = np.linspace(10.5, 19.5, 10)
    >>> log = op.Log(np.zeros((10, 1)), price, price, logging=op.Uniform(), actions=op.Box(10, 20))
    >>> round(op.evaluate(log, op.Shift(by=2), op.SNIPS())["SNIPS"].value, 1)
    16.6
    """

    _: KW_ONLY
    by: float | Sequence[float] | None = None
    times: float | Sequence[float] | None = None

    def __post_init__(self) -> None:
        if (self.by is None) == (self.times is None):
            raise InputError("Shift: give one of by= and times=, such as op.Shift(times=1.05).")
        moved = np.asarray(self.times if self.by is None else self.by)
        if moved.dtype.kind not in "iuf" or moved.ndim > 1 or not np.isfinite(moved).all():
            raise InputError(f"Shift: {moved.tolist()!r} is not a number, or one number per dimension.")
        if self.by is None and not (moved > 0).all():
            raise InputError(f"Shift: times is {self.times!r}; give a positive number.")

    def settled(self, log: Log) -> Policy:
        logging = log.logging
        if logging is None:
            raise InputError(
                "Shift needs the density of the logging policy at every action, and the log only has those of the logged "
                "actions. Pass the policy as `logging=`, such as op.Normal(…), or op.EstimatedLogging() to estimate it."
            )
        if isinstance(logging, EstimatedLogging):  # settled again once it is estimated
            return self
        policy = as_policy(logging).on(log)
        if not policy.whole:
            raise InputError(
                f"Shift needs the density of every action, and {policy!r} only has those of the logged actions."
            )
        return _Shifted(self, policy)

    def entries(self, batch: Batch, row: IntArray, code: IntArray) -> FloatArray:  # noqa: ARG002
        raise InputError("Shift is a change of the logging policy of a log, and can only be evaluated on a log.")

    @property
    def step(self) -> FloatArray:
        """What is added to each dimension."""
        return np.atleast_1d(np.asarray(0.0 if self.by is None else self.by, dtype=np.float64))

    @property
    def factor(self) -> FloatArray:
        """What each dimension is multiplied by."""
        return np.atleast_1d(np.asarray(1.0 if self.times is None else self.times, dtype=np.float64))


@final
@dataclass(frozen=True)
class _Shifted(DensityPolicy):
    """A logging policy with all actions moved."""

    shift: Shift
    policy: Policy

    def __repr__(self) -> str:
        return repr(self.shift)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.policy.columns

    @property
    def whole_batches(self) -> bool:
        return self.policy.whole_batches

    def check(self, log: Log) -> None:
        space = box(log.space, "Shift")
        sizes = {len(self.shift.step), len(self.shift.factor), space.dimensions}
        if space.points:
            raise InputError("Shift: the log has actions with probabilities (points), which cannot be moved.")
        if len(sizes - {1}) > 1:
            raise InputError(f"Shift: actions have {space.dimensions} dimensions; give one number, or one for each.")

    def entries(self, batch: Batch, row: IntArray, code: IntArray) -> FloatArray:
        space, action = box(batch.space, "Shift"), np.asarray(code, dtype=np.float64)
        origin = self._origin(action, space)
        arrived, stayed = ~space.outside(origin), space.outside(self._moved(action, space))
        density = np.zeros(len(action))
        volume = float(np.prod(np.broadcast_to(self.shift.factor, (space.dimensions,))))
        if arrived.any():
            density[arrived] = self._density(batch, row[arrived], origin[arrived]) / volume
        if stayed.any():
            density[stayed] += self._density(batch, row[stayed], action[stayed])
        return density

    def _density(self, batch: Batch, row: IntArray, action: Any) -> FloatArray:
        return self.policy.entries(batch, row, action)

    def nodes(self, batch: Batch) -> Nodes:
        space, nodes = box(batch.space, "Shift"), self.policy.nodes(batch)
        moved = self._moved(nodes.actions, space)
        outside = space.outside(moved)
        keep = outside[..., None] if space.shape else outside
        return Nodes(np.where(keep, nodes.actions, moved), nodes.weights)

    def _moved(self, action: FloatArray, space: Box) -> FloatArray:
        """Where each action goes, or would go if there were no bounds."""
        vectors: FloatArray = space.vectors(action) * self.shift.factor + self.shift.step
        return vectors if space.shape else vectors[..., 0]

    def _origin(self, action: FloatArray, space: Box) -> FloatArray:
        """Where each action comes from, if it was moved."""
        vectors: FloatArray = (space.vectors(action) - self.shift.step) / self.shift.factor
        return vectors if space.shape else vectors[..., 0]
