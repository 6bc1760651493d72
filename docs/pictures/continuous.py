"""The pictures of docs/continuous.md: `python -m docs.pictures.continuous` runs the first blocks of that page, and draws."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from tests.docs.pages import blocks

PAGE = Path(__file__).parents[1] / "continuous.md"
IMAGES = PAGE.parent / "images"
BLOCKS = 2
"""The blocks up to the evaluation of the rule."""


def main() -> None:
    """Draw the actions, the estimate over bandwidths, and the dose–response curve."""
    names: dict[str, Any] = {}
    for block in [block for block in blocks(PAGE.read_text()) if block.language == "python"][:BLOCKS]:
        with contextlib.redirect_stdout(None):
            exec(block.body, names)
    plot = names["result"].plot
    for name, draw in (("actions", plot.actions), ("bandwidths", plot.bandwidths), ("curve", plot.dose_response)):
        draw().figure.savefig(IMAGES / f"continuous-{name}.png", dpi=110, metadata={"Software": None})
        plt.close("all")


if __name__ == "__main__":
    main()
