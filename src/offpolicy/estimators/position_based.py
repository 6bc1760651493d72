"""`PBM`: lists whose slots are looked at more or less often, whatever stands there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from offpolicy.core.errors import InputError
from offpolicy.data.checks import floats
from offpolicy.estimators.base import Estimator, Member, register
from offpolicy.ratios.examination import ExaminationRatio
from offpolicy.ratios.weights import Weight


@register
@dataclass(frozen=True)
class PBM(Estimator):
    """IPS of lists under the position-based model: a click is a user who looks at the slot, and an item that is relevant.

    What an item earned in one slot then says what it would earn in any other: slot j counts the clicks of all slots k with
    π(d_k in j) b_j / Σ_l π0(d_k in l) b_l, where b_k is the probability that a user looks at slot k, the examination curve.
    Unbiased if a click has the probability b_k times the relevance of the item in this context. It needs the logging policy
    (`logging=`), since items are compared in slots where they were not shown.

    Parameters
    ----------
    examination : sequence of float, optional
        The curve b, one number per slot, up to a factor. By default it is estimated from items that the logging policy shows
        in several slots, and its error is part of the standard error.
    normalised : bool, default False
        Divide the value of each slot by its mean weight.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Li, Abbasi-Yadkori, Kveton, Muthukrishnan, Vinay and Wen (2018). Offline evaluation of ranking policies with click
    models. KDD. The curve is estimated as in Agarwal, Zaitsev, Wang, Li, Najork and Joachims (2019). Estimating position
    bias without intrusive interventions. WSDM.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log(
    ...     None, action=[["a", "b"], ["b", "a"]], reward=[[1, 0], [0, 1]], logging=op.PlackettLuce([[0.0, 0.0]] * 2),
    ...     actions=op.Slate(2),
    ... )
    >>> target = op.PlackettLuce([[2.0, 0.0]] * 2)
    >>> result = op.evaluate(log, target, op.PBM(examination=[1, 0.5]))
    >>> [round(slot.value, 3) for slot in result["PBM"].slots]
    [1.174, 0.079]
    """

    examination: Any = None
    normalised: bool = False

    def _check(self) -> None:
        if self.examination is None:
            return
        curve = floats(self.examination, f"{self.name}: examination")
        if curve.ndim != 1 or not len(curve) or not (np.isfinite(curve) & (curve > 0)).all():
            raise InputError(f"{self.name}: examination is {self.examination!r}; give one number above 0 per slot.")
        object.__setattr__(self, "examination", tuple(curve.tolist()))

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:  # noqa: ARG002
        return (Member(Weight(ExaminationRatio(self.examination)), normalised=self.normalised),)
