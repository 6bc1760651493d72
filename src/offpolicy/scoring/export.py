"""Writing the three numbers of every row as Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputError
from offpolicy.core.files import whole_file
from offpolicy.data.log import Log
from offpolicy.engines.base import BATCH_ROWS
from offpolicy.scoring.plan import Terms
from offpolicy.scoring.score_pass import ScorePass
from offpolicy.scoring.scorer import Scorer
from offpolicy.scoring.tallies import Tallies

SCHEMA = pa.schema([("row", pa.int64()), *((name, pa.float64()) for name in ("baseline", "correction", "weight"))])
Parts = Sequence[tuple[float, Terms]]
"""The estimators that an estimate is made of, and what each counts."""


def write_scores(
    path: Path,
    log: Log,
    scorer: Scorer,
    parts: Parts,
    origin: float,
    means: FloatArray,
    alone: bool,
) -> None:
    """Row, baseline, correction and weight of every round. The file appears whole or not at all.

    Corrections are multiplied with what scales them, from the `means` of the columns, so that the means of baseline and
    correction add up to the value; but a self-normalised estimator that stands alone leaves its division to the reader.
    """
    if not parts:
        raise InputError(f"{path}: there is no estimate, so there are no scores of it.")
    if path.suffix not in (".parquet", ".pq"):
        raise InputError(f"{path}: scores are written as Parquet; the name must end in .parquet.")
    score_pass = ScorePass(scorer, log.space.count or 0, len(log.schema.slices or ()), log.schema.clustered)
    with whole_file(path) as draft, pq.ParquetWriter(draft, SCHEMA) as writer:
        for partition in log.partitions(score_pass.columns):
            for batch in partition.batches(BATCH_ROWS):
                rows, bucket = scorer.ordered(batch)
                values = scorer.score(rows, bucket, Tallies(score_pass.zero()), weighted=False)
                order = np.argsort(rows.row)
                summed = sum(share * _numbers(values[:, order], terms, origin, means, alone) for share, terms in parts)
                writer.write_table(pa.table([rows.row[order], *np.asarray(summed)], schema=SCHEMA))


def _numbers(values: FloatArray, terms: Terms, origin: float, means: FloatArray, alone: bool) -> FloatArray:
    """Baseline, correction and weight without the anchoring; corrections times what their mean is multiplied with."""

    def column(index: int | None) -> FloatArray:
        return np.zeros(values.shape[1]) if index is None else values[index]

    baseline, correction, weight = column(terms.baseline), column(terms.correction), column(terms.weight)
    if terms.shifted_baseline:
        baseline = baseline + origin
    else:
        correction = correction + origin * weight
    factor = 1.0
    if terms.scaling is not None:
        factor = float(means[terms.scaling[0]] / means[terms.scaling[1]])
    elif terms.normalised and terms.weight is not None and not alone:
        factor = float(means[0] / means[terms.weight])
    return np.array([baseline, factor * correction, factor * weight])
