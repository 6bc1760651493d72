"""The picture of a study: how often 95% intervals held the truth, estimator by world."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from offpolicy.core.files import whole_file
from offpolicy.experiments.study import LEVEL

WORST = 0.5
"""All that holds less often has one colour."""


def write(told: Mapping[str, Any], path: Path, method: str = "normal") -> None:
    """A square for each estimator in each world, with the share in it; whole or not at all."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    at, worlds = told["levels"].index(LEVEL), [w["world"] for w in told["worlds"]]
    names = [n for n in told["estimators"] if any(method in told["coverage"][w].get(n, {}) for w in worlds)]
    shares = np.array(
        [
            [told["coverage"][w].get(n, {}).get(method, {"held": [np.nan] * (at + 1)})["held"][at] for w in worlds]
            for n in names
        ]
    )
    with mpl.rc_context({"font.size": 9}):
        figure = Figure(figsize=(2.2 + 0.95 * len(worlds), 1.5 + 0.27 * len(names)), layout="constrained")
        axes = figure.subplots()
        colours = mpl.colormaps["RdYlGn"].with_extremes(bad="#eeeeee")
        axes.imshow(np.ma.masked_invalid(shares), cmap=colours, vmin=WORST, vmax=1.0, aspect="auto")
        for (row, col), share in np.ndenumerate(shares):
            said = "–" if np.isnan(share) else f"{100 * share:.0f}"
            axes.text(col, row, said, ha="center", va="center", color="white" if share < 0.55 else "black")
        axes.set_xticks(range(len(worlds)), [w.replace(", ", ",\n").replace(" ", "\n", 1) for w in worlds])
        axes.set_yticks(range(len(names)), names)
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_xlabel(f"runs in 100 whose {LEVEL:.0%} interval ({method}) holds the truth")
        with whole_file(path) as draft:
            figure.savefig(draft, dpi=130, format=path.suffix[1:], metadata={"Software": None})
