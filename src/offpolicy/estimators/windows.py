"""Estimators of lists that assume less than that slots do not matter to each other, and more than nothing."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from offpolicy.data.checks import whole
from offpolicy.estimators.base import Estimator, Member, Number, register
from offpolicy.estimators.lists import OfSlots
from offpolicy.ratios.base import Ratio
from offpolicy.ratios.weights import Weight, check_setting
from offpolicy.ratios.windows import PairRatio, PartialRatio, WindowRatio

WINDOWS = (32, 16, 8, 4, 2, 1, 0)
"""Candidates for the number of slots on both sides, from the least biased."""


@register
@dataclass(frozen=True)
class AIPS(Estimator):
    """IPS of lists with windows: the reward of a slot is weighted by the ratios of the slots near it, Π w_j.

    Unbiased if the reward of a slot depends on the items in its window only: `window` slots above it and as many below. A
    window over the whole list is SIPS, and one of 0 slots IIPS. With "auto", the log determines the window by SLOPE: it is
    the smallest one that agrees with all larger ones. It is for policies that fill slots independently of each other.

    Parameters
    ----------
    window : int or "auto", default "auto"
        How many slots above and below matter to a slot.
    normalised : bool, default True
        Divide the value of each slot by its mean weight.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Kiyohara, Uehara, Narita, Shimizu, Yamamoto and Saito (2023). Off-policy evaluation of ranking policies under diverse
    user behavior. KDD. There, windows are chosen by the rewards of the target policy itself, which are not logged.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log(
    ...     None, action=[["a", "b"], ["b", "b"]], reward=[[1, 0], [0, 1]], logging=op.Factored(op.Uniform()),
    ...     actions=op.Slate(2),
    ... )
    >>> target = op.Factored(op.Fixed({"a": 0.9, "b": 0.1}))
    >>> op.evaluate(log, target, op.AIPS(window=0, normalised=False))["AIPS"].value
    1.0
    """

    window: Number = "auto"
    _: KW_ONLY
    normalised: bool = True
    tuned: ClassVar[str | None] = "window"

    def _check(self) -> None:
        if self.window != "auto":
            number = int(self.window) if self.window == int(self.window) else self.window
            object.__setattr__(self, "window", whole(f"{self.name}: window", number, 0))

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:  # noqa: ARG002
        return tuple(
            Member(Weight(WindowRatio(above=int(window), below=int(window))), normalised=self.normalised, setting=window)
            for window in self.grid(WINDOWS)
        )


@register
@dataclass(frozen=True)
class PairIPS(OfSlots):
    """IPS of lists for rewards that add up over pairs of slots: slot k is weighted by w_k (1 + Σ_{j ≠ k} (w_j − 1)).

    Unbiased if the reward of a slot is a sum of what its item contributes alone, and together with the item of each other
    slot. It is for policies that fill slots independently of each other. Weights can be negative.

    Parameters
    ----------
    normalised : bool, default True
        Divide the value of each slot by its mean weight.
    below : bool, default True
        Include the slots below.
    name : str, optional
        The name in results; the name of the class by default.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log(
    ...     None, action=[["a", "b"], ["b", "b"]], reward=[[1, 0], [0, 1]], logging=op.Factored(op.Uniform()),
    ...     actions=op.Slate(2),
    ... )
    >>> target = op.Factored(op.Fixed({"a": 0.9, "b": 0.1}))
    >>> round(op.evaluate(log, target, op.PairIPS(normalised=False))["PairIPS"].value, 10)
    0.2
    """

    normalised: bool = True
    below: bool = True

    @property
    def ratio(self) -> Ratio:
        return PairRatio(below=self.below)


@register
@dataclass(frozen=True)
class PartialIPS(OfSlots):
    """IPS of lists that counts the other slots in part: slot k is weighted by w_k Π_{j ≠ k} (1 − λ + λ·w_j).

    The weights belong to a policy that is the target in slot k, and in each other slot the target with probability λ, and
    the logging policy otherwise. Its bias is what the other slots matter, times 1 − λ for each, and its variance falls fast
    with λ: the form that learned embeddings of lists take if all items are equally close to each other.

    Parameters
    ----------
    normalised : bool, default True
        Divide the value of each slot by its mean weight.
    share : float, default 0.5
        λ, from 0 (the slot alone) to 1 (the whole list, as SIPS).
    below : bool, default True
        Include the slots below.
    name : str, optional
        The name in results; the name of the class by default.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log(
    ...     None, action=[["a", "b"], ["b", "b"]], reward=[[1, 0], [0, 1]], logging=op.Factored(op.Uniform()),
    ...     actions=op.Slate(2),
    ... )
    >>> target = op.Factored(op.Fixed({"a": 0.9, "b": 0.1}))
    >>> round(op.evaluate(log, target, op.PartialIPS(normalised=False))["PartialIPS"].value, 10)
    0.6
    """

    normalised: bool = True
    share: float = 0.5
    below: bool = True

    def _check(self) -> None:
        check_setting(self.name, "share", self.share, 0, 1)

    @property
    def ratio(self) -> Ratio:
        return PartialRatio(share=self.share, below=self.below)
