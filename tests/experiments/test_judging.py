"""What the defaults must hold on one half of the bench: by hand, on a few made-up runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.judging import Bar, Runs, geometric, of_spread, ok_cells
from offpolicy.core.arrays import FloatArray
from offpolicy.experiments.bench import Bench
from offpolicy.experiments.runner import run
from offpolicy.experiments.runs import Results
from offpolicy.experiments.store import Store

NAMES = ("Auto", "SNIPS", "SNDR")
BENCH = Bench([f"{name}={name.lower()}" for name in NAMES], worlds=["toy:n_actions=5", "toy:n_actions=6"], rounds=50)


def runs_of(values: FloatArray, effective: float = 600.0) -> Runs:
    """Two kinds with a truth of 0; estimators × kinds × worlds × logs."""
    values = np.asarray(values, float)
    _, kinds, worlds, logs = values.shape
    experiment = replace(BENCH.experiment(), worlds=worlds, logs=logs)
    truth, ones = np.zeros((kinds, worlds)), np.ones(values.shape)
    results = Results(experiment, values, truth, truth, {}, (np.abs(values) < 1).astype(float), ones, ones)
    return Runs(results, {"std_error": ones, "effective_rounds": effective * ones}, [5, 6])


def errors(auto: float, snips: tuple[float, float], sndr: tuple[float, float], worlds: int = 4) -> FloatArray:
    """One log per world with these errors; of the others in worlds with even and with odd numbers."""
    each = [(auto, auto), snips, sndr]
    row = np.array([np.resize(pair, worlds) for pair in each])
    return np.broadcast_to(row[:, None, :, None], (3, 2, worlds, 1)).copy()


@pytest.mark.parametrize(
    ("value", "error", "verdict"),
    [(1.1, 0.3, "met"), (1.3, 0.1, "not met, within two standard errors"), (1.3, 0.01, "missed")],
)
def test_a_requirement_is_missed_beyond_two_errors(value: float, error: float, verdict: str) -> None:
    assert Bar("Auto", value, error, limit=1.2).verdict == verdict
    assert Bar("coverage", -value, error, limit=-1.2, least=True).verdict == verdict


def test_the_best_is_chosen_on_one_half_and_scored_on_the_other() -> None:
    """SNIPS is best in even worlds (1 against 4) and SNDR in odd ones (4 against 9): each is scored where it was not chosen."""
    runs = runs_of(errors(2.0, (1.0, 3.0), (2.0, 2.0)))
    figure, error = runs.with_error(runs.to_best("Auto", ("SNIPS", "SNDR")))
    assert figure == pytest.approx([(4 + 4) / (9 + 4)] * 2)
    assert error == pytest.approx([0, 0])  # all worlds of a half are alike
    assert float(geometric(figure, [True, False])) == pytest.approx(8 / 13)


def test_the_last_of_an_odd_number_of_worlds_is_left_out() -> None:
    values = errors(2.0, (1.0, 1.0), (1.0, 1.0), worlds=5)
    values[0, :, 4] = 100.0
    runs = runs_of(values)
    assert runs.halves.tolist() == [[0, 2], [1, 3]]
    assert {draw.shape for draw in runs.draws} == {(2, 2)}
    assert runs.with_error(runs.to_best("Auto", ("SNIPS",)))[0] == pytest.approx([4, 4])


def test_standard_errors_relative_to_the_spread_within_worlds() -> None:
    """Two logs at ±1 around any mean have a standard deviation of √2; the stated error is 1."""
    values = np.broadcast_to(np.array([4.0, 6.0]), (3, 2, 4, 2)).copy()
    assert of_spread(runs_of(values), "Auto")[0] == pytest.approx([0.5**0.5] * 2)


def test_runs_with_verdict_ok_are_counted_by_estimator_and_kind() -> None:
    cells = ok_cells(runs_of(errors(2.0, (0.5, 3.0), (0.5, 0.5))))
    assert [(c["estimator"], c["ok"], c["ok_held"]) for c in cells[::2]] == [("Auto", 4, 0), ("SNIPS", 4, 2), ("SNDR", 4, 4)]


def test_stored_runs_are_read(tmp_path: Path) -> None:
    """A run that was stopped has fewer worlds than it was to have."""
    bench = replace(BENCH, estimators=["SNIPS=snips"], runs=2)
    experiment = bench.experiment()
    results = run(experiment, Store.open(tmp_path, experiment), 1)
    runs = Runs.read(tmp_path, replace(bench, runs=9))
    np.testing.assert_array_equal(runs.results.values, results.values)
    assert runs.actions == [5, 6]
    assert (runs.effective > 1).all()
    assert runs.stored["std_error"].shape == results.values.shape == (1, 2, 2, 1)
