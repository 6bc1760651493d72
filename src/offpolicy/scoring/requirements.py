"""Which estimators an evaluation runs: those that were named or the defaults, less what cannot be computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from offpolicy.core.errors import InputError
from offpolicy.data.features import Features
from offpolicy.data.spaces import ActionSpace, Serves
from offpolicy.estimators import DM, REGISTRY, Combined, Estimator, LoggedMean, Member
from offpolicy.estimators.defaults import LARGEST_FIRST, default_estimators
from offpolicy.ratios.base import Available

MOST_NAMED = 3
"""Estimators that are named instead of one that does not serve the actions."""


@dataclass(frozen=True)
class Lacking:
    """What an estimator needs and the log or a policy does not have."""

    available: Available
    features: Features

    def __call__(self, members: Sequence[Member]) -> str | None:
        space = self.available.schema.space
        if (unserved := mismatch_of(members, space)) is not None:
            others = [name for name in serving(space) if name != "LoggedMean"]
            more = ", …" if len(others) > MOST_NAMED else ""
            return unserved + (f"; use {', '.join(others[:MOST_NAMED])}{more}" if others else "")
        reasons = (reason for member in members for reason in self._reasons(member))
        return next((reason for reason in reasons if reason is not None), None)

    def _reasons(self, member: Member) -> Iterator[str | None]:
        yield member.weight.ratio.lacks(self.available)
        if member.rewards is not None:
            yield self.available.lacks_whole_policies
        if member.remainder and not self.available.has_whole_logging:
            yield "it needs the logging policy's chance of every action; give it as `logging=` (--logging)"


def serving(space: ActionSpace) -> dict[str, type[Estimator]]:
    """The registered estimators, by name, that serve the actions of a space."""
    return {name: kind for name, kind in REGISTRY.items() if mismatch_of(kind().members(), space) is None}


def mismatch_of(members: Sequence[Member], space: ActionSpace) -> str | None:
    """Why members cannot be computed for the actions of a space, by what their parts declare; None where they can."""
    parts: list[tuple[str, Serves | None]] = []
    for m in members:
        parts += [
            ("it weighs rounds by", m.weight.ratio),
            ("its embedding is learned from the rewards of", m.weight.ratio.rewards),
            ("its reward model predicts the rewards of", m.rewards),
        ]
    return next((f"{what} {why}" for what, part in parts if part is not None and (why := part.mismatch(space))), None)


@dataclass(frozen=True)
class Wanted:
    """The estimators to run, `LoggedMean` always among them."""

    estimators: tuple[Estimator, ...]
    named: bool
    """By the user, so that one that cannot be computed is an error."""
    skipped: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, given: Any) -> Wanted:
        alone = isinstance(given, (Estimator, type, str))
        wanted = default_estimators() if given is None else [given] if alone else list(given)
        for estimator in wanted:
            if not isinstance(estimator, Estimator):
                hint = (
                    f"; write {estimator.__name__}()" if isinstance(estimator, type) else "; give objects, such as op.DR()"
                )
                raise InputError(f"estimators: {estimator!r} is not an estimator{hint}.")
        if not any(isinstance(estimator, LoggedMean) for estimator in wanted):
            wanted.insert(0, LoggedMean())
        names = [estimator.name for estimator in wanted]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"two estimators are called {twice!r}; give one of them another `name=`.")
        return cls(tuple(wanted), given is not None)

    def without_largest(self, why: str) -> Wanted | None:
        """The defaults without the one of them that holds the most; None where nothing may be left out."""
        largest = next((e for name in LARGEST_FIRST for e in self.estimators if e.name == name), None)
        if self.named or largest is None:
            return None
        kept = tuple(e for e in self.estimators if e is not largest)
        return replace(self, estimators=kept, skipped=(*self.skipped, (largest.name, why)))

    @property
    def can_spare(self) -> bool:
        """Whether an estimator, or a candidate of one, may be left out."""
        return not self.named or any(isinstance(estimator, Combined) for estimator in self.estimators)

    def without_failing(self, fit: Callable[[Sequence[Estimator]], object], features: Features) -> Wanted:
        """The same without candidates that cannot be fitted, and without such estimators of the defaults: each is tried."""

        def failure(estimator: Estimator) -> str | None:
            try:
                fit([estimator])
            except InputError as error:
                return str(error).removeprefix(f"{estimator.name}: ")
            except Exception as error:  # whatever a user's own model does
                return f"it failed ({type(error).__name__}: {error})"
            return None

        kept: list[Estimator] = []
        skipped = list(self.skipped)
        for estimator in self.estimators:
            if isinstance(estimator, Combined):
                kept.append(estimator.without(failure, features))
            elif self.named or (why := failure(estimator)) is None:
                kept.append(estimator)
            else:
                skipped.append((estimator.name, why.rstrip(".")))
        return replace(self, estimators=tuple(kept), skipped=tuple(skipped))


def choose(wanted: Wanted, lacking: Lacking, cross_fit: int | None) -> tuple[list[Estimator], dict[str, str]]:
    """The estimators to run, and those left out with the reason."""
    chosen, skipped = [], dict(wanted.skipped)
    for estimator in wanted.estimators:
        reason = lacking(estimator.members(cross_fit))
        if reason is not None and isinstance(estimator, Combined):
            estimator, reason = _without_lacking(estimator, lacking, cross_fit)
        if reason is None:
            chosen.append(estimator)
        elif not wanted.named:
            skipped[estimator.name] = reason
        else:
            raise InputError(f"{estimator.name} cannot be computed: {reason}.")
    if not wanted.named and len(chosen) == 1 and lacking(DM().members(cross_fit)) is None:
        chosen.append(DM())  # without propensities a reward model is all there is
    if not wanted.named and len(chosen) == 1:
        reasons = "; ".join(dict.fromkeys(skipped.values()))
        raise InputError(f"nothing can be said of the new policy: {reasons}.")
    return chosen, skipped


def _without_lacking(estimator: Combined, lacking: Lacking, cross_fit: int | None) -> tuple[Combined, str | None]:
    """Without the candidates that cannot be computed here; or why nothing is left."""
    fewer = estimator.without(lambda each: lacking(each.members(cross_fit)), lacking.features)
    if fewer.anchored:
        return fewer, None
    return estimator, "; ".join(dict.fromkeys(why for _, why in fewer.left_out))
