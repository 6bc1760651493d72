"""`Request` and `Job`: what is requested of a log, and an evaluation with every choice made, including its two passes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputWarning, RowsError
from offpolicy.core.memory import Budget, OverBudgetError, size
from offpolicy.core.progress import PassProgress
from offpolicy.data.features import Features
from offpolicy.data.log import Log
from offpolicy.diagnostics.action_axis import ActionAxisSums
from offpolicy.diagnostics.base import Diagnostic
from offpolicy.diagnostics.cells import cells_of
from offpolicy.diagnostics.depth import ShownSums
from offpolicy.diagnostics.dose_response import DoseResponseSums
from offpolicy.diagnostics.loggers import LoggerSums
from offpolicy.diagnostics.models import ModelSums
from offpolicy.diagnostics.monte_carlo import Draws
from offpolicy.diagnostics.overlap import OverlapSums
from offpolicy.diagnostics.propensities import PropensityTests
from offpolicy.diagnostics.row_ids import RowIds
from offpolicy.engines.base import Engine
from offpolicy.estimators import Estimator, Member
from offpolicy.inference.scores import Scores
from offpolicy.models.estimated_policy import EstimatedPolicy
from offpolicy.models.rewards.base import Fits, LinearPredictor, Predictor
from offpolicy.policies.base import Policy
from offpolicy.policies.conversion import as_policy
from offpolicy.policies.loggers import CombinedLoggers
from offpolicy.ratios.base import Available, Ratio
from offpolicy.ratios.weights import Weight
from offpolicy.results.examination import Checks
from offpolicy.scoring.audit import audited
from offpolicy.scoring.fit_pass import FitPlan, FitResults
from offpolicy.scoring.fused.kernel import kernel_on
from offpolicy.scoring.plan import AnyTerms, Family, ModelKey, Plan, WeightColumn, plan_estimators
from offpolicy.scoring.requirements import Column, EstimatorList, Lacking, choose
from offpolicy.scoring.score_histograms import Earned, Gained, RewardRange, ScoreHistograms, ScoreKind, kind_of
from offpolicy.scoring.score_pass import ScorePass
from offpolicy.scoring.scored_block import BlockStatistic
from offpolicy.scoring.scorer import Scorer
from offpolicy.scoring.smoothing import Smoothers
from offpolicy.statistics.base import State


@dataclass(frozen=True)
class SequenceRequest:
    """That sums for confidence sequences are requested: of values, and of differences from a baseline.

    `baseline` is the name of a policy, `THE_LOG` for what was logged, or None for no differences.
    """

    scale: RewardRange
    baseline: str | None = None


THE_LOG = "log"


@dataclass(frozen=True)
class Request:
    """What is requested of a log, except the estimators; checked. `diagnostics` are the user's own.

    `statistics` are further sums, for whoever made the request.
    """

    log: Log
    policies: Mapping[str, Policy]
    engine: Engine
    budget: Budget
    level: float
    cross_fit: int | None
    seed: int
    progress: bool | None
    errors: bool
    diagnostics: tuple[Diagnostic, ...] = ()
    sequences: SequenceRequest | None = None
    statistics: tuple[BlockStatistic, ...] = ()


Runs = Callable[[Request, Sequence[Estimator]], Any]  # evaluates some estimators as a request says
MASS_ROWS = 10_000  # enough rows to estimate the target's mass by action
TABLE_ROWS = 100_000  # enough rows to estimate how an estimate depends on its reward model, for the error of the fit


@dataclass(frozen=True)
class Job:
    """An evaluation with every choice made. `requested` are the estimators before their settings were resolved."""

    request: Request
    fits: FitPlan
    estimators: tuple[Column, ...]
    skipped: dict[str, str]
    members: dict[tuple[int, int, int], list[Family]]
    references: dict[tuple[int, int], AnyTerms]
    requested: tuple[Column, ...] = ()

    @property
    def log(self) -> Log:
        return self.request.log

    @classmethod
    def within_budget(cls, request: Request, wanted: EstimatorList, run: Runs) -> Job:
        """A job within the memory budget; default estimators that do not fit are left out."""
        try:
            job = cls.of(request, wanted, run)
            return replace(job, fits=job.fits.within(request.budget, request.engine))
        except OverBudgetError:
            budget = size(request.budget.bytes)
            fewer = wanted.without_largest(f"it exceeds the memory budget of {budget}; allow more with `memory=` (--memory)")
            if fewer is None:
                raise
            return cls.within_budget(request, fewer, run)

    @classmethod
    def of(cls, request: Request, wanted: EstimatorList, run: Runs) -> Job:
        log, policies, cross_fit = request.log, request.policies, request.cross_fit
        logging = None if log.logging is None else as_policy(log.logging).on(log)
        features = Features.of(log.schema)
        available = {name: Available(log.schema, {name: policy}, logging) for name, policy in policies.items()}
        lacking = {name: Lacking(own, features) for name, own in available.items()}
        requested, skipped = choose(wanted, lacking, cross_fit)
        chosen = [_settled(column, request, features, run) for column in requested]
        weighable = frozenset(p for p, own in enumerate(lacking.values()) if own([Member(Weight())]) is None)
        plan = Plan(len(policies), len(log.schema.rewards), log.schema.gain, log.space.slots)
        members, references = plan_estimators(chosen, plan, cross_fit, weighable)
        names = _names(chosen, members)
        # Errors are also needed for a value by blends, and to select a member of a family.
        errors = request.errors or any(len(each) > 1 or len(each[0]) > 1 for each in members.values())
        fits = FitPlan(log, plan, features, request.seed, tuple(policies.values()), logging, names, errors)
        return cls(request, fits, tuple(chosen), skipped, members, references, tuple(requested))

    def _groups_of(self, rows: int) -> int:
        """The number of groups with about this many rows; all groups if units are clusters, which may be few."""
        share = 1.0 if self.log.schema.clustered else min(1.0, rows / len(self.log))
        return math.ceil(self.fits.groups * share)

    def fitted(self) -> tuple[FitResults, Scorer]:
        """Run the fit pass; what was fitted, and a scorer that uses it."""
        fitted = self.fits.run(self.request.engine, self.request.progress)
        scorer = self._scorer(fitted).with_near()
        light = tuple(ratio.light() for ratio in scorer.ratios)
        return replace(fitted, ratios=scorer.ratios), replace(scorer, ratios=light)

    def _scorer(self, fitted: FitResults) -> Scorer:
        fits = self.fits
        models = {key: _predictors(fitted.models[key.fit], key) for key in fits.plan.models}
        centre = _centre(models, len(self.log.schema.context))
        scorer = Scorer(
            plan=fits.plan,
            policies=fits.policies,
            logging=fits.logging,
            ratios=fitted.ratios,
            models={key: [_moved(p, centre) for p in predictors] for key, predictors in models.items()},
            origin=self.log.reward_origin,
            slot_origin=self.log.slot_origin,
            centre=centre,
            groups=fits.scored_groups,
            table_groups=self._groups_of(TABLE_ROWS),
            slope_groups=self._groups_of(TABLE_ROWS // (self.log.space.slots or 1)),
            mass_groups=self._groups_of(MASS_ROWS) if self.request.errors else 0,
            seed=fits.seed,
            many=fits.many,
            errors=fits.errors,
            kernel=kernel_on(self.request.engine.accelerator),
            smoothers=self.smoothers,
        )
        return scorer.on_host() if scorer.kernel.fuses and any(scorer.unfused) else scorer

    def scorer_again(self, scorer: Scorer) -> Callable[[], Scorer]:
        """The scorer for whoever reads the log again. A device's memory is scarce: what is on it is fitted again instead."""
        return (lambda: self.fitted()[1]) if scorer.kernel.fuses else (lambda: scorer)

    @property
    def smoothers(self) -> Smoothers:
        return Smoothers(len(self.log), self.log.reward_range)

    @cached_property
    def checks(self) -> Checks:
        """The diagnostics and what they sum."""
        plan, space = self.fits.plan, self.log.space
        sizes = tuple(space.n_codes if plan.whole(p) else 0 for p in range(plan.n_policies))
        draws = [] if self.log.schema.draws is None else [Draws(self.log.schema.draws, plan.n_policies)]
        own = (*([RowIds.of(len(self.log))] if self.log.schema.identified else []), *draws, *self.request.diagnostics)
        loggers = self.log.schema.loggers
        combined = self.fits.logging if isinstance(self.fits.logging, CombinedLoggers) else None
        sums = None if loggers is None else LoggerSums(loggers, plan.n_policies, len(self.log.schema.rewards), combined)
        shown = None if space.slots is None else ShownSums(space.slots, space.n_codes)
        axis = ActionAxisSums.of(self.log, self.fits.policies) if self.request.errors else None
        overlap = OverlapSums(sizes)
        if self.histograms is not None:
            overlap = OverlapSums(sizes, len(self.log.schema.rewards), self.histograms.scale.high)
        return Checks(overlap, ModelSums(tuple(plan.models)), self._propensity_tests, own, sums, shown, axis)

    @property
    def _propensity_tests(self) -> PropensityTests | None:
        """None without propensities, for actions that the tests do not support, or if no checks are requested."""
        logging = self.fits.logging
        if not self.request.errors or not (self.log.schema.propensity or logging is not None):
            return None
        if isinstance(logging, CombinedLoggers) and not logging.sums_to_one:
            return None
        trim = logging.setting.trim if isinstance(logging, EstimatedPolicy) else None
        cells = cells_of(self.log.space)
        return None if cells is None else PropensityTests(cells, len(self.log), logging, trim)

    @cached_property
    def score_kinds(self) -> dict[tuple[int, int, int], ScoreKind]:
        """The scores of each policy, estimator and reward that has a confidence sequence."""
        kinds = {}
        for key, families in self.members.items():
            if len(families) == 1 and len(families[0]) == 1:
                member, terms = families[0][0]
                ((_, first), *slots) = terms.parts
                kind = None if slots else kind_of(member, first, key[2])
                if kind is not None:
                    kinds[key] = kind
        return kinds

    @cached_property
    def gain_kinds(self) -> dict[tuple[int, int, int], Gained]:
        """The differences from the baseline, for each policy, estimator and reward that has weights."""
        requested = self.request.sequences
        if requested is None or requested.baseline is None:
            return {}
        names, kinds = tuple(self.request.policies), {}
        for (p, e, reward), kind in self.score_kinds.items():
            if not isinstance(kind, Earned) or kind.weight is None:
                continue
            if requested.baseline not in names:
                kinds[p, e, reward] = Gained(reward, kind.weight, None)
                continue
            other = self.score_kinds.get((names.index(requested.baseline), e, reward))
            if isinstance(other, Earned) and other != kind:
                kinds[p, e, reward] = Gained(reward, kind.weight, other.weight)
        return kinds

    @cached_property
    def histograms(self) -> ScoreHistograms | None:
        """What is summed for confidence sequences, once for estimates that share it; None if units are clusters."""
        if self.request.sequences is None or self.log.schema.clustered:
            return None
        kinds = dict.fromkeys([*self.score_kinds.values(), *self.gain_kinds.values()])
        used = {column for kind in kinds for column in kind.weights}
        return ScoreHistograms(tuple(kinds), self.request.sequences.scale, sorted(used - set(self.sorted_weights)))

    @cached_property
    def sorted_weights(self) -> dict[int, int]:
        """The policy of each column of weights whose histogram a diagnostic collects."""
        if self.log.space.count is None or self.log.space.slots is not None:
            return {}
        policies = [p for p, policy in enumerate(self.request.policies.values()) if not policy.deterministic]
        columns = self.fits.plan.columns
        keys = {p: WeightColumn(p, Weight()) for p in policies}
        return {1 + columns.index(key): p for p, key in keys.items() if key in columns}

    def score(self, fitted: FitResults, scorer: Scorer) -> Scores:
        """The one pass that scores every estimator for every policy and reward."""
        request, score_pass = self.request, self.score_pass(scorer)
        try:
            scorer = replace(scorer, most_rows=self.fits.score_rows(score_pass.columns))
            score_pass = replace(score_pass, scorer=scorer)
            with PassProgress("scoring", len(self.log), request.progress) as progress:
                state = request.engine.reduce(self.log, score_pass, progress)
        except RowsError as error:
            raise audited(error, self.log, scorer, score_pass.columns) from None
        finally:
            scorer.kernel.release()
        return self.scores(fitted, scorer, state)

    def score_pass(self, scorer: Scorer) -> ScorePass:
        """What is summed while rounds are scored."""
        schema, statistics = self.log.schema, self.checks.statistics()
        curve = DoseResponseSums.of(self.log, scorer.models) if self.request.errors else None
        if curve is not None:
            statistics["dose response"] = curve
        if self.histograms is not None:
            statistics["sequences"] = self.histograms
        statistics |= {f"request {k}": each for k, each in enumerate(self.request.statistics)}
        return ScorePass(
            scorer,
            self.log.space.n_codes,
            self.log.space.table_rows,
            len(schema.slices or ()),
            schema.clustered,
            statistics,
            len(schema.loggers or ()),
        )

    def scores(self, fitted: FitResults, scorer: Scorer, state: State) -> Scores:
        """What values and errors are computed from."""
        return Scores(
            log=self.log,
            engine=self.request.engine,
            policies=tuple(self.request.policies),
            estimators=self.estimators,
            members=self.members,
            references=self.references,
            scorer=scorer,
            fitted=fitted,
            state=state,
            computed=self._computed(scorer),
        )

    def _computed(self, scorer: Scorer) -> dict[str, Any]:
        """What the device reports, and a warning for each policy that it did not compute."""
        report = scorer.kernel.report()
        if report is None:
            return {}
        reasons = {name: why for name, why in zip(self.request.policies, scorer.unfused, strict=True) if why is not None}
        for name, why in reasons.items():
            warnings.warn(f"GPU: {name!r} was evaluated on the processor, because {why}.", InputWarning, stacklevel=2)
        return {"accelerator": report | ({"not_used_for": reasons} if reasons else {})}


