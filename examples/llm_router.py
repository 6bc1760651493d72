"""A router between language models, from JSON lines: would another router be as good, and cheaper?

    python examples/llm_router.py [requests.jsonl]

Each line has the prompt's features, the candidates, the model that answered, its quality (rated 0 to 1) and its cost. The
router that ran is a program without known probabilities: for every request it was sampled again 64 times, and the line says
how often the answering model won. The file is made here, so that the true values are known.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow.json

import offpolicy as op

MODELS = ("small", "medium", "large")
COST = np.array([0.2, 1.0, 5.0])  # cents per thousand tokens
DRAWS, REQUESTS = 64, 20_000


def softmax(score: np.ndarray) -> np.ndarray:
    raised = np.exp(score - score.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def old_router(x: np.ndarray) -> np.ndarray:
    """Longer and harder prompts go to larger models."""
    return softmax(np.outer(0.8 * x[:, 0] + 0.5 * x[:, 1], [-1.0, 0.0, 1.0]))


def new_router(x: np.ndarray) -> np.ndarray:
    """Only hard prompts go to the largest model."""
    return softmax(np.outer(1.5 * x[:, 1] - 0.8, [-1.0, 0.0, 1.0]))


def quality(x: np.ndarray) -> np.ndarray:
    """The probability that each model's answer is accepted."""
    return 1 / (1 + np.exp(-np.array([0.5, 1.2, 2.0]) + np.outer(x[:, 1], [1.2, 0.7, 0.3])))


def write_requests(path: Path) -> tuple[float, float]:
    """Write the file; the true quality and cost of the new router."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(REQUESTS, 2))
    tokens, p = np.exp(x[:, 0]), old_router(x)
    model = (p.cumsum(axis=1) < rng.random((REQUESTS, 1))).sum(axis=1)
    at = np.arange(REQUESTS), model
    wins, accepted, cost = rng.binomial(DRAWS, p[at]), rng.random(REQUESTS) < quality(x)[at], tokens * COST[model]
    with path.open("w") as file:
        for i in range(REQUESTS):
            line = {
                "length": round(x[i, 0], 4), "difficulty": round(x[i, 1], 4), "candidates": MODELS,
                "model": MODELS[model[i]], "won": int(wins[i]), "draws": DRAWS, "quality": float(accepted[i]),
                "cost": round(cost[i], 6),
            }  # fmt: skip
            file.write(json.dumps(line) + "\n")
    shares = new_router(x)
    return float((shares * quality(x)).sum(axis=1).mean()), float((shares @ COST * tokens).mean())


def main(path: Path) -> None:
    truth = write_requests(path)
    log = op.read_log(
        pyarrow.json.read_json(path),
        context=["length", "difficulty"], action="model", reward=["quality", "cost"], actions=MODELS,
        propensity=op.MonteCarlo(wins="won", draws="draws"),
    )  # fmt: skip
    result = op.evaluate(log, {"new router": new_router, "large only": op.Fixed([0, 0, 1])}, [op.SNIPS(), op.DR()])
    for name, true in zip(("quality", "cost"), truth, strict=True):
        estimate, lift = result.rewards[name]["new router", "DR"], result.rewards[name].lift("new router")
        low, high = estimate.interval.low, estimate.interval.high
        print(f"{name:7} of the new router: {estimate.value:.3f}, 95% interval {low:.3f} to {high:.3f}; true {true:.3f}")
        print(f"        {lift.value:+.3f} against the log ({lift.value / (estimate.value - lift.value):+.0%})")
    for policy in result.policies:
        estimate = result[policy, "DR"]
        noise = estimate.diagnostics["share_of_squared_weights_from_draws"]
        print(f"{policy}: {estimate.verdict.value}; the draws make {noise:.1%} of the mean square of the weights")
        for reason in estimate.reasons:
            print(f"  {reason.seen}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "requests.jsonl"))
