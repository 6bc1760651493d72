"""Action spaces: the possible actions, how a column of the log is encoded, and how results describe them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from numbers import Integral
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.core.hashing import hash_values
from offpolicy.data.checks import Likelihood, decoded, to_arrow, whole

FEWEST_DOUBTED = 10_000
"""Below this many actions, codes that were never logged cost very little."""


class ActionSpace(ABC):
    """The possible actions of a log.

    A subclass states its `kind`, the name of such actions in messages ("discrete actions"), and its `likelihood`, whether
    the logging policy has a probability ("propensity") or a "density".
    """

    kind: ClassVar[str]
    likelihood: ClassVar[Likelihood]
    items: Discrete | None = None
    """The discrete actions that policies give probabilities of, in the order of their columns, if there are such."""
    slots: int | None = None
    """The number of slots if actions are lists, whose columns are lists as well."""

    @property
    @abstractmethod
    def nature(self) -> str:
        """Completes "the actions are …", such as "discrete" or "numbers from 0 to 100"."""

    @property
    @abstractmethod
    def count(self) -> int | None:
        """The number of actions; None if they cannot be counted."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one encoded action: () if it is one number, so that a batch has one per round."""
        return ()

    @property
    def table_rows(self) -> int:
        """The number of rows of a table by action, such as the coefficients of a reward model; 0 if there is none.

        For discrete actions there is one row per action. For others, an action may be a mean of several rows.
        """
        return self.n_codes

    def expand(self, table: FloatArray, action: npt.NDArray[Any]) -> FloatArray:
        """The row of a table that belongs to each action.

        Parameters
        ----------
        table : array of float
            `table_rows` × columns.
        action : array
            Encoded actions.

        Returns
        -------
        array of float
            Actions × columns.
        """
        raise NotImplementedError

    def collect(self, values: FloatArray, action: npt.NDArray[Any]) -> FloatArray:
        """The transpose of `expand`: the sums of values by the rows that their actions belong to.

        Parameters
        ----------
        values : array of float
            Columns × actions.
        action : array
            Encoded actions.

        Returns
        -------
        array of float
            `table_rows` × columns.
        """
        raise NotImplementedError

    @property
    def found(self) -> bool:
        """Whether the space is complete. Otherwise, what it consists of is found in the log."""
        return True

    def values(self, column: pa.Array) -> pa.Array:
        """The single labels or codes in a column of actions.

        Parameters
        ----------
        column : pyarrow.Array
            Actions as they are logged.

        Returns
        -------
        pyarrow.Array
            The column itself, unless an action consists of several of them.
        """
        return column

    def over(self, items: Discrete) -> ActionSpace:  # noqa: ARG002
        """The space of the labels or codes that occur in the log, where they were not given.

        Parameters
        ----------
        items : Discrete
            What occurs.

        Returns
        -------
        ActionSpace
            The complete space.
        """
        return self

    @abstractmethod
    def encode(self, column: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Encode a column of actions.

        Parameters
        ----------
        column : pyarrow.Array
            Actions as they are logged.

        Returns
        -------
        actions : array
            Encoded as in `Batch.action`.
        bad : array of bool
            Which values are not actions of this space.
        """

    @abstractmethod
    def unknown(self, examples: Sequence[Any]) -> tuple[str, str]:
        """The text of an error about values that are not actions of this space.

        Parameters
        ----------
        examples : sequence
            A few of the values.

        Returns
        -------
        what : str
            What was seen, after "3 rows".
        advice : str
            What to do.
        """

    def check_sample(self, actions: npt.NDArray[Any]) -> None:  # noqa: B027
        """Raise if some logged actions show that they are not what the space describes.

        Parameters
        ----------
        actions : array
            Encoded actions of the first rounds.

        Raises
        ------
        InputError
            If no evaluation could make sense.
        """

    @abstractmethod
    def tally(self, action: npt.NDArray[Any]) -> IntArray:
        """Count the rounds of each action.

        Parameters
        ----------
        action : array
            Encoded actions.

        Returns
        -------
        array of int
            Rounds per action; empty if actions cannot be counted.
        """

    @abstractmethod
    def fingerprint(self) -> bytes:
        """Bytes that distinguish the space from others with the same count."""

    @final
    @property
    def n_codes(self) -> int:
        """The number of rows of a table by action, or by item of a list: 0 if there are no codes."""
        return 0 if self.items is None else self.items.n_actions

    @final
    @property
    def described(self) -> str:
        """A description for titles, such as "10 actions"."""
        return f"actions: {self.nature}" if self.count is None else f"{self.count:,} actions"

    @final
    def summary(self) -> dict[str, Any]:
        """The description of the actions in results and their provenance."""
        return {"actions": self.count} if self.count is not None else {"actions": None, "action_space": self.nature}


@final
class Discrete(ActionSpace):
    """Finitely many actions, which are encoded as 0..n−1.

    `op.Log(…, actions=op.Discrete(3))` is the same as `op.Log(…, n_actions=3)`.

    Parameters
    ----------
    actions : int or sequence
        The number of actions, whose labels are then their codes, or the labels in order.

    Examples
    --------
    >>> Discrete(["red", "blue"]).encode(pa.array(["blue", "green"]))[0].tolist()
    [1, -1]
    """

    kind = "discrete actions"
    likelihood = "propensity"
    nature = "discrete"

    def __init__(self, actions: int | Sequence[Any] | npt.NDArray[Any] | pa.Array) -> None:
        self.labels: pa.Array | None = None if isinstance(actions, Integral) else _labels(actions)
        self.n_actions = whole("n_actions", actions, 1) if self.labels is None else len(self.labels)

    @classmethod
    def seen(cls, values: pa.Array) -> Discrete:
        """The space of the labels that occur in a column, sorted.

        Parameters
        ----------
        values : pyarrow.Array
            A column of actions.

        Returns
        -------
        Discrete
            The space.
        """
        try:
            distinct = pc.unique(values)
            return cls(distinct.take(pc.sort_indices(distinct)))
        except pa.ArrowException:
            raise InputError(f"actions have type {values.type}; give one number or text per action.") from None

    @classmethod
    def codes(cls, largest: int, rows: int, name: str) -> Discrete:
        """The space of codes up to the largest one that occurs. Ids that only look like codes are refused.

        Parameters
        ----------
        largest : int
            The largest code that occurs.
        rows : int
            The number of rounds.
        name : str
            The action column, for messages.

        Returns
        -------
        Discrete
            The space.
        """
        if largest >= max(FEWEST_DOUBTED, rows):
            raise InputError(
                f"{name}: integer actions are read as codes 0..n−1, and the largest here is {largest:,} in {rows:,} rows. "
                'If these are ids, pass actions="labels" (--actions labels) to number those that occur, or list them. '
                "If they are codes, state their number with n_actions (--n-actions)."
            )
        return cls(max(int(largest), 0) + 1)

    @property
    def count(self) -> int:
        return self.n_actions

    @property
    def table_rows(self) -> int:
        return self.n_actions

    @property
    def items(self) -> Discrete:  # type: ignore[override]
        return self

    def expand(self, table: FloatArray, action: npt.NDArray[Any]) -> FloatArray:
        rows: FloatArray = table[action]
        return rows

    def collect(self, values: FloatArray, action: npt.NDArray[Any]) -> FloatArray:
        return np.column_stack([np.bincount(action, column, self.n_actions) for column in values])

    def encode(self, column: pa.Array) -> tuple[IntArray, npt.NDArray[np.bool_]]:
        column = decoded(column)
        if self.labels is None:
            column = _whole_numbers(column) if pt.is_string(column.type) else column
            if not pt.is_integer(column.type):
                raise InputError(f"actions are integer codes here, but a column of actions has type {column.type}.")
            codes: IntArray = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
            return codes, codes.view(np.uint64) >= self.n_actions  # negative ones are very large without a sign
        if column.type != self.labels.type:
            try:
                column = column.cast(self.labels.type)
            except pa.ArrowException:
                raise InputError(
                    f"actions are {self.labels.type} labels, but a column of actions has type {column.type}."
                ) from None
        found = pc.index_in(column, value_set=self.labels)
        codes = found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        return codes, codes < 0

    def unknown(self, examples: Sequence[Any]) -> tuple[str, str]:
        shown = ", ".join(dict.fromkeys(repr(label) for label in examples))
        if self.labels is None:
            return f"have an action code outside 0..{self.n_actions - 1} ({shown})", (
                "Integer actions are codes 0..n−1: correct `n_actions=` (--n-actions), or list all labels (--catalog)."
            )
        return f"have an action that is not among the {self.n_actions:,} known ({shown})", (
            "Add it to `actions=` or to the catalog (--catalog), or correct the log."
        )

    def tally(self, action: npt.NDArray[Any]) -> IntArray:
        return np.bincount(action, minlength=self.n_actions)

    def fingerprint(self) -> bytes:
        return b"" if self.labels is None else hash_values(self.labels).tobytes()

    def to_numpy(self) -> npt.NDArray[Any]:
        """The label of each code."""
        if self.labels is None:
            return np.arange(self.n_actions)
        array: npt.NDArray[Any] = self.labels.to_numpy(zero_copy_only=False)
        return array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Discrete) and self.to_numpy().tolist() == other.to_numpy().tolist()

    def __repr__(self) -> str:
        return f"Discrete({self.n_actions:,}{'' if self.labels is None else f' {self.labels.type} labels'})"


class Serves:
    """Base of policies, models, ratios and tests, which declare the action spaces they support."""

    @property
    def spaces(self) -> tuple[type[ActionSpace], ...]:
        """The supported kinds of spaces; may be a class attribute."""
        return (Discrete,)

    @final
    def mismatch(self, space: ActionSpace) -> str | None:
        """Why a space is not supported.

        Parameters
        ----------
        space : ActionSpace
            The action space of a log.

        Returns
        -------
        str or None
            The supported and the actual kind of actions, to complete a sentence; None if the space is supported.
        """
        return None if isinstance(space, self.spaces) else unserved(self.spaces, space)


def unserved(spaces: Sequence[type[ActionSpace]], space: ActionSpace) -> str:
    """The supported and the actual kind of actions: the end of every message about a mismatch."""
    return f"{' or '.join(served.kind for served in spaces)}, and the actions here are {space.nature}"


def discrete(space: ActionSpace, what: str) -> Discrete:
    """The space, for code that supports discrete actions only."""
    if not isinstance(space, Discrete):
        raise InputError(f"{what} is for {unserved((Discrete,), space)}.")
    return space


def named_space(actions: Any) -> ActionSpace | None:
    """The space that `actions=` names, as a space or by its labels; None if it must be found in the log."""
    if isinstance(actions, ActionSpace):
        return actions
    if isinstance(actions, str) and actions != "labels":
        raise InputError(f'`actions` is {actions!r}; give a list of labels, or "labels" to number those that occur.')
    return None if actions is None or isinstance(actions, str) else Discrete(_labels(actions))


def items_seen(distinct: pa.Array, rows: int, name: str, labels: bool = False) -> Discrete:
    """The space of what occurs in the lists of a column: sorted labels, or codes up to the largest if all are integers."""
    values = decoded(distinct)
    whole_numbers = _whole_numbers(values) if pt.is_string(values.type) else values
    if labels or not pt.is_integer(whole_numbers.type):
        return Discrete.seen(values)
    return Discrete.codes(pc.max(whole_numbers).as_py() if len(values) else -1, rows, name)


def _labels(actions: Any) -> pa.Array:
    """Distinct labels, in their order."""
    array = actions if isinstance(actions, pa.Array) else to_arrow(actions, "actions")
    if pt.is_nested(array.type):
        raise InputError(f"`actions` must be a flat list of labels; these are {array.type}.")
    if len(pc.unique(array)) != len(array) or array.null_count:
        raise InputError("`actions` must list each label once, without missing values.")
    return array


def _whole_numbers(column: pa.Array) -> pa.Array:
    """Text as integers, if all of it is."""
    try:
        return column.cast(pa.int64())
    except pa.ArrowException:
        return column
