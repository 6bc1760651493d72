"""A plot of how time and memory grow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import CACHE, HERE, exponent

LARGEST = 60_000
"""The maximum size of a plot in bytes: plots are part of the repository."""


def growth_plot(
    name: str, axis: str, sizes: Sequence[int], seconds: Sequence[float], megabytes: Sequence[float], *, quick: bool
) -> Path:
    """Time and peak memory by size, on logarithmic axes, with the fitted lines. A quick run draws next to its data."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np

    figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for panel, values, what in zip(panels, (seconds, megabytes), ("seconds", "peak memory, MB"), strict=True):
        slope = exponent(sizes, values)
        level = np.exp(np.mean(np.log(values)) - slope * np.mean(np.log(sizes)))
        panel.loglog(sizes, level * np.asarray(sizes, float) ** slope, color="0.6", linewidth=1, label="fitted")
        panel.loglog(sizes, values, "o", color="C0", label="measured")
        for size, value in zip(sizes, values, strict=True):
            panel.annotate(
                f"{value:,.3g}" if value < 1_000 else f"{value:,.0f}", (size, value), (0, 6), textcoords="offset points"
            )
        panel.set_xticks(list(sizes), [f"{size:,}" for size in sizes], fontsize=8)
        panel.tick_params(axis="x", which="minor", bottom=False)
        panel.xaxis.set_minor_formatter("")
        panel.margins(x=0.15)
        # At least a decade above and below the middle, so that flat data look flat.
        middle, reach = np.sqrt(min(values) * max(values)), max(10.0, 1.5 * np.sqrt(max(values) / min(values)))
        panel.set_ylim(middle / reach, middle * reach)
        panel.set(xlabel=axis, ylabel=what, title=f"{what.split(',')[0]}: exponent {slope:.2f}")
        panel.legend(frameon=False, fontsize=8)
    path = (CACHE if quick else HERE / "plots") / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)
    plt.close(figure)
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path}: {path.stat().st_size:,} bytes, more than {LARGEST:,}")
    return path
