"""Pictures of a result. Each takes and returns Matplotlib axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COLOURS = {
    "OK": "#0072b2",
    "CAUTION": "#e69f00",
    "DO_NOT_TRUST": "#d55e00",
}  # told apart by colour-blind readers
MARKERS = {"OK": "o", "CAUTION": "s", "DO_NOT_TRUST": "X"}


def estimates(result: Mapping[str, Any], ax: Any = None) -> Any:
    """Every estimate with its interval; the verdict by colour and shape; the logged mean and a known truth as lines."""
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    if ax is None:
        _, ax = plt.subplots(figsize=(7, 0.6 + 0.4 * len(result["estimates"])), layout="constrained")
    several = len(result["policies"]) > 1
    for k, e in enumerate(result["estimates"]):
        ci, verdict = e["interval"], e["verdict"]
        ax.plot([ci["low"], ci["high"]], [k, k], color=COLOURS[verdict], linewidth=2.2, solid_capstyle="round")
        ax.plot(e["value"], k, MARKERS[verdict], color=COLOURS[verdict], markersize=7)
    names = [f"{e['policy']}: {e['estimator']}" if several else e["estimator"] for e in result["estimates"]]
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    for policy, truth in (result.get("truth") or {}).items():
        ax.axvline(truth, color="#555555", linestyle="--", linewidth=1)
        label = "true value" if not several else f"true value of {policy}"
        ax.annotate(label, (truth, 1), xycoords=("data", "axes fraction"), xytext=(4, -11), textcoords="offset points",
                    fontsize=8, color="#555555")  # fmt: skip
    ax.set_xlabel(f"{result['reward']} a round, with {result['level']:.0%} intervals")
    ax.grid(axis="x", alpha=0.3)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    shown = [v for v in COLOURS if any(e["verdict"] == v for e in result["estimates"])]
    handles = [Line2D([], [], color=COLOURS[v], marker=MARKERS[v], label=v.replace("_", " ").lower()) for v in shown]
    ax.legend(
        handles=handles,
        title="verdict",
        fontsize=8,
        title_fontsize=8,
        loc="center left",
        bbox_to_anchor=(1, 0.5),
        frameon=False,
    )
    return ax
