"""Estimators of deterministic policies over numbers: rounds count by how near the logged action lies."""

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
    """Kernel-weighted IPS: mean[K_h(a − τ(x)) / (α(x)·p0(a|x)) · r] (Kallus & Zhou 2018), K of Epanechnikov.

    For an `op.Deterministic` policy on a log whose actions are an `op.Box`. It is the value of a policy that is spread over
    `bandwidth` around τ(x): biased where the reward is curved there, and unbiased only as the bandwidth goes to 0. The
    interval does not allow for that bias.

    Parameters
    ----------
    bandwidth
        h, in the unit of the actions: actions farther than h from τ(x) do not count.
    """

    bandwidth: float = 0.1

    def _check(self) -> None:
        h = self.bandwidth
        if not is_number(h) or not 1 / LARGEST_NUMBER <= h <= LARGEST_NUMBER:
            raise InputError(f"{self.name}: bandwidth is {h!r}; give a positive number, in the unit of the actions.")

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:  # noqa: ARG002
        return (Member(Weight(KernelRatio(self.bandwidth))),)
