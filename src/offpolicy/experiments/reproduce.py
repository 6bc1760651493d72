"""One experiment from its settings to its table, picture and verdicts."""

from __future__ import annotations

from pathlib import Path

from offpolicy.experiments import figures, show
from offpolicy.experiments.results import Results
from offpolicy.experiments.runner import run
from offpolicy.experiments.spec import Experiment
from offpolicy.experiments.store import Store
from offpolicy.files import whole_file


def reproduce(experiment: Experiment, out: Path, *, processes: int | None = None, progress: bool | None = None) -> Results:
    """Run what is missing in the folder `out`, and write summary.md and figure.png beside the results."""
    results = run(experiment, Store.open(out, experiment), processes, progress)
    with whole_file(out / "summary.md") as draft:
        draft.write_text(show.markdown(results))
    figures.write(results, out / "figure.png")
    return results
