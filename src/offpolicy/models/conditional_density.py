"""Models of the density of a number given the context, within bounds: normal around a linear mean, or of any shape.

Both state the density before truncation, p̃(a|x), and the mass that it has within the bounds, by which it is divided. Actions
are scaled to lie between 0 and 1.

- `LinearNormal`: p̃ = N(x̃β, σ²). Its likelihood after truncation is maximised in θ = 1/σ and γ = β/σ, in which it has a
  single maximum (Orme 1989).
- `Located`: p̃ = f((a − m(x)) / s(x)) / s(x), with additive regressions m and log s, and f a kernel density of what remains
  in rounds that these have not seen.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from offpolicy.core.arrays import FloatArray

LEAST_SD, MOST_SD = 1e-6, 1e3
PENALTY = 1e-6
"""The penalty of slopes, per round: without it, collinear columns have none."""
GRID = 1024
"""The points at which a kernel density is stored."""
KNOTS, MOST_BENT = (0.1, 0.3, 0.5, 0.7, 0.9), 50
"""The quantiles where functions of a column bend, and the largest number of columns for which they do."""


@dataclass(frozen=True)
class Data:
    """Rounds to fit on: context (rounds × columns), actions from 0 to 1, and weights of mean 1."""

    context: FloatArray
    action: FloatArray
    weight: FloatArray

    def __len__(self) -> int:
        return len(self.action)


class ConditionalDensity(ABC):
    """p(a|x) for actions from 0 to 1."""

    @abstractmethod
    def shapes(self, context: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The location and the scale of each round."""

    @abstractmethod
    def standard(self, z: FloatArray) -> FloatArray:
        """The density of (action − location) / scale before truncation."""

    @abstractmethod
    def below(self, z: FloatArray, w: FloatArray) -> FloatArray:
        """The mass between z and w ≥ z before truncation."""

    @abstractmethod
    def calibrated(self, held_out: Data, own: ConditionalDensity) -> ConditionalDensity:
        """With a spread that suits `held_out`, rounds that the model `own`, fitted on fewer rounds, has not seen."""

    def density(self, shapes: tuple[FloatArray, FloatArray], action: FloatArray) -> FloatArray:
        """p(a|x), from the location and the scale of the rounds that the actions belong to."""
        location, scale = shapes
        inside = self.below(-location / scale, (1 - location) / scale)
        density: FloatArray = self.standard((action - location) / scale) / (scale * np.maximum(inside, 1e-300))
        return density


@dataclass(frozen=True)
class LinearNormal(ConditionalDensity):
    """Normal with a linear mean and one standard deviation, truncated."""

    mean: FloatArray
    scale: FloatArray
    slopes: FloatArray
    intercept: float
    sd: float

    @classmethod
    def fit(cls, data: Data) -> LinearNormal:
        from scipy.optimize import minimize  # here, so that importing stays light
        from scipy.special import log_ndtr

        mean, scale = _standardisation(data.context, data.weight)
        x = np.column_stack([(data.context - mean) / scale, np.ones(len(data))])
        a, w = data.action, data.weight
        start = np.linalg.lstsq(x * np.sqrt(w)[:, None], a * np.sqrt(w), rcond=None)[0]
        sd = float(np.clip(np.sqrt(np.average((a - x @ start) ** 2, weights=w)), LEAST_SD, MOST_SD))
        penalty = np.append(np.full(x.shape[1] - 1, PENALTY * len(data)), 0.0)

        def loss(parameters: FloatArray) -> tuple[float, FloatArray]:
            gamma, theta = parameters[:-1], float(np.exp(parameters[-1]))
            g = x @ gamma
            z, low, high = theta * a - g, -g, theta - g
            swap = low > 0  # in the tail where differences are exact
            upper, lower = np.where(swap, -low, high), np.where(swap, -high, low)
            log_upper = log_ndtr(upper)
            log_mass = log_upper + np.log(-np.expm1(np.minimum(log_ndtr(lower) - log_upper, -1e-12)))
            at_low, at_high = (np.exp(-v * v / 2 - log_mass) / np.sqrt(2 * np.pi) for v in (low, high))
            value = w @ (z * z / 2 + log_mass) - w.sum() * parameters[-1] + penalty @ gamma**2 / 2
            by_g = w * (z + at_high - at_low)
            by_theta = w @ (a * z + at_high) - w.sum() / theta
            return float(value), np.append(-(x.T @ by_g) + penalty * gamma, by_theta * theta)

        bounds = [(None, None)] * x.shape[1] + [(-np.log(MOST_SD), -np.log(LEAST_SD))]
        found = minimize(loss, np.append(start / sd, -np.log(sd)), jac=True, method="L-BFGS-B", bounds=bounds).x
        sd = float(np.exp(-found[-1]))
        return cls(mean, scale, found[:-2] * sd, float(found[-2] * sd), sd)

    def shapes(self, context: FloatArray) -> tuple[FloatArray, FloatArray]:
        return ((context - self.mean) / self.scale) @ self.slopes + self.intercept, np.full(len(context), self.sd)

    def standard(self, z: FloatArray) -> FloatArray:
        density: FloatArray = np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
        return density

    def below(self, z: FloatArray, w: FloatArray) -> FloatArray:
        from scipy.special import ndtr

        swap = z > 0
        mass: FloatArray = ndtr(np.where(swap, -z, w)) - ndtr(np.where(swap, -w, z))
        return mass

    def calibrated(self, held_out: Data, own: ConditionalDensity) -> LinearNormal:
        from scipy.optimize import minimize_scalar

        location, scale = own.shapes(held_out.context)

        def loss(log_factor: float) -> float:
            density = self.density((location, scale * np.exp(log_factor)), held_out.action)
            return -float(held_out.weight @ np.log(np.maximum(density, 1e-300)))

        factor = float(np.exp(minimize_scalar(loss, bounds=(-1.0, 1.0), method="bounded").x))
        return replace(self, sd=self.sd * factor)


