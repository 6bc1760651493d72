"""Logs that follow each other: the actions of each are encoded by one map of labels, which new labels extend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from offpolicy.core.arrays import IntArray, UInt64Array
from offpolicy.core.errors import InputError
from offpolicy.core.hashing import hash_values
from offpolicy.data.batch import Batch, Partition, Source
from offpolicy.data.log import Log
from offpolicy.data.schema import Schema
from offpolicy.data.spaces import ActionSpace, Discrete


def extended(known: ActionSpace, space: ActionSpace) -> ActionSpace:
    """The space of both: codes keep their labels, and new labels are added at the end."""
    if not (isinstance(known, Discrete) and isinstance(space, Discrete)):
        if type(known) is not type(space) or known.fingerprint() != space.fingerprint():
            raise InputError(f"the actions of this log are {space.nature}, and those before it were {known.nature}.")
        return known
    if (known.labels is None) != (space.labels is None):
        kinds = ("codes", "labels") if known.labels is None else ("labels", "codes")
        raise InputError(f'the actions before this log were {kinds[0]}, and here they are {kinds[1]}; see actions="labels".')
    if known.labels is None or space.labels is None:
        return known if known.n_actions >= space.n_actions else space
    if known.labels.type != space.labels.type:
        raise InputError(f"actions were {known.labels.type} labels before this log, and here they are {space.labels.type}.")
    new = space.labels.filter(pa.array(known.encode(space.labels)[1]))
    return Discrete(pa.concat_arrays([known.labels, new])) if len(new) else known


def relabelled(log: Log, space: ActionSpace) -> Log:
    """The same log with its actions encoded by this space, and without the test of its row ids."""
    codes = None
    if isinstance(log.space, Discrete) and log.space.labels is not None and isinstance(space, Discrete):
        codes = space.encode(log.space.labels)[0]
    schema = replace(log.schema, space=space, identified=False)
    again = Log.from_source(Relabelled(log.source, schema, codes), logging=log.logging, reward_range=log.reward_range)
    return again if log.subset is None else again.limited_to(log.subset)


def label_hashes(space: ActionSpace) -> UInt64Array | None:
    """A hash of the label of each code, the same whatever the other labels are; None if actions are not labelled."""
    return hash_values(space.labels) if isinstance(space, Discrete) and space.labels is not None else None


@dataclass(frozen=True)
class Relabelled:
    """A source whose action codes are replaced as it is read."""

    source: Source
    schema: Schema
    codes: IntArray | None

    @property
    def described(self) -> str:
        return self.source.described

    @property
    def roles(self) -> Mapping[str, str]:
        return self.source.roles

    @property
    def rows(self) -> int:
        return self.source.rows

    @property
    def ordered(self) -> bool:
        return self.source.ordered

    def where(self, row: int) -> str:
        return self.source.where(row)

    def check_columns(self, columns: Sequence[str]) -> None:
        self.source.check_columns(columns)

    def head(self, rows: int, columns: tuple[str, ...] = ()) -> Batch:
        return self.encoded(self.source.head(rows, columns))

    def partitions(self, columns: tuple[str, ...]) -> Sequence[Partition]:
        return [_RelabelledPartition(partition, self) for partition in self.source.partitions(columns)]

    def encoded(self, batch: Batch) -> Batch:
        action = batch.action if self.codes is None else self.codes[batch.action]
        return replace(batch, action=action, space=self.schema.space, row_id=None, memo={})


@dataclass(frozen=True)
class _RelabelledPartition:
    partition: Partition
    relabelled: Relabelled

    def batches(self, rows: int) -> Iterator[Batch]:
        return map(self.relabelled.encoded, self.partition.batches(rows))


@dataclass(frozen=True)
class Accumulated:
    """What is known of logs that were read before, without their rounds."""

    schema: Schema
    roles: Mapping[str, str]
    described: str
    rows: int
    ordered: bool = True

    def where(self, row: int) -> str:
        return str(row)

    def check_columns(self, columns: Sequence[str]) -> None:
        """Columns were checked when the logs were read."""

    def head(self, rows: int, columns: tuple[str, ...] = ()) -> Batch:  # noqa: ARG002
        """Two empty rounds, from which nothing is computed but sizes."""
        schema = self.schema
        return Batch(
            row=np.arange(2),
            unit=np.zeros(2, np.uint64),
            action=np.zeros(2, np.int64 if isinstance(schema.space, Discrete) else np.float64),
            reward=np.zeros((2, len(schema.rewards))),
            context_parts=(np.zeros((2, len(schema.context))),),
            space=schema.space,
            propensity=np.ones(2) if schema.propensity else None,
            feature_parts=(np.zeros((2, len(schema.features))),),
        )

    def partitions(self, columns: tuple[str, ...]) -> Sequence[Partition]:  # noqa: ARG002
        raise InputError("the sums of these logs were kept, but not their rounds.")
