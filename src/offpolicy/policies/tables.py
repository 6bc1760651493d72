"""Policies that are tables: one probability per action, a matrix, or columns of the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offpolicy.core.arrays import FloatArray, IntArray, rows_of
from offpolicy.core.errors import InputError, RowsError
from offpolicy.data.batch import Batch
from offpolicy.data.box import Box, box
from offpolicy.data.checks import floats, to_arrow
from offpolicy.data.log import Log
from offpolicy.data.slate import Slate, is_nested
from offpolicy.data.spaces import ActionSpace, Discrete, discrete
from offpolicy.policies.base import SUM_TOLERANCE, Policy, check_sums
from offpolicy.policies.blocks import Listed, blocks
from offpolicy.policies.candidates import Eligible, as_numbers, check_candidates
from offpolicy.policies.density import GRID, DensityPolicy
from offpolicy.policies.lists import SlotColumn
from offpolicy.policies.nodes import Nodes, between


@final
@dataclass(frozen=True)
class Uniform(Policy):
    """The uniform policy: every action, or every candidate of the round, with the same probability.

    If actions are numbers (`op.Box`), it has the same density everywhere.

    Parameters
    ----------
    candidates : str, optional
        The list column of the eligible actions of each round; by default all actions are eligible.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log(None, action=[0, 1], reward=[1, 0], propensity=[0.8, 0.2])
    >>> op.evaluate(log, op.Uniform(), [op.IPS()])["IPS"].value
    0.3125
    """

    candidates: str | None = None
    spaces = (Discrete, Box)

    def __post_init__(self) -> None:
        check_candidates("Uniform", self.candidates)

    def settled(self, log: Log) -> Policy:
        if log.space.count is not None:
            return self
        if self.candidates is not None:
            discrete(log.space, f"{self!r} is a policy over lists of candidates, which")
        return _UniformDensity()

    def __repr__(self) -> str:
        return "Uniform()" if self.candidates is None else f"Uniform(candidates={self.candidates!r})"

    @property
    def columns(self) -> tuple[str, ...]:
        return () if self.candidates is None else (self.candidates,)

    @property
    def lists(self) -> bool:
        return self.candidates is not None

    def listed(self, batch: Batch) -> Listed:
        assert self.candidates is not None
        eligible = Eligible.required(self.candidates, batch, "Uniform")
        distinct = eligible.with_probabilities(np.ones(len(eligible.codes)))
        return replace(distinct, probabilities=1 / np.diff(distinct.starts)[distinct.row])

    def distribution(self, batch: Batch) -> FloatArray:
        if self.lists:
            return self.listed(batch).grid(batch.n_actions)
        return np.full((len(batch), batch.n_actions), 1 / batch.n_actions)

    def answers(self, batch: Batch, values: FloatArray, row: IntArray, code: IntArray) -> tuple[FloatArray, FloatArray]:
        if self.lists:
            return super().answers(batch, values, row, code)
        return np.tile(values.mean(axis=0), (len(batch), 1)), np.full(len(row), 1 / batch.n_actions)


@final
@dataclass(frozen=True)
class _UniformDensity(DensityPolicy):
    """The uniform density over a box."""

    def __repr__(self) -> str:
        return "Uniform()"

    def entries(self, batch: Batch, row: IntArray, code: IntArray) -> FloatArray:
        space = box(batch.space, "Uniform")
        density = np.full(len(row), 1 / float(space.ranges.prod()))
        density[space.outside(code) | space.at_point(code)] = 0.0  # type: ignore[arg-type]
        return density

    def nodes(self, batch: Batch) -> Nodes:
        space, n = box(batch.space, "Uniform"), len(batch)
        low, high = (np.broadcast_to(bound, (n, space.dimensions)) for bound in (space.lows, space.highs))
        actions, volumes = between(low, high, *GRID[space.dimensions == 1])
        return Nodes(actions if space.shape else actions[..., 0], volumes / float(space.ranges.prod()))


@final
class Fixed(Policy):
    """A policy that does not depend on the context.

    Parameters
    ----------
    probabilities : sequence of float or dict
        One probability per action in the order of `log.actions`, or {label: probability}, where omitted actions have
        probability 0. They sum to 1.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log(None, action=["a", "b"], reward=[1, 0], propensity=[0.5, 0.5])
    >>> op.evaluate(log, op.Fixed({"a": 0.9, "b": 0.1}), [op.IPS()])["IPS"].value
    0.9
    """

    def __init__(self, probabilities: npt.ArrayLike | Mapping[Any, float]) -> None:
        if isinstance(probabilities, Mapping):
            self._labels: list[Any] | None = list(probabilities)
            self._probabilities = floats(list(probabilities.values()), "Fixed")
        else:
            self._labels, self._probabilities = None, floats(probabilities, "Fixed")
        with np.errstate(over="ignore"):  # an infinite sum is reported below
            total = self._probabilities.sum()
        if self._probabilities.ndim != 1 or not (self._probabilities >= 0).all() or abs(total - 1) > SUM_TOLERANCE:
            raise InputError(
                f"Fixed: probabilities must be a flat list of numbers ≥ 0 that sum to 1; these have shape "
                f"{self._probabilities.shape} and sum to {total:.6g}."
            )

    def __repr__(self) -> str:
        return f"Fixed({len(self._probabilities):,} probabilities)"

    def check(self, log: Log) -> None:
        self._vector(log.space)

    def _vector(self, space: ActionSpace) -> FloatArray:
        actions = discrete(space, "Fixed")
        if self._labels is None:
            if len(self._probabilities) != actions.n_actions:
                raise InputError(f"Fixed: {len(self._probabilities)} probabilities for {actions.n_actions} actions.")
            return self._probabilities
        codes, bad = actions.encode(pa.array(self._labels))
        if bad.any():
            raise InputError(f"Fixed: {self._labels[int(np.argmax(bad))]!r} is not an action of this log.")
        vector = np.zeros(actions.n_actions)
        vector[codes] = self._probabilities
        return vector

    def distribution(self, batch: Batch) -> FloatArray:
        return np.broadcast_to(self._vector(batch.space), (len(batch), batch.n_actions))

    def answers(self, batch: Batch, values: FloatArray, row: IntArray, code: IntArray) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        p = self._vector(batch.space)
        return np.tile(p @ values, (len(batch), 1)), p[code]


@final
class Table(Policy):
    """A policy from a matrix of probabilities.

    Parameters
    ----------
    probabilities : array of float
        Rounds × actions, with rows in the order of the log and columns in the order of `log.actions`.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log(None, action=[0, 1], reward=[1, 0], propensity=[0.5, 0.5])
    >>> round(op.evaluate(log, op.Table([[0.9, 0.1], [0.2, 0.8]]), [op.IPS()])["IPS"].value, 3)
    0.9
    """

    def __init__(self, probabilities: npt.ArrayLike) -> None:
        self._matrix = floats(probabilities, "Table")
        if self._matrix.ndim != 2:
            raise InputError(f"Table: shape {self._matrix.shape}; rounds × actions is expected.")

    def __repr__(self) -> str:
        return f"Table({' × '.join(f'{size:,}' for size in self._matrix.shape)})"

    def check(self, log: Log) -> None:
        """Check every row once, so that the passes over the log need not.

        Parameters
        ----------
        log : Log
            The log that the policy is evaluated on.
        """
        log.check_ordered("Table", "Give a function of the context, or the probabilities as columns of the DataFrame.")
        if self._matrix.shape != (log.source.rows, log.n_actions):
            raise InputError(
                f"Table: shape {self._matrix.shape}, but the log has {log.source.rows} rounds × {log.n_actions} actions."
            )
        ones = np.ones(log.n_actions)
        sums = np.empty(log.source.rows)
        negative: list[int] = []
        for rows in blocks(log.source.rows, log.n_actions):
            p = self._matrix[rows]
            with np.errstate(over="ignore", invalid="ignore"):  # values that are not finite are reported below
                sums[rows] = p @ ones
            if not p.min(initial=0.0) >= 0:  # also true where some value is NaN
                negative += (rows.start + np.flatnonzero(~(p >= 0).all(axis=1))).tolist()
        if negative:
            where = [log.where(row) for row in negative[:3]]
            raise RowsError(
                "Table", "have a negative or NaN probability", negative, "Probabilities must be 0 or more.", where=where
            )
        check_sums(sums, np.arange(log.source.rows), "Table", log.where)

    def distribution(self, batch: Batch) -> FloatArray:
        return rows_of(self._matrix, batch.row)

    def entries(self, batch: Batch, row: IntArray, code: IntArray) -> FloatArray:
        p: FloatArray = self._matrix[batch.row[row], code]
        return p


@final
class Column(Policy):
    """A policy of which only the probabilities of the logged actions are known. This suffices for the IPS family.

    Parameters
    ----------
    probability : str or array of float
        The column with π(a|x) of the logged action (its density, if actions are numbers), or one value per round in the
        order of the log. For lists: a list (or a row of the array) with the probability of each logged item given the items
        above it.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log(None, action=[0, 1], reward=[1, 0], propensity=[0.5, 0.5])
    >>> round(op.evaluate(log, op.Column([0.9, 0.8]), [op.IPS()])["IPS"].value, 3)
    0.9
    """

    spaces = (Discrete, Box, Slate)

    def __init__(self, probability: str | npt.ArrayLike) -> None:
        self._name = probability if isinstance(probability, str) else None
        given = None if isinstance(probability, str) else probability
        self._listed = given if is_nested(given) else None
        self._values = None if given is None or self._listed is not None else floats(given, "Column")

    def __repr__(self) -> str:
        return f"Column({self._name!r})" if self._name is not None else "Column(an array)"

    @property
    def columns(self) -> tuple[str, ...]:
        return () if self._name is None else (self._name,)

    @property
    def whole(self) -> bool:
        return False

    def settled(self, log: Log) -> Policy:
        if log.space.slots is None:
            return self
        return SlotColumn(self._name, self._listed)

    def check(self, log: Log) -> None:
        if self._listed is not None:
            raise InputError("Column: lists of probabilities are for a log of lists (actions=op.Slate(…)).")
        if self._values is not None:
            log.check_ordered("Column", "Put the probabilities into the DataFrame and give the name of the column.")
        if self._values is not None and self._values.shape != (log.source.rows,):
            raise InputError(f"Column: shape {self._values.shape}, but the log has {log.source.rows} rounds.")

    def distribution(self, batch: Batch) -> FloatArray:  # noqa: ARG002
        raise InputError("a Column policy has the probabilities of the logged actions only.")

    def entries(self, batch: Batch, row: IntArray, code: IntArray) -> FloatArray:
        return self.likelihood(batch)[row] if np.array_equal(code, batch.action[row]) else self.distribution(batch)

    def likelihood(self, batch: Batch) -> FloatArray:
        likelihood, most = ("probability", 1.0) if batch.space.likelihood == "propensity" else ("density", np.inf)
        if self._values is not None:
            p = self._values[batch.row]
        else:
            p = as_numbers(batch.extra[self.columns[0]], self.columns[0])
        if not (p.min(initial=0.0) >= 0 and p.max(initial=0.0) <= most):
            rows = batch.row[~((p >= 0) & (p <= most))]
            outside = "outside 0..1" if most == 1 else "negative"
            raise RowsError(
                self._name or "Column", f"have a target {likelihood} that is missing or {outside}", rows,
                f"It must be the {likelihood} of the logged action under the new policy.",
            )  # fmt: skip
        return p


@final
class Columns(Policy):
    """A policy from one column of probabilities per action.

    Parameters
    ----------
    names : str or dict
        {label: column}, or a pattern such as `p_new_*`, where `*` stands for the label of the action.

    Examples
    --------
    >>> import pandas as pd
    >>> import offpolicy as op
    >>> frame = pd.DataFrame({"a": ["x", "y"], "r": [1, 0], "p": [0.5, 0.5], "new_x": [0.9, 0.2], "new_y": [0.1, 0.8]})
    >>> log = op.read_log(frame, context=[], action="a", reward="r", propensity="p")
    >>> round(op.evaluate(log, op.Columns("new_*"), [op.IPS()])["IPS"].value, 3)
    0.9
    """

    def __init__(self, names: str | Mapping[Any, str]) -> None:
        if isinstance(names, str) and names.count("*") != 1:
            raise InputError(f"Columns: {names!r} needs one *, which stands for the label of the action.")
        if not names:
            raise InputError("Columns: name the column of each action as {label: column}.")
        self._names = names

    def __repr__(self) -> str:
        if isinstance(self._names, str):
            return f"Columns({self._names!r})"
        first, last = (list(self._names.values())[k] for k in (0, -1))
        return f"Columns({len(self._names):,}: {first!r} to {last!r})"

    @property
    def columns(self) -> tuple[str, ...]:
        return () if isinstance(self._names, str) else tuple(self._names.values())

    def settled(self, log: Log) -> Policy:
        pattern = self._names
        if not isinstance(pattern, str):
            return self
        return Columns({label: pattern.replace("*", str(label)) for label in log.actions.tolist()})

    def check(self, log: Log) -> None:
        self._codes(log.space)

    def _codes(self, space: ActionSpace) -> IntArray:
        codes, bad = space.encode(to_arrow(list(self._names), "Columns"))
        if bad.any():
            raise InputError(f"Columns: {list(self._names)[int(np.argmax(bad))]!r} is not an action of this log.")
        return codes

    def distribution(self, batch: Batch) -> FloatArray:
        p = np.zeros((len(batch), batch.n_actions))
        for code, name in zip(self._codes(batch.space), self.columns, strict=True):
            p[:, code] = as_numbers(batch.extra[name], name)
        if not p.min(initial=0.0) >= 0:  # also true where some value is NaN
            rows = batch.row[~(p >= 0).all(axis=1)]
            raise RowsError("Columns", "have a negative or missing probability", rows, "Probabilities must be 0 or more.")
        advice = (
            "An action that was never logged must be listed (with `actions=`, or a catalog: --catalog) to have a column."
        )
        with np.errstate(over="ignore"):  # an infinite sum is reported below
            sums = p.sum(axis=1)
        check_sums(sums, batch.row, "Columns", advice=advice)
        return p
