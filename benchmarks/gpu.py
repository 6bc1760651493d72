"""The GPU engine: scoring with two softmax policies over very many actions, and whole evaluations.

python -m benchmarks.gpu [--quick]

Contexts are drawn so that the logging policy is exactly a softmax of products: actions a with probability ∝ exp(|v_a|²/2),
and x ~ N(v_a, 1), so that p(a|x) ∝ exp(x · v_a). Needs a GPU, except with --quick, which uses CPU tensors if there is none.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import offpolicy as op
from benchmarks.common import publish, table
from offpolicy.core.device import Device
from offpolicy.scoring.fused import plain
from offpolicy.scoring.fused.forms import Form, Forms, Run
from offpolicy.scoring.fused.launch import Launcher

SIZE = 64
FOLDS = 5
TIMES = 5
"""Evaluations of each log, of which the median counts, after one that loads solvers and takes memory from the system."""


@dataclass(frozen=True)
class Data:
    """A log and the item vectors of both policies."""

    x: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    old: np.ndarray
    new: np.ndarray

    @classmethod
    def of(cls, rounds: int, actions: int, seed: int = 0) -> Data:
        rng = np.random.default_rng(seed)
        old = rng.normal(size=(actions, SIZE)) / np.sqrt(SIZE)
        p = np.exp((old**2).sum(axis=1) / 2)
        action = rng.choice(actions, size=rounds, p=p / p.sum())
        x = old[action] + rng.normal(size=(rounds, SIZE))
        tastes = rng.normal(size=(8, SIZE)) / 8
        reward = np.einsum("ti,ti->t", x, tastes[action % 8]) + 0.1 * (action % 5) + rng.normal(size=rounds)
        return cls(x, action, reward, old, old + 0.3 * rng.normal(size=old.shape) / np.sqrt(SIZE))

    @cached_property
    def policies(self) -> tuple[op.Softmax, op.Softmax]:
        old, new = (op.Softmax(op.TwoTower(items.astype(np.float32))) for items in (self.old, self.new))
        return old, new

    def log(self) -> op.Log:
        return op.Log(self.x, self.action, self.reward, logging=self.policies[0], n_actions=len(self.old))

    def write(self, path: Path) -> None:
        columns = {f"x{j}": self.x[:, j] for j in range(SIZE)}
        pq.write_table(pa.table({**columns, "action": self.action, "reward": self.reward}), path, row_group_size=262_144)

    def read(self, path: Path) -> op.Log:
        names = [f"x{j}" for j in range(SIZE)]
        return op.read_log(
            path, context=names, action="action", reward="reward", logging=self.policies[0], n_actions=len(self.old)
        )  # fmt: skip

    def evaluated(self, log: op.Log, engine: Any, **more: Any) -> op.Evaluation:
        gaussian = op.Gaussian()
        every = [op.SNIPS(), op.DR(), op.LearnedMIPS(posterior=gaussian), op.LearnedMDR(posterior=gaussian)]
        return op.evaluate(log, self.policies[1], every, engine=engine, progress=False, **more)


def forms(torch: Any, device: str, rounds: int, actions: int, pools: int = 1) -> Forms:
    """Two policies, poolings, and a linear reward model in five folds."""
    generator = torch.Generator(device).manual_seed(0)
    none = torch.empty(0, device=device)

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator, device=device)

    users, old = normal(rounds, SIZE), normal(1, actions, SIZE) / SIZE**0.5
    moved = old + 0.3 * normal(1, actions, SIZE) / SIZE**0.5
    action = torch.randint(actions, (rounds,), generator=generator, device=device)
    edges = [rounds * k // FOLDS for k in range(FOLDS + 1)]
    runs = [Run(a, b, (0,) * pools + (k,)) for k, (a, b) in enumerate(pairwise(edges))]
    pooled = []
    for _ in range(pools):
        means = normal(1, actions, SIZE)
        bias = -0.5 * (means**2).sum(dim=2)
        pooled.append(Form(means[0, action], means, bias, -bias[0, action]))
    model = Form(users, 0.1 * normal(FOLDS, actions, SIZE), normal(FOLDS, actions), none)
    return Forms(runs, Form(users, moved, none, none), Form(users, old, none, none), pooled, [model], action)


def seconds(device: Device, run: Callable[[], object], times: int = 3) -> float:
    """The median, after a warm-up run."""
    found = []
    for _ in range(1 + times):
        start = time.perf_counter()
        run()
        if device.cuda:
            device.torch.cuda.synchronize()
        found.append(time.perf_counter() - start)
    return statistics.median(found[1:])


def difference(found: Any, exact: Any) -> tuple[float, float]:
    """Of the weights: in norm, and the largest relative one."""
    weight, true = (found.above / found.below).double(), exact.above / exact.below
    return float((weight - true).norm() / true.norm()), float(((weight - true) / true).abs().amax())


def scoring(name: str, rounds: int, actions: int, compared: bool) -> list[list[str]]:
    """Of the kernel; if `compared`, also in high precision, and of PyTorch alone."""
    torch = Device(name).torch
    given, rows = forms(torch, name, rounds, actions), []
    exact = plain.row_sums(torch, given.head(512).to(torch.float64))
    for precision, half in (("tf32", True), ("high", False))[: 1 + compared] if name == "cuda" else ():
        device = Device(name, precision)
        launcher = Launcher(device)
        took = seconds(device, partial(launcher.row_sums, given, half))
        off, most = difference(launcher.row_sums(given.head(512), half), exact)
        rows.append([f"fused, {precision}", took, off, most])
        launcher.release()
    if compared:
        torch.backends.cuda.matmul.allow_tf32, plain.DEVICE_BYTES = True, 1 << 29
        took = 10 * seconds(Device(name), partial(plain.row_sums, torch, given.head(rounds // 10)), times=1)
        off, most = difference(plain.row_sums(torch, given.head(512)), exact)
        torch.backends.cuda.matmul.allow_tf32, plain.DEVICE_BYTES = False, 1 << 26
        rows.append(["PyTorch in blocks, TF32 (a tenth of the rounds, times 10)", took, off, most])
    operations = 2.0 * rounds * actions * SIZE * 4
    size = f"{rounds:,} × {actions:,} × {SIZE}"
    return [
        [size, what, f"{took:.3f}", f"{operations / took / 1e12:.0f}", f"{off:.1e}", f"{most:.1e}"]
        for what, took, off, most in rows
    ]


def warm_up(name: str) -> None:
    """Compile the kernel, and import what is imported on first use."""
    data = Data.of(3_000, 1_001)
    data.evaluated(data.log(), op.GPU(name), errors=False)


def whole(name: str, rounds: int, actions: int, memory: str) -> list[list[str]]:
    """Evaluations with their standard errors, from arrays and from Parquet."""
    data, device, rows = Data.of(rounds, actions), Device(name), []
    warm_up(name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        data.write(path)
        tensors = replace(data, **{each: device.tensor(getattr(data, each)) for each in ("x", "action", "reward")})
        opened: dict[str, Callable[[], op.Log]] = {
            "arrays in memory": data.log, "tensors on the device": tensors.log, "Parquet": partial(data.read, path)
        }  # fmt: skip
        for what, log in opened.items():
            before = device.torch.cuda.memory_allocated() if device.cuda else 0
            if device.cuda:
                device.torch.cuda.reset_peak_memory_stats()
            found = []
            for _ in range(1 + TIMES):
                start = time.perf_counter()
                result = data.evaluated(log(), op.GPU(name), memory=memory)
                found.append(time.perf_counter() - start)
            print(what, [round(each, 2) for each in found], file=sys.stderr)
            took = statistics.median(found[1:])
            peak = (device.torch.cuda.max_memory_allocated() - before) / 1e9 if device.cuda else 0.0
            error = result.settings["accelerator"]["largest_relative_error_of_a_weight"]
            rows.append([f"{rounds:,} × {actions:,}", what, f"{took:.2f}", f"{peak:.2f}", f"{error:.1e}"])
            print(json.dumps({e: [result[e].value, result[e].std_error] for e in result.estimators}), file=sys.stderr)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2,000 × 3,000; the README stays as it is")
    parser.add_argument("--memory", default="24GB", help="the memory budget of the evaluations")
    parser.add_argument("--skip-largest", action="store_true", help="without 1,000,000 actions")
    given = parser.parse_args()
    import torch

    name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cpu" and not given.quick:
        sys.exit("this benchmark needs a GPU; --quick runs without one")
    sizes = [(2_000, 3_000)] if given.quick else [(1_000_000, 100_000), (1_000_000, 1_000_000)][: 2 - given.skip_largest]
    scored = [row for size in sizes for row in scoring(name, *size, size == sizes[0])]
    evaluated = whole(name, *sizes[0], given.memory)
    header = ["rounds × actions × dimensions", "", "seconds", "TFLOP/s", "error of the weights (norm)", "largest"]
    text = f"On {Device(name).described}, PyTorch {torch.__version__}: scoring only.\n\n{table(header, scored)}\n\n"
    header = ["rounds × actions", "log", "seconds", "GB on the device, at most", "largest error of a weight"]
    text += "SNIPS, DR, Learned MIPS and Learned MDR with their standard errors.\n\n"
    publish("gpu", text + table(header, evaluated), quick=given.quick)


if __name__ == "__main__":
    main()
