"""The picture in docs/propensities.md.

python -m docs.pictures.propensities
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import offpolicy as op

PICTURE = Path(__file__).parent.parent / "images" / "propensities.png"


def main() -> None:
    rng = np.random.default_rng(1)
    x, taste = rng.normal(size=(20_000, 5)), rng.normal(size=(5, 8))
    p = np.exp(0.4 * x @ taste)
    p /= p.sum(axis=1, keepdims=True)
    action = (p.cumsum(axis=1) > rng.random(20_000)[:, None]).argmax(axis=1)
    log = op.Log(x, action, np.zeros(20_000), logging=op.EstimatedLogging())
    figure = Figure(figsize=(4.4, 3.6), layout="constrained")
    op.evaluate(log, op.Uniform(), op.SNIPS()).plot.propensities(figure.subplots())
    figure.savefig(PICTURE, dpi=80)
    print(f"{PICTURE}: {PICTURE.stat().st_size / 1e3:,.0f} KB")


if __name__ == "__main__":
    main()
