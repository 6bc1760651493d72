"""Writing the three numbers of every round as Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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

SCHEMA = pa.schema([("row", pa.int64()), *((name, pa.float64()) for name in ("baseline", "correction", "weight"))])


@dataclass(frozen=True)
class RoundScores:
    """What the scores of the rounds are computed from, for one estimate.

    Attributes
    ----------
    parts : Sequence[tuple[float, Terms, float]]
        What it combines, estimators or slots: the weight of each, its terms, and the origin of its reward.
    means : FloatArray
        The means of the columns.
    alone : bool
        Whether it is one estimator, not a blend: a self-normalised one then leaves the division to the reader.
    """

    parts: Sequence[tuple[float, Terms, float]]
    means: FloatArray
    alone: bool = False

    def numbers(self, values: FloatArray) -> FloatArray:
        """Baseline, correction and weight of some rounds, from their columns."""
        return np.asarray(sum(share * self._of(values, terms, origin) for share, terms, origin in self.parts))

    def _of(self, values: FloatArray, terms: Terms, origin: float) -> FloatArray:
        """With the origin added back; corrections times the factor that their mean is multiplied by."""

        def column(index: int | None) -> FloatArray:
            return np.zeros(values.shape[1]) if index is None else values[index]

        baseline, correction, weight = column(terms.baseline), column(terms.correction), column(terms.weight)
        of_baseline, of_correction = terms.origins(origin)
        if terms.shifted_baseline:
            baseline = baseline + of_baseline
        correction = correction + of_correction * weight
        factor, means = 1.0, self.means
        if terms.scaling is not None:
            factor = float(terms.scaling.factor(means))
        elif terms.normalised and terms.weight is not None and not self.alone:
            factor = float(means[0] / means[terms.weight])
        for variate, beta in terms.variates:
            baseline = baseline - beta * (values[variate] - 1)
        return np.array([baseline, factor * correction, factor * weight])


def write_scores(path: Path, log: Log, scorer: Scorer, scores: RoundScores) -> None:
    """Write row, baseline, correction and weight of every round. The file is complete or does not appear.

    Corrections include their scaling, so that the means of baseline and correction add up to the value.
    """
    if not scores.parts:
        raise InputError(f"{path}: there is no estimate, and so there are no scores.")
    if path.suffix not in (".parquet", ".pq"):
        raise InputError(f"{path}: scores are written as Parquet; the name must end in .parquet.")
    score_pass = ScorePass(
        scorer, log.space.n_codes, log.space.table_rows, len(log.schema.slices or ()), log.schema.clustered
    )
    with whole_file(path) as draft, pq.ParquetWriter(draft, SCHEMA) as writer:
        for partition in log.partitions(score_pass.columns):
            for batch in partition.batches(scorer.at_most(BATCH_ROWS)):
                rows, bucket = scorer.ordered(batch)
                values = scorer.score(rows, bucket, score_pass.zero(), weighted=False).columns
                order = np.argsort(rows.row)
                writer.write_table(pa.table([rows.row[order], *scores.numbers(values[:, order])], schema=SCHEMA))
