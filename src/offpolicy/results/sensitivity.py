"""`Sensitivity`: bounds on a value where propensities may be wrong, as an answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from offpolicy.core.errors import InputError
from offpolicy.data.checks import factors
from offpolicy.inference.sensitivity import Bounds, Tilted
from offpolicy.report import text


@dataclass(frozen=True, repr=False)
class Sensitivity:
    """Bounds on the self-normalised value of a policy for several Γ, and how far "better than the log" holds."""

    policy: str
    reward: str
    value: float
    logged: float
    level: float
    rows: tuple[Bounds, ...]
    claim: str
    """What the value says of the policy: "better" or "worse" than the log."""
    holds_to: float
    """The Γ up to which the claim holds for the bounds; infinite where no Γ ends it."""
    surely_to: float | None
    """The same with the interval of the bound; None where it does not hold even if the propensities are right."""
    resolution: float
    """How much wider than need be the bounds are at most, because rewards between two points are kept as one sum."""

    @classmethod
    def of(cls, tilted: Tilted, policy: str, reward: str, gamma: float | Sequence[float], level: float) -> Sensitivity:
        gammas = factors(gamma)
        if not tilted.overlaps:
            raise InputError(f"{policy}: every weight is 0, as the log holds nothing of what it does; there is no value.")
        value, logged = tilted.value(), tilted.logged_value()
        sign = 1.0 if value >= logged else -1.0
        return cls(
            policy=policy,
            reward=reward,
            value=value + tilted.origin,
            logged=logged + tilted.origin,
            level=level,
            rows=tuple(tilted.bounds(each, level) for each in gammas),
            claim="better" if sign > 0 else "worse",
            holds_to=tilted.holds_to(sign),
            surely_to=tilted.surely_to(sign, level),
            resolution=max(tilted.resolution(each) for each in gammas),
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain values; what is infinite is None beside `always`."""
        told = {name: getattr(self, name) for name in ("policy", "reward", "value", "logged", "level", "claim")}
        ends = {"holds_to": self.holds_to, "surely_to": self.surely_to}
        told |= {name: end if end is not None and math.isfinite(end) else None for name, end in ends.items()}
        told["always"] = [name for name, end in ends.items() if end == math.inf]
        return told | {"resolution": self.resolution, "rows": [row._asdict() for row in self.rows]}

    def __str__(self) -> str:
        return text.sensitivity(self.to_dict())

    __repr__ = __str__
