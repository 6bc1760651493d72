"""Golden masters: stored outputs of the package, with which a refactoring can show that it changes nothing.

    python -m tests.golden check     # compare with the stored outputs, byte for byte (tests of saved files read them, too)
    python -m tests.golden renew     # rewrite them: only if an output is meant to change, in a separate commit

The last digits depend on the processor and its BLAS, so this is a command and not a test. To compare two checkouts on one
machine, run `write FOLDER` in each, and compare the folders. HTML pages are stored as hashes.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import offpolicy as op
from offpolicy.worlds import Linear, Synthetic
from tests.logs import DISCRETE

MASTERS = Path(__file__).parent / "masters"
LEFT_OUT = ("CAB", "MDR", "MIPS", "MR", "SLOPE", "OCV", "Blend")
"""Public estimators that need candidates, an embedding or outcomes; they are constructed below."""


def command(folder: Path, name: str, *arguments: str) -> None:
    """Run a command, and store its output and its exit code."""
    run = subprocess.run(
        [sys.executable, "-m", "offpolicy", *arguments],
        cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "100"},
    )  # fmt: skip
    (folder / f"{name}.txt").write_text(f"{run.stdout}\n--- exit code {run.returncode}\n{_settled(run.stderr)}")


def _settled(text: str) -> str:
    """The text without what differs from run to run, such as Spark's own lines on stderr."""
    return "\n".join(line for line in text.splitlines() if line.startswith(("offpolicy", "Written", "Saved")))


def saved(folder: Path, name: str, result: op.Evaluation) -> None:
    """Store a result in every format."""
    (folder / f"{name}.txt").write_text(str(result))
    result.write_html(folder / f"{name}.html")
    (folder / f"{name}.md").write_text(result.to_markdown())
    result.save(folder / f"{name}.saved.json")
    without_evidence(folder / f"{name}.saved.json")


