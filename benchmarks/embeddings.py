"""Learned MIPS and its variants compared with a plain implementation, on one core: `python -m benchmarks.embeddings`.

The baseline does what the published implementation does: train the reward model with AdamW for 100 epochs from a DataLoader,
fit scikit-learn's logistic regression on all rows, and weight with rounds × actions arrays. Both sides get the same arrays
in the same process and run on one core. `--quick` trains one epoch, counts it a hundred times, and uses few rounds
and actions.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.common import exponent, publish, table, watched

ROUNDS, CONTEXT, DIMENSIONS, CATEGORIES = 20_000, 10, 3, 10
Array = npt.NDArray[np.float64]


class Data:
    """Rounds of 10 context features, an action, and 3 categories of 10 values drawn in each round."""

    def __init__(self, actions: int, rounds: int = ROUNDS, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.n_actions = actions
        self.x = rng.normal(size=(rounds, CONTEXT))
        self.score = rng.normal(size=(CONTEXT, actions)) * 0.1
        q = self.x @ self.score
        self.pi0 = np.exp(-q)
        self.pi0 /= self.pi0.sum(axis=1, keepdims=True)
        self.pi = np.full((rounds, actions), 0.05 / actions)
        self.pi[np.arange(rounds), q.argmax(axis=1)] += 0.95
        self.action = (self.pi0.cumsum(axis=1) > rng.random((rounds, 1))).argmax(axis=1)
        probabilities = rng.dirichlet(np.ones(CATEGORIES), size=(DIMENSIONS, actions))
        uniform = rng.random((rounds, 1))
        self.e = np.column_stack([(p[self.action].cumsum(axis=1) > uniform).argmax(axis=1) for p in probabilities])
        effect = rng.normal(size=(DIMENSIONS, CATEGORIES, CONTEXT))
        means = sum(np.einsum("ij,ij->i", effect[k][self.e[:, k]], self.x) for k in range(DIMENSIONS))
        self.reward = means + 2.5 * rng.normal(size=rounds)

    @property
    def one_hot(self) -> Array:
        return np.hstack([np.eye(CATEGORIES)[self.e[:, k]] for k in range(DIMENSIONS)])

    def log(self) -> object:
        import offpolicy as op

        return op.Log(self.x, self.action, self.reward, logging=self.pi0, n_actions=self.n_actions, action_features=self.e)


def trained(data: Data, inputs: str, rate: float, batch: int, epochs: int) -> tuple[Array, Callable[[Array], Array]]:
    """Train the published reward model from a DataLoader; return the rounds' embeddings and the layer."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    identity = np.eye(data.n_actions, dtype=np.float32)[data.action]
    parts = {"identity": [identity], "features": [data.one_hot], "both": [identity, data.one_hot]}[inputs]
    rows = torch.from_numpy(np.hstack(parts).astype(np.float32))
    x, r = torch.from_numpy(data.x.astype(np.float32)), torch.from_numpy(data.reward.astype(np.float32))
    layer = torch.nn.Linear(rows.shape[1], CONTEXT)
    optimiser = torch.optim.AdamW(layer.parameters(), lr=rate)
    loader = DataLoader(TensorDataset(rows, x, r), batch_size=batch, shuffle=True)
    for _ in range(epochs):
        for some, context, reward in loader:
            optimiser.zero_grad()
            loss = ((layer(some) * context).sum(dim=1) - reward).square().mean()
            loss.backward()
            optimiser.step()

    def embed(inputs_: Array) -> Array:
        with torch.no_grad():
            out: Array = layer(torch.from_numpy(inputs_.astype(np.float32))).numpy().astype(np.float64)
        return out

    return embed(rows.numpy()), embed


def classified(data: Data, rows: Array) -> float:
    """scikit-learn on all rows, then Σ_a p(a|e) π/π0: Learned MIPS, or MIPS if rows are (context, embedding)."""
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        p = LogisticRegression(max_iter=1_000).fit(rows, data.action).predict_proba(rows)
    seen = np.unique(data.action)
    weight = (p * (data.pi / data.pi0)[:, seen]).sum(axis=1)
    return float((weight * data.reward).mean())


def direct(data: Data, embed: Callable[[Array], Array]) -> float:
    """Σ_a π(a|x) q(x, a), action by action from rows of one-hot inputs, as the published implementation predicts."""
    q = np.empty_like(data.pi)
    for action in range(data.n_actions):
        rows = np.zeros((len(data.x), data.n_actions), np.float32)
        rows[:, action] = 1.0
        q[:, action] = (embed(rows) * data.x).sum(axis=1)
    return float((data.pi * q).sum(axis=1).mean())


def timed(run: Callable[[], object], times: int = 1) -> float:
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def estimators() -> dict[str, object]:
    """Those of the published form have its logistic posterior; the default one blends several others."""
    import offpolicy as op

    logistic = op.Logistic()
    return {
        "OneHot": op.LearnedMIPS("identity", posterior=logistic),
        "OneHot, fixed penalty": op.LearnedMIPS("identity", op.Ridge(10.0), logistic),
        "OneHot, Gaussian": op.LearnedMIPS("identity", posterior=op.Gaussian()),
        "FineTune": op.LearnedMIPS("features", posterior=logistic),
        "FineTune, Gaussian": op.LearnedMIPS("features", posterior=op.Gaussian()),
        "Combined": op.LearnedMIPS("both", posterior=logistic),
        "Combined, Gaussian": op.LearnedMIPS("both", posterior=op.Gaussian()),
        "OneHot, default blend": op.LearnedMIPS("identity"),
        "DM": op.DM(),
        "MIPS, Categorical": op.MIPS(),
    }


