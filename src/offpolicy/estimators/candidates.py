"""The standard candidates of estimators that combine others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offpolicy.data.features import Features
from offpolicy.estimators.base import Estimator
from offpolicy.estimators.dr import DM, DR, SNDR, DRos, ScaledDR
from offpolicy.estimators.embedded import LearnedMDR
from offpolicy.estimators.ips import IPS, SNIPS
from offpolicy.models.posteriors.gaussian import Gaussian
from offpolicy.models.rewards.ridge.model import Ridge

MOST_FEATURES = 20


@dataclass(frozen=True)
class CandidateFamily:
    """The settings of the standard candidates: penalties in rounds, largest weights, and the width of a kernel.

    Features of actions help where they are a function of the action. Where they vary within an action, the error of the fit
    is unknown; where they have many columns, the fit costs much more than all other candidates together.
    """

    penalty: float = 0.3
    strong: float = 3.0
    pooled: float = 100.0
    clips: tuple[float, float] = (30.0, 3.0)
    width: float = 0.56
    shrinkage: float = 10.0
    penalties: Sequence[float] = (0.1, 0.3, 1.0)

    def unbiased(self, features: Features | None = None) -> tuple[Estimator, ...]:
        """Exact weights, alone and with reward models from light to nearly pooled."""
        with_features = [SNDR(inputs="both", name="SNDR with features")] if _helpful(features) else []
        penalties = (self.penalty, self.strong, self.pooled)
        return (
            SNIPS(),
            SNDR(),
            *with_features,
            *(SNDR(Ridge(penalty), name=f"SNDR (penalty {penalty:g})") for penalty in penalties),
        )

    def stack(self, features: Features | None = None) -> tuple[Estimator, ...]:
        """The same, and those that do not divide by the mean weight: better where large weights meet small rewards.

        IPS depends on the origin of the reward, so that it is no candidate of estimators that must not.
        """
        return (IPS(), *self.unbiased(features), DR())

    def smoother(self, features: Features | None = None) -> tuple[Estimator, ...]:
        """Bounded weights, weights of embeddings, and models of growing penalty."""
        light = Ridge(self.penalty)
        with_features = [DM(light, inputs="both", name="DM with features")] if _helpful(features) else []
        wide, narrow = self.clips
        return (
            ScaledDR(light, clip=wide, name=f"ScaledDR (clip {wide:g})"),
            ScaledDR(Ridge(self.strong), clip=narrow, name=f"ScaledDR (clip {narrow:g})"),
            LearnedMDR("identity", light, Gaussian(self.width)),
            DRos(light, shrinkage=self.shrinkage),
            *with_features,
            *(DM(Ridge(penalty), name=f"DM (penalty {penalty:g})") for penalty in self.penalties),
        )

    def unused(self, features: Features) -> list[tuple[str, str]]:
        """Why features that the log has are not used."""
        if not features.size or _helpful(features):
            return []
        why = (
            "for features that vary within actions, the error of the fit is unknown"
            if features.varies
            else f"{features.size} columns of features are slow to fit"
        )
        return [("candidates with features", f"{why}; name one in your own list of candidates to include it")]


def _helpful(features: Features | None) -> bool:
    return features is not None and 0 < features.size <= MOST_FEATURES and not features.varies