def _settled(column: Column, request: Request, features: Features, run: Runs) -> Column:
    """With every setting resolved, each for the policies that use it: by trial runs if need be."""
    names, settled = list(request.policies), dict[int, Estimator]()
    for estimator in {id(each): each for each in column.values()}.values():
        own = [p for p, each in column.items() if each is estimator]
        part = replace(request, policies={names[p]: request.policies[names[p]] for p in own})
        settled |= dict.fromkeys(own, estimator.settled(features, partial(run, part)))
    return settled


def _names(estimators: Sequence[Column], members: Mapping[tuple[int, int, int], Sequence[Family]]) -> dict[Ratio, str]:
    """The estimator that first uses each ratio, for messages."""
    names: dict[Ratio, str] = {}
    for (p, e, _), families in members.items():
        for part, family in zip(estimators[e][p].parts, families, strict=True):
            for member, _ in family:
                names.setdefault(member.weight.ratio, part.name)
    return names


def _predictors(fits: Fits, key: ModelKey) -> list[Predictor]:
    if not key.folds:
        return [fits.on_all(key.reward)]
    return [fits.without_fold(key.reward, fold, key.folds) for fold in range(key.folds)]


def _centre(models: Mapping[ModelKey, Sequence[Predictor]], context: int) -> FloatArray:
    """One origin of the context for all linear models."""
    linear = (p for predictors in models.values() for p in predictors if isinstance(p, LinearPredictor))
    first = next(linear, None)
    return np.zeros(context) if first is None else first.centre


def _moved(predictor: Predictor, centre: FloatArray) -> Predictor:
    return predictor.moved(centre) if isinstance(predictor, LinearPredictor) else predictor
