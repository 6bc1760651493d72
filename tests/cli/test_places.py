"""Logs of several loggers, from draws, from lakes and from buckets on the command line: as in Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import offpolicy as op
from offpolicy.data.sources import remote, segments, stores
from tests.cli.test_commands import run
from tests.data.s3 import needs, serving

COLUMNS: dict[str, Any] = {"context": "age", "action": "item", "reward": "click"}
USUAL = ["--context", "age", "--action", "item", "--reward", "click", "--target", "p_new", "--estimator", "snips", "--json"]


def table(rows: int = 2_000) -> pa.Table:
    rng = np.random.default_rng(0)
    version = np.repeat(["v1", "v2"], rows // 2)
    p = np.where(version == "v1", 0.2, 0.8)
    b = rng.random(rows) < p
    return pa.table({
        "age": rng.integers(18, 70, rows), "version": version, "item": np.where(b, "b", "a"),
        "click": (rng.random(rows) < 0.1 + 0.2 * b).astype(int), "won": rng.binomial(99, np.where(b, p, 1 - p)),
        "draws": np.full(rows, 99), "p": np.where(b, p, 1 - p), "p1": np.where(b, 0.2, 0.8), "p2": np.where(b, 0.8, 0.2),
        "p_new": np.where(b, 0.7, 0.3),
    })  # fmt: skip


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("places") / "log.parquet"
    pq.write_table(table(), path)
    return path


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        (
            ["--logger", "version", "--logging", "v1=p1", "--logging", "v2=p2"],
            {"logger": "version", "logging": {"v1": op.Column("p1"), "v2": op.Column("p2")}},
        ),
        (
            ["--logger", "version", "--logging", "v1=p1", "--logging", "v2=p2", "--loggers", "own"],
            {"logger": "version", "logging": {"v1": op.Column("p1"), "v2": op.Column("p2")}, "loggers": "own"},
        ),
        (["--logger", "version", "--propensity", "p"], {"logger": "version", "propensity": "p"}),
        (["--propensity", "monte-carlo:won,draws"], {"propensity": op.MonteCarlo("won", "draws")}),
        (["--propensity", "monte-carlo:won, draws, chosen"], {"propensity": op.MonteCarlo("won", "draws", "chosen")}),
    ],
)
def test_options_of_loggers_and_draws(log: Path, options: list[str], settings: dict[str, Any]) -> None:
    done = run("evaluate", log, *USUAL, *options)
    assert done.returncode == 0, done.stderr
    result = op.evaluate(op.read_log(log, **COLUMNS, **settings), "p_new", op.SNIPS())
    assert json.loads(done.stdout) == json.loads(json.dumps(result.to_dict()))


def test_a_file_of_settings_names_a_policy_per_logger(log: Path) -> None:
    job = log.with_name("job.toml")
    job.write_text('logger = "version"\nlogging = ["v1=p1", "v2=p2"]\nloggers = "weighted"\n')
    from_file = run("evaluate", log, *USUAL, "--config", job)
    typed = run("evaluate", log, *USUAL, "--logger", "version", "--logging", "v1=p1", "--logging", "v2=p2",
                "--loggers", "weighted")  # fmt: skip
    assert (from_file.returncode, from_file.stdout) == (0, typed.stdout)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--propensity", "monte-carlo:won"], "give monte-carlo:WINS,DRAWS"),
        (["--propensity", "monte-carlo:won,draws,odd"], "no sampling of MonteCarlo 'odd'"),
        (["--propensity", "monte-carlo:draws,won"], "impossible counts (the first: 99 wins in"),
        (["--logger", "version", "--logging", "p1", "--logging", "p2"], "several policies need the logger of each"),
        (["--logger", "version", "--logging", "v1=p1", "--logging", "v1=p2"], "several policies need the logger of each"),
        (["--logger", "version", "--logging", "v1=p1"], "no policy for 'v2' among 1 ('v1')"),
        (["--logging", "v1=p1", "--logging", "v2=p2"], "needs the logger of each round; name its column"),
        (["--logger", "version", "--propensity", "p", "--loggers", "best"], "no way to combine loggers 'best'"),
        (["--propensity", "p", "--version", "3"], "version= and as_of= are for Delta and Iceberg tables"),
        (["--propensity", "p", "--as-of", "noon"], "as_of is 'noon'; give a time"),
    ],
)
def test_what_does_not_fit_is_refused(log: Path, options: list[str], message: str) -> None:
    done = run("evaluate", log, *USUAL, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


@needs("deltalake")
def test_a_version_of_a_lake(log: Path, tmp_path: Path) -> None:
    from deltalake import write_deltalake

    write_deltalake(tmp_path / "lake", table())
    write_deltalake(tmp_path / "lake", table(500), mode="append")
    for options, rows in ([], 2_500), (["--version", "0"], 2_000):
        done = run("evaluate", tmp_path / "lake", *USUAL, "--propensity", "p", *options)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["estimates"][0]["n"] == rows


@needs("moto")
def test_a_bucket_whose_server_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed while the policy is evaluated: one message that says how far it got, exit code 2, and no files."""
    out = tmp_path / "out"
    out.mkdir()
    with serving(tmp_path) as server:
        pq.write_table(table(400_000), "logs/log.parquet", filesystem=server.filesystem, row_group_size=150_000)
        (tmp_path / "mine.py").write_text(
            f"import os\nimport numpy as np\n\n\ndef kill(x):\n    try:\n        os.kill({server.process.pid}, 9)\n"
            "    except ProcessLookupError:\n        pass\n    return np.full((len(x), 2), 0.5)\n"
        )
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        for module, name, value in (
            (remote, "WAITS", (0.01, 0.01)), (stores, "S3_ATTEMPTS", 1), (segments, "SEGMENT_BYTES", 1), (segments, "AHEAD", 0),
        ):  # fmt: skip
            monkeypatch.setattr(module, name, value)
        options = ["--context", "age", "--action", "item", "--reward", "click", "--propensity", "p", "--threads", 1]
        files = ["--report", out / "r.html", "--markdown", out / "r.md", "--plot", out / "r.png"]
        monkeypatch.syspath_prepend(str(tmp_path))
        done = run("evaluate", "s3://logs/log.parquet", *options, "--target", "mine:kill", "--estimator", "dr", *files)
    assert (done.returncode, done.stdout, list(out.iterdir())) == (2, "", [])
    assert "s3://logs/log.parquet: the connection was lost 0 rows into the part from row 300,000" in done.stderr
    assert "Traceback" not in done.stderr