def without_evidence(path: Path) -> None:
    """Rewrite a saved result without the sums behind it, as in the first format."""
    content = json.loads(path.read_text())
    exact = json.dumps(content["result"], sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    digest = hashlib.sha256(len(exact).to_bytes(8, "little") + exact).hexdigest()
    first = {"format": content["format"], "version": 1, "sha256": digest, "result": content["result"]}
    path.write_text(json.dumps(first, indent=1, ensure_ascii=False) + "\n")


def demo(folder: Path) -> None:
    """`offpolicy demo` with its report, and `--json` of a Parquet log with candidates, local and on Spark."""
    command(folder, "demo", "demo", "--out", "demo", "--rounds", "20000")
    log = folder / "demo" / "log.parquet"
    (folder / "demo" / "log.sha256").write_text(
        "\n".join(f"{c} {hashlib.sha256(str(v.to_pylist()).encode()).hexdigest()}" for c, v in _columns(log))
    )
    columns = (
        "--context", "x0,x1,x2,x3,x4", "--action", "item", "--reward", "click", "--propensity", "propensity",
        "--logging", "items,p_items_old", "--target", "items,p_items_new", "--reward-range", "0,1",
    )  # fmt: skip
    named = [part for name in ("SNIPS", "DR", "learned-mips", "Auto") for part in ("--estimator", name)]
    command(folder, "parquet", "evaluate", "demo/log.parquet", *columns, "--json", "--save", "parquet.saved.json")
    command(folder, "options", "evaluate", "demo/log.parquet", *columns, *named, "--sensitivity", "1.2,1.5",
            "--interval", "bernstein", "--report", "options.html", "--markdown", "options.md", "--save", "options.json")  # fmt: skip
    command(folder, "reported", "report", "options.json", "--html", "reported.html", "--markdown", "reported.md")
    for name in ("parquet.saved.json", "options.json"):
        without_evidence(folder / name)
    command(folder, "embed", "embed", "demo/log.parquet", "--context", "x0,x1,x2,x3,x4", "--action", "item", "--reward", "click",
            "--rank", "4", "--out", "embedded.parquet")  # fmt: skip
    command(folder, "wrong", "evaluate", "demo/log.parquet", "--action", "itme", "--reward", "click", "--target", "p_new")
    (folder / "small.toml").write_text(
        'logs = ["demo/log.parquet"]\nestimator = ["DR", "clipped-ips:clip=10"]\nlevel = 0.9\n'
    )
    command(folder, "toml", "evaluate", *columns, "--config", "small.toml", "--interval", "bootstrap", "--json")
    command(folder, "spark", "evaluate", "demo/log.parquet", *columns, "--json", "--engine", "spark", "--master", "local[2]")
    log.unlink()
    for shown in folder.rglob("*.png"):
        shown.unlink()


def _columns(path: Path) -> list[tuple[str, Any]]:
    table = pq.read_table(path)
    return [(name, table.column(name)) for name in table.column_names]


def arrays(folder: Path) -> None:
    """Arrays: every estimator, two policies, slices, users; models and embeddings saved."""
    world = Linear(n_actions=12, clicks=True, overlap=0.6, seed=3)
    log = world.sample(6_000, seed=5)
    head = log.head(6_000)
    rng = np.random.default_rng(0)
    users = op.Log(
        head.context, head.action, head.reward, logging=world.logging, cluster=rng.integers(0, 700, 6_000).astype(str),
        by=np.where(head.context[:, 0] > 0, "a", "b"), weight=rng.uniform(0.5, 1.5, 6_000), reward_range=(0, 1), n_actions=12,
    )  # fmt: skip
    policies = {"new": world.target, "old": world.logging, "even": op.Uniform()}
    estimators = [DISCRETE[name]() for name in op.__all__ if name in DISCRETE and name not in LEFT_OUT]
    saved(folder, "arrays", op.evaluate(users, policies, [*estimators, op.CAB(), op.MR()], progress=False))
    plain = op.evaluate(log, world.target, progress=False)
    saved(folder, "defaults", plain)
    (folder / "explained.txt").write_text(f"{plain['Auto'].explain()}\n{plain.sensitivity(1.5)}\n{plain.lift()}")
    forms = [
        op.SLOPE([op.SNIPS(), *(op.ClippedIPS(clip=c, name=f"clip {c}") for c in (20.0, 5.0, 2.0))]),
        op.OCV([op.SNIPS(), op.DR()]),
        op.Blend([op.SNDR(), op.DM(), op.ScaledDR()]),
        op.LearnedMIPS(posterior=op.Gaussian(), name="Gaussian"),
        op.LearnedMIPS(rewards=op.Ridge(rank=2), posterior=op.Logistic(), name="Logistic"),
    ]
    chosen = op.evaluate(log, world.target, [*forms], progress=False)
    saved(folder, "forms", chosen)
    interval = plain["DR"].confidence_interval(method="bootstrap", refit=True, draws=10)
    (folder / "refit.txt").write_text(repr(interval))
    table = op.embed(log, progress=False)
    table.save(folder / "embedding.parquet")
    op.fit_rewards(log, op.Ridge(), progress=False).save(folder / "rewards.safetensors")
    (folder / "rewards.txt").write_text(with_rewards(folder / "rewards.safetensors"))
    (folder / "rewards.safetensors").unlink()  # its header may be written in other ways


def with_rewards(path: Path) -> str:
    """Estimates with a saved reward model on rounds that it has not seen."""
    world = Linear(n_actions=12, clicks=True, overlap=0.6, seed=3)
    model = op.load_rewards(path)
    result = op.evaluate(
        world.sample(2_000, seed=6), world.target, [op.DM(rewards=model), op.DR(rewards=model)], progress=False
    )
    return "\n".join(f"{e.estimator} {e.value!r} {e.std_error!r}" for e in result)


def embedded(folder: Path) -> None:
    """The paper's world: pre-defined embeddings, and propensities that are estimated."""
    world = Synthetic(n_actions=60, seed=2)
    log = world.sample(3_000, seed=1)
    saved(
        folder,
        "embedded",
        op.evaluate(log, world.target, [op.MIPS(), op.LearnedMIPS(), op.LearnedMDR(), op.MDR()], progress=False),
    )
    linear = Linear(n_actions=8, overlap=0.8, seed=4)
    head = linear.sample(4_000, seed=2).head(4_000)
    unlogged = op.Log(head.context, head.action, head.reward, logging=op.EstimatedLogging("logistic"), n_actions=8)
    saved(folder, "estimated", op.evaluate(unlogged, linear.target, [op.SNIPS(), op.DR()], progress=False))


def experiments(folder: Path) -> None:
    """`reproduce table1 --quick`, one task of the benchmark, one study."""
    command(folder, "table1", "reproduce", "table1", "--quick", "--out", "table1", "--json")
    command(folder, "bench", "bench", "--world", "synthetic:n_actions=50,rounds=1000", "--runs", "4", "--json")
    for part in (folder / "table1").iterdir():
        if part.name != "summary.md":
            part.unlink()


PARTS: tuple[Callable[[Path], None], ...] = (demo, arrays, embedded, experiments)


def write(folder: Path) -> None:
    """Write all of them; dates in HTML pages are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        print(part.__name__, file=sys.stderr, flush=True)
        part(folder)
    for page in folder.rglob("*.html"):
        page.write_text(re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "DATE", page.read_text()))


def hash_pages(folder: Path) -> None:
    """Replace each HTML page, which is large, with its hash."""
    for page in folder.rglob("*.html"):
        page.with_suffix(".html.sha256").write_text(hashlib.sha256(page.read_bytes()).hexdigest() + "\n")
        page.unlink()


def check() -> int:
    """The number of files that differ; each is printed with its first differing lines."""
    with tempfile.TemporaryDirectory() as scratch:
        new = Path(scratch)
        write(new)
        hash_pages(new)
        names = sorted({str(p.relative_to(f)) for f in (MASTERS, new) for p in f.rglob("*") if p.is_file()})
        different = 0
        for name in names:
            contents = [(f / name).read_bytes() if (f / name).exists() else b"" for f in (MASTERS, new)]
            if contents[0] != contents[1]:
                different += 1
                print(f"differs: {name}")
                lines = [content.decode(errors="replace").splitlines() for content in contents]
                print("\n".join(list(difflib.unified_diff(*lines, lineterm="", n=0))[:8]))
        print(f"{len(names) - different} of {len(names)} files are the same.")
        return different


if __name__ == "__main__":
    verb = sys.argv[1] if len(sys.argv) > 1 else "check"
    if verb == "check":
        sys.exit(check() > 0)
    write(MASTERS if verb == "renew" else Path(sys.argv[2]))
    if verb == "renew":
        hash_pages(MASTERS)
