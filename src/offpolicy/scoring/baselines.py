"""The baselines of one policy, Σ_a share(a|x)·q(x, a), for a block of rows of one fold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from offpolicy.core.arrays import FloatArray
from offpolicy.data.batch import Batch
from offpolicy.models.rewards.base import LinearPredictor, Predictor
from offpolicy.policies.blocks import Layout, Lists
from offpolicy.ratios.pools import Sides
from offpolicy.scoring.plan import BaselineColumn, ModelKey, Plan, ShareTable

Scale = FloatArray | float
Columns = dict[int, FloatArray]


@dataclass(frozen=True)
class Probabilities:
    """π and, where it was asked for, π0 of the actions of a block."""

    layout: Layout
    pi: FloatArray
    pi0: FloatArray | None
    loose: bool = False
    """Whether each row of π is still to be divided by its sum."""

    @cached_property
    def sides(self) -> Sides | None:
        return None if self.pi0 is None else Sides(self.pi, self.pi0, self.layout)

    def share(self, clip: float | None) -> FloatArray:
        """π, or what is left of it above clip·π0."""
        if clip is None:
            return self.pi
        if np.isinf(clip):
            return np.zeros_like(self.pi)
        assert self.pi0 is not None
        return np.maximum(self.pi - clip * self.pi0, 0.0)  # π − min(π, Mπ0)


@dataclass(frozen=True)
class BaselinePart:
    """The baselines of one share of a policy in one fold. Linear models are one matrix product."""

    clip: float | None
    table: int | None
    columns: list[int]
    coef: FloatArray
    """The linear models' coefficients one below the other, less the origin, and a row of ones: it gives the row sums."""
    other: list[tuple[int, Predictor, float]]

    @cached_property
    def by_action(self) -> FloatArray:
        """The same, actions × rows: what lists and policies that answer by themselves are multiplied with."""
        return np.ascontiguousarray(self.coef.T)

    def values(self, batch: Batch, x: FloatArray, p: Probabilities) -> tuple[Scale, Columns]:
        """Σ_a share(a|x)·(x̃·β_a) = x̃·(β @ share): no rounds × actions array but the share is ever made."""
        share, layout = p.share(self.clip), p.layout
        scale: Scale = 1.0
        found: Columns = {}
        if self.columns:
            product = layout.by_round(share, self.by_action).T if isinstance(layout, Lists) else self.coef @ share.T
            scale = 1 / product[-1] if p.loose else 1.0
            found = self.from_product(x, product, scale)
        for column, predictor, origin in self.other:
            found[column] = layout.dot(share, predictor.all(batch) - origin)
        return scale, found

    def from_product(self, x: FloatArray, product: FloatArray, scale: Scale = 1.0) -> Columns:
        """The linear models' baselines from β @ share."""
        per_model = product[: len(self.columns) * len(x)].reshape(len(self.columns), len(x), x.shape[1])
        pairs = zip(self.columns, per_model, strict=True)
        return {column: np.einsum("ji,ji->i", x, part) * scale for column, part in pairs}


@dataclass(frozen=True)
class Baselines:
    """All baselines of one policy in one fold."""

    parts: list[BaselinePart]

    @property
    def only_linear(self) -> bool:
        """Whether the product gives the row sums, so that a loose policy need not be normalised first."""
        return len(self.parts) == 1 and self.parts[0].clip is None and not self.parts[0].other

    def values(self, batch: Batch, x: FloatArray, p: Probabilities) -> tuple[Scale, Columns]:
        """What a loose π is still to be multiplied with, and the baselines by column."""
        found = [part.values(batch, x, p) for part in self.parts]
        columns = {column: values for _, some in found for column, values in some.items()}
        return found[0][0] if found else 1.0, columns

    @classmethod
    def of(
        cls,
        plan: Plan,
        models: Mapping[ModelKey, Sequence[Predictor]],
        origins: FloatArray,
        policy: int,
        folds: Sequence[tuple[BaselineColumn, int]],
    ) -> Baselines:
        parts = []
        for clip in dict.fromkeys(key.clip for key, _ in folds):
            columns, coefs, other = [], [], []
            for key, fold in (pair for pair in folds if pair[0].clip == clip):
                column = 1 + plan.columns.index(key)
                predictor = models[key.model][fold]
                # The origin is taken off only where the shares sum to 1, that is, where the share is π itself.
                origin = float(origins[key.model.reward]) if clip is None else 0.0
                if isinstance(predictor, LinearPredictor):
                    coef = predictor.coef.T.copy()
                    coef[-1] -= origin
                    columns.append(column)
                    coefs.append(coef)
                else:
                    other.append((column, predictor, origin))
            tables = plan.tables
            table = tables.index(ShareTable(policy, clip)) if ShareTable(policy, clip) in tables and columns else None
            stacked = np.vstack([*coefs, np.ones((1, coefs[0].shape[1]))]) if coefs else np.empty((0, 0))
            parts.append(BaselinePart(clip, table, columns, stacked, other))
        return cls(parts)
