"""The pictures of picking and planning in docs/deciding.md; that of watching is drawn by examples/thirty_days.py.

python -m docs.pictures.deciding
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import offpolicy as op
from offpolicy.worlds import Linear

IMAGES = Path(__file__).parent.parent / "images"


def saved(name: str, size: tuple[float, float], draw: Callable[[Any], Any]) -> None:
    figure = Figure(figsize=size, layout="constrained")
    draw(figure.subplots())
    figure.savefig(IMAGES / name, dpi=90)
    print(f"{IMAGES / name}: {(IMAGES / name).stat().st_size / 1e3:,.0f} KB")


def main() -> None:
    world = Linear(n_actions=10, clicks=True, overlap=0.6, seed=3)
    shares = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
    mixed = {f"{share:.0%} target": op.Mixture([world.target, world.logging], [share, 1 - share]) for share in shares}
    others = {f"always item {k}": op.Fixed([float(j == k) for j in range(10)]) for k in range(10)}
    result = op.evaluate(world.sample(3_000, seed=0), {**mixed, "uniform": op.Uniform(), **others}, op.SNIPS())
    saved("picking.png", (8.5, 6.0), result.plot.best)
    policies = {"bold": world.target, "careful": mixed["20% target"]}
    plan = op.evaluate(world.sample(3_000, seed=0), policies, op.SNIPS()).plan(half_width=0.01)
    saved("planning.png", (8.5, 3.4), plan.plot)


if __name__ == "__main__":
    main()
