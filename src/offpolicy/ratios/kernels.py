"""The kernel ratio: how close a logged action is to the one that a deterministic policy chooses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import NEXT_TO_NOTHING, FloatArray
from offpolicy.data.box import Box, box
from offpolicy.data.spaces import ActionSpace
from offpolicy.ratios.base import Available, UnfittedRatio
from offpolicy.ratios.pools import Rounds

Boundary = Literal["exact", "linear"]


class SmoothingKernel(ABC):
    """A symmetric density K, and the parts of its moments: ∫ uⁱ K(u) du from 0 to v ≥ 0.

    A moment within bounds is a sum or a difference of two such parts, without the loss of digits of a difference of tails.
    """

    kind: ClassVar[str]
    reach: ClassVar[float]
    """K is 0, or negligible, beyond it."""

    @abstractmethod
    def density(self, u: FloatArray) -> FloatArray:
        """K(u)."""

    @abstractmethod
    def mass(self, v: FloatArray) -> FloatArray:
        """∫ K(u) du from 0 to v."""

    @abstractmethod
    def first(self, v: FloatArray) -> FloatArray:
        """∫ u K(u) du from 0 to v."""

    @abstractmethod
    def second(self, v: FloatArray) -> FloatArray:
        """∫ u² K(u) du from 0 to v."""


@final
@dataclass(frozen=True)
class Epanechnikov(SmoothingKernel):
    """K(u) = ¾(1 − u²) for |u| ≤ 1."""

    kind = "epanechnikov"
    reach = 1.0

    def density(self, u: FloatArray) -> FloatArray:
        return 0.75 * np.maximum(1 - u * u, 0.0)

    def mass(self, v: FloatArray) -> FloatArray:
        v = np.minimum(v, 1.0)
        return 0.25 * v * (3 - v * v)

    def first(self, v: FloatArray) -> FloatArray:
        v = np.minimum(v, 1.0)
        return 0.375 * v**2 - 0.1875 * v**4

    def second(self, v: FloatArray) -> FloatArray:
        v = np.minimum(v, 1.0)
        return 0.25 * v**3 - 0.15 * v**5


@final
@dataclass(frozen=True)
class Gauss(SmoothingKernel):
    """The density of the standard normal distribution."""

    kind = "gaussian"
    reach = 8.0

    def density(self, u: FloatArray) -> FloatArray:
        density: FloatArray = np.exp(-u * u / 2) / np.sqrt(2 * np.pi)
        return density

    def mass(self, v: FloatArray) -> FloatArray:
        from scipy.special import erf  # here, so that importing stays light

        return np.asarray(erf(v / np.sqrt(2)) / 2, dtype=np.float64)

    def first(self, v: FloatArray) -> FloatArray:
        first: FloatArray = -np.expm1(-v * v / 2) / np.sqrt(2 * np.pi)
        return first

    def second(self, v: FloatArray) -> FloatArray:
        second: FloatArray = self.mass(v) - v * self.density(v)
        return second


KERNELS: dict[str, SmoothingKernel] = {"epanechnikov": Epanechnikov(), "gaussian": Gauss()}


@dataclass(frozen=True)
class Bandwidth:
    """A width per dimension, or one for all, in the unit of the actions or as a share of their range."""

    values: tuple[float, ...]
    share: bool = False

    def of(self, space: Box) -> FloatArray:
        """h of each dimension."""
        widths = np.broadcast_to(np.array(self.values), (space.dimensions,))
        return widths * space.ranges if self.share else widths

    @property
    def size(self) -> float:
        """One number by which widths are compared."""
        return float(np.exp(np.log(self.values).mean()))

    @property
    def text(self) -> str:
        """For names and reports: a fraction of the range, or the widths."""
        shown = ", ".join(f"{value:g}" for value in self.values)
        return f"1/{1 / self.values[0]:g} of the range" if self.share and len(self.values) == 1 else shown


@final
@dataclass(frozen=True)
class KernelRatio(UnfittedRatio):
    """K_h(a − τ(x)) / p0(a|x): the exact ratio of a policy smoothed over h around τ(x), not of τ itself.

    Where the kernel leaves the box, it is corrected. "exact" divides it by its mass inside, so that the mean under the
    logging policy is 1 near the bounds, too. "linear" also makes its mean distance from τ(x) zero, so that the bias falls
    like h² there and not like h; its weights may be negative.

    At a point that has a probability in the log, only rounds with that very action count, and nowhere else do these.
    """

    bandwidth: Bandwidth
    kernel: SmoothingKernel = Epanechnikov()
    boundary: Boundary = "exact"
    spaces = (Box,)
    mean_one = True
    smooths = True
    model_error_cancels = True

    def widths(self, space: ActionSpace) -> tuple[float, ...]:
        return tuple(self.bandwidth.of(box(space, "KernelRatio")).tolist())

    def lacks(self, available: Available) -> str | None:
        if not all(policy.deterministic for policy in available.policies.values()):
            return "it needs one action per round, which the policy does not provide; give an op.Deterministic"
        if len(self.bandwidth.values) not in (1, box(available.schema.space, "KernelRatio").dimensions):
            return f"it has {len(self.bandwidth.values)} bandwidths, and the actions are {available.schema.space.nature}"
        return available.lacks_propensities

    def weights(self, rounds: Rounds) -> FloatArray:
        assert rounds.target is not None
        assert rounds.propensity is not None
        space = box(rounds.batch.space, "KernelRatio")
        h, action, target = self.bandwidth.of(space), rounds.batch.action, rounds.target
        out = np.zeros(len(action))
        near = self._near(space.vectors(action), space.vectors(target), h)
        pointed = space.at_point(target)
        if space.points:
            near = near[~pointed[near] & ~space.at_point(action[near])]
            same = pointed & (action == target)
            out[same] = 1 / rounds.propensity[same]
        weights = self.smoothed(space.vectors(action[near]), space.vectors(target[near]), space) / rounds.propensity[near]
        weights[np.abs(weights) < NEXT_TO_NOTHING] = 0.0
        out[near] = weights
        return out

    def _near(self, action: FloatArray, target: FloatArray, h: FloatArray) -> npt.NDArray[np.int64]:
        """The rounds where the kernel is not 0: few of them, if it is narrow."""
        near = np.abs(action[:, 0] - target[:, 0]) < h[0] * self.kernel.reach
        for j in range(1, len(h)):
            near &= np.abs(action[:, j] - target[:, j]) < h[j] * self.kernel.reach
        return np.flatnonzero(near)

    def smoothed(self, action: FloatArray, target: FloatArray, space: Box) -> FloatArray:
        """The corrected kernel around each target: a density over the box. Both are rounds × dimensions."""
        h = self.bandwidth.of(space)
        density = np.ones(len(action))
        for j, (width, low, high) in enumerate(zip(h, space.lows, space.highs, strict=True)):
            centre = target[:, j]
            u = (action[:, j] - centre) / width
            density *= self.kernel.density(u) / width
            reach = width * self.kernel.reach
            leaves = np.flatnonzero((centre < low + reach) | (centre > high - reach))
            below, above = (centre[leaves] - low) / width, (high - centre[leaves]) / width
            density[leaves] *= self._correction(u[leaves], below, above)
        return density

    def _correction(self, u: FloatArray, below: FloatArray, above: FloatArray) -> FloatArray:
        """What the kernel is multiplied by at u, where it reaches over a bound."""
        mass = self.kernel.mass(below) + self.kernel.mass(above)
        if self.boundary == "exact":
            return 1 / mass
        first = self.kernel.first(above) - self.kernel.first(below)
        second = self.kernel.second(below) + self.kernel.second(above)
        return (second - first * u) / (mass * second - first**2)


def bandwidth_of(value: float | Sequence[float], share: bool = False) -> Bandwidth:
    """A bandwidth from a number, or one number per dimension."""
    return Bandwidth(tuple(map(float, np.atleast_1d(value))), share)
