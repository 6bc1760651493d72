"""Overlap: how well the log supports a policy, by its weights and by what was never logged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.data.batch import Batch
from offpolicy.diagnostics.base import Reading, Subject
from offpolicy.diagnostics.verdict import Finding, Measure, Verdict
from offpolicy.inference.functionals import ScoreSums, mean_weight, std_error
from offpolicy.inference.scores import Scores
from offpolicy.ratios.base import FittedRatio, PoolingDiagnostics
from offpolicy.ratios.embedding_fits import PooledFits
from offpolicy.ratios.weights import Weight
from offpolicy.scoring.plan import WeightColumn
from offpolicy.scoring.scored_block import ScoredBlock
from offpolicy.statistics.base import State, added
from offpolicy.statistics.histogram import LARGEST_OF, LogHistogram

NOT_ONE = 0.01
"""How far a mean weight must be from 1 to matter, however well it is known."""


@dataclass(frozen=True)
class Overlap:
    """How far the log speaks for a policy."""

    n: int
    ess: float
    mean_weight: float
    mean_weight_z: float
    largest_weight: float | None
    largest_share: float | None
    """The part of the sum of weights that one round has."""
    top_share: float | None
    never_logged: float | None
    """The target's mass on actions that are not in the log; None where the whole policy was not asked for."""
    no_support: float | None
    """The target's mass where the logging policy gives no chance; None where π0 is not known as a whole."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "effective_sample_size": self.ess,
            "mean_weight": self.mean_weight,
            "mean_weight_z": self.mean_weight_z,
            "largest_weight": self.largest_weight,
            "top_1_percent_share": self.top_share,
            "target_mass_never_logged": self.never_logged,
            "target_mass_without_support": self.no_support,
        }


def overlap(
    sums: ScoreSums, column: int, policy: State | None = None, counts: FloatArray | None = None, logging_known: bool = False
) -> Overlap:
    """From a column of weights and, for the whole log, what was kept of the policy and how often each action was logged."""
    moments, error = sums.moments, std_error(mean_weight(column, sums), sums)
    n, unit = float(moments["n"]), float(moments["mean"][0])
    mean = float(moments["mean"][column]) / unit if unit > 0 else 0.0
    second = float(moments["m2"][column, column]) / n + float(moments["mean"][column]) ** 2
    asked = 0.0 if policy is None else float(policy["rows"])
    unlogged = None if policy is None or counts is None or not asked > 0 else float(policy["mass"][counts == 0].sum())
    return Overlap(
        n=int(n),
        ess=n * float(moments["mean"][column]) ** 2 / second if second > 0 else 0.0,
        mean_weight=mean,
        mean_weight_z=(mean - 1) / error if error > 1e-9 else 0.0,
        largest_weight=None if policy is None else float(policy["weights"]["max"]),
        largest_share=None if policy is None else LogHistogram.largest_share(policy["weights"]),
        top_share=None if policy is None else LogHistogram.top_share(policy["weights"], 0.01),
        never_logged=None if unlogged is None else unlogged / asked,
        no_support=float(policy["unsupported"]) / asked if policy is not None and asked > 0 and logging_known else None,
    )


@dataclass(frozen=True)
class PooledOverlap:
    """The weights of embeddings, clusters or outcomes."""

    overlap: Overlap
    mean_one: bool
    """Whether their mean under the logging policy is 1."""
    own: PoolingDiagnostics = field(default_factory=PoolingDiagnostics)
    """What the ratio itself reports; nothing for a slice."""

    def to_dict(self) -> dict[str, Any]:
        o, own = self.overlap, self.own
        seen: dict[str, Any] = {"effective_sample_size": o.ess, "mean_weight": o.mean_weight}
        if own.left_out is not None:
            seen["weight_of_other_actions_at_most"] = own.left_out
        if own.pooling is not None:
            seen |= {"pooling": own.pooling, "rounds_with_an_action_new_to_the_fit": own.new_actions}
        return {**seen, **own.details}


def pooled_findings(pooled: PooledOverlap, actions: Overlap | None, modelled: bool) -> list[Finding]:
    """What weights other than π/π0 say, beside π/π0 where it can be computed."""
    o, own, found = pooled.overlap, pooled.own, []
    keys = ("effective sample size", "mean weight") if pooled.mean_one else ("effective sample size",)
    found += [finding for finding in weight_findings(o) if finding.code in keys]
    spread, plain = _variance(o), 0.0 if actions is None else _variance(actions)
    if own.pooling is not None and plain > 0 and spread < 0.01 * plain:
        is_in_effect = "the direct method with its mean residual added" if modelled else "the mean of the log"
        found.append(
            Finding(
                Verdict.CAUTION if modelled else Verdict.DO_NOT_TRUST,
                "complete pooling",
                f"The weights hardly differ from each other: their variance is {spread / plain:.1%} of that of π/π0.",
                f"All actions are pooled, so this is in effect {is_in_effect}, whatever the new policy does.",
                "Put embeddings on a common scale (scale=True), take a smaller bandwidth, or look at op.DR.",
            )
        )
    if own.misread:
        found.append(
            Finding(
                Verdict.CAUTION,
                "posterior form",
                "The logging policy depends on the context, and these weights take p(a|e) for p(a|x, e).",
                "Actions that were hardly possible in a round then count in it, divided by their small chance: biased.",
                'Use the ratio form: posterior=op.Gaussian("slope") (learned-mips:posterior=gaussian,bandwidth=slope).',
            )
        )
    if own.new_actions:
        share = own.new_actions / max(o.n, 1)
        found.append(
            Measure("new actions", share).finding(
                "actions new to the fit",
                f"{own.new_actions:,} of {o.n:,} rounds have an action that the other folds do not hold.",
                "They keep their plain weight π/π0, since nothing was learned of their action.",
                "Use fewer folds, or none (cross_fit=0), or log those actions more often.",
            )
        )
    if own.left_out is not None:
        found.append(
            Measure("left out", own.left_out).finding(
                "neighbours",
                f"Weights are sums over the {own.details['neighbours']:,} actions nearest to the logged one; the others "
                f"could change them by at most {own.left_out:.1%} on average.",
                "What lies farther away than the nearest actions is not known, only bounded.",
                "Take more neighbours (op.Gaussian(neighbours=…)), a smaller bandwidth, or policies that list candidates, "
                "over which sums are exact.",
            )
        )
    return found


def _variance(o: Overlap) -> float:
    """Of the weights, in units of their squared mean."""
    return o.n / o.ess - 1 if o.ess > 0 else 0.0


def weight_findings(o: Overlap) -> list[Finding]:
    """What the weights say; for estimators that use them."""
    spread = "A few rounds decide the answer, and its error is itself badly known."
    found = [
        Measure("effective rounds", o.ess).finding(
            "effective sample size",
            f"The {o.n:,} rounds count like {o.ess:,.0f} rounds of the new policy.",
            spread if o.ess < o.n / 2 else "Intervals lean on many rounds, and are too narrow with few.",
            "Log more rounds, or evaluate a policy closer to the logging one." if o.ess < o.n / 2 else "Log more rounds.",
        ),
        Measure(
            "missing weight" if o.mean_weight < 1 else "excess weight",
            abs(o.mean_weight_z) if abs(o.mean_weight - 1) > NOT_ONE else 0.0,
        ).finding(
            "mean weight",
            f"The mean weight is {o.mean_weight:.3f}, {abs(o.mean_weight_z):.1f} standard errors from 1.",
            "It is 1 on average when the propensities are right and the log covers all that the new policy does.",
            "Check the propensities, and whether the new policy takes actions that the old one never took.",
        ),
    ]
    if o.top_share is not None and o.largest_weight is not None and o.largest_share is not None:
        largest = o.largest_share
        found += [
            Measure("top weights", o.top_share).finding(
                "top weights",
                f"The largest 1% of the weights hold {o.top_share:.0%} of their sum.",
                spread,
                "Prefer DR, SwitchDR or a clipped weight, and compare them.",
            ),
            Measure("largest weight", largest).finding(
                "largest weight",
                f"One round has {largest:.0%} of the sum of weights; the largest weight is {_plain(o.largest_weight)}.",
                "The answer moves with that one round.",
                "Look at its propensity; compare with ClippedIPS.",
            ),
        ]
    return found


def _plain(weight: float) -> str:
    """Three digits, but 2,420 and not 2.42e+03."""
    return f"{weight:,.0f}" if weight >= 100 else f"{weight:.3g}"


def support_findings(o: Overlap, modelled: bool, weighed: bool) -> list[Finding]:
    """What the target does where the log is silent; `weighed`: by π/π0."""
    found = []
    scale = "support, modelled" if modelled else "support"
    why = (
        "There the answer is the reward model's guess alone."
        if modelled
        else "The log says nothing about what it would earn there."
    )
    advice = "Explore those actions, or restrict the new policy to actions that were logged."
    # Where the logging policy is known and could have taken them, actions that chance left out are no gap: with more actions
    # than rounds there always are such, and weights by π/π0 are right on average.
    could = weighed and o.no_support is not None
    for mass, what, by in (
        (o.never_logged, "actions that the log does not hold", "support, by chance" if could else scale),
        (o.no_support, "actions to which the logging policy gives no chance", scale),
    ):
        if mass is not None:
            found.append(
                Measure(by, mass).finding("support", f"{mass:.1%} of the new policy's choices are {what}.", why, advice)
            )
    return found


@dataclass(frozen=True)
class OverlapSums:
    """How the action weights of each policy are spread, and on which actions its mass lies."""

    columns: ClassVar[tuple[str, ...]] = ()
    sizes: tuple[int, ...]
    """Actions that each policy is asked for: all, or none."""

    def zero(self) -> State:
        return {
            str(p): {
                "mass": np.zeros(size),
                "unsupported": np.zeros(()),
                "rows": np.zeros(()),
                "weights": LogHistogram().zero(),
            }
            for p, size in enumerate(self.sizes)
        }

    def fold(self, state: State, batch: Batch, scored: ScoredBlock) -> State:
        for p, (ratio, mass) in enumerate(zip(scored.ratios, scored.masses, strict=True)):
            part = state[str(p)]
            part["rows"] += mass.rows
            part["mass"] += mass.by_action
            part["unsupported"] += mass.unsupported
            if ratio is not None:
                part["weights"] = LogHistogram().fold(part["weights"], ratio, batch.weight)
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
        kept = self.state[str(p)] if sums.slice_ is None else None
        return overlap(sums, column, kept, s.state["counts"], logging is not None and logging.whole)

    def of_weight(self, p: int, weight: Weight, sums: ScoreSums) -> Overlap:
        """Of the weights that an estimator uses, before they are bent where they are π/π0."""
        return self.of_actions(p, sums) if weight.ratio.of_actions else self.of_ratio(p, weight, sums).overlap

    def of_ratio(self, p: int, weight: Weight, sums: ScoreSums) -> PooledOverlap:
        """The weights of embeddings, outcomes and ratios of a user's own."""
        o = overlap(sums, 1 + self.scores.scorer.plan.columns.index(WeightColumn(p, weight)))
        if sums.slice_ is not None:
            return PooledOverlap(o, weight.mean_one)
        ratio, kept = self._kept(p, weight)
        return PooledOverlap(o, weight.mean_one, ratio.diagnostics(kept, o.mean_weight))

    def _kept(self, p: int, weight: Weight) -> tuple[FittedRatio, State]:
        """A fitted ratio, and what it kept of the whole log."""
        k = self.scores.scorer.plan.weights.index(WeightColumn(p, weight))
        return self.scores.fitted.ratios[k], self.scores.state["ratios"][str(k)]

    def largest(self, p: int, weight: Weight) -> float:
        """The largest ratio of any row, before it is bent."""
        ratio, kept = self._kept(p, weight)
        return ratio.largest(kept)

    def above(self, p: int, limit: float) -> float:
        """How many rounds have an action weight above a limit."""
        return LogHistogram.count_above(self.state[str(p)]["weights"], limit)

    def embedding(self, p: int, weight: Weight) -> PooledFits | None:
        """The embedding that a weight comes from."""
        return self._kept(p, weight)[0].embedding if weight.ratio.corrects else None

    def view(self, p: int, weight: Weight, estimators: Sequence[str], sums: ScoreSums) -> dict[str, Any]:
        """How a policy's weights, by actions or by embeddings, are spread over the whole log."""
        ratio, own = self._kept(p, weight)
        pooled = ratio.histogram(own)
        histogram = self.state[str(p)]["weights"] if pooled is None else pooled
        o = self.of_actions(p, sums) if pooled is None else self.of_ratio(p, weight, sums).overlap
        edges, masses, zero = LogHistogram(coarse=pooled is not None).steps(histogram)
        rounds = o.n / max(float(histogram["mass"].sum()), 1e-300)  # row weights count, but all together as the rounds
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
            "target_mass_never_logged": o.never_logged,
            "target_mass_without_support": o.no_support,
        }


@dataclass(frozen=True)
class Support(Reading):
    """What the target does where the log is silent."""

    overlaps: Overlaps

    def findings(self, subject: Subject) -> list[Finding]:
        if not subject.weighable:
            return []
        o, member = self.overlaps.of_actions(subject.policy, subject.sums), subject.member
        weighed = member is None or member.weight.ratio.of_actions
        return support_findings(o, member is None or subject.model is not None, weighed)


@dataclass(frozen=True)
class WeightSpread(Reading):
    """What the weights of one estimator say."""

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
        """Of an estimator that weighs."""
        member = subject.member
        return member.weight if member is not None and member.weight.weighs else None
