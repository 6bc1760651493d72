"""Which estimators an evaluation runs: those requested or the defaults, without those that cannot be computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from offpolicy.core.errors import InputError
from offpolicy.data.features import Features
from offpolicy.data.spaces import ActionSpace, Serves
from offpolicy.estimators import DM, REGISTRY, Combined, Estimator, LoggedMean, Member
from offpolicy.estimators.defaults import LARGEST_FIRST, default_estimators
from offpolicy.ratios.base import Available

MOST_NAMED = 3  # how many estimators are suggested in place of one that does not support the actions


@dataclass(frozen=True)
class Lacking:
    """What an estimator needs and the log or a policy does not provide."""

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
            yield "it needs the logging policy's probability of every action; pass it as `logging=` (--logging)"


def serving(space: ActionSpace) -> dict[str, type[Estimator]]:
    """The registered estimators, by name, that support the actions of a space."""
    return {name: kind for name, kind in REGISTRY.items() if mismatch_of(kind().over(space).members(), space) is None}


def mismatch_of(members: Sequence[Member], space: ActionSpace) -> str | None:
    """Why members cannot be computed for the actions of a space; None if they can."""
    parts: list[tuple[str, Serves | None, ActionSpace]] = []
    for m in members:
        parts += [
            ("it weights rounds by", m.weight.ratio, space),
            ("its embedding is learned from the rewards of", m.weight.ratio.rewards, space.items or space),
            ("its reward model predicts the rewards of", m.rewards, space.items or space),  # of the items of lists
            ("its baseline compares the probabilities of", Serves() if m.remainder else None, space),
        ]
    reasons = (f"{what} {why}" for what, part, of in parts if part is not None and (why := part.mismatch(of)))
    return next(reasons, None)


@dataclass(frozen=True)
class EstimatorList:
    """The estimators to run, `LoggedMean` always among them.

    Attributes
    ----------
    named : bool
        Whether the user named them, so that one that cannot be computed is an error.
    default : bool
        Whether they are the defaults, which are replaced where none can be computed.
    """

    estimators: tuple[Estimator, ...]
    named: bool
    default: bool = False
    skipped: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, requested: Any, space: ActionSpace | None = None) -> EstimatorList:
        alone = isinstance(requested, (Estimator, type, str))
        estimators = default_estimators(space) if requested is None else [requested] if alone else list(requested)
        for estimator in estimators:
            if not isinstance(estimator, Estimator):
                hint = (
                    f"; write {estimator.__name__}()" if isinstance(estimator, type) else "; pass objects, such as op.DR()"
                )
                raise InputError(f"estimators: {estimator!r} is not an estimator{hint}.")
        estimators = estimators if space is None else [estimator.over(space) for estimator in estimators]
        if not any(isinstance(estimator, LoggedMean) for estimator in estimators):
            estimators.insert(0, LoggedMean())
        names = [estimator.name for estimator in estimators]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"two estimators are called {twice!r}; set `name=` for one of them.")
        return cls(tuple(estimators), named=requested is not None, default=requested is None)

    def without_largest(self, why: str) -> EstimatorList | None:
        """The defaults without the one that needs the most memory; None if nothing may be left out."""
        largest = next((e for name in LARGEST_FIRST for e in self.estimators if e.name == name), None)
        if not self.default or largest is None:
            return None
        others = tuple(e for e in self.estimators if e is not largest)
        return replace(self, estimators=others, skipped=(*self.skipped, (largest.name, why)))

    @property
    def can_spare(self) -> bool:
        """Whether an estimator, or a candidate of one, may be left out."""
        return not self.named or any(isinstance(estimator, Combined) for estimator in self.estimators)

    def without_failing(self, fit: Callable[[Sequence[Estimator]], object], features: Features) -> EstimatorList:
        """The same without the candidates, and the default estimators, that cannot be fitted: each is tried."""

        def failure(estimator: Estimator) -> str | None:
            try:
                fit([estimator])
            except InputError as error:
                return str(error).removeprefix(f"{estimator.name}: ")
            except Exception as error:  # anything that a user's own model may raise
                return f"it failed ({type(error).__name__}: {error})"
            return None

        retained: list[Estimator] = []
        skipped = list(self.skipped)
        for estimator in self.estimators:
            if isinstance(estimator, Combined):
                retained.append(estimator.without(failure, features))
            elif self.named or (why := failure(estimator)) is None:
                retained.append(estimator)
            else:
                skipped.append((estimator.name, why.rstrip(".")))
        return replace(self, estimators=tuple(retained), skipped=tuple(skipped))


# One estimator, by the position of the policy; a blend may have other candidates for another policy.
Column = Mapping[int, Estimator]


def choose(
    requested: EstimatorList, lacking: Mapping[str, Lacking], cross_fit: int | None
) -> tuple[list[Column], dict[str, str]]:
    """The estimators to run for each policy, and the reasons for those left out.

    An estimator that cannot be computed for one policy still is for the others, unless the user named it.
    """
    rows = [_chosen(requested, own, cross_fit) for own in lacking.values()]
    names = dict.fromkeys([*(each.name for each in requested.estimators), DM().name])
    columns = [{p: row[name] for p, (row, _) in enumerate(rows) if name in row} for name in names]
    skipped = dict(requested.skipped)
    for name in names:
        reasons = {policy: why[name] for policy, (_, why) in zip(lacking, rows, strict=True) if name in why}
        common = len(reasons) == len(lacking) and len(set(reasons.values())) == 1
        for policy, reason in reasons.items():
            if requested.named:
                raise InputError(f"{name} cannot be computed{'' if common else f' for {policy!r}'}: {reason}.")
            skipped[name if common else skipped_name(name, policy)] = reason
    unserved = [policy for policy, (row, _) in zip(lacking, rows, strict=True) if len(row) == 1]
    if unserved and requested.default:
        whose = "new policy" if len(unserved) == len(lacking) else f"policy {unserved[0]!r}"
        why = list(dict.fromkeys(rows[list(lacking).index(unserved[0])][1].values()))
        # The reasons of a blend's candidates contain those of single estimators.
        distinct = [reason for reason in why if not any(reason in other for other in why if other != reason)]
        raise InputError(f"the {whose} cannot be evaluated: {'; '.join(distinct)}.")
    shared = [name for name, column in zip(names, columns, strict=True) if len(column) == len(lacking)]
    if requested.default and len(shared) == 1:
        own = [", ".join(name for name in row if name not in shared) for row, _ in rows]
        served = (f"{policy!r} by {each}" for policy, each in zip(lacking, own, strict=True))
        raise InputError(f"the policies have no estimator in common: {'; '.join(served)}. Evaluate them in separate calls.")
    return [column for column in columns if column], skipped


def skipped_name(estimator: str, policy: str) -> str:
    """How an estimator is called that is skipped for one of several policies."""
    return f"{estimator} for {policy!r}"


def _chosen(
    requested: EstimatorList, lacking: Lacking, cross_fit: int | None
) -> tuple[dict[str, Estimator], dict[str, str]]:
    """Those of one policy, and the reasons for those left out."""
    chosen, skipped = dict[str, Estimator](), dict[str, str]()
    for estimator in requested.estimators:
        reason = lacking(estimator.members(cross_fit))
        if reason is not None and isinstance(estimator, Combined):
            estimator, reason = _without_lacking(estimator, lacking, cross_fit)
        if reason is None:
            chosen[estimator.name] = estimator
        else:
            skipped[estimator.name] = reason
    if requested.default and len(chosen) == 1 and lacking(DM().members(cross_fit)) is None:
        chosen[DM().name] = DM()  # without propensities only a reward model is left
    return chosen, skipped


def _without_lacking(estimator: Combined, lacking: Lacking, cross_fit: int | None) -> tuple[Combined, str | None]:
    """Without the candidates that cannot be computed here; or the reason why none is left."""
    fewer = estimator.without(lambda each: lacking(each.members(cross_fit)), lacking.features)
    if fewer.anchored:
        return fewer, None
    return estimator, "; ".join(dict.fromkeys(why for _, why in fewer.left_out))
