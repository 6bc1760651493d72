"""`Sensitivity`: bounds on a value if the propensities may be wrong."""

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
    """Bounds on the self-normalised value of a policy for several Γ, and the Γ up to which it beats the log.

    Attributes
    ----------
    policy, reward : str
        Their names.
    value : float
        The self-normalised value (SNIPS).
    logged : float
        The mean reward of the log.
    level : float
        The level of the intervals around the bounds.
    rows : tuple of Bounds
        For each Γ: `gamma`, `low`, `high`, their standard errors, and the interval that also allows for sampling.
    claim : str
        Whether the value is "better" or "worse" than that of the log.
    holds_to : float
        The Γ up to which the bounds support the claim; infinite if every Γ does.
    surely_to : float or None
        The same for the confidence limits of the bounds; None if they do not support it even for correct propensities.
    resolution : float
        By how much the bounds may be too wide, because rewards between two points are summed together.

    Examples
    --------
    >>> import offpolicy as op
    >>> world = op.worlds.Linear(n_actions=5, seed=0)
    >>> found = op.evaluate(world.sample(1_000, seed=0), world.target, op.SNIPS()).sensitivity([1.0, 1.5])
    >>> found.claim, found.rows[1].low < found.value < found.rows[1].high
    ('better', True)
    """

    policy: str
    reward: str
    value: float
    logged: float
    level: float
    rows: tuple[Bounds, ...]
    claim: str
    holds_to: float
    surely_to: float | None
    resolution: float

    @classmethod
    def of(cls, tilted: Tilted, policy: str, reward: str, gamma: float | Sequence[float], level: float) -> Sensitivity:
        """Bounds computed from the weighted rewards of a policy.

        Parameters
        ----------
        tilted : Tilted
            The weighted rewards.
        policy, reward : str
            Their names.
        gamma : float or sequence of float
            Each Γ is 1 or more.
        level : float
            The level of the intervals.
        """
        gammas = factors(gamma)
        if not tilted.overlaps:
            raise InputError(f"{policy}: every weight is 0, because it takes no logged action; there is no value.")
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
            holds_to=max(tilted.holds_to(sign), 1.0),  # below 1 only by rounding: at Γ = 1 the claim is the value itself
            surely_to=tilted.surely_to(sign, level),
            resolution=max(tilted.resolution(each) for each in gammas),
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values; an infinite Γ is None, and named in `always`."""
        summary = {name: getattr(self, name) for name in ("policy", "reward", "value", "logged", "level", "claim")}
        ends = {"holds_to": self.holds_to, "surely_to": self.surely_to}
        summary |= {name: end if end is not None and math.isfinite(end) else None for name, end in ends.items()}
        summary["always"] = [name for name, end in ends.items() if end == math.inf]
        return summary | {"resolution": self.resolution, "rows": [row._asdict() for row in self.rows]}

    def __str__(self) -> str:
        return text.sensitivity(self.to_dict())

    __repr__ = __str__
