"""Run an experiment or a study, and write its tables and figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from offpolicy.core.errors import InputError
from offpolicy.core.files import whole_file
from offpolicy.experiments import figures, study_tables, tables
from offpolicy.experiments.experiment import Experiment
from offpolicy.experiments.runner import run
from offpolicy.experiments.runs import Results
from offpolicy.experiments.store import Store
from offpolicy.experiments.study import Study


def reproduce(experiment: Experiment, out: Path, *, processes: int | None = None, progress: bool | None = None) -> Results:
    """Run what is missing in the folder `out`, and write summary.md and figure.png next to the results."""
    if experiment.study is not None:
        raise InputError(f"{experiment.name} is a study; use `offpolicy study`.")
    results = run(experiment, Store.open(out, experiment), processes, progress)
    with whole_file(out / "summary.md") as draft:
        draft.write_text(tables.markdown(results))
    figures.write(results, out / "figure.png")
    return results


def study(
    experiment: Experiment, out: Path, *, processes: int | None = None, progress: bool | None = None
) -> dict[str, Any]:
    """Run what is missing in the folder `out`, and return the summary, which is also written there with a figure."""
    if experiment.study is None:
        raise InputError(f"{experiment.name} is not a study, because it has no [study] section; use `offpolicy reproduce`.")
    store = Store.open(out, experiment)
    run(experiment, store, processes, progress)
    summary = Study.of(experiment, experiment.study, store.read()).summary()
    with whole_file(out / "summary.json") as draft:
        draft.write_text(json.dumps(summary, indent=1, allow_nan=False) + "\n")
    with whole_file(out / "summary.md") as draft:
        draft.write_text(study_tables.markdown(summary))
    figures.write_study(summary, out / "figure.png")
    return summary
