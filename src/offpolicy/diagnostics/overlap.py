"""Overlap: how well the log supports a policy, judged by its weights and by actions that were never logged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, ClassVar

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.data.batch import Batch
from offpolicy.diagnostics.base import Reading, Subject
from offpolicy.diagnostics.pareto import WHOLE_LOG_ONLY, ParetoTail
from offpolicy.diagnostics.verdict import ENOUGH, Finding, Measure, Verdict
from offpolicy.inference.functionals import ScoreSums, mean_weight, std_error
from offpolicy.inference.scores import Scores
from offpolicy.models.embedding_table import Embedding
from offpolicy.ratios.base import FittedRatio, PoolingDiagnostics
from offpolicy.ratios.weights import Weight
from offpolicy.scoring.plan import WeightColumn
from offpolicy.scoring.scored_block import ScoredBlock
from offpolicy.statistics.base import State, added
from offpolicy.statistics.histogram import LARGEST_OF, LogHistogram

NOT_ONE = 0.01  # how far a mean weight must be from 1 to matter, however precisely it is known
MOST_LUCK = 5.0  # how many times too many effective rounds a log may seem to have
BY_CHANCE = 2.0  # the number of standard errors by which a mean weight may be below 1 although the log lacks nothing


# Why a mean weight below 1, or above it, matters, and what to do.
SHORTFALL = (
    "Its expectation is 1 if the propensities are right and the log covers everything that the new policy does.",
    "Check the propensities, and whether the new policy takes actions that the logging policy never took.",
)
EXCESS = (
    "Its expectation is 1 for a policy that was not trained on these rounds. A policy that was trained on them favours the "
    "actions that happened to be logged, and its value is overestimated. Propensities that are too small do the same.",
    "Evaluate the policy on rounds that it was not trained on (op.split divides a log), and check the propensities.",
)


@dataclass(frozen=True)
class Overlap:
    """How well the log supports a policy.

    `missing` is the share of the new policy that the log lacks at least: that by which the mean weight is below 1, beyond
    chance. Where weights of mean 1 are spread evenly, an estimate has the standard error σ/√n; a share d of the policy of
    which nothing is known moves it by about dσ. So `ess`, the number of effective rounds, is n·mean[w]²/mean[w²] for d = 0,
    and at most 1/d².

    `largest_share` is one round's share of the sum of weights, `top_share` that of the largest 1%. `never_logged` is the
    target's mass on actions that are not in the log (None if not every probability of the target was computed), and
    `no_support` its mass on actions of zero probability under the logging policy (None if π0 is not known for all actions).
    `tail` describes how heavy the tail of the weights is. `lognormal` is the number of effective rounds that positive
    weights of mean 1/p, with p their share, would have if their logarithms were normal: n·p·(p·geometric mean)² (None for a
    part of the log).
    """

    n: int
    ess: float
    mean_weight: float
    mean_weight_z: float
    missing: float = 0.0
    largest_weight: float | None = None
    largest_share: float | None = None
    top_share: float | None = None
    never_logged: float | None = None
    no_support: float | None = None
    tail: ParetoTail = WHOLE_LOG_ONLY
    lognormal: float | None = None

    @property
    def cautious(self) -> float | None:
        """A number of effective rounds that does not rest on the largest weights, which a log may lack by chance.

        Where few rounds are effective, most logs lack the rare weights that determine the mean square, and seem to have
        several times as many effective rounds as they have. The mean of the logarithms hardly depends on these weights.
        Beyond `MOST_LUCK` times a number, `ess` alone shows that there are as many.
        """
        return None if self.lognormal is None else max(min(self.ess, self.lognormal), self.ess / MOST_LUCK)

    def to_dict(self) -> dict[str, Any]:
        return {
            "effective_sample_size": self.ess,
            "mean_weight": self.mean_weight,
            "mean_weight_z": self.mean_weight_z,
            "target_mass_missing": self.missing,
            "largest_weight": self.largest_weight,
            "top_1_percent_share": self.top_share,
            **self.tail.to_dict(),
            "target_mass_never_logged": self.never_logged,
            "target_mass_without_support": self.no_support,
        }


def overlap(sums: ScoreSums, column: int, mean_one: bool = True) -> Overlap:
    """From a column of weights alone.

    `mean_one`: whether the expectation of the weights under the logging policy is 1, so that a lower mean is a gap.
    """
    moments, error = sums.moments, std_error(mean_weight(column, sums), sums)
    n, unit = float(moments["n"]), float(moments["mean"][0])
    mean = float(moments["mean"][column]) / unit if unit > 0 else 0.0
    squares = np.diag(moments["m2"]) if sums.squares is None else sums.squares
    second = float(squares[column]) / n + float(moments["mean"][column]) ** 2
    missing = float(shortfall(np.array(mean), np.array(error))) if mean_one else 0.0
    ess = n * float(moments["mean"][column]) ** 2 / second if second > 0 else 0.0
    return Overlap(
        n=int(n),
        ess=ess / (1 + ess * missing**2),
        mean_weight=mean,
        mean_weight_z=(mean - 1) / error if error > 1e-9 else 0.0,
        missing=missing,
    )


def shortfall(mean: FloatArray, error: FloatArray) -> FloatArray:
    """By how much mean weights are below 1, beyond chance; 0 where that is next to nothing, or the error is unknown."""
    missing: FloatArray = np.where((1 - mean > NOT_ONE) & np.isfinite(error), 1 - mean - BY_CHANCE * error, 0.0)
    return np.maximum(missing, 0.0)


def with_policy(o: Overlap, policy: State, counts: FloatArray, logging_known: bool) -> Overlap:
    """For the whole log, with the sums of the policy and how often each action was logged."""
    rows = float(policy["rows"])
    positive, typical = LogHistogram.geometric_mean(policy["weights"])
    return replace(
        o,
        largest_weight=float(policy["weights"]["max"]),
        largest_share=LogHistogram.largest_share(policy["weights"]),
        top_share=LogHistogram.top_share(policy["weights"], 0.01),
        never_logged=float(policy["mass"][counts == 0].sum()) / rows if rows > 0 else None,
        no_support=float(policy["unsupported"]) / rows if rows > 0 and logging_known else None,
        tail=ParetoTail.of(policy["weights"]),
        lognormal=o.n * positive * (positive * typical) ** 2,
    )


@dataclass(frozen=True)
class PooledOverlap:
    """The weights of embeddings, clusters or outcomes.

    `mean_one`: whether their expectation under the logging policy is 1. `own` is what the ratio itself reports; nothing for
    a slice.
    """

    overlap: Overlap
    mean_one: bool
    own: PoolingDiagnostics = field(default_factory=PoolingDiagnostics)

    def to_dict(self) -> dict[str, Any]:
        o, own = self.overlap, self.own
        seen: dict[str, Any] = {"effective_sample_size": o.ess, "mean_weight": o.mean_weight}
        if own.left_out is not None:
            seen["weight_of_other_actions_at_most"] = own.left_out
        if own.pooling is not None:
            seen |= {"pooling": own.pooling, "rounds_with_an_action_new_to_the_fit": own.new_actions}
        return {**seen, **own.details}


def pooled_findings(pooled: PooledOverlap, actions: Overlap | None, modelled: bool) -> list[Finding]:
    """Checks of weights other than π/π0, compared with π/π0 if that can be computed."""
    o, own, findings = pooled.overlap, pooled.own, []
    keys = ("effective sample size", "mean weight") if pooled.mean_one else ("effective sample size",)
    findings += [finding for finding in weight_findings(o) if finding.code in keys]
    spread, plain = _variance(o), 0.0 if actions is None else _variance(actions)
    if own.pooling is not None and plain > 0 and spread < 0.01 * plain:
        is_in_effect = "the direct method plus its mean residual" if modelled else "the mean of the log"
        findings.append(
            Finding(
                Verdict.CAUTION if modelled else Verdict.DO_NOT_TRUST,
                "complete pooling",
                f"The weights are almost equal: their variance is {spread / plain:.1%} of that of π/π0.",
                f"All actions are pooled, so this is in effect {is_in_effect}, whatever the new policy does.",
                "Scale the embeddings (scale=True), use a smaller bandwidth, or compare with op.DR.",
            )
        )
    if own.misread:
        findings.append(
            Finding(
                Verdict.CAUTION,
                "posterior form",
                "The logging policy depends on the context, but these weights use p(a|e) in place of p(a|x, e).",
                "Actions that were very unlikely in a round then add to its weight, divided by their small probability, "
                "which biases the estimate.",
                'Use the ratio form: posterior=op.Gaussian("slope") (learned-mips:posterior=gaussian,bandwidth=slope).',
            )
        )
    if own.new_actions:
        share = own.new_actions / max(o.n, 1)
        findings.append(
            Measure("new actions", share).finding(
                "actions new to the fit",
                f"{own.new_actions:,} of {o.n:,} rounds have an action that does not occur in the other folds.",
                "They keep the weight π/π0, because nothing was learned about their action.",
                "Use fewer folds, or none (cross_fit=0), or log those actions more often.",
            )
        )
    if own.left_out is not None:
        findings.append(
            Measure("left out", own.left_out).finding(
                "neighbours",
                f"Weights are sums over the {own.details['neighbours']:,} actions nearest to the logged one; the others "
                f"could change them by at most {own.left_out:.1%} on average.",
                "The contribution of actions farther away is not computed, only bounded.",
                "Use more neighbours (op.Gaussian(neighbours=…)), a smaller bandwidth, or policies that list candidates, "
                "for which the sums are exact.",
            )
        )
    return findings


def _variance(o: Overlap) -> float:
    """The variance of the weights, in units of their squared mean."""
    return o.n / o.ess - 1 if o.ess > 0 else 0.0


def weight_findings(o: Overlap, scale: str = "effective rounds") -> list[Finding]:
    """Checks of the weights, for estimators that use them; `scale` grades the effective sample size."""
    excess = o.mean_weight >= 1
    spread = "A few rounds determine the answer, and its standard error is itself unreliable."
    effective = Measure(scale, o.ess)
    more = "Log more rounds" if o.missing else effective.more_rounds(o.n)  # effective rounds then do not grow in proportion
    findings = [
        effective.finding(
            "effective sample size",
            f"The {o.n:,} rounds are worth {_rounds(o.ess)} of the new policy.",
            spread if o.ess < o.n / 2 else "Intervals assume many rounds, and are too narrow if there are few.",
            f"{more}, or evaluate a policy closer to the logging one." if o.ess < o.n / 2 else f"{more}.",
        ),
        Measure(
            "excess weight" if excess else "missing weight",
            abs(o.mean_weight_z) if abs(o.mean_weight - 1) > NOT_ONE else 0.0,
        ).finding(
            "mean weight",
            f"The mean weight is {o.mean_weight:.3f}, {abs(o.mean_weight_z):.1f} standard errors from 1"
            + (f": {_lacks(o)}." if o.missing else "."),
            *(EXCESS if excess else SHORTFALL),
        ),
    ]
    if o.top_share is not None and o.largest_weight is not None and o.largest_share is not None:
        largest = o.largest_share
        findings += [
            Measure("top weights", o.top_share).finding(
                "top weights",
                f"The largest 1% of the weights account for {o.top_share:.0%} of their sum.",
                spread,
                "Compare with DR, SwitchDR and clipped weights (ClippedIPS).",
            ),
            Measure("largest weight", largest).finding(
                "largest weight",
                f"One round accounts for {largest:.0%} of the sum of weights; the largest weight is "
                f"{_plain(o.largest_weight)}.",
                "The answer depends on that one round.",
                "Check its propensity; compare with ClippedIPS.",
            ),
        ]
    return findings


def _rounds(count: float) -> str:
    """A number of effective rounds in words.

    >>> _rounds(1.1), _rounds(4621.3)
    ('1 round', '4,621 rounds')
    """
    return "1 round" if round(count) == 1 else f"{count:,.0f} rounds"


def _plain(weight: float) -> str:
    """Three digits, without an exponent: 2,420 rather than 2.42e+03."""
    return f"{weight:,.0f}" if weight >= 100 else f"{weight:.3g}"


def support_findings(o: Overlap, modelled: bool, by_actions: bool) -> list[Finding]:
    """The target's mass on actions without data; `by_actions`: for an estimate weighted by π/π0."""
    findings = []
    scale = "support, modelled" if modelled else "support"
    why = (
        "For these, the answer rests on the reward model alone."
        if modelled
        else "The log has no information about their rewards."
    )
    # Actions that the logging policy could have taken, but by chance did not, are no gap: with more actions than rounds
    # there always are some, and weights by π/π0 are right on average.
    possible = by_actions and o.no_support is not None
    for mass, what, by in (
        (o.never_logged, "actions that do not occur in the log", "support, by chance" if possible else scale),
        (o.no_support, "actions with zero probability under the logging policy", scale),
    ):
        if mass is not None:
            seen = f"{mass:.1%} of the new policy's choices are {what}."
            findings.append(Measure(by, mass).finding("support", seen, why, _rounds_with(mass)))
    return findings


