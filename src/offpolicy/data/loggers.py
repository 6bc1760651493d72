"""`Loggers`: several policies that collected one log, and how the weights of their rounds are combined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from offpolicy.core.errors import InputError, unknown_name
from offpolicy.data.schema import Schema

Combination = Literal["balanced", "own", "weighted"]
COMBINATIONS: tuple[Combination, ...] = get_args(Combination)


@dataclass(frozen=True)
class Loggers:
    """The policy of each logger, in the order of `Schema.loggers`, and how they are combined."""

    policies: tuple[Any, ...]
    combination: Combination = "balanced"


def logging_of(logging: Any, combination: str | None, schema: Schema) -> Any:
    """The setting of a log's logging policies: a dict of policies by logger becomes `Loggers`."""
    if combination is not None and combination not in COMBINATIONS:
        raise unknown_name("way to combine loggers", str(combination), COMBINATIONS)
    if schema.loggers is None:
        if isinstance(logging, Mapping) or combination is not None:
            given = "loggers=" if combination is not None else "a dict of logging policies"
            raise InputError(f"{given} needs the logger of each round; name its column or pass an array as `logger=`.")
        return logging
    if not isinstance(logging, Mapping):
        if combination in ("balanced", "weighted"):
            raise InputError(
                f"loggers={combination!r} needs the probability of each action under every logger; give the policies as "
                f"`logging={{{schema.loggers[0]!r}: …}}`. With the propensity of each round alone, use loggers='own'."
            )
        return logging
    if schema.propensity:
        raise InputError(
            "the log has propensities, and `logging` has the policies of its loggers; give one of the two: the policies "
            "for balanced weights, or the propensities for loggers='own'."
        )
    policies = {str(name): policy for name, policy in logging.items()}
    if missing := [name for name in schema.loggers if name not in policies]:
        raise InputError(
            f"logging: no policy for {', '.join(map(repr, missing[:3]))} among {len(policies):,} "
            f"({', '.join(map(repr, list(policies)[:3]))}); the log has {len(schema.loggers):,} loggers, and each needs one."
        )
    return Loggers(tuple(policies[name] for name in schema.loggers), combination or "balanced")
