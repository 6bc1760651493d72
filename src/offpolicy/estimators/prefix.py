"""`PrefixDM`: the direct method of lists with a model that knows the items above a slot."""

from __future__ import annotations

from dataclasses import dataclass

from offpolicy.core.errors import InputError
from offpolicy.estimators.base import CrossFitted, Member, register
from offpolicy.ratios.prefix_models import PrefixModelRatio
from offpolicy.ratios.weights import Weight, check_setting


@register
@dataclass(frozen=True)
class PrefixDM(CrossFitted):
    """The direct method of lists whose slots depend on the items above them.

    The model of a slot has, besides the context and its item, how often each item stands above it, and which one stands
    just above; `DM` has the context and the item alone. One list of the new policy is drawn for each round, and its random
    error is part of the standard error. The model has a coefficient per pair of items, and is for up to about 20 items.

    Parameters
    ----------
    penalty : float, default 1.0
        The ridge penalty, in rounds.
    corrected : bool, default False
        Add what the model leaves of the rewards, weighted by the items down to the slot, as `CascadeDR` does. The estimate
        is then unbiased if the reward of a slot does not depend on the items below it, whatever the model is.
    cross_fit : int, optional
        The number of folds that the model is cross-fitted on; by default none, or, where it is corrected, the evaluation's.
    name : str, optional
        The name in results; the name of the class by default.

    Examples
    --------
    >>> import offpolicy as op
    >>> world = op.worlds.Ranking("cascade", slots=3, n_actions=4, seed=1)
    >>> result = op.evaluate(world.sample(2_000, seed=0), world.target, [op.PrefixDM(), op.DM()])
    >>> truth = world.value(world.target)
    >>> bool(abs(result["PrefixDM"].value - truth) < abs(result["DM"].value - truth))
    True
    """

    penalty: float = 1.0
    corrected: bool = False
    cross_fit: int | None = None

    def _check(self) -> None:
        check_setting(self.name, "penalty", self.penalty, 0, float("inf"))
        if not isinstance(self.corrected, bool):
            raise InputError(f"{self.name}: corrected is {self.corrected!r}; give True or False.")

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        folds = self.folds(cross_fit) if self.corrected or self.cross_fit is not None else 0
        return (Member(Weight(PrefixModelRatio(float(self.penalty), self.corrected, folds))),)