def missing_share(o: Overlap, modelled: bool) -> Finding:
    """The share that the log lacks, for estimators whose own weights do not show it."""
    return Measure("support, modelled" if modelled else "support", o.missing).finding(
        "missing share",
        f"The mean of π/π0 is {o.mean_weight:.3f}: {_lacks(o)}.",
        "The log has no information about what that share would earn.",
        _rounds_with(o.missing),
    )


def _lacks(o: Overlap) -> str:
    return f"the log lacks at least {o.missing:.1%} of what the new policy does"


def _rounds_with(mass: float) -> str:
    """The advice to log actions that the log lacks, with how many rounds."""
    return (
        f"Log rounds with those actions ({ENOUGH} rounds of the new policy would have {ceil(ENOUGH * mass)}), or restrict "
        "the new policy to actions that were logged."
    )


@dataclass(frozen=True)
class OverlapSums:
    """The distribution of the action weights of each policy, and its mass by action.

    `sizes`: for each policy, the number of actions whose probabilities are computed in every round (all or none).
    `rewards`: for how many rewards the weights of rounds with the `largest_reward` are also counted apart.
    """

    columns: ClassVar[tuple[str, ...]] = ()
    sizes: tuple[int, ...]
    rewards: int = 0
    largest_reward: float = 1.0

    def zero(self) -> State:
        return {
            str(p): {
                "mass": np.zeros(size),
                "unsupported": np.zeros(()),
                "rows": np.zeros(()),
                "weights": LogHistogram().zero(self.rewards),
            }
            for p, size in enumerate(self.sizes)
        }

    def fold(self, state: State, batch: Batch, scored: ScoredBlock) -> State:
        sets = [batch.reward[:, k] == self.largest_reward for k in range(self.rewards)]
        for p, (ratio, mass) in enumerate(zip(scored.ratios, scored.masses, strict=True)):
            part = state[str(p)]
            part["rows"] += mass.rows
            part["mass"] += mass.by_action
            part["unsupported"] += mass.unsupported
            if ratio is not None:
                part["weights"] = LogHistogram().fold(part["weights"], ratio, batch.weight, sets)
        return state

    def merge(self, a: State, b: State) -> State:
        return added(a, b, LARGEST_OF)


