"""The tables and the picture of docs/coverage.md, and the coverage that findings quote, from the results of the studies.

python -m docs.pictures.coverage [RESULTS]     first copies each RESULTS/NAME/summary.json that exists to docs/measured
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from offpolicy.estimators.text import estimator
from offpolicy.experiments import figures, study_tables
from offpolicy.experiments.config import STUDIES, load
from offpolicy.experiments.entries import MIPS_TRUE

DOCS = Path(__file__).parent.parent
PAGE, MEASURED, PICTURE = DOCS / "coverage.md", DOCS / "measured", DOCS / "images" / "coverage.png"
PACKAGED = DOCS.parent / "src" / "offpolicy" / "diagnostics" / "coverage.json"
MARK = re.compile(r"(<!-- table: (\w+) (\w+)(?: ([^>]+?))? -->\n).*?(<!-- end -->)", re.S)
BIASED = (
    "DM",
    "LearnedMIPS",
    "LearnedMDR",
    "GroupIPS",
    "OffCEM",
    "MIPS",
    "MDR",
    "MR",
    "ClippedIPS",
    "SubGaussianIPS",
    "SwitchDR",
    "DRos",
    "CAB",
    "ScaledDR",
)
"""Estimators that are biased by design, which their intervals do not account for."""
FAIR = ("well specified", "misspecified", "few rounds", "rare clicks", "many actions", "clustered users", "far target")
"""Worlds whose log contains the answer and names its clusters."""


def summary(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((MEASURED / f"{name}.json").read_text())
    return loaded


def filled(page: str) -> str:
    """The page with every marked table rewritten."""

    def table(found: re.Match[str]) -> str:
        head, name, kind, of, end = found.groups()
        made = study_tables.TABLES[kind](summary(name), *([of] if of else []))
        return "\n".join([head.rstrip(), "", *study_tables.as_markdown(made), "", end])

    return MARK.sub(table, page)


def packaged(study: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The lowest and highest coverage of normal 95% intervals over the fair worlds, by class of estimator."""
    kinds: dict[str, list[float]] = {}
    for entry in load("coverage").entries:
        kind = type(estimator(entry.text)).__name__ if entry.text != MIPS_TRUE else ""
        for world in FAIR:
            cell = study["coverage"][world].get(entry.label, {}).get("normal")
            if kind in BIASED and cell is not None:
                kinds.setdefault(kind, []).append(cell["held"][study["levels"].index(0.95)])
    return {
        kind: {
            "least": round(min(held), 3),
            "most": round(max(held), 3),
            "worlds": sum(world in study["coverage"] for world in FAIR),
        }
        for kind, held in sorted(kinds.items())
    }


def main(results: Path | None) -> None:
    made = [] if results is None else [(name, results / name / "summary.json") for name in STUDIES]
    for name, path in made:
        if path.exists():  # the others keep their results
            shutil.copy(path, MEASURED / f"{name}.json")
    PAGE.write_text(filled(PAGE.read_text()))
    PACKAGED.write_text(json.dumps(packaged(summary("coverage")), indent=1) + "\n")
    figures.write_study(summary("coverage"), PICTURE)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