@dataclass(frozen=True)
class Located(ConditionalDensity):
    """Location and scale from regressions, and a kernel density of what remains, at points from `start` in equal steps.

    A share of the density is even: that of one round more than the kernel density was computed from. So no action within
    bounds is impossible.
    """

    location: Additive
    spread: Additive
    start: float = 0.0
    step: float = 1.0
    values: FloatArray | None = None
    even: float = 0.0

    @classmethod
    def fit(cls, data: Data) -> Located:
        location = Additive.fit(data.context, data.action, data.weight)
        residual = data.action - location.predict(data.context)
        spread = Additive.fit(data.context, np.log(np.maximum(residual**2, LEAST_SD**2)), data.weight)
        model = cls(location, spread)
        return model.calibrated(data, model)

    def calibrated(self, held_out: Data, own: ConditionalDensity) -> Located:
        location, scale = own.shapes(held_out.context)
        start, step, values = kernel_density((held_out.action - location) / scale, held_out.weight)
        return replace(self, start=start, step=step, values=values, even=1 / (1 + len(held_out)))

    def density(self, shapes: tuple[FloatArray, FloatArray], action: FloatArray) -> FloatArray:
        return (1 - self.even) * super().density(shapes, action) + self.even

    def shapes(self, context: FloatArray) -> tuple[FloatArray, FloatArray]:
        scale = np.exp(np.clip(self.spread.predict(context), 2 * np.log(LEAST_SD), 2 * np.log(MOST_SD)) / 2)
        return self.location.predict(context), scale

    def standard(self, z: FloatArray) -> FloatArray:
        assert self.values is not None
        return np.asarray(np.interp(z, self._points, self.values, left=0.0, right=0.0), dtype=np.float64)

    @property
    def _points(self) -> FloatArray:
        points: FloatArray = np.asarray(self.start + self.step * np.arange(GRID), dtype=np.float64)
        return points

    def below(self, z: FloatArray, w: FloatArray) -> FloatArray:
        assert self.values is not None
        cumulative = np.concatenate([[0.0], np.cumsum((self.values[1:] + self.values[:-1]) / 2) * self.step])

        def mass(v: FloatArray) -> FloatArray:
            at = np.clip((v - self.start) / self.step, 0, GRID - 1)
            first = np.minimum(at.astype(np.int64), GRID - 2)
            t = at - first
            assert self.values is not None
            left, right = self.values[first], self.values[first + 1]
            total: FloatArray = cumulative[first] + self.step * (left * t + (right - left) * t * t / 2)
            return total

        return mass(w) - mass(z)