def ours(data: Data, name: str, errors: bool = False) -> Callable[[], object]:
    """The value only, as in the plain implementation; or with its standard error and checks."""
    import offpolicy as op

    log, estimator = data.log(), estimators()[name]
    return lambda: op.evaluate(log, data.pi, [estimator], engine=op.Local(threads=1), progress=False, errors=errors)


def plain_times(data: Data, epochs: int) -> dict[str, float]:
    """Seconds of the plain implementation: training for 100 epochs, and the rest."""
    found: dict[str, float] = {}
    trained(Data(50, 500), "identity", 1e-4, 64, 1)  # what PyTorch loads in its first step is not counted
    for name, inputs in (("OneHot", "identity"), ("FineTune", "features"), ("Combined", "both")):
        start = time.perf_counter()
        rows, _ = trained(data, inputs, 1e-4, 64, epochs)
        training = (time.perf_counter() - start) * 100 / epochs
        found[name] = training + timed(partial(classified, data, rows))
        print(f"  {name}: training {training:.1f} s, the rest {found[name] - training:.1f} s", file=sys.stderr)
    start = time.perf_counter()
    _, embed = trained(data, "identity", 1e-3, 32, epochs)
    found["DM"] = (time.perf_counter() - start) * 100 / epochs + timed(lambda: direct(data, embed))
    found["MIPS, Categorical"] = timed(lambda: classified(data, np.hstack([data.x, data.one_hot])))
    return found


def compare(actions: int, rounds: int, epochs: int) -> list[list[str]]:
    data = Data(actions, rounds)
    plain = plain_times(data, epochs)
    rows = []
    for name in estimators():
        other = plain[name if name in plain else name.split(",")[0]]
        seconds = timed(ours(data, name), 5)
        errors = timed(ours(data, name, errors=True), 3)
        memory = beyond(actions, rounds, name)
        rows.append([name, f"{seconds:.2f}", f"{other:.1f}", f"{other / seconds:.0f} ×", f"{errors:.2f}", f"{memory:.0f}"])
        print(f"  {rows[-1]}", file=sys.stderr)
    return rows


def beyond(actions: int, rounds: int, name: str) -> float:
    """Peak megabytes beyond the arrays and the imports, in a separate process."""
    command = [sys.executable, "-m", "benchmarks.embeddings", "--child", str(actions), str(rounds), name]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent.parent)
    return float(done.stdout)


def growth(sizes: list[int], rounds: int) -> list[list[str]]:
    """Our seconds by number of actions; the policies are score functions, called block by block."""
    import offpolicy as op

    names = ("OneHot", "OneHot, Gaussian", "FineTune", "Combined, Gaussian", "DM", "MIPS, Categorical")
    times: dict[str, list[float]] = {name: [] for name in names}
    policy: list[float] = []
    for size in sizes:
        data = Data(size, rounds)
        score = data.score
        log = op.Log(
            data.x, data.action, data.reward, logging=op.Softmax(lambda x, s=score: -x @ s), n_actions=size,
            action_features=data.e,
        )  # fmt: skip
        target = op.EpsilonGreedy(lambda x, s=score: x @ s)
        del data
        policy.append(timed(partial(_ask, log, target), 3))
        for name in names:
            one = estimators()[name]
            times[name].append(
                timed(partial(op.evaluate, log, target, [one], engine=op.Local(threads=1), progress=False, errors=False), 2)
            )
    slopes = {name: exponent(sizes, each) for name, each in times.items()}
    rows = [[name, *(f"{t:.2f}" for t in each), f"{slopes[name]:.2f}"] for name, each in times.items()]
    return [*rows, ["calling both policies only", *(f"{t:.2f}" for t in policy), "–"]]


def _ask(log: object, target: object) -> None:
    from offpolicy.policies.blocks import blocks

    for partition in log.partitions():  # type: ignore[attr-defined]
        for batch in partition.batches(65_536):
            for rows in blocks(len(batch), batch.n_actions):
                some = batch.take(rows)
                target.probabilities(some)  # type: ignore[attr-defined]
                log.logging.probabilities(some)  # type: ignore[attr-defined]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actions", type=int, default=1_000)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--child", nargs=3)
    given = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if given.child:
        actions, rounds, name = int(given.child[0]), int(given.child[1]), given.child[2]
        ours(Data(50, 500), name)()  # imports are not counted
        print(watched(ours(Data(actions, rounds), name)))
        return
    import torch

    torch.set_num_threads(1)
    actions, rounds, epochs = (100, 2_000, 1) if given.quick else (given.actions, ROUNDS, 100)
    sizes = [100, 300] if given.quick else [100, 300, 1_000, 2_000, 5_000]
    header = ["", "seconds", "plain implementation, seconds", "ratio", "with errors, seconds", "MB beyond its data"]
    parts = [
        f"torch {torch.__version__}, one core, {rounds:,} rounds × {actions:,} actions:",
        table(header, compare(actions, rounds, epochs)),
        f"With {rounds:,} rounds and score functions as policies, on one core, by number of actions:",
        table(["seconds by number of actions", *map(str, sizes), "exponent"], growth(sizes, rounds)),
    ]
    publish("embeddings", "\n\n".join(parts), quick=given.quick)


if __name__ == "__main__":
    main()
