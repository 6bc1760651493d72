"""Estimators without a reward model: the mean of the log, and the IPS family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from offpolicy.core.arrays import LARGEST_NUMBER
from offpolicy.estimators.base import CrossFitted, Estimator, Member, Number, register
from offpolicy.ratios.outcomes import OutcomeRatio
from offpolicy.ratios.weights import Clip, Harmonic, Shrink, Straight, Switch, Weight, check_setting

# The grids of "auto", from the least biased value to the most: limits on w, then λ of DRos and of SubGaussianIPS.
CLIPS: tuple[float, ...] = (np.inf, 1000.0, 300.0, 100.0, 30.0, 10.0, 3.0, 1.0)
SHRINKAGES: tuple[float, ...] = (np.inf, 1e5, 1e4, 1e3, 1e2, 10.0, 1.0)
HARMONICS: tuple[float, ...] = (0.0, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3)


@register
@dataclass(frozen=True)
class LoggedMean(Estimator):
    """The mean reward of the log: the value of the logging policy, and the naive answer for any other.

    Parameters
    ----------
    name : str, optional
        The name in results; the name of the class by default.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.LoggedMean())["LoggedMean"].value, 3)
    0.5
    """

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:  # noqa: ARG002
        return (Member(Weight("one")),)


@register
@dataclass(frozen=True)
class IPS(Estimator):
    """Inverse propensity scoring: mean[w·r].

    Unbiased where the logging policy gives positive probability to every action that the target policy may take.

    Parameters
    ----------
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Horvitz and Thompson (1952). A generalization of sampling without replacement from a finite universe. JASA.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.IPS())["IPS"].value, 3)
    0.457
    """

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:  # noqa: ARG002
        return (Member(Weight()),)


@register
@dataclass(frozen=True)
class SNIPS(Estimator):
    """Self-normalised IPS: mean[w·r] / mean[w].

    Parameters
    ----------
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Swaminathan and Joachims (2015). The self-normalized estimator for counterfactual learning. NeurIPS.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.SNIPS())["SNIPS"].value, 3)
    0.48
    """

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:  # noqa: ARG002
        return (Member(Weight(), normalised=True),)


@dataclass(frozen=True)
class Bent(Estimator):
    """An estimator whose weights are bent by one setting, the one named by `tuned`.

    `bend` makes the bend from a value, `values` is the grid of "auto", and at the value `straight` nothing is bent. A value
    must lie between `least` and `most`.
    """

    tuned: ClassVar[str]
    bend: ClassVar[type[Clip] | type[Switch] | type[Shrink] | type[Harmonic]]
    values: ClassVar[tuple[float, ...]]
    straight: ClassVar[float]
    least: ClassVar[float] = 0.0
    most: ClassVar[float] = np.inf

    def _check(self) -> None:
        check_setting(self.name, self.tuned, getattr(self, self.tuned), self.least, self.most)

    def weights(self) -> list[tuple[float, Weight]]:
        """One weight for a number, or one for each value of the grid."""
        bend = type(self).bend
        return [(v, Weight(bend=Straight() if v == self.straight else bend(v))) for v in self.grid(self.values)]

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:  # noqa: ARG002
        return tuple(Member(weight, setting=v) for v, weight in self.weights())


@register
@dataclass(frozen=True)
class ClippedIPS(Bent):
    """IPS with clipped weights, min(w, clip).

    Parameters
    ----------
    clip : float or "auto", default="auto"
        The largest weight. "auto" lets SLOPE choose from a grid.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Ionides (2008). Truncated importance sampling. Journal of Computational and Graphical Statistics.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.ClippedIPS(clip=10))["ClippedIPS"].value, 3)
    0.444
    """

    clip: Number = "auto"
    tuned, bend, values, straight = "clip", Clip, CLIPS, np.inf


@register
@dataclass(frozen=True)
class SubGaussianIPS(Bent):
    """IPS with weights w / (1 − λ + λw), whose errors have light tails.

    Parameters
    ----------
    shrinkage : float or "auto", default="auto"
        λ, from 0 (IPS) to 1 (all weights are 1). "auto" lets SLOPE choose from a grid.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Metelli, Russo and Restelli (2021). Subgaussian and differentiable importance sampling for off-policy evaluation and
    learning. NeurIPS.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.SubGaussianIPS())["SubGaussianIPS"].value, 3)
    0.457
    """

    shrinkage: Number = "auto"
    tuned, bend, values, straight, most = "shrinkage", Harmonic, HARMONICS, 0.0, 1.0


@register
@dataclass(frozen=True)
class LogSmoothing(Estimator):
    """IPS with logarithmic smoothing: mean[log(1 + λ·w·r)] / λ.

    Large products count by their logarithm only, so that no weight is clipped and no round decides alone. The estimate is
    too low by design, by about λ·E[(w·r)²]/2. Its interval (`method="smoothing"`) needs no bound on the weights and holds
    for any number of rounds, if the log states its `reward_range`; rewards are rescaled to 0 to 1 by that range.

    Parameters
    ----------
    shrinkage : float or "auto", default="auto"
        λ, from 0 (IPS). "auto" is 1/√n for n rounds, whatever they contain.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Sakhi, Aouali, Alquier and Chopin (2024). Logarithmic smoothing for pessimistic off-policy evaluation, selection and
    learning. NeurIPS.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.LogSmoothing())["LogSmoothing"].value, 3)
    0.447
    """

    shrinkage: Number = "auto"

    def _check(self) -> None:
        check_setting(self.name, "shrinkage", self.shrinkage, 0.0, LARGEST_NUMBER)

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:  # noqa: ARG002
        return (Member(Weight(), smoothing=self.shrinkage),)


@register
@dataclass(frozen=True)
class MR(CrossFitted):
    """Marginal ratio: mean[E[w | r]·r], with E[w | r] estimated from the log.

    Parameters
    ----------
    normalised : bool, default=False
        Divide by the mean weight.
    cross_fit : int, optional
        The number of folds; the evaluation's default, 5, if None. With 0, E[w | r] is estimated on the rounds that it
        weights, and MR is IPS again wherever rewards take few values.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Taufiq, Doucet, Cornish and Ton (2023). Marginal density ratio for off-policy evaluation in contextual bandits. NeurIPS.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.MR())["MR"].value, 3)
    0.458
    """

    normalised: bool = False
    cross_fit: int | None = None

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        return (Member(Weight(OutcomeRatio(self.folds(cross_fit))), normalised=self.normalised),)
