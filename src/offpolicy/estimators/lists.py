"""Estimators of lists, which differ in what the reward of a slot may depend on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from offpolicy.estimators.base import CrossFitted, Member, register
from offpolicy.models.rewards.ridge.model import Ridge
from offpolicy.ratios.base import UnfittedRatio
from offpolicy.ratios.slots import AdditiveRatio, ListRatio, PositionRatio, PrefixRatio
from offpolicy.ratios.weights import Weight


@dataclass(frozen=True)
class OfSlots(CrossFitted):
    """An estimator that weights the reward of each slot by one ratio, or what a reward model leaves of it.

    The model predicts the reward of a slot from the context and its item. Every ratio here weights the items of a slot
    rightly on average, so that a model takes variance away and adds no bias.
    """

    optional_rewards: ClassVar[bool] = True
    normalised: bool = False
    rewards: Any = None
    cross_fit: int | None = None

    @property
    def ratio(self) -> UnfittedRatio:
        """The ratio of a slot."""
        raise NotImplementedError

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        folds = 0 if self.rewards is None else self.folds(cross_fit)
        return (Member(Weight(self.ratio), self.rewards, folds, normalised=self.normalised),)


@register
@dataclass(frozen=True)
class SIPS(OfSlots):
    """Standard IPS of lists: every slot is weighted by the ratio of the whole list, Π_j w_j.

    It assumes nothing about how people read a list, and is unbiased where the logging policy gives positive probability to
    every list that the target policy may show. Its variance grows fastest with the length of the lists.

    Parameters
    ----------
    normalised : bool, default False
        Divide by the mean weight.
    rewards : reward model, optional
        A model of the reward of each slot, such as `op.Ridge()`; the weights then apply to what it leaves.
    cross_fit : int, optional
        The number of folds that the reward model is cross-fitted on; the evaluation's default, 5, if None.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Precup, Sutton and Singh (2000). Eligibility traces for off-policy policy evaluation. ICML.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log(
    ...     None, action=[["a", "b"], ["b", "b"]], reward=[[1, 0], [0, 1]], propensity=[[0.5, 0.5], [0.5, 0.5]],
    ...     actions=op.Slate(2),
    ... )
    >>> op.evaluate(log, op.Factored(op.Fixed({"a": 0.9, "b": 0.1})), op.SIPS())["SIPS"].value
    0.2
    """

    @property
    def ratio(self) -> UnfittedRatio:
        return ListRatio()


@register
@dataclass(frozen=True)
class RIPS(OfSlots):
    """Reward-interaction IPS: slot k is weighted by the items down to it, Π_{j ≤ k} w_j.

    Unbiased if the reward of a slot does not depend on the items below it, as for people who read from the top (a cascade).

    Parameters
    ----------
    normalised : bool, default False
        Divide the value of each slot by its mean weight.
    rewards : reward model, optional
        A model of the reward of each slot, such as `op.Ridge()`; the weights then apply to what it leaves.
    cross_fit : int, optional
        The number of folds that the reward model is cross-fitted on; the evaluation's default, 5, if None.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    McInerney, Brost, Chandar, Mehrotra and Carterette (2020). Counterfactual evaluation of slate recommendations with
    sequential reward interactions. KDD.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log(
    ...     None, action=[["a", "b"], ["b", "b"]], reward=[[1, 0], [0, 1]], propensity=[[0.5, 0.5], [0.5, 0.5]],
    ...     actions=op.Slate(2),
    ... )
    >>> result = op.evaluate(log, op.Factored(op.Fixed({"a": 0.9, "b": 0.1})), op.RIPS())
    >>> [round(slot.value, 2) for slot in result["RIPS"].slots]
    [0.9, 0.02]
    """

    @property
    def ratio(self) -> UnfittedRatio:
        return PrefixRatio()


@register
@dataclass(frozen=True)
class CascadeDR(OfSlots):
    """Doubly robust estimator under the cascade model: RIPS of what a reward model of each slot leaves, plus the model.

    With Q_k the value from slot k on, it is Σ_k [w_{1:k} (r_k − Q_k) + w_{1:k−1} E_π Q_k] and unbiased for any Q_k if the
    reward of a slot does not depend on the items below it. Here Q_k = q_k(x, a_k) + Σ_{l > k} q_l(x, π), with the model q_k
    of the reward of slot k; the sum over slots then telescopes to Σ_k [q_k(x, π) + w_{1:k} (r_k − q_k(x, a_k))].

    Parameters
    ----------
    normalised : bool, default False
        Divide the correction of each slot by its mean weight.
    rewards : reward model, default op.Ridge()
        A model of the reward of each slot.
    cross_fit : int, optional
        The number of folds that the reward model is cross-fitted on; the evaluation's default, 5, if None.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Kiyohara, Saito, Matsuhiro, Narita, Shimizu and Yamamoto (2022). Doubly robust off-policy evaluation for ranking policies
    under the cascade behavior model. WSDM.

    Examples
    --------
    >>> import offpolicy as op
    >>> world = op.worlds.Cascade(slots=3, n_actions=4, seed=1)
    >>> result = op.evaluate(world.sample(1_000, seed=0), world.target, [op.CascadeDR(), op.RIPS()])
    >>> bool(result["CascadeDR"].std_error < result["RIPS"].std_error)
    True
    """

    rewards: Any = field(default_factory=Ridge)

    @property
    def ratio(self) -> UnfittedRatio:
        return PrefixRatio()


@register
@dataclass(frozen=True)
class IIPS(OfSlots):
    """Independent IPS: slot k is weighted by the ratio of its item in that position, m_k, whatever the other slots hold.

    Unbiased if the reward of a slot depends on its own item and position only. It needs the probability of each item in its
    position under both policies: `position_propensity=`, or `logging=`.

    Parameters
    ----------
    normalised : bool, default False
        Divide the value of each slot by its mean weight.
    rewards : reward model, optional
        A model of the reward of each slot, such as `op.Ridge()`; the weights then apply to what it leaves.
    cross_fit : int, optional
        The number of folds that the reward model is cross-fitted on; the evaluation's default, 5, if None.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Li, Abbasi-Yadkori, Kveton, Muthukrishnan, Vinay and Wen (2018). Offline evaluation of ranking policies with click
    models. KDD.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log(
    ...     None, action=[["a", "b"], ["b", "b"]], reward=[[1, 0], [0, 1]], logging=op.Factored(op.Uniform()),
    ...     actions=op.Slate(2),
    ... )
    >>> op.evaluate(log, op.Factored(op.Fixed({"a": 0.9, "b": 0.1})), op.IIPS())["IIPS"].value
    1.0
    """

    @property
    def ratio(self) -> UnfittedRatio:
        return PositionRatio()


@register
@dataclass(frozen=True)
class PI(OfSlots):
    """Pseudo-inverse estimator: the list is weighted by the sum of its ratios, 1 + Σ_k (m_k − 1).

    Unbiased if the reward of the list is a sum of what each item contributes in its position; the rewards of slots need not
    be known. That form is for logging policies that fill slots independently of each other (`op.Factored`). For those that
    show each item at most once (`logging=op.PlackettLuce(…)`), the weight is qᵀΓ⁺1_s with the probabilities Γ of pairs of
    (item, slot). If all lists are equally likely, this has a closed form; otherwise it sums over all lists, which takes
    about 20 ms per context for 10 items in 5 slots, and is refused beyond 100,000 lists. Weights can be negative.

    Parameters
    ----------
    normalised : bool, default False
        Divide by the mean weight.
    rewards : reward model, optional
        A model of the reward of each slot, such as `op.Ridge()`; the weights then apply to what it leaves.
    cross_fit : int, optional
        The number of folds that the reward model is cross-fitted on; the evaluation's default, 5, if None.
    control_variates : bool, default False
        Subtract Σ_k β_k (mean[m_k] − 1), with the β that leave the least variance.
    name : str, optional
        The name in results; the name of the class by default.

    References
    ----------
    Swaminathan, Krishnamurthy, Agarwal, Dudík, Langford, Jose and Zitouni (2017). Off-policy evaluation for slate
    recommendation. NeurIPS. Vlassis, Chandrashekar, Amat Gil and Kallus (2021). Control variates for slate off-policy
    evaluation. NeurIPS.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log(
    ...     None, action=[["a", "b"], ["b", "b"]], reward=[1, 1], logging=op.Factored(op.Uniform()), actions=op.Slate(2)
    ... )
    >>> round(op.evaluate(log, op.Factored(op.Fixed({"a": 0.9, "b": 0.1})), op.PI())["PI"].value, 3)
    0.2
    """

    control_variates: bool = False

    @property
    def ratio(self) -> UnfittedRatio:
        return AdditiveRatio()

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        (one,) = super().members(cross_fit)
        return (replace(one, variate=Weight(PositionRatio())),) if self.control_variates else (one,)
