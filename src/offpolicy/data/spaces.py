"""Action spaces: what an action can be, how a column of the log becomes actions, and how results describe them."""

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

from offpolicy.core.arrays import IntArray
from offpolicy.core.errors import InputError
from offpolicy.core.hashing import hash_values
from offpolicy.data.checks import Likelihood, decoded, to_arrow, whole

FEWEST_DOUBTED = 10_000
"""Below this many actions, codes that were never logged cost next to nothing."""


class ActionSpace(ABC):
    """What an action can be. A log has one, and so do its schema and its batches."""

    kind: ClassVar[str]
    """What messages call the actions of such spaces, such as "discrete actions"."""
    likelihood: ClassVar[Likelihood]
    """Whether the logging policy gives an action a probability (`propensity`) or a `density`."""

    @property
    @abstractmethod
    def nature(self) -> str:
        """Completes "the actions are …", such as "discrete" or "numbers from 0 to 100"."""

    @property
    @abstractmethod
    def count(self) -> int | None:
        """How many actions there are; None where they cannot be counted."""

    @abstractmethod
    def encode(self, column: pa.Array) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """The action of each value, as batches hold it, and which values are not actions of this space."""

    @abstractmethod
    def unknown(self, examples: Sequence[Any]) -> tuple[str, str]:
        """Words for an error about values that are not actions of this space: what was seen, and what to do."""

    @abstractmethod
    def tally(self, action: npt.NDArray[Any]) -> IntArray:
        """Rounds per action; empty where actions cannot be counted."""

    @abstractmethod
    def fingerprint(self) -> bytes:
        """What sets it apart from other spaces with the same count."""

    @final
    @property
    def n_codes(self) -> int:
        """How many rows a table by action has: 0 where actions cannot be counted."""
        return self.count or 0

    @final
    @property
    def described(self) -> str:
        """For titles: "10 actions", or what they are where they cannot be counted."""
        return f"actions: {self.nature}" if self.count is None else f"{self.count:,} actions"

    @final
    def summary(self) -> dict[str, Any]:
        """How results and their provenance state the actions."""
        return {"actions": self.count} if self.count is not None else {"actions": None, "action_space": self.nature}


@final
class Discrete(ActionSpace):
    """Finitely many actions: `Discrete(labels)` in their order, or `Discrete(n)` for the codes 0..n−1.

    `op.Log(…, actions=op.Discrete(3))` is `op.Log(…, n_actions=3)`. Batches hold codes.

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
        """The labels that occur, sorted."""
        try:
            distinct = pc.unique(values)
            return cls(distinct.take(pc.sort_indices(distinct)))
        except pa.ArrowException:
            raise InputError(f"actions are of type {values.type}; give numbers or text, one an action.") from None

    @classmethod
    def codes(cls, largest: int, rows: int, name: str) -> Discrete:
        """Codes up to the largest one seen; ids that only look like codes are refused."""
        if largest >= max(FEWEST_DOUBTED, rows):
            raise InputError(
                f"{name}: integer actions are read as codes 0..n−1, and the largest here is {largest:,} in {rows:,} rows. "
                'If these are ids, pass actions="labels" (--actions labels) to number those that occur, or list them; '
                "if they are codes, say how many there are with n_actions (--n-actions)."
            )
        return cls(max(int(largest), 0) + 1)

    @property
    def count(self) -> int:
        return self.n_actions

    def encode(self, column: pa.Array) -> tuple[IntArray, npt.NDArray[np.bool_]]:
        column = decoded(column)
        if self.labels is None:
            column = _whole_numbers(column) if pt.is_string(column.type) else column
            if not pt.is_integer(column.type):
                raise InputError(f"actions are integer codes here, but a column of {column.type} names some.")
            codes: IntArray = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
            return codes, (codes < 0) | (codes >= self.n_actions)
        if column.type != self.labels.type:
            try:
                column = column.cast(self.labels.type)
            except pa.ArrowException:
                raise InputError(
                    f"actions are {self.labels.type} labels, but a column of {column.type} names some."
                ) from None
        found = pc.index_in(column, value_set=self.labels)
        codes = found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        return codes, codes < 0

    def unknown(self, examples: Sequence[Any]) -> tuple[str, str]:
        shown = ", ".join(dict.fromkeys(repr(label) for label in examples))
        if self.labels is None:
            return f"have an action code outside 0..{self.n_actions - 1} ({shown})", (
                "Integer actions are codes 0..n−1: correct `n_actions=` (--n-actions), or name all labels (--catalog)."
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
    """What policies, models, ratios and tests share: each declares the action spaces it serves."""

    @property
    def spaces(self) -> tuple[type[ActionSpace], ...]:
        """A tuple as a class attribute will do."""
        return (Discrete,)

    @final
    def mismatch(self, space: ActionSpace) -> str | None:
        """None where the space is served; else what is served and what is there, to complete a sentence."""
        return None if isinstance(space, self.spaces) else unserved(self.spaces, space)


def unserved(spaces: Sequence[type[ActionSpace]], space: ActionSpace) -> str:
    """What is served, and what is there instead: the end of every sentence about a mismatch."""
    return f"{' or '.join(served.kind for served in spaces)}, and the actions here are {space.nature}"


def discrete(space: ActionSpace, what: str) -> Discrete:
    """The space, for code that serves discrete actions alone."""
    if not isinstance(space, Discrete):
        raise InputError(f"{what} is for {unserved((Discrete,), space)}.")
    return space


def named_space(actions: Any) -> ActionSpace | None:
    """The space that `actions=` names, by itself or by its labels; None where the log is to tell."""
    if isinstance(actions, ActionSpace):
        return actions
    if isinstance(actions, str) and actions != "labels":
        raise InputError(f'`actions` is {actions!r}; give a list of labels, or "labels" to number those that occur.')
    return None if actions is None or isinstance(actions, str) else Discrete(_labels(actions))


def _labels(actions: Any) -> pa.Array:
    """Labels in the order given, each once."""
    array = actions if isinstance(actions, pa.Array) else to_arrow(actions, "actions")
    if pt.is_nested(array.type):
        raise InputError(f"`actions` must be a flat list of labels; these are {array.type}.")
    if len(pc.unique(array)) != len(array) or array.null_count:
        raise InputError("`actions` must list each label once, with no missing one.")
    return array


def _whole_numbers(column: pa.Array) -> pa.Array:
    """Text as whole numbers, where it is nothing else."""
    try:
        return column.cast(pa.int64())
    except pa.ArrowException:
        return column
