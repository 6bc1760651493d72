"""`CombinedLoggers`: the denominator of the weights in a log that several policies collected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import final

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.data.batch import Batch
from offpolicy.data.log import Log
from offpolicy.data.loggers import Combination
from offpolicy.data.spaces import ActionSpace
from offpolicy.policies.base import Policy


@final
class CombinedLoggers(Policy):
    """Σ_k m(j, k)·π_k(a|x) in a round of logger j, for a matrix m with one row and one column per logger.

    A row of the shares n_k/n gives balanced weights, and the identity gives each round the policy of its own logger. A
    diagonal of n_k/(n·α_k) weights the loggers' estimates by α_k; these rows are no probabilities.
    """

    def __init__(self, policies: Sequence[Policy], matrix: FloatArray, combination: Combination) -> None:
        self.policies, self.matrix, self.combination = tuple(policies), matrix, combination

    def __repr__(self) -> str:
        return f"{self.combination} weights over {list(self.policies)!r}"

    @property
    def own(self) -> CombinedLoggers:
        """The policy of each round's own logger."""
        return CombinedLoggers(self.policies, np.eye(len(self.policies)), "own")

    @property
    def sums_to_one(self) -> bool:
        """Whether it is a policy; not if loggers are weighted."""
        return self.combination != "weighted"

    @property
    def spaces(self) -> tuple[type[ActionSpace], ...]:
        return tuple(s for s in self.policies[0].spaces if all(s in policy.spaces for policy in self.policies))

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for policy in self.policies for name in policy.columns))

    @property
    def whole(self) -> bool:
        return all(policy.whole for policy in self.policies)

    @property
    def whole_batches(self) -> bool:
        return any(policy.whole_batches for policy in self.policies)

    def settled(self, log: Log) -> Policy:
        return CombinedLoggers([policy.settled(log) for policy in self.policies], self.matrix, self.combination)

    def check(self, log: Log) -> None:
        for policy in self.policies:
            policy.check(log)

    def distribution(self, batch: Batch) -> FloatArray:
        return self._combined(batch, batch.n_actions, _distribution)

    def entries(self, batch: Batch, row: IntArray, code: IntArray) -> FloatArray:
        total = np.zeros(len(row))
        for policy, part, rows, multiplier in self._parts(batch):
            place = np.full(len(batch), -1)
            place[rows] = np.arange(len(rows))
            some = np.flatnonzero(place[row] >= 0)
            total[some] += multiplier[place[row[some]]] * policy.entries(part, place[row[some]], code[some])
        return total

    def answers(self, batch: Batch, values: FloatArray, row: IntArray, code: IntArray) -> tuple[FloatArray, FloatArray]:
        nothing = np.empty(0, np.int64)

        def sums(policy: Policy, part: Batch) -> FloatArray:
            return policy.answers(part, values, nothing, nothing)[0]

        return self._combined(batch, values.shape[1], sums), self.entries(batch, row, code)

    def _combined(self, batch: Batch, width: int, compute: Callable[[Policy, Batch], FloatArray]) -> FloatArray:
        total = np.zeros((len(batch), width))
        for policy, part, rows, multiplier in self._parts(batch):
            total[rows] += multiplier[:, None] * compute(policy, part)
        return total

    def _parts(self, batch: Batch) -> Iterator[tuple[Policy, Batch, IntArray, FloatArray]]:
        """Each policy with the rounds that need it, and its multiplier there."""
        assert batch.logger_code is not None
        for k, policy in enumerate(self.policies):
            multiplier = self.matrix[batch.logger_code, k]
            rows = np.flatnonzero(multiplier)
            if len(rows):
                yield policy, batch if len(rows) == len(batch) else batch.take(rows), rows, multiplier[rows]


def _distribution(policy: Policy, batch: Batch) -> FloatArray:
    return policy.distribution(batch)
