"""`Available`: what an evaluation has to weigh rounds with, and what it lacks, in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from offpolicy.data.schema import Schema
from offpolicy.policies.base import Policy


@dataclass(frozen=True)
class Available:
    """The columns of the log, the target policies, and the logging policy where it is known."""

    schema: Schema
    policies: Mapping[str, Policy]
    logging: Policy | None

    @property
    def has_propensities(self) -> bool:
        return self.schema.propensity or self.logging is not None

    @property
    def has_whole_logging(self) -> bool:
        """Whether the logging policy is known for every action."""
        return self.logging is not None and self.logging.whole

    @property
    def lacks_propensities(self) -> str | None:
        if self.has_propensities:
            return None
        return "it weighs by π/π0, and the log has neither propensities nor a logging policy"

    @property
    def lacks_whole_policies(self) -> str | None:
        part = next((name for name, policy in self.policies.items() if not policy.whole), None)
        if part is None:
            return None
        whose = f" of {part!r}" if len(self.policies) > 1 else ""
        alone = ", or evaluate the other policies without it" if whose else ""
        return (
            f"it needs the new policy's chance of every action, and{whose} only that of the logged action is known; "
            f"give list columns of candidates, a matrix or a function{alone}"
        )
