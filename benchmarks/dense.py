"""Learned MIPS compared with dense rounds × actions arrays: `python -m benchmarks.dense [--quick]`.

The baseline is the published recipe, written with NumPy and scikit-learn: both policies as full arrays, a ridge model of
each action for its embedding, `LogisticRegression` of the action on the embedding, fitted on all rows, `predict_proba` for
all rows and actions, and the weights from the product of the three arrays. Both sides start from the columns of the log and
the two score matrices. Their times are taken in one process, on all cores; memory is measured in separate processes.
"""

from __future__ import annotations

import argparse
import warnings
from functools import partial

import numpy as np
import numpy.typing as npt

import offpolicy as op
from benchmarks.common import best_times, publish, run_alone, table, watched

CONTEXT = 10
ITERATIONS = 100
"""The maximum for scikit-learn's solver, its default. The table shows how many it took."""
Array = npt.NDArray[np.float64]


class Data:
    """The columns of a log and the scores of both policies; no array of rounds × actions is kept."""

    def __init__(self, rounds: int, n_actions: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.n_actions, self.iterations = n_actions, 0
        self.x = rng.normal(size=(rounds, CONTEXT))
        self.old = rng.normal(size=(CONTEXT, n_actions)) * 0.1
        self.new = rng.normal(size=(CONTEXT, n_actions)) * 0.3
        effect = rng.normal(size=(CONTEXT, n_actions))
        blocks = [self._drawn(rng, x) for x in np.array_split(self.x, max(1, rounds // 1_000))]
        self.action = np.concatenate(blocks)
        self.reward = np.einsum("ij,ji->i", self.x, effect[:, self.action]) + rng.normal(size=rounds)

    def _drawn(self, rng: np.random.Generator, x: Array) -> npt.NDArray[np.int64]:
        chosen = (softmax(x @ self.old).cumsum(axis=1) > rng.random((len(x), 1))).argmax(axis=1)
        return chosen.astype(np.int64)


def softmax(scores: Array) -> Array:
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


def embeddings(data: Data, penalty: float = 1.0) -> Array:
    """A ridge model r ≈ e_a·(x, 1) per action; actions that were never logged get 0."""
    rows = np.column_stack([data.x, np.ones(len(data.x))])
    found = np.zeros((data.n_actions, rows.shape[1]))
    for action in np.unique(data.action):
        mine = data.action == action
        x = rows[mine]
        found[action] = np.linalg.solve(x.T @ x + penalty * np.eye(x.shape[1]), x.T @ data.reward[mine])
    return found


def dense(data: Data) -> float:
    from sklearn.linear_model import LogisticRegression

    pi, pi0 = softmax(data.x @ data.new), softmax(data.x @ data.old)
    e = embeddings(data)[data.action]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = LogisticRegression(max_iter=ITERATIONS).fit(e, data.action)
    data.iterations = int(model.n_iter_.max())
    weight = (model.predict_proba(e) * (pi / pi0)[:, model.classes_]).sum(axis=1)
    return float((weight * data.reward).mean())


def ours(data: Data) -> float:
    logging, target = op.Softmax(lambda x: x @ data.old), op.Softmax(lambda x: x @ data.new)
    log = op.Log(data.x, data.action, data.reward, logging=logging, n_actions=data.n_actions)
    published = op.LearnedMIPS("identity", posterior=op.Logistic())
    return op.evaluate(log, target, [published], progress=False, errors=False)["LearnedMIPS"].value


SIDES = {"dense": dense, "ours": ours}


def alone(side: str, rounds: int, n_actions: int) -> None:
    """Print the megabytes that one side needs beyond the log and the imports."""
    SIDES[side](Data(200, 10))  # imports are not counted
    data = Data(rounds, n_actions)
    print(watched(partial(SIDES[side], data)))


def figures(rounds: int, n_actions: int) -> str:
    dense(Data(200, 10))  # warm-up: imports are not counted
    data = Data(rounds, n_actions)
    (mine,) = best_times(partial(ours, data), times=3)
    (theirs,) = best_times(partial(dense, data), times=0)
    memory = [
        float(run_alone("benchmarks.dense", "--alone", side, str(rounds), str(n_actions)).printed)
        for side in ("ours", "dense")
    ]
    rows = [
        ["seconds", f"{mine:.2f}", f"{theirs:.1f}", f"{theirs / mine:.0f} ×", "≥ 40 ×"],
        ["MB beyond the log", f"{memory[0]:,.0f}", f"{memory[1]:,.0f}", f"{memory[1] / memory[0]:.0f} ×", "≥ 20 ×"],
    ]
    head = f"Learned MIPS (identity, logistic posterior), value only; {rounds:,} rounds × {n_actions:,} actions."
    solver = f"scikit-learn's solver took {data.iterations} of at most {ITERATIONS} iterations."
    return f"{head} {solver}\n\n{table(['', 'ours', 'dense arrays', 'ratio', 'goal'], rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2,000 × 200; the README stays as it is")
    parser.add_argument("--alone", nargs=3, metavar=("SIDE", "ROUNDS", "ACTIONS"))
    given = parser.parse_args()
    if given.alone:
        side, rounds, n_actions = given.alone
        alone(side, int(rounds), int(n_actions))
        return
    publish("dense", figures(*((2_000, 200) if given.quick else (20_000, 2_000))), quick=given.quick)


if __name__ == "__main__":
    main()