@dataclass(frozen=True)
class Overlaps:
    """The overlap of each policy, by actions and by other ratios."""

    state: State
    scores: Scores

    def of_actions(self, p: int, sums: ScoreSums) -> Overlap:
        s = self.scores
        logging, column = s.scorer.logging, 1 + s.scorer.plan.columns.index(WeightColumn(p, Weight()))
        state = self.state[str(p)] if sums.slice_ is None else None
        o = overlap(sums, column)
        return o if state is None else with_policy(o, state, s.state["counts"], logging is not None and logging.whole)

    def of_weight(self, p: int, weight: Weight, sums: ScoreSums) -> Overlap:
        """The overlap by the weights that an estimator uses; π/π0 before any clipping or shrinkage."""
        return self.of_actions(p, sums) if weight.ratio.of_actions else self.of_ratio(p, weight, sums).overlap

    def of_ratio(self, p: int, weight: Weight, sums: ScoreSums) -> PooledOverlap:
        """The weights of embeddings, of outcomes, and of a user's own ratio."""
        o = overlap(sums, 1 + self.scores.scorer.plan.columns.index(WeightColumn(p, weight)), mean_one=weight.mean_one)
        if sums.slice_ is not None:
            return PooledOverlap(o, weight.mean_one)
        ratio, state = self._fitted(p, weight)
        return PooledOverlap(o, weight.mean_one, ratio.diagnostics(state, o.mean_weight))

    def _fitted(self, p: int, weight: Weight) -> tuple[FittedRatio, State]:
        """A fitted ratio, and its own sums over the whole log; for lists, those of the first slot."""
        weights = self.scores.scorer.plan.weights
        column = WeightColumn(p, weight)
        k = weights.index(column if column in weights else WeightColumn(p, weight.for_slot(0)))
        return self.scores.fitted.ratios[k], self.scores.state["ratios"][str(k)]

    def largest(self, p: int, weight: Weight) -> float:
        """The largest ratio of any row, before any clipping or shrinkage."""
        ratio, state = self._fitted(p, weight)
        return ratio.largest(state)

    def above(self, p: int, limit: float) -> float:
        """How many rounds have an action weight above a limit."""
        return LogHistogram.count_above(self.state[str(p)]["weights"], limit)

    def kept(self, p: int, weight: Weight) -> tuple[float, float]:
        """How much of the differences between items weights keep: in the slot itself, and in the others."""
        if not weight.ratio.items:
            return 1.0, 1.0
        ratio, state = self._fitted(p, weight)
        return ratio.kept(state)

    def embedding(self, p: int, weight: Weight) -> Embedding | None:
        """The embedding that a weight comes from."""
        return self._fitted(p, weight)[0].embedding if weight.ratio.corrects else None

    def view(self, p: int, weight: Weight, estimators: Sequence[str], sums: ScoreSums) -> dict[str, Any]:
        """The distribution of a policy's weights, by actions or by embeddings, over the whole log."""
        ratio, own = self._fitted(p, weight)
        pooled = ratio.histogram(own)
        histogram = self.state[str(p)]["weights"] if pooled is None else pooled
        o = self.of_actions(p, sums) if pooled is None else self.of_ratio(p, weight, sums).overlap
        edges, masses, zero = LogHistogram(coarse=pooled is not None).steps(histogram)
        rounds = o.n / max(float(histogram["mass"].sum()), 1e-300)  # row weights, scaled to sum to the number of rounds
        return {
            "policy": self.scores.policies[p],
            "kind": "action" if pooled is None else "embedding",
            "estimators": list(estimators),
            "rounds": o.n,
            "edges": edges.tolist(),
            "counts": (rounds * masses).tolist(),
            "zero": rounds * zero,
            "mean": o.mean_weight,
            "effective_sample_size": o.ess,
            "largest": float(histogram["max"]),
            "largest_share": LogHistogram.largest_share(histogram),
            "top_1_percent_share": LogHistogram.top_share(histogram, 0.01),
            **o.tail.to_dict(),
            "target_mass_never_logged": o.never_logged,
            "target_mass_without_support": o.no_support,
        }


