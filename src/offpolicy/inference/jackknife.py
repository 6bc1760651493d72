"""How estimates change if a group of units is left out of everything fitted: the error of the fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.core.threads import parallel
from offpolicy.estimators import Member
from offpolicy.inference.functionals import Functional, ScoreSums
from offpolicy.inference.scores import Case
from offpolicy.models.rewards.base import LinearPredictor
from offpolicy.ratios.weights import Weight
from offpolicy.scoring.fit_pass import FitResults
from offpolicy.scoring.plan import AnyTerms, ModelKey, Terms, WeightColumn, model_key
from offpolicy.scoring.scorer import Scorer
from offpolicy.statistics.base import State


@dataclass(frozen=True)
class Refits:
    """Changes of estimates, from what was fitted and from the sums of the scoring pass."""

    scorer: Scorer
    fitted: FitResults
    state: State

    def matters(self, member: Member, model: ModelKey | None) -> bool:
        """Whether the value depends, to first order, on what was fitted.

        With the exact ratio of actions, or of embeddings, the error of a reward model cancels: on average, baseline and
        control change by the same amount.
        """
        if member.weight.ratio.fitted:
            return True
        return model is not None and not member.weight.model_error_cancels and _is_fitted(model)

    @cached_property
    def _jackknife(self) -> dict[ModelKey, FloatArray | None]:
        return {}

    def coefficients(self, model: ModelKey) -> FloatArray | None:
        """The coefficients fitted on all rows, then without each group, around the scorer's centre."""
        if model not in self._jackknife:
            fits = self.fitted.models[model.fit]
            on_all = fits.on_all(model.reward) if fits.can_refit else None
            if isinstance(on_all, LinearPredictor) and on_all.varying is None:
                fits.without_group(model.reward, 0)  # computes what the others share
                left = parallel(lambda g: fits.without_group(model.reward, g), range(self.scorer.groups))
                moved = [linear.moved(self.scorer.centre).coef for linear in (on_all, *left) if linear is not None]
                self._jackknife[model] = np.stack(moved) if len(moved) == 1 + self.scorer.groups else None
            else:
                self._jackknife[model] = None
        return self._jackknife[model]

    def with_fit_error(self, case: Case, f: Functional, member: Member, terms: AnyTerms) -> Functional:
        """The functional with the change of its value if each group is left out of the scoring, and of everything fitted."""
        sums = case.sums
        by_group = sums.by_group(self.scorer.groups)
        filled = np.flatnonzero(by_group[:, 0] > 0)
        f = replace(f, sampling=f.evaluate(by_group.sum(axis=0) - by_group[filled]))
        if not self.matters(member, model_key(member, case.policy, case.reward)) or len(filled) < 2:
            return f
        moves: list[FloatArray | None] = []
        for share, part in terms.parts:
            model = model_key(member, case.policy, case.reward, part.slot)
            if model is not None and _is_fitted(model):
                moves.append(self._moves_of_model(part, model, sums, share))
            if member.weight.ratio.fitted:
                weight = member.weight if part.slot is None else member.weight.for_slot(part.slot)
                moves.append(None if sums.slice_ is not None else self._moves_of_weights(case, f, weight, part))
        known = [move for move in moves if move is not None]
        if not moves or len(known) < len(moves):
            return f
        return replace(f, fit=np.sum(known, axis=0)[filled])

    def _moves_of_model(self, terms: Terms, model: ModelKey, sums: ScoreSums, share_of: float = 1.0) -> FloatArray | None:
        """V depends on the coefficients through ⟨Σ share·x̃, β⟩ / Σ1 − ⟨Σ weight·x̃, β⟩ / Σ1: two tables."""
        state = self.state if sums.slice_ is None else self.state["slices"][sums.slice_]
        refits = None if terms.tables[0] is None else self.coefficients(model)
        by_group = sums.by_group(self.scorer.groups)
        rows = float(state["table_rows"]) if "table_rows" in state else by_group[: self.scorer.table_groups, 0].sum()
        if refits is None or not len(state["tables"]) or not rows > 0:
            return None
        tables = [state["tables"][self.scorer.plan.tables.index(key)] for key in terms.tables if key is not None]
        share, weight = tables[0], sum(tables[1:])
        means = sums.moments["mean"]
        with np.errstate(divide="ignore", invalid="ignore"):
            if terms.scaling is not None:
                weight = weight * terms.scaling.factor(means)
            elif terms.normalised and terms.weight is not None:
                weight = weight / (means[terms.weight] / means[0])
        fit = np.tensordot(refits, (share - weight) / rows, axes=2)  # the value under each refit, up to a constant
        moves: FloatArray = share_of * (fit[1:] - fit[0])
        return moves

    def _moves_of_weights(self, case: Case, f: Functional, weight: Weight, terms: Terms) -> FloatArray | None:
        """V depends on the fitted weights through the means of two columns."""
        assert terms.weight is not None
        assert terms.correction is not None
        plan, key = self.scorer.plan, WeightColumn(case.policy, weight)
        k, columns = plan.weights.index(key), [1 + plan.columns.index(each) for each in plan.corrections(key)]
        moves_and_rows = self.fitted.ratios[k].moves(self.state["ratios"][str(k)], columns.index(terms.correction))
        if moves_and_rows is None:
            return None
        moved, rows = moves_and_rows
        means = moved / rows * float(case.sums.moments["mean"][0])
        moves: FloatArray = means[:, 0] * f.gradient[terms.weight] + means[:, 1] * f.gradient[terms.correction]
        return moves


def _is_fitted(model: ModelKey) -> bool:
    return model.fit.rewards.fitted or model.fit.rewards.fitted_before
