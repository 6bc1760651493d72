"""A result's way back to its log. Pickling, saving and detaching a result drop it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from offpolicy.core.errors import InputError
from offpolicy.inference.bootstrap import Key, Redraws
from offpolicy.inference.sensitivity import Tilted, Tilting
from offpolicy.scoring.export import RoundScores, write_scores


@dataclass(frozen=True)
class LogAccess:
    """Everything about a result that takes another pass over its log."""

    redraws: Redraws
    tilting: Tilting
    policies: tuple[str, ...]
    rewards: tuple[str, ...]
    weighed: frozenset[tuple[int, int]]
    """The policies and rewards for which the log has propensities."""
    scores: Mapping[Key, RoundScores]

    def write_scores(self, key: Key, path: Path) -> None:
        if key not in self.scores:
            raise InputError("scores are written for the whole log, not for a slice of it.")
        write_scores(path, self.tilting.log, self.tilting.scorer, self.scores[key])

    def tilted(self, policy: str, reward: str) -> Tilted:
        """The weighted rewards of a policy, for bounds on its value."""
        at = self.policies.index(policy), self.rewards.index(reward)
        if at not in self.weighed:
            raise InputError("sensitivity: asks how wrong propensities may be, and the log has none (`propensity=`).")
        return self.tilting.of(*at)


class LogHandle:
    """Holds the access to a log, or nothing."""

    def __init__(self, access: LogAccess | None = None) -> None:
        self._access = access

    @property
    def attached(self) -> bool:
        return self._access is not None

    def open(self, asked: str) -> LogAccess:
        if self._access is None:
            raise InputError(
                f"{asked} reads the log again, and this result no longer has it: it was pickled, saved or detached. Call "
                "op.evaluate again and ask that result."
            )
        return self._access

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self
