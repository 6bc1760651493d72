"""Writing the log of a world as Parquet, with its true value next to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from offpolicy.core.files import whole_file
from offpolicy.core.progress import PassProgress
from offpolicy.worlds.base import World

CHUNK = 100_000


def truth_path(path: Path) -> Path:
    """The path of the true values of a simulated log."""
    return path.with_suffix(".truth.json")


def simulate(world: World, path: Path, rounds: int, seed: int, reward: str = "reward") -> dict[str, Any]:
    """Write the log in chunks, then the true values, each atomically; returns the true values."""
    value, error = world.value_with_error(world.target)
    logged, logged_error = world.value_with_error(world.logging)
    truth = {
        "target": {"value": value, "monte_carlo_error": error},
        "logging": {"value": logged, "monte_carlo_error": logged_error},
        "rounds": rounds,
        **world.space.summary(),
        "seed": seed,
        "world": repr(world),
    }
    with whole_file(path) as draft, PassProgress("simulating", rounds, None) as progress:
        writer: pq.ParquetWriter | None = None
        try:
            for k, start in enumerate(range(0, rounds, CHUNK)):
                table = _chunk(world, min(CHUNK, rounds - start), seed + 1_000_003 * k, reward)
                writer = writer or pq.ParquetWriter(draft, table.schema)
                writer.write_table(table)
                progress(len(table))
        finally:
            if writer is not None:
                writer.close()
        truth_path(path).unlink(missing_ok=True)  # that of another log
    with whole_file(truth_path(path)) as draft:
        draft.write_text(json.dumps(truth, indent=2) + "\n")
    return truth


def _chunk(world: World, n: int, seed: int, reward: str) -> pa.Table:
    batch = world.sample(n, seed).head(n)
    contexts = {f"x{j}": batch.context[:, j] for j in range(batch.context.shape[1])}
    return pa.table({**contexts, reward: batch.reward[:, 0], "propensity": batch.propensity, **world.columns(batch)})
