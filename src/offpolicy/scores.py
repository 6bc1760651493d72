"""Writing the three numbers of every row as Parquet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from offpolicy.engines.local import BATCH_ROWS
from offpolicy.errors import InputError
from offpolicy.files import whole_file
from offpolicy.kept import Kept
from offpolicy.log import Log
from offpolicy.plan import Terms
from offpolicy.scoring import ScorePass, Scorer

SCHEMA = pa.schema([("row", pa.int64()), *((name, pa.float64()) for name in ("baseline", "correction", "weight"))])


def write_scores(path: Path, log: Log, scorer: Scorer, terms: Terms, anchor: float, batch_rows: int | None) -> None:
    """Row, baseline, correction and weight of every round. The file appears whole or not at all."""
    if path.suffix not in (".parquet", ".pq"):
        raise InputError(f"{path}: scores are written as Parquet; the name must end in .parquet.")
    score_pass = ScorePass(scorer, log.n_actions, len(log.schema.slices or ()))
    with whole_file(path) as draft, pq.ParquetWriter(draft, SCHEMA) as writer:
        for partition in log.partitions(score_pass.columns):
            for batch in partition.batches(batch_rows or BATCH_ROWS):
                rows, bucket = scorer.ordered(batch)
                values = scorer.score(rows, bucket, Kept(score_pass.zero()), weighted=False)
                writer.write_table(_table(rows.row, values, terms, anchor))


def _table(row: np.ndarray, values: np.ndarray, terms: Terms, anchor: float) -> pa.Table:
    """Undo the anchoring, and put the rows back in the log's order."""
    order = np.argsort(row)

    def column(index: int | None) -> np.ndarray:
        return np.zeros(len(row)) if index is None else values[index, order]

    baseline, correction, weight = column(terms.baseline), column(terms.correction), column(terms.weight)
    if terms.anchored_baseline:
        baseline = baseline + anchor
    else:
        correction = correction + anchor * weight
    return pa.table([row[order], baseline, correction, weight], schema=SCHEMA)
