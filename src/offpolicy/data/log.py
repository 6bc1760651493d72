"""`Log`: the logged rounds, and how they stream in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputError
from offpolicy.data import checks
from offpolicy.data.batch import Batch
from offpolicy.data.estimated_logging import EstimatedLogging
from offpolicy.data.in_memory import LogArrays
from offpolicy.data.partitions import Partition, Source
from offpolicy.data.schema import Schema
from offpolicy.data.spaces import ActionSpace, discrete


class Log:
    """Logged rounds (context, action, reward) with the propensity of each logged action.

    >>> log = Log(context=[[0.1], [0.2]], action=["a", "b"], reward=[1, 0], propensity=[0.5, 0.5])
    >>> len(log), log.actions.tolist()
    (2, ['a', 'b'])
    """

    source: Source
    """Where the rounds come from, for engines that read it in their own way."""

    def __init__(  # noqa: PLR0913
        self,
        context: npt.ArrayLike | None,
        action: npt.ArrayLike,
        reward: npt.ArrayLike,
        *,
        propensity: npt.ArrayLike | None = None,
        logging: Any = None,
        actions: ActionSpace | Sequence[Any] | npt.NDArray[Any] | str | None = None,
        n_actions: int | None = None,
        action_features: npt.ArrayLike | None = None,
        catalog: npt.ArrayLike | None = None,
        cluster: npt.ArrayLike | None = None,
        row_id: npt.ArrayLike | None = None,
        weight: npt.ArrayLike | None = None,
        by: npt.ArrayLike | None = None,
        reward_range: tuple[float, float] | None = None,
    ) -> None:
        arrays = LogArrays(
            context, action, reward, propensity, actions, n_actions, action_features, catalog, cluster, row_id, weight, by
        )  # fmt: skip
        self.source = _checked(arrays.source(), logging)
        self.logging, self.reward_range = logging, checks.reward_range(reward_range)

    @classmethod
    def from_source(cls, source: Source, *, logging: Any = None, reward_range: tuple[float, float] | None = None) -> Log:
        """A log over any `Source`; `read_log` makes them for files and tables."""
        log = cls.__new__(cls)
        log.source = _checked(source, logging)
        log.logging, log.reward_range = logging, checks.reward_range(reward_range)
        return log

    @property
    def schema(self) -> Schema:
        return self.source.schema

    @property
    def space(self) -> ActionSpace:
        """What an action can be."""
        return self.schema.space

    def __len__(self) -> int:
        return self.source.rows

    @property
    def actions(self) -> npt.NDArray[Any]:
        """The label of each action code: the order of every column of every policy and table."""
        return discrete(self.space, "log.actions").to_numpy()

    @property
    def n_actions(self) -> int:
        return discrete(self.space, "log.n_actions").n_actions

    def where(self, row: int) -> str:
        """A row's place in words: its file and its number there, from 0."""
        return self.source.where(row)

    def check_ordered(self, name: str, instead: str) -> None:
        """Raise where `name` has one row for each row of the log, and those stand in no order."""
        if not self.source.ordered:
            raise InputError(
                f"{name}: one row for each of the log, but the rows of a Spark DataFrame have no order. {instead}"
            )

    def head(self, rows: int = 1024, columns: tuple[str, ...] = ()) -> Batch:
        """Some first rounds, without a pass over the log."""
        return self.source.head(rows, columns)

    def partitions(self, columns: tuple[str, ...] = ()) -> Sequence[Partition]:
        """The parts of the log, with the extra named columns that a policy reads."""
        return self.source.partitions(columns)

    def batches(self, rows: int = 65_536) -> Iterator[Batch]:
        """All rounds in order, at most `rows` at a time: for estimators of your own.

        >>> log = Log(None, action=[0, 1, 1], reward=[1, 0, 1], propensity=[0.5, 0.5, 0.5])
        >>> float(sum((0.5 / b.propensity * b.reward[:, 0]).sum() for b in log.batches()) / len(log))
        0.6666666666666666
        """
        for partition in self.partitions():
            yield from partition.batches(rows)

    @cached_property
    def reward_origin(self) -> FloatArray:
        """A typical value of each reward (the median of the first rows), from which sums are taken.

        Any constant gives the same estimates; one near the rewards keeps all digits when they lie around 1e8.
        """
        origin: FloatArray = np.median(self.head().reward, axis=0)
        return origin

    def __repr__(self) -> str:
        s = self.schema
        return f"Log({len(self):,} rounds, {self.space.described}, context {len(s.context)}, rewards {list(s.rewards)})"


def _checked(source: Source, logging: Any) -> Source:
    """The source, if its rounds can be evaluated with this logging policy."""
    if source.rows < 2:
        raise InputError(f"the log has fewer than 2 rounds ({source.rows}); an estimate with an error needs them.")
    space = source.schema.space
    if space.count is not None and space.count < 2:
        raise InputError(
            "the log has one action only, so every policy is the same. If other actions could have been taken, "
            "name them with `actions=` or `n_actions=` (--catalog, --n-actions)."
        )
    if isinstance(logging, EstimatedLogging) and (mismatch := logging.mismatch(space)):
        raise InputError(
            f"logging: EstimatedLogging estimates the probabilities of {mismatch}; give their {space.likelihood} as "
            "`propensity=`, or the logging policy itself."
        )
    if source.schema.propensity and isinstance(logging, EstimatedLogging):
        raise InputError(
            "logging: the log has propensities, and EstimatedLogging estimates them; give one of the two (evaluate both "
            "ways, and compare, to see whether the logged ones are plausible)."
        )
    return source
