"""`Slate`: actions that are lists, such as rankings, and how their columns are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from offpolicy.core.arrays import LARGEST_NUMBER, FloatArray, IntArray
from offpolicy.core.errors import InputError, RowsError
from offpolicy.data.batch import Batch
from offpolicy.data.checks import checked, decoded, failed_check, floats, matrix, numbers, whole
from offpolicy.data.list_cells import plain_lists
from offpolicy.data.slots import Logged, SlotColumns
from offpolicy.data.spaces import ActionSpace, Discrete, unserved

MISSING = -1
"""The code of a slot that a shorter list does not have."""
Gain = Literal["sum", "dcg"] | Sequence[float] | npt.NDArray[Any]


@final
@dataclass(frozen=True)
class Slate(ActionSpace):
    """Actions that are lists of items, such as rankings, recommendations or pages of results.

    Each round is one list. Its first item stands in slot 1, the top. A list may have fewer items than there are slots. How
    long it is counts as given by the round: both policies are taken to show lists of that length.

    Parameters
    ----------
    slots : int
        The largest number of items in a list.
    items : int, sequence or Discrete, optional
        The items: their number, whose labels are then their codes, or all labels in order. By default, those that occur in
        the log.

    Examples
    --------
    >>> import offpolicy as op
    >>> op.Log(None, action=[["a", "b"], ["b"]], reward=[[1, 0], [1]], propensity=[[0.5, 1], [0.5]], actions=op.Slate(2))
    Log(2 rounds, actions: lists of up to 2 of 2 items, context 0, rewards ['reward'])
    """

    slots: int
    items: Any = None
    kind = "lists"
    likelihood = "propensity"
    count = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "slots", whole("Slate: slots", self.slots, 1))
        if self.items is not None and not isinstance(self.items, Discrete):
            object.__setattr__(self, "items", Discrete(self.items))

    @property
    def nature(self) -> str:
        of = "items" if self.items is None else f"{self.items.n_actions:,} items"
        return f"lists of up to {self.slots:,} of {of}"

    @property
    def found(self) -> bool:
        return self.items is not None

    def values(self, column: pa.Array) -> pa.Array:
        return _lists(column, "actions").flatten().drop_null()

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.slots,)

    def over(self, items: Discrete) -> ActionSpace:
        return replace(self, items=items)

    def encode(self, column: pa.Array) -> tuple[IntArray, npt.NDArray[np.bool_]]:
        lists = _lists(column, "actions")
        lengths = _lengths(lists)
        known, unknown = self._codes(lists.flatten())
        row = np.repeat(np.arange(len(lists)), lengths)
        bad = lengths > self.slots
        bad[row[unknown]] = True
        codes = np.full((len(lists), self.slots), MISSING)
        slot = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        inside = slot < self.slots
        codes[row[inside], slot[inside]] = known[inside]
        return codes, bad

    def unknown(self, examples: Sequence[Any]) -> tuple[str, str]:
        first = plain_lists(pa.array([examples[0]]))[0].as_py()  # text in CSV
        if len(first) > self.slots:
            return f"have more items than slots (the first: {len(first):,} items, {self.slots:,} slots)", (
                "State the largest length of a list as `slots`, or cut the lists and their rewards where users stop."
            )
        slot = next(k for k, item in enumerate(first) if self._codes(pa.array([item]))[1][0])
        if first[slot] is None:
            return f"have a missing item (the first: slot {slot + 1})", "Name every item, or leave it out of the list."
        what, _ = self._known.unknown([first[slot]])
        what = what.replace("an action", "an item").removesuffix(")")
        return f"{what}, in slot {slot + 1})", "Correct the log, or name all items in the op.Slate."

    def _codes(self, items: pa.Array) -> tuple[IntArray, npt.NDArray[np.bool_]]:
        """The codes of some items, and which are missing or unknown."""
        missing = np.asarray(items.is_null())
        if not missing.any():
            return self._known.encode(items)
        codes, unknown = np.full(len(items), MISSING), missing.copy()
        codes[~missing], unknown[~missing] = self._known.encode(items.drop_null())
        return codes, unknown

    def tally(self, action: npt.NDArray[Any]) -> IntArray:
        return np.bincount(action[action >= 0], minlength=self.n_codes)

    def fingerprint(self) -> bytes:
        return repr(self.slots).encode() + repr(self._known.n_actions).encode() + self._known.fingerprint()

    @property
    def _known(self) -> Discrete:
        """The items, once they are known."""
        assert self.items is not None
        items: Discrete = self.items
        return items


def slate(space: ActionSpace, what: str) -> Slate:
    """The space, for code that supports lists only."""
    if not isinstance(space, Slate):
        raise InputError(f"{what} is for {unserved((Slate,), space)}.")
    return space


def reward_of(batch: Batch, reward: int, slot: int | None) -> FloatArray:
    """One of the rewards, or that of one slot."""
    if slot is None:
        return batch.reward[:, reward]
    assert batch.slots is not None
    assert batch.slots.reward is not None
    return batch.slots.reward[:, reward, slot]


def shown(batch: Batch) -> npt.NDArray[np.bool_]:
    """Rounds × slots: whether the list has an item there."""
    slots: npt.NDArray[np.bool_] = batch.action >= 0
    return slots


def at_slot(batch: Batch, slot: int) -> Batch:
    """One slot of a batch of lists, as a batch of single actions: the items are the actions.

    Where a list is too short, the action is the first item and the reward 0; `shown` tells these rounds apart.

    Parameters
    ----------
    batch : Batch
        Some rounds of a log of lists.
    slot : int
        The slot, from 0.

    Returns
    -------
    Batch
        The same rounds.
    """
    slots = batch.slots or SlotColumns()
    return replace(
        batch,
        action=np.maximum(batch.action[:, slot], 0),
        space=slate(batch.space, "at_slot").items,
        reward=batch.reward if slots.reward is None else slots.reward[:, :, slot],
        propensity=None if slots.position_propensity is None else slots.position_propensity[:, slot],
        slots=None,
        memo={},
    )


def in_position(batch: Batch, slot: int) -> Batch:
    """`at_slot`, with the position as one more column of the context where there are several slots.

    The column is 1 / log2(1 + k) for slot k from 1, which falls off about as attention does.

    Parameters
    ----------
    batch : Batch
        Some rounds of a log of lists.
    slot : int
        The slot, from 0.

    Returns
    -------
    Batch
        The same rounds.
    """
    one = at_slot(batch, slot)
    if slate(batch.space, "in_position").slots == 1:
        return one
    return replace(one, context_parts=(*batch.context_parts, np.full(len(batch), 1 / np.log2(2.0 + slot))))


def items_of(batch: Batch) -> Batch:
    """The rounds of a batch as rounds over the items, for policies over items."""
    return replace(
        batch, action=np.maximum(batch.action[:, 0], 0), space=slate(batch.space, "items_of").items, slots=None, memo={}
    )


def gains(gain: Any, slots: int) -> FloatArray:
    """The gain of each slot.

    >>> gains("dcg", 3).round(3).tolist()
    [1.0, 0.631, 0.5]
    """
    if isinstance(gain, str):
        if gain == "sum":
            return np.ones(slots)
        if gain == "dcg":
            return 1 / np.log2(np.arange(slots) + 2)
        raise InputError(f'gain is {gain!r}; give "sum", "dcg" or one number per slot.')
    each = floats(gain, "gain")
    if each.shape != (slots,) or not (np.abs(each) <= LARGEST_NUMBER).all() or not each.any():
        raise InputError(f"gain has shape {each.shape}; give one finite number for each of the {slots} slots.")
    return each


def weighted_sum(slots: FloatArray, gain: Sequence[float]) -> FloatArray:
    """Σ_k gain_k·v_k over the last axis, slot by slot: a matrix product would depend on the number of rows."""
    total = np.zeros(slots.shape[:-1])
    for k, each in enumerate(gain):
        total += each * slots[..., k]
    return total


@dataclass(frozen=True)
class PaddedColumn:
    """A column with one number per slot: rounds × slots, NaN where there is none."""

    name: str
    values: FloatArray
    lengths: IntArray | None
    """The number of entries of each list; None for an array, which has as many as there are slots."""

    @classmethod
    def of(cls, name: str, values: Any, slots: int) -> PaddedColumn:
        """From an array of rounds × slots, or from lists."""
        if isinstance(values, np.ndarray) and values.dtype != object:
            return cls._of_array(name, floats(values, name), slots)
        column = plain_lists(values if isinstance(values, pa.Array) else as_lists(values, name, codes=False))
        lists = _lists(column, name)
        lengths, flat = _lengths(lists), _numbers(lists, name)
        row = np.repeat(np.arange(len(lists)), lengths)
        slot = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        padded, inside = np.full((len(lists), slots), np.nan), slot < slots
        padded[row[inside], slot[inside]] = flat[inside]
        return cls(name, padded, lengths)

    @classmethod
    def _of_array(cls, name: str, values: FloatArray, slots: int) -> PaddedColumn:
        if values.ndim != 2 or values.shape[1] != slots:
            raise InputError(f"{name} has shape {values.shape}; rounds × slots, with {slots} slots, is expected, or lists.")
        return cls(name, values, None)

    def filled(self, role: str, codes: IntArray, empty: float) -> FloatArray:
        """The numbers, checked for their role; `empty` where the list has no item."""
        filled = self.fitted(role, codes, empty)
        if (check := failed_check("reward" if role == "reward" else "propensity", filled)) is not None:
            bad = check.bad(filled)
            self._refuse(bad.any(axis=1), f"{check.what} (the first: {_place(bad)})", check.advice)
        return filled

    def probabilities(self, codes: IntArray) -> FloatArray:
        """Probabilities under a new policy, which may be 0; 1 where the list has no item."""
        filled = self.fitted("probability", codes, 1.0)
        bad = ~((filled >= 0) & (filled <= 1))
        what = f"have a target probability that is missing or outside 0..1 (the first: {_place(bad)})"
        self._refuse(bad.any(axis=1), what, "It must be the probability of the logged item under the new policy.")
        return filled

    def fitted(self, what: str, codes: IntArray, empty: float) -> FloatArray:
        """The numbers, as long as the lists."""
        present, values = codes >= 0, self.values
        if self.lengths is not None:
            self._refuse(
                np.asarray(self.lengths != present.sum(axis=1)), self._uneven(present, what), "Give one number per item."
            )
        extra = ~present & np.isfinite(values) & (values != empty) & (values != 0)
        self._refuse(
            extra.any(axis=1),
            f"have a {what} where the list has no item (the first: {_place(extra)})",
            "Lists of numbers must be as long as the lists of items; pad arrays with NaN.",
        )
        return np.where(present, values, empty)

    def _uneven(self, present: npt.NDArray[np.bool_], what: str) -> str:
        assert self.lengths is not None
        first = int(np.argmax(self.lengths != present.sum(axis=1)))
        items, numbers = int(present[first].sum()), int(self.lengths[first])
        at = f"slot {min(items, numbers) + 1}"
        return f"have lists of different lengths (the first: {items} items, {numbers} of {what}, so that they part at {at})"

    def _refuse(self, bad: Any, what: str, advice: str) -> None:
        if bad.any():
            raise RowsError(self.name, what, np.flatnonzero(bad), advice)


def _place(bad: npt.NDArray[np.bool_]) -> str:
    """The first bad slot of the first bad round."""
    first = int(np.argmax(bad.any(axis=1)))
    return f"slot {int(np.argmax(bad[first])) + 1}"


@dataclass(frozen=True)
class ListColumns:
    """The columns of some lists.

    Attributes
    ----------
    gain : tuple[float, ...]
        How much the reward of each slot counts.
    rewards : Sequence[PaddedColumn]
        One per reward, if rewards belong to slots.
    values : FloatArray | None
        Rounds × rewards, if rewards belong to lists.
    propensity : FloatArray | None
        Of whole lists, if it is not given per slot.
    """

    gain: tuple[float, ...]
    rewards: Sequence[PaddedColumn] = ()
    values: FloatArray | None = None
    propensity: FloatArray | None = None
    slot_propensity: PaddedColumn | None = None
    position: PaddedColumn | None = None

    def logged(self, codes: IntArray) -> Logged:
        """The columns, checked against the lists."""
        rewards = [column.filled("reward", codes, 0.0) for column in self.rewards]
        conditional, position = (
            None if column is None else column.filled(role, codes, 1.0)
            for role, column in (("propensity", self.slot_propensity), ("position propensity", self.position))
        )
        integrallist = self.propensity if conditional is None else conditional.prod(axis=1)
        if not rewards:
            assert self.values is not None
            return Logged(self.values, integrallist, SlotColumns(None, conditional, position))
        per_slot = np.stack(rewards, axis=1)
        columns = SlotColumns(per_slot, conditional, position)
        return Logged(weighted_sum(per_slot, self.gain), integrallist, columns, self.gain)


def logged_lists(  # noqa: PLR0913
    space: ActionSpace, codes: IntArray, reward: Any, propensity: Any, position_propensity: Any, gain: Any
) -> Logged:
    """Rewards and propensities of lists, from what users pass."""
    slots, n = slate(space, "logged_lists").slots, len(codes)
    per_list = not is_nested(reward)
    of_slots = propensity is not None and is_nested(propensity)
    columns = ListColumns(
        tuple(gains(gain, slots).tolist()),
        () if per_list else _slot_rewards(reward, slots),
        checked("reward", "reward", matrix(reward, "reward", n)) if per_list else None,
        None if of_slots else numbers(propensity, "propensity", n),
        PaddedColumn.of("propensity", propensity, slots) if of_slots else None,
        None if position_propensity is None else PaddedColumn.of("position_propensity", position_propensity, slots),
    )
    for column in (*columns.rewards, columns.slot_propensity, columns.position):
        if column is not None and len(column.values) != n:
            raise InputError(f"{column.name} has {len(column.values):,} rows, which does not fit {n:,} rounds.")
    return columns.logged(codes)


def is_nested(values: Any) -> bool:
    """Whether there is a list or a row of numbers per round, rather than one number."""
    if isinstance(values, pa.Array):
        return bool(pt.is_nested(values.type))
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values.ndim > 1
    first = next(iter(values), None) if isinstance(values, Sequence | np.ndarray) else None
    return isinstance(first, list | tuple | np.ndarray)


def _slot_rewards(reward: Any, slots: int) -> list[PaddedColumn]:
    """One column per reward, from rounds × slots or rounds × slots × rewards."""
    if isinstance(reward, np.ndarray) and reward.ndim == 3:
        return [PaddedColumn.of(f"reward_{j}", reward[:, :, j], slots) for j in range(reward.shape[2])]
    return [PaddedColumn.of("reward", reward, slots)]


def as_lists(values: Any, name: str, codes: bool = True) -> pa.Array:
    """One list per round, from lists or from a matrix, in which a missing value (or the code −1) ends a shorter list."""
    if isinstance(values, pa.Array):
        return values
    try:
        array = np.asarray(values)
    except ValueError:  # lists of different lengths
        array = np.empty(0)
    if array.ndim == 2 and array.dtype.kind in "iufUS":
        return _rows_of(array, codes)
    try:
        return decoded(pa.array([row if row is None or isinstance(row, str) else list(row) for row in values]))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise InputError(f"{name}: give one list per round, or an array of rounds × slots, of one plain type.") from None


def _rows_of(array: npt.NDArray[Any], codes: bool) -> pa.Array:
    """The rows of a matrix as lists, without the missing values at their ends."""
    gone = array == MISSING if codes and array.dtype.kind in "iu" else array != array
    behind = np.logical_and.accumulate(gone[:, ::-1], axis=1)[:, ::-1]  # only where nothing follows
    inside = array[~behind]
    integral = array.dtype.kind == "f" and bool((np.abs(inside) < 2**53).all() and (inside == np.round(inside)).all())
    if codes and integral:  # where a NaN is among them, it remains one
        array = np.where(behind, MISSING, array).astype(np.int64)
    lengths = (~behind).sum(axis=1)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, pa.array(array[~behind]))


def _lists(column: pa.Array, name: str) -> pa.Array:
    column = plain_lists(column)
    if not (pt.is_list(column.type) or pt.is_large_list(column.type)):
        raise InputError(
            f"{name} are lists here, but the column contains {column.type}. Write Parquet with list columns, or text such "
            "as a|b|c in CSV."
        )
    return column


def _lengths(lists: pa.Array) -> IntArray:
    lengths: IntArray = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _numbers(lists: pa.Array, name: str) -> FloatArray:
    """The entries of all lists, one after the other."""
    flat = lists.flatten()
    try:
        numbers: FloatArray = flat.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        raise _not_numbers(lists, name) from None
    return numbers


def _not_numbers(lists: pa.Array, name: str) -> InputError:
    """What the lists contain instead of numbers, and where."""
    found = [(row, slot, cell) for row, cells in enumerate(lists.to_pylist()) for slot, cell in enumerate(cells or [], 1)]
    bad = [(row, slot, cell) for row, slot, cell in found if not _is_number(cell)]
    if not bad:
        return InputError(f"{name}: the lists contain {lists.type.value_type}, but numbers are needed here.")
    _, slot, cell = bad[0]
    rows = list(dict.fromkeys(row for row, _, _ in bad))
    return RowsError(name, f"hold text instead of a number (the first: slot {slot}, {cell!r})", rows, "Correct these cells.")


def _is_number(cell: Any) -> bool:
    try:
        float(cell)
    except (TypeError, ValueError):
        return cell is None  # reported as missing
    return True
