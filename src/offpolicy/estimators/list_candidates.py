"""The standard candidates of estimators of lists that combine others."""

from __future__ import annotations

from dataclasses import dataclass

from offpolicy.estimators.base import Estimator
from offpolicy.estimators.lists import IIPS, RIPS, SIPS
from offpolicy.estimators.windows import AIPS, PairIPS, PartialIPS


@dataclass(frozen=True)
class ListFamily:
    """From candidates that assume nothing about how lists are read to those that take slots to be independent.

    Several are for policies that fill slots independently of each other, and are left out where that is not known.
    """

    def unbiased(self) -> tuple[Estimator, ...]:
        """The weights of whole lists."""
        return (SIPS(normalised=True),)

    def smoother(self) -> tuple[Estimator, ...]:
        """Weights of fewer slots, or of all in part."""
        return (
            AIPS(window=2, name="AIPS (window 2)"),
            PartialIPS(share=0.5, name="PartialIPS (share 0.5)"),
            RIPS(normalised=True),
            PairIPS(),
            PairIPS(below=False, name="PairIPS (above)"),
            AIPS(window=1, name="AIPS (window 1)"),
            PartialIPS(share=0.25, name="PartialIPS (share 0.25)"),
            PartialIPS(share=0.5, below=False, name="PartialIPS (above)"),
            IIPS(normalised=True),
        )

    def all(self) -> tuple[Estimator, ...]:
        """All of them, the nearly unbiased ones first."""
        return (*self.unbiased(), *self.smoother())
