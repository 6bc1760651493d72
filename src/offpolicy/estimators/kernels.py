"""Estimators of deterministic policies over numbers, which weight rounds by how near the logged action is."""

from __future__ import annotations

from dataclasses import dataclass

from offpolicy.core.arrays import LARGEST_NUMBER
from offpolicy.core.errors import InputError
from offpolicy.data.checks import is_number
from offpolicy.estimators.base import Estimator, Member, register
from offpolicy.ratios.kernels import KernelRatio
from offpolicy.ratios.weights import Weight


@register
@dataclass(frozen=True)
class KernelIPS(Estimator):
    """Kernel-weighted IPS: mean[K_h(a − τ(x)) / (α(x)·p0(a|x)) · r], with the Epanechnikov kernel K.

    For an `op.Deterministic` policy on a log whose actions are an `op.Box`. It estimates the value of a policy that is
    spread over `bandwidth` around τ(x). It is biased where the reward is curved on that scale, and unbiased only as the
    bandwidth goes to 0. The interval does not allow for that bias.

    Parameters
    ----------
    bandwidth : float, default=0.1
        h, in the unit of the actions: actions farther than h from τ(x) get weight 0.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Kallus and Zhou (2018). Policy evaluation and optimization with continuous treatments. AISTATS.

    Examples
    --------
    >>> import numpy as np, offpolicy as op
    >>> dose = np.linspace(0.05, 0.95, 10)
    >>> log = op.Log(np.zeros((10, 1)), dose, dose, propensity=np.ones(10), actions=op.Box(0, 1))
    >>> target = op.Deterministic(lambda x: np.full(len(x), 0.5))
    >>> round(op.evaluate(log, target, op.KernelIPS(bandwidth=0.3))["KernelIPS"].value, 2)
    0.51
    """

    bandwidth: float = 0.1

    def _check(self) -> None:
        h = self.bandwidth
        if not is_number(h) or not 1 / LARGEST_NUMBER <= h <= LARGEST_NUMBER:
            raise InputError(f"{self.name}: bandwidth is {h!r}; give a positive number, in the unit of the actions.")

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:  # noqa: ARG002
        return (Member(Weight(KernelRatio(self.bandwidth))),)
