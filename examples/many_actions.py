"""Evaluate a policy over 20,000 items, of which 50 are eligible in each round, on a log of 100,000 rounds.

    python examples/many_actions.py [report.html]

Each item is logged five times on average, which is too little for a separate model of each item. A catalog that describes
the items lets the model share information between them. All sums run over the candidates of a round, and memory is bounded.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import offpolicy as op

ITEMS, KINDS, ROUNDS, ELIGIBLE, TASTES = 20_000, 200, 100_000, 50, 4
Array = npt.NDArray[np.float64]


def softmax(score: Array) -> Array:
    p = np.exp(score - score.max(axis=1, keepdims=True))
    return np.asarray(p / p.sum(axis=1, keepdims=True))


def simulate(folder: Path) -> float:
    """Write log.parquet and items.parquet, and return the new policy's true value. Users and items are taste vectors."""
    rng = np.random.default_rng(0)
    kinds = rng.normal(size=(KINDS, TASTES)) / 2
    items = kinds[rng.integers(0, KINDS, ITEMS)] + 0.05 * rng.normal(size=(ITEMS, TASTES))
    described = items + 0.05 * rng.normal(size=items.shape)  # the catalog describes items imperfectly
    catalog = {"item": np.arange(ITEMS)} | {f"v{k}": described[:, k] for k in range(TASTES)}
    pq.write_table(pa.table(catalog), folder / "items.parquet")

    preference_old, preference_new = 0.5 * rng.normal(size=ITEMS), 2.0 * rng.normal(size=ITEMS)
    value, writer = 0.0, None
    for _ in range(10):  # write a tenth of the log at a time
        n = ROUNDS // 10
        user = rng.normal(size=(n, TASTES))
        eligible = rng.integers(0, ITEMS, size=(n, ELIGIBLE))
        mean = np.einsum("nk,nck->nc", user, items[eligible])
        old = softmax(preference_old[eligible])
        new = softmax(np.einsum("nk,nck->nc", user, described[eligible]) + preference_new[eligible])
        pick = (old.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
        of_pick = (np.arange(n), pick)
        table = pa.table(
            {f"u{k}": user[:, k] for k in range(TASTES)}
            | {"item": eligible[of_pick], "reward": mean[of_pick] + rng.normal(size=n)}
            | {"eligible": lists(eligible), "p_old": lists(old), "p_new": lists(new)}
        )
        writer = writer or pq.ParquetWriter(folder / "log.parquet", table.schema)
        writer.write_table(table)
        value += float((new * mean).sum(axis=1).mean()) / 10
    assert writer is not None
    writer.close()
    return value


def lists(values: npt.NDArray[np.generic]) -> pa.Array:
    ends = np.arange(0, values.size + 1, values.shape[1], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(values.ravel()))


def main(report: str | None = None) -> None:
    with tempfile.TemporaryDirectory() as name:
        truth = simulate(Path(name))
        log = op.read_log(
            f"{name}/log.parquet",
            context=[f"u{k}" for k in range(TASTES)],
            action="item",
            reward="reward",
            logging=op.Candidates("eligible", "p_old"),
            catalog=f"{name}/items.parquet",
        )
        kernel = op.Gaussian("slope")
        estimators = [
            op.SNIPS(),
            op.DR(name="DR, identity"),
            op.DR(inputs="features", name="DR, features"),
            op.LearnedMIPS("identity", posterior=kernel, name="Learned MIPS, identity"),
            op.LearnedMIPS("features", posterior=kernel, name="Learned MIPS, features"),
            op.LearnedMDR("features", posterior=kernel, name="Learned MDR, features"),
        ]
        result = op.evaluate(log, op.Candidates("eligible", "p_new"), estimators, memory="1GB")
        print(result, "\n")
        for e in result:
            print(f"{e.estimator:23} {e.value:6.3f} ± {e.std_error:.3f}, off by {e.value - truth:+.3f}")
        diagnostics = {e.estimator: e.diagnostics for e in result}
        for name in ("identity", "features"):
            d = diagnostics[f"Learned MIPS, {name}"]
            print(f"From {name}: width {d['bandwidth']}, {d['pooling']:.0%} of a round's weight comes from other items.")
        print(f"The true value is {truth:.3f}.")
        if report is not None:
            result.write_html(report)
            print(f"The report is in {report}.")


if __name__ == "__main__":
    main(*sys.argv[1:2])
