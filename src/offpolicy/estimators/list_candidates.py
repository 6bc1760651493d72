"""The standard candidates of estimators of lists that combine others."""

from __future__ import annotations

from dataclasses import dataclass

from offpolicy.estimators.base import Estimator
from offpolicy.estimators.dr import DM
from offpolicy.estimators.lists import IIPS, RIPS, SIPS
from offpolicy.estimators.prefix import PrefixDM
from offpolicy.estimators.windows import AIPS, PairIPS, PartialIPS
from offpolicy.models.rewards.ridge.model import Ridge


@dataclass(frozen=True)
class ListFamily:
    """From candidates that assume nothing about how lists are read to those that take slots to be independent.

    Most have a reward model for each slot, with a penalty in rounds. Several are for policies that fill slots independently
    of each other, and are left out where that is not known.
    """

    penalty: float = 1.0

    def unbiased(self) -> tuple[Estimator, ...]:
        """The weights of whole lists, alone and with a reward model."""
        return SIPS(normalised=True), SIPS(normalised=True, rewards=Ridge(self.penalty), name="SIPS with a model")

    def smoother(self) -> tuple[Estimator, ...]:
        """Weights of fewer slots, or of all in part; the model alone."""
        model = Ridge(self.penalty)
        return (
            AIPS(window=2, rewards=model, name="AIPS (window 2)"),
            PartialIPS(share=0.5, rewards=model, name="PartialIPS (share 0.5)"),
            RIPS(normalised=True),
            RIPS(normalised=True, rewards=model, name="RIPS with a model"),
            PrefixDM(self.penalty, corrected=True, name="PrefixDM, corrected"),
            PairIPS(rewards=model),
            PairIPS(below=False, rewards=model, name="PairIPS (above)"),
            AIPS(window=1, rewards=model, name="AIPS (window 1)"),
            PartialIPS(share=0.25, rewards=model, name="PartialIPS (share 0.25)"),
            PartialIPS(share=0.5, below=False, rewards=model, name="PartialIPS (above)"),
            IIPS(normalised=True),
            IIPS(normalised=True, rewards=model, name="IIPS with a model"),
            DM(model),
        )

    def all(self) -> tuple[Estimator, ...]:
        """All of them, the nearly unbiased ones first."""
        return (*self.unbiased(), *self.smoother())
