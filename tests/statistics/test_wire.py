"""States that are cut into pieces, sent as Arrow rows, merged piece by piece and put together again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import offpolicy as op
from offpolicy.data.log import Log
from offpolicy.engines.base import Engine
from offpolicy.statistics import wire
from offpolicy.statistics.base import Statistic
from offpolicy.statistics.gram import Gram
from offpolicy.statistics.wire import Leaf, Pieces
from tests.logs import DISCRETE, make_small


@dataclass(frozen=True)
class Paper(Engine):
    """An engine that does by hand what a cluster does: each partition's state is cut, sent, merged by piece, and joined."""

    rows: int
    batch_rows: int | None = None
    threads: int | None = 1

    def check(self, log: Log) -> None:
        pass

    def reduce(self, log: Log, statistic: Statistic, progress: Any = None) -> Any:
        cut = Pieces(statistic)
        sent: dict[str, list[list[np.ndarray]]] = {}
        for start in range(0, len(log), self.rows):
            state = statistic.zero()
            for batch in log.partitions(statistic.columns)[0].batches(len(log)):
                state = statistic.fold(state, batch.take(slice(start, start + self.rows)))
            own: dict[str, list[np.ndarray]] = {}
            for leaf in cut.cut(state):
                row = pa.RecordBatch.from_pydict(leaf.row())
                assert leaf.array.nbytes <= wire.PIECE_BYTES or leaf.piece.endswith("rest")
                arrived = Leaf.of({name: row[name][0] for name in row.schema.names})
                own.setdefault(arrived.piece, []).append(arrived.array)
            for name, arrays in own.items():
                sent.setdefault(name, []).append(arrays)
        return statistic.finish(cut.joined(leaf for name, states in sent.items() for leaf in cut.merged(name, states)))


def test_every_estimator_survives_the_cutting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "PIECE_BYTES", 2048)
    w = make_small(n=500)
    log = w.log(action_features=w.features, by=np.where(w.context[:, 0] > 0, "right", "left"))
    estimators = [kind() for kind in DISCRETE.values()]
    whole, cut = (op.evaluate(log, w.target, estimators, engine=engine) for engine in (op.Local(1), Paper(170)))
    for name in whole.estimators:
        assert cut[name].value == pytest.approx(whole[name].value, rel=1e-9)
        assert cut[name].std_error == pytest.approx(whole[name].std_error, rel=1e-6)
        assert cut.slices["left"][name].value == pytest.approx(whole.slices["left"][name].value, rel=1e-9)


@pytest.mark.parametrize("shared", [0, 2])
@pytest.mark.parametrize("keys", [20, 2000])
def test_gram_states_are_cut_by_key(keys: int, shared: int) -> None:
    rng = np.random.default_rng(0)
    gram = Gram(keys, 3, 1, shared=shared)
    whole, ranges = gram.zero(), dict[int, Any]()
    for _ in range(3):
        key, values = rng.integers(0, keys, 90), rng.normal(5, 1, (4, 90))
        whole = gram.merge(whole, gram.fold(gram.zero(), key, values, None))
        for start, piece in gram.pieces(gram.fold(gram.zero(), key, values, None), 600):
            ranges[start] = gram.merge(ranges.get(start, gram.zero()), piece, few=True)
    assert len(ranges) > 2
    joined = gram.zero()
    for piece in ranges.values():
        joined = gram.merge(joined, piece)
    for name, array in gram.dense(whole).items():
        np.testing.assert_allclose(gram.dense(joined)[name], array, rtol=1e-12, atol=1e-12)