def kernel_density(z: FloatArray, weight: FloatArray) -> tuple[float, float, FloatArray]:
    """A kernel density on a grid: its start, its step and its values. The width is that of Silverman (1986).

    >>> start, step, values = kernel_density(np.array([-1.0, 0.0, 1.0]), np.ones(3))
    >>> round(float(values.sum() * step), 6)
    1.0
    """
    order = np.argsort(z)
    share = np.cumsum(weight[order]) / weight.sum()
    low, high = (float(z[order][min(int(np.searchsorted(share, q)), len(z) - 1)]) for q in (0.25, 0.75))
    sd = float(np.sqrt(np.cov(z, aweights=weight))) if len(z) > 1 else 0.0
    spread = min(sd, (high - low) / 1.34) or sd or 1e-3
    width = 0.9 * spread * len(z) ** -0.2
    start, stop = float(z.min()) - 4 * width, float(z.max()) + 4 * width
    step = (stop - start) / (GRID - 1)
    at = (z - start) / step
    first = np.minimum(at.astype(np.int64), GRID - 2)
    t = at - first
    counts = np.bincount(first, weight * (1 - t), GRID) + np.bincount(first + 1, weight * t, GRID)
    offsets = np.arange(-GRID + 1, GRID) * step / max(width, step)
    smooth = _convolved(np.asarray(counts, dtype=np.float64), offsets)
    values: FloatArray = smooth / (smooth.sum() * step)
    return start, step, values


def _convolved(counts: FloatArray, offsets: FloatArray) -> FloatArray:
    """Counts smoothed by a normal kernel, by a Fourier transform."""
    size = 4 * GRID
    kernel = np.zeros(size)
    kernel[: len(offsets)] = np.exp(-(offsets**2) / 2)
    product = np.fft.irfft(np.fft.rfft(counts, size) * np.fft.rfft(kernel), size)
    smooth: FloatArray = np.maximum(product[GRID - 1 : 2 * GRID - 1], 0.0)
    return smooth


@dataclass(frozen=True)
class Additive:
    """A regression on piecewise linear functions of each column, with a ridge penalty chosen by cross-validation (GCV)."""

    mean: FloatArray
    scale: FloatArray
    knots: FloatArray
    slopes: FloatArray
    intercept: float

    @classmethod
    def fit(cls, context: FloatArray, values: FloatArray, weight: FloatArray) -> Additive:
        mean, scale = _standardisation(context, weight)
        few = context.shape[1] > MOST_BENT
        knots = np.empty((0, context.shape[1])) if few else np.quantile((context - mean) / scale, KNOTS, axis=0)
        design = cls._design((context - mean) / scale, knots)
        share = weight / weight.sum()
        centre, level = share @ design, float(share @ values)
        moments = (design - centre).T @ ((design - centre) * share[:, None])
        products = (design - centre).T @ ((values - level) * share)
        eigenvalues, vectors = np.linalg.eigh(moments)
        eigenvalues, rotated = np.maximum(eigenvalues, 0.0), vectors.T @ products
        total = float(share @ (values - level) ** 2)
        penalties = np.logspace(-5, 1, 13)

        def loss(penalty: float) -> float:
            shrunk = rotated / (eigenvalues + penalty)
            error = total - 2 * shrunk @ rotated + shrunk @ (eigenvalues * shrunk)
            used = 1 + float((eigenvalues / (eigenvalues + penalty)).sum())
            return float(error) / max(1 - used / len(values), 1e-6) ** 2

        penalty = min(penalties, key=loss)
        slopes = vectors @ (rotated / (eigenvalues + penalty))
        return cls(mean, scale, knots, slopes, level - float(centre @ slopes))

    @staticmethod
    def _design(z: FloatArray, knots: FloatArray) -> FloatArray:
        return np.column_stack([z, *(np.maximum(z - knot, 0.0) for knot in knots)])

    def predict(self, context: FloatArray) -> FloatArray:
        predicted: FloatArray = self._design((context - self.mean) / self.scale, self.knots) @ self.slopes + self.intercept
        return predicted


def _standardisation(context: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The mean and the standard deviation of each column; 1 for constant ones."""
    share = weight / weight.sum()
    mean = share @ context
    spread = np.sqrt(share @ (context - mean) ** 2)
    return mean, np.where(spread > 1e-12 * np.abs(mean), spread, 1.0)
