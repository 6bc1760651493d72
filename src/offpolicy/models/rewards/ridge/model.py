"""`Ridge`: linear reward models in closed form, from Gram matrices summed in one pass.

`penalty` counts rounds: an action that was logged that often is about half way between its own data and the pooled model (or
the prediction from its features), whatever the units of the context. An action that was never logged gets the prediction
from its features, or the pooled model. `penalty=0` is least squares: with inputs="identity" action by action, with a free
intercept and, if there are too few rounds, the slopes of minimum norm; otherwise the solution of minimum norm around the
pooled model. The equations are in solve.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.core.memory import Need
from offpolicy.core.threads import parallel
from offpolicy.data.batch import CHUNK_ROWS, Batch
from offpolicy.data.box import Box
from offpolicy.data.schema import Schema
from offpolicy.data.spaces import Discrete, unserved
from offpolicy.models.rewards.base import Fits, FitShape, FitStatistic, LinearPredictor, RewardModel
from offpolicy.models.rewards.ridge.device_sums import DeviceGramPass
from offpolicy.models.rewards.ridge.packed import ACTIONS_FOR_COVARIANCE, BLOCK_NUMBERS, Packed, PackedFits, normalised
from offpolicy.models.rewards.ridge.shared import SharedEquations, SharedRegression
from offpolicy.models.rewards.ridge.solutions import Regression, RowSums, squared_error, varying_error
from offpolicy.models.rewards.ridge.solve import Scaled
from offpolicy.models.rewards.ridge.spline import SplineRidge
from offpolicy.models.rewards.ridge.varying import Cross, CrossPass
from offpolicy.statistics.base import State, Statistic
from offpolicy.statistics.gram import DENSE, Gram, GramState

PENALTIES = np.logspace(-1, 5, 8)
TOLERANCE = 0.05
"""How much larger than the least the squared error out of fold may be at a lighter penalty."""
LIGHT = 0.1
"""The penalty, in rounds, of a model whose errors no weight corrects."""
FOLDS_TO_CHOOSE = 5
LEFT_OUT = 0.875
ROWS_TO_CHOOSE = 10_000
MOST_CACHED = 1 << 22
"""The largest number of coefficients of refits that are cached: 32 MB."""


@dataclass(frozen=True)
class Ridge(RewardModel):
    """A linear reward model per action, shrunk towards the pooled model; or linear in features of the action, or both.

    If actions are numbers (`op.Box`), the coefficients of the context are smooth functions of the action instead: cubic
    splines, shrunk towards slopes that do not depend on the action and an intercept that is linear in it.

    Parameters
    ----------
    penalty : float or {"auto", "prediction"}, default="auto"
        A number of rounds: an action that was logged that often is about half way between its own data and the pooled
        model. "prediction" minimises the squared error out of fold, from the same statistics. "auto" is chosen for the value
        of a policy: the lightest penalty whose error out of fold is at most 5% above the least, where exact weights correct
        the model (DR, SNDR), or where it gives an embedding; and 0.1 rounds where they do not, or not everywhere (DM, DRos,
        SwitchDR, ScaledDR, CAB). Shrinkage moves the predictions of all actions that a policy prefers in the same
        direction, whereas their noise averages out.
    rank : int, optional
        Restrict the coefficients, and so the embeddings, to this number of dimensions around the pooled ones.
    intercept : bool, default=True
        Include an intercept.
    unseen : {"prior", "zero"}, default="prior"
        Predict actions that were never logged by the pooled model (or their features), or as 0, as some published code does.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> round(op.evaluate(log, op.Uniform(), op.DR(op.Ridge(penalty=1)))["DR"].value, 3)
    0.467
    """

    penalty: float | Literal["auto", "prediction"] = "auto"
    _: KW_ONLY
    rank: int | None = None
    intercept: bool = True
    unseen: Literal["prior", "zero"] = "prior"
    kind = "ridge"
    spaces = (Discrete, Box)
    embeds = knows_error = linear = True

    def __post_init__(self) -> None:
        if not self.chosen and not (isinstance(self.penalty, (int, float)) and self.penalty >= 0):
            raise InputError(
                f'Ridge: penalty is {self.penalty!r}; give a number of rounds, 0 or more, or "auto", or "prediction".'
            )
        if self.rank is not None and not (isinstance(self.rank, int) and self.rank >= 1):
            raise InputError(f"Ridge: rank is {self.rank!r}; give the dimension of the embedding, 1 or more.")
        if self.unseen not in ("prior", "zero"):
            raise InputError(f'Ridge: unseen is {self.unseen!r}; give "prior" or "zero".')

    @property
    def linear_embedding(self) -> bool:
        return self.rank is None

    @property
    def chosen(self) -> bool:
        """Whether the penalty is chosen from the log."""
        return self.penalty in ("auto", "prediction")

    def on(self, schema: Schema) -> RewardModel:
        if not isinstance(schema.space, Box):
            return self
        if self.rank is not None or not self.intercept or self.unseen != "prior":
            raise InputError(f"Ridge: rank, intercept and unseen are for {unserved((Discrete,), schema.space)}.")
        return SplineRidge(self.penalty, schema.space.basis)

    def uncorrected(self) -> Ridge:
        return replace(self, penalty=LIGHT) if self.penalty == "auto" else self

    def needs(self, shape: FitShape, threads: int) -> tuple[Need, ...]:
        return ridge_needs(shape, threads, at_once=shape.inputs != "identity")

    def refit_numbers(self, shape: FitShape) -> int:
        return shape.groups * (shape.context + 1) * shape.rewards

    def statistics(self, shape: FitShape) -> tuple[Statistic, ...]:
        self._check_rank(shape)
        grams = _gram_pass(shape.without_inputs())
        return (grams, CrossPass(shape)) if shape.inputs != "identity" and shape.features.varies else (grams,)

    def fits(self, shape: FitShape, results: Any) -> Fits:
        if not isinstance(results[0], Packed) or shape.inputs != "identity":
            return RidgeFits.of(self, shape, results)
        return PackedFits(self, shape, results[0], partial(_choose_packed, model=self, shape=shape))

    def _check_rank(self, shape: FitShape) -> None:
        size = shape.context + self.intercept
        most = min(size, shape.features.size) if shape.inputs == "features" else size
        if self.rank is not None and self.rank > most:
            raise InputError(
                f"Ridge: rank is {self.rank}, but inputs={shape.inputs!r} allows an embedding of at most {most} dimensions "
                f"(context {shape.context}, {'with' if self.intercept else 'without'} an intercept, "
                f"features {shape.features.size})."
            )


def ridge_needs(shape: FitShape, threads: int, at_once: bool) -> tuple[Need, ...]:
    """The memory of a fit. `at_once`: all actions are solved together, as features require, and not in blocks."""
    return _sums(shape, threads), _solving(shape, threads, at_once)


def _sums(shape: FitShape, threads: int) -> Need:
    d, r = shape.context, shape.rewards
    numbers = 1 + d + r + r * (d + 1) + (1 if shape.shared else d * (d + 1) // 2)
    keys = shape.groups * shape.n_actions
    part = keys if DENSE * keys <= CHUNK_ROWS else CHUNK_ROWS
    return Need(
        "sums by action for the reward model", 8.0 * numbers * (keys + (threads + 1) * part),
        f"{shape.groups} {'groups' if shape.jackknife else 'folds'} × {shape.n_actions:,} actions × {numbers} numbers × 8 "
        f"bytes, and the same for {threads + 1} parts of the log",
    )  # fmt: skip


def _solving(shape: FitShape, threads: int, at_once: bool) -> Need:
    """Full matrices, of all actions if there are refits, or if features require all actions at once."""
    full = (shape.context + 1) ** 2 + 2 * shape.context + 3
    if shape.jackknife:
        copies = 4 * shape.groups + 10 + 4 * threads  # as measured by `benchmarks.growth context`
    elif at_once:
        copies = 3 * shape.groups + 4 * threads
    else:
        chosen = min(shape.n_actions, 2 * ACTIONS_FOR_COVARIANCE)
        blocks = BLOCK_NUMBERS * 8 * threads + 2 * (shape.groups + 1) * chosen * full
        detail = f"blocks of actions, and up to {chosen:,} actions to choose the penalty"
        return Need("solving", 8.0 * blocks, detail, in_turn=True)
    return Need(
        "full matrices for solving", 8.0 * full * shape.n_actions * shape.rewards * copies,
        f"{shape.n_actions:,} actions × {full} numbers × {copies} copies × 8 bytes", in_turn=True, covers="solving",
    )  # fmt: skip


def _gram_pass(shape: FitShape) -> Statistic:
    """The sums by action, on the device of the engine where these are few numbers per action."""
    gram = Gram(shape.groups * shape.n_actions, shape.context, shape.rewards, shared=shape.groups if shape.shared else 0)
    return _GramPass(shape, gram) if shape.device is None or not shape.shared else DeviceGramPass(shape, gram)


@dataclass(frozen=True)
class _GramPass(FitStatistic):
    """Gram matrices of (context, rewards) by (group, action)."""

    gram: Gram

    @property
    def batch_rows(self) -> int:
        """Many rows per key, so that the cost of updating the state of each key is small."""
        return CHUNK_ROWS if self.shape.most_rows is None else min(CHUNK_ROWS, self.shape.most_rows)

    def zero(self) -> State:
        return self.gram.zero()

    def fold(self, state: State, batch: Batch) -> State:
        key = self.shape.group(batch) * self.shape.n_actions + batch.action
        values = np.vstack([part.T for part in (*batch.context_parts, batch.reward)])  # without a copy of the whole context
        return self.gram.fold(state, key, values, self.shape.weights(batch))

    def merge(self, a: State, b: State) -> State:
        return self.gram.merge(a, b)

    def pieces(self, state: State, size: int) -> Iterator[tuple[int, State]]:
        return self.gram.pieces(state, size)

    def merge_pieces(self, a: State, b: State) -> State:
        return self.gram.merge(a, b, few=True)

    def finish(self, state: State) -> Grams | Packed:
        """For each reward, the Gram matrices with leading shape (groups, actions), as if row weights had mean 1."""
        state = normalised(self.gram.dense(state), self.shape)
        lead = (self.shape.groups, self.shape.n_actions)
        shaped = {name: state[name].reshape(*lead, *state[name].shape[1:]) for name in self.gram.by_key}
        if not self.shape.jackknife:
            return Packed(self.gram, {**state, **shaped}, self.shape.groups)
        return Grams(self.gram.unpack(shaped, k) for k in range(self.shape.rewards))


class Grams(list[GramState]):
    """The Gram matrices of each reward, and those without each fold, which fits with different penalties share."""

    def __init__(self, states: Iterable[GramState]) -> None:
        super().__init__(states)
        self._without: dict[tuple[int, int], list[GramState]] = {}

    def without(self, reward: int, folds: int) -> list[GramState]:
        """All rows except those of each fold."""
        if (reward, folds) not in self._without:
            state = self[reward]
            each = len(state.n) // folds
            parts = [state.at(slice(k * each, (k + 1) * each)).pooled() for k in range(folds)]
            self._without[reward, folds] = _left_out(parts)
        return self._without[reward, folds]


class RidgeFits(Fits):
    """Fits on all rows, without each fold, and without each group, all from the same sums."""

    def __init__(self, model: Ridge, shape: FitShape, grams: Grams, crosses: list[Cross] | None = None) -> None:
        self._model, self._shape, self._grams, self._crosses = model, shape, grams, crosses
        self._chosen: dict[int, _PenaltyChoice] = {}
        self._left_out: dict[tuple[int, int], list[RowSums]] = {}
        self._refits: dict[tuple[int, int], LinearPredictor] = {}
        self._on_all: dict[int, LinearPredictor] = {}

    @classmethod
    def of(cls, model: Ridge, shape: FitShape, results: Any) -> RidgeFits:
        """From the results of the statistics of a model; sums that are packed are unpacked for all groups and actions."""
        grams, *crosses = results
        if isinstance(grams, Packed):
            grams = Grams(map(grams.full, range(shape.rewards)))
        return cls(model, shape, grams, *crosses)

    def rows(self, reward: int) -> RowSums:
        """All rows."""
        cross = None if self._crosses is None else self._crosses[reward].summed(slice(None))
        return RowSums(self._grams[reward].pooled(), cross)

    def on_all(self, reward: int) -> LinearPredictor:
        if reward not in self._on_all:  # all bandwidths of a family share one embedding
            rows = self.rows(reward)
            regression, penalty = self._regression(rows), self._penalty(reward)
            linear = next(regression.solutions([penalty]))
            if rows.cross is None or self._shape.inputs != "features":
                linear = replace(linear, covariance=regression.covariance(linear, penalty))
            self._on_all[reward] = linear
        return self._on_all[reward]

    def without_fold(self, reward: int, fold: int, folds: int) -> LinearPredictor:
        return self._solve(self.without(reward, folds)[fold], self._penalty(reward))

    @property
    def can_refit(self) -> bool:
        return self._shape.jackknife and self._runs == self._shape.groups

    def without_group(self, reward: int, group: int) -> LinearPredictor | None:
        if not self.can_refit:
            return None
        if (reward, group) in self._refits:
            return self._refits[reward, group]
        refit = self._mostly_left_out(reward, group) if self._crosses is None and self._model.rank is None else self._solve(
            self.without(reward, self._shape.groups)[group], self._penalty(reward, group, 1.0)
        )  # fmt: skip
        if self._shape.groups * refit.coef.size <= MOST_CACHED:  # a reward model and its embedding are often both used
            self._refits[reward, group] = refit
        return refit

    def on_groups(self, reward: int, groups: IntArray) -> LinearPredictor | None:
        if not self.can_refit:
            return None
        cross = None if self._crosses is None else self._crosses[reward].summed(groups)
        return self._solve(RowSums(self._grams[reward].at(groups).pooled(), cross), self._penalty(reward))

    def _mostly_left_out(self, reward: int, group: int) -> LinearPredictor:
        """Without a group, to first order: the change when `LEFT_OUT` of its weight is removed, extrapolated to all of it.

        If an action has few rounds for its coefficients, leaving out a whole group changes the fit too much: with leverage
        h, its residuals e count as e/(1 − h). For an infinitesimal part they count as e, which is too little. The right
        factor is e/√(1 − h), as in HC2 (MacKinnon & White 1985); e/(1 − ⅞h) is between the two, and was closest to the
        spread over logs in three small worlds.
        """
        rest, own = self.without(reward, self._shape.groups)[group], self._grams[reward].at(group)
        part = self._solve(RowSums(rest.gram.plus(own.times(1 - LEFT_OUT)), None), self._penalty(reward, group, LEFT_OUT))
        whole = self.on_all(reward)
        part = part.moved(whole.centre)
        assert part.scale is not None
        assert whole.scale is not None
        scale = whole.scale + (part.scale - whole.scale) / LEFT_OUT
        return replace(part, coef=whole.coef + (part.coef - whole.coef) / LEFT_OUT, scale=scale)

    def diagnostics(self, reward: int) -> dict[str, Any]:
        choice = self._choice(reward)
        return {"r2": choice.r2, "penalty": choice.penalty}

    @property
    def _runs(self) -> int:
        """The number of runs of consecutive groups for which sums are stored."""
        return self._shape.groups if self._crosses is None else self._crosses[0].runs

    def _folds(self, reward: int, folds: int) -> list[RowSums]:
        """The rows of each fold; the Gram matrices with leading shape (groups of the fold, actions)."""
        each, runs = self._shape.groups // folds, self._runs // folds
        return [
            RowSums(
                self._grams[reward].at(slice(k * each, (k + 1) * each)),
                None if self._crosses is None else self._crosses[reward].summed(slice(k * runs, (k + 1) * runs)),
            )
            for k in range(folds)
        ]

    def without(self, reward: int, folds: int) -> list[RowSums]:
        """All rows except those of each fold, summed over the others: nothing is subtracted, so nothing cancels."""
        if (reward, folds) not in self._left_out:
            grams = self._grams.without(reward, folds)
            crosses = [None] * folds if self._crosses is None else [
                self._crosses[reward].summed(np.flatnonzero(np.arange(self._runs) * folds // self._runs != k))
                for k in range(folds)
            ]  # fmt: skip
            self._left_out[reward, folds] = [RowSums(*pair) for pair in zip(grams, crosses, strict=True)]
        return self._left_out[reward, folds]

    def _penalty(self, reward: int, group: int | None = None, share: float = 1.0) -> float:
        """The penalty of the settings, or the chosen one; with a group, chosen without that share of the group."""
        if not self._model.chosen:
            return float(self._model.penalty)
        choice = self._choice(reward)
        if group is None or len(choice.errors) < self._shape.groups:
            return choice.penalty
        return choice.without(group, share)

    def _choice(self, reward: int) -> _PenaltyChoice:
        if reward not in self._chosen:
            folds = _folds_to_choose(self._runs)
            train, held_out = self.without(reward, folds), self._folds(reward, folds)
            wholes = [rows.gram.pooled() for rows in train]
            rounds = sum(float(fold.gram.n.sum()) for fold in held_out)
            some = slice(0, None, _step(rounds, self._shape.n_actions) if self._shape.inputs == "identity" else 1)
            train = [RowSums(rows.gram.at(some), rows.cross) for rows in train]
            held_out = [RowSums(rows.gram.each(some), rows.cross) for rows in held_out]
            regressions = [Regression(*pair, self._model, self._shape) for pair in zip(train, wholes, strict=True)]
            self._chosen[reward] = _choose(regressions, held_out, wholes, self._model)
        return self._chosen[reward]

    def _regression(self, rows: RowSums) -> Regression:
        return Regression(rows, rows.gram.pooled(), self._model, self._shape)

    def _solve(self, rows: RowSums, penalty: float) -> LinearPredictor:
        return next(self._regression(rows).solutions([penalty]))


def _left_out(parts: list[GramState]) -> list[GramState]:
    """For each part, the union of all others."""
    if len(parts) == 1:
        return parts
    before, after, last = [parts[0]], [parts[-1]], len(parts) - 1
    for k in range(1, last):
        before.append(before[-1].plus(parts[k]))
        after.append(after[-1].plus(parts[-1 - k]))
    inner = [before[k - 1].plus(after[last - 1 - k]) for k in range(1, last)]
    return [after[-1], *inner, before[-1]]


@dataclass(frozen=True)
class _PenaltyChoice:
    """Squared errors out of fold by (group, penalty), and the penalty that a rule picks from the grid.

    The rules interpolate on the log scale, so that the penalty is as smooth in the data as the errors are. The jackknife
    repeats the choice without each group, which includes the error of the choice.
    """

    grid: FloatArray
    errors: FloatArray
    total: float
    rounds: float
    rule: Callable[[FloatArray, FloatArray], float]

    @property
    def penalty(self) -> float:
        return self.rule(self.grid, self.errors.sum(axis=0))

    def without(self, group: int, share: float) -> float:
        return self.rule(self.grid, self.errors.sum(axis=0) - share * self.errors[group])

    @property
    def error(self) -> float:
        """The mean squared error out of fold; at least a small fraction of that of the mean reward."""
        return max(float(self.errors.sum(axis=0).min()), 1e-9 * self.total) / max(self.rounds, 1e-300)

    @property
    def r2(self) -> float | None:
        return float(1 - self.errors.sum(axis=0).min() / self.total) if self.total > 0 else None


def _step(rounds: float, n_actions: int) -> int:
    """The step of a regular sample of the actions that is large enough to choose a penalty."""
    return max(1, min(int(rounds / ROWS_TO_CHOOSE), n_actions // 100))


class Solvable(Protocol):
    """A regression that is solved for several penalties."""

    def solutions(self, penalties: Sequence[float] | FloatArray) -> Iterator[LinearPredictor]: ...


def _choose(train: Sequence[Solvable], held_out: list[RowSums], wholes: list[GramState], model: Ridge) -> _PenaltyChoice:
    """Score every penalty on held-out folds, each with a leading axis of groups. Reads sums, not rows."""
    varies = held_out[0].cross is not None
    grid = np.array([float(model.penalty)]) if not model.chosen else PENALTIES[1::2] if varies else PENALTIES

    def on_fold(fitted: Solvable, test: RowSums, whole: GramState) -> tuple[FloatArray, float]:
        unseen = test.gram
        total = float((unseen.rr + unseen.n * (unseen.r - whole.r) ** 2).sum())
        solutions = fitted.solutions(grid)
        if test.cross is not None:
            pooled = RowSums(unseen.pooled(), test.cross)
            return np.array([[varying_error(linear, pooled) for linear in solutions]]), total
        return np.array([squared_error(linear, unseen) for linear in solutions]).T, total

    errors, totals = zip(*parallel(on_fold, train, held_out, wholes), strict=True)
    rounds = sum(float(rows.gram.n.sum()) for rows in held_out)
    return _PenaltyChoice(grid, np.vstack(errors), sum(totals), rounds, _lightest if model.penalty == "auto" else _least)


def _choose_packed(packed: Packed, reward: int, model: Ridge, shape: FitShape) -> _PenaltyChoice:
    """The same from packed sums."""
    counts = packed.counts(np.ones(packed.groups, bool))
    every = np.arange(0, packed.n_actions, _step(float(counts.sum()), packed.n_actions))
    some, folds = every[counts[every] > 0], _folds_to_choose(packed.groups)
    fold = np.arange(packed.groups) * folds // packed.groups
    held_out = [RowSums(packed.apart(fold == k, reward, some)) for k in range(folds)]

    def without(k: int) -> Regression | SharedRegression:
        keep = fold != k
        whole = packed.whole(keep, reward)
        if not packed.gram.shared:
            return Regression(RowSums(rest[k]), whole, model, shape)
        if model.penalty == 0:
            return Regression(RowSums(packed.block(keep, reward, some)), whole, model, shape)
        frame = Scaled.of(whole.at_all(), whole, model.intercept)
        equations = SharedEquations.of(packed, keep, reward, some, frame)
        return SharedRegression(equations, whole, frame, packed.counts(keep)[some], model)

    rest = [] if packed.gram.shared else _left_out([rows.gram.pooled() for rows in held_out])
    parallel(lambda g: packed.whole(np.arange(packed.groups) == g, reward), range(packed.groups))  # which fits share
    train = parallel(without, range(folds))
    return _choose(train, held_out, [regression.whole for regression in train], model)


def _folds_to_choose(groups: int) -> int:
    """The number of folds of groups that a penalty is chosen with."""
    numbers = (*range(FOLDS_TO_CHOOSE, 1, -1), *range(FOLDS_TO_CHOOSE + 1, groups))
    return next((k for k in numbers if groups % k == 0), groups)


def _lightest(grid: FloatArray, errors: FloatArray) -> float:
    """The lightest penalty with an error of at most 1 + `TOLERANCE` times the least."""
    limit = (1 + TOLERANCE) * float(errors.min())
    k = int(np.argmax(errors <= limit))
    if k == 0:
        return float(grid[0])
    x, y = np.log(grid[k - 1 : k + 1]), errors[k - 1 : k + 1]
    return float(np.exp(x[1] + (limit - y[1]) / (y[0] - y[1]) * (x[0] - x[1])))


def _least(grid: FloatArray, errors: FloatArray) -> float:
    """The minimum of a parabola through the three lowest neighbours."""
    k = int(np.argmin(errors))
    if k in (0, len(grid) - 1):
        return float(grid[k])
    x, y = np.log(grid[k - 1 : k + 2]), errors[k - 1 : k + 2]
    curve, tilt, _ = np.polyfit(x - x[1], y - y[1], 2)
    return float(np.exp(x[1] - tilt / (2 * curve))) if curve > 0 else float(grid[k])
