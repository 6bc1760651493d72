"""Estimators of lists that assume less than that slots do not matter to each other, and more than nothing."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar

from offpolicy.core.errors import InputError
from offpolicy.data.checks import whole
from offpolicy.estimators.base import DEFAULT_FOLDS, Member, Number, register
from offpolicy.estimators.lists import OfSlots
from offpolicy.ratios.base import UnfittedRatio
from offpolicy.ratios.weights import Weight, check_setting
from offpolicy.ratios.window_groups import GroupedWindowRatio
from offpolicy.ratios.windows import PairRatio, PartialRatio, WindowRatio

WINDOWS = (32, 16, 8, 4, 2, 1, 0)
"""Candidates for the number of slots on both sides, from the least biased."""


@register
@dataclass(frozen=True)
class AIPS(OfSlots):
    """IPS of lists with windows: the reward of a slot is weighted by the ratios of the slots near it, Π w_j.

    Unbiased if the reward of a slot depends on the items in its window only: `window` slots above it and as many below. A
    window over the whole list is SIPS, and one of 0 slots IIPS. With "auto", the log determines the window by SLOPE: it is
    the smallest one that agrees with all larger ones. It is for policies that fill slots independently of each other.

    Parameters
    ----------
    normalised : bool, default True
        Divide the value of each slot by its mean weight.
    rewards : reward model, optional
        A model of the reward of each slot, such as `op.Ridge()`; the weights then apply to what it leaves.
    cross_fit : int, optional
        The number of folds that the reward model is cross-fitted on; the evaluation's default, 5, if None.
    window : int or "auto", default "auto"
        How many slots above and below matter to a slot.
    groups : int, default 1
        The largest number of groups of contexts with windows of their own, which are ranges of one column of the context.
        From 2 on, windows are chosen by their estimated mean squared error, for each fold from the others; and there are
        only as many groups as have 500 effective lists each.
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

    normalised: bool = True
    _: KW_ONLY
    window: Number = "auto"
    groups: int = 1
    tuned: ClassVar[str | None] = "window"

    def _check(self) -> None:
        whole(f"{self.name}: groups", self.groups, 1)
        if self.groups > 1 and self.window != "auto":
            raise InputError(f'{self.name}: groups is {self.groups}, and windows are chosen only with window="auto".')
        if self.window != "auto":
            number = int(self.window) if self.window == int(self.window) else self.window
            object.__setattr__(self, "window", whole(f"{self.name}: window", number, 0))

    @property
    def ratio(self) -> UnfittedRatio:
        return _window(self.grid(WINDOWS)[0])

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        (one,) = super().members(cross_fit)
        if self.groups > 1:
            ratio = GroupedWindowRatio(WINDOWS, self.groups, self.folds(cross_fit) or DEFAULT_FOLDS)
            return (replace(one, weight=Weight(ratio)),)
        return tuple(replace(one, weight=Weight(_window(each)), setting=float(each)) for each in self.grid(WINDOWS))


def _window(slots: float) -> UnfittedRatio:
    """The weights of as many slots above as below."""
    return WindowRatio(above=int(slots), below=int(slots))


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
    rewards : reward model, optional
        A model of the reward of each slot, such as `op.Ridge()`; the weights then apply to what it leaves.
    cross_fit : int, optional
        The number of folds that the reward model is cross-fitted on; the evaluation's default, 5, if None.
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
    def ratio(self) -> UnfittedRatio:
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
    rewards : reward model, optional
        A model of the reward of each slot, such as `op.Ridge()`; the weights then apply to what it leaves.
    cross_fit : int, optional
        The number of folds that the reward model is cross-fitted on; the evaluation's default, 5, if None.
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
    def ratio(self) -> UnfittedRatio:
        return PartialRatio(share=self.share, below=self.below)