@dataclass(frozen=True)
class Support(Reading):
    """The target's mass on actions without data."""

    overlaps: Overlaps

    def findings(self, subject: Subject) -> list[Finding]:
        if not subject.weighable:
            return []
        o, member = self.overlaps.of_actions(subject.policy, subject.sums), subject.member
        by_actions = member is None or member.weight.ratio.of_actions
        findings = support_findings(o, member is None or subject.model is not None, by_actions)
        shown = member is None or (member.weight.weighs and member.weight.mean_one)  # by the finding about the mean weight
        return findings if shown else [*findings, missing_share(o, subject.model is not None)]


@dataclass(frozen=True)
class WeightSpread(Reading):
    """Checks of the weights of one estimator."""

    overlaps: Overlaps

    def findings(self, subject: Subject) -> list[Finding]:
        weight, p, sums = self._weight(subject), subject.policy, subject.sums
        if weight is None:
            return []
        actions = self.overlaps.of_actions(p, sums) if subject.weighable else None
        if weight.ratio.of_actions and actions is not None:
            return weight_findings(actions)
        return pooled_findings(self.overlaps.of_ratio(p, weight, sums), actions, subject.model is not None)

    def numbers(self, subject: Subject) -> dict[str, Any]:
        weight, p, sums = self._weight(subject), subject.policy, subject.sums
        if weight is None:
            return {}
        if weight.ratio.of_actions:
            return self.overlaps.of_actions(p, sums).to_dict()
        return self.overlaps.of_ratio(p, weight, sums).to_dict()

    def _weight(self, subject: Subject) -> Weight | None:
        """The weight of an estimator that uses weights, of a list the slot that is worth least; None for others."""
        member = subject.member
        if member is None or not member.weight.weighs:
            return None
        slots = len(self.overlaps.scores.scorer.plan.gain or ())
        weights = dict.fromkeys([member.weight.for_slot(k) for k in range(slots)] or [member.weight])
        return min(weights, key=lambda each: self.overlaps.of_weight(subject.policy, each, subject.sums).ess)
