"""A ratio written outside the package, in this one file: how often rounds fall on each weekday under the new policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import offpolicy as op

DAYS = ("Mon", "Tue", "Wed")
MIX = (0.5, 0.3, 0.2)


def codes(batch: Any) -> np.ndarray:
    return np.array([DAYS.index(day) for day in batch.extra["weekday"].to_pylist()], np.int64)


@dataclass(frozen=True)
class DayCounts:
    """Rounds of each weekday, by fold."""

    fitting: Any
    folds: int
    columns: tuple[str, ...] = ("weekday",)
    batch_rows: int | None = None

    __hash__ = object.__hash__

    def zero(self) -> dict[str, np.ndarray]:
        return {"rounds": np.zeros((self.folds, len(DAYS)))}

    def fold(self, state: dict[str, np.ndarray], batch: Any) -> dict[str, np.ndarray]:
        shape = self.fitting.shape
        fold = shape.group(batch) * self.folds // shape.groups
        np.add.at(state["rounds"], (fold, codes(batch)), 1.0)
        return state

    def merge(self, a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"rounds": a["rounds"] + b["rounds"]}

    def finish(self, state: dict[str, np.ndarray]) -> np.ndarray:
        return state["rounds"]


@dataclass(frozen=True)
class WeekdayRatio(op.Ratio):
    """The share of a weekday under the new policy, over its share of the log."""

    mix: tuple[float, ...]
    cross_fit: int = 0
    columns: tuple[str, ...] = ("weekday",)

    def lacks(self, available: Any) -> str | None:
        return None if sum(self.mix) == 1 else "its shares do not sum to 1"  # needs no propensities

    def statistics(self, fitting: Any) -> tuple[Any, ...]:
        return (DayCounts(fitting, max(self.cross_fit, 1)),)

    def fit(self, fitting: Any, results: Sequence[Any]) -> op.FittedRatio:
        rounds = results[0]
        used = rounds.sum(axis=0) - rounds if self.cross_fit else rounds
        return WeekdayWeights(np.array(self.mix) / (used / used.sum(axis=1, keepdims=True)))


@dataclass(frozen=True)
class WeekdayWeights(op.FittedRatio):
    by_day: np.ndarray

    def weights(self, rounds: Any) -> np.ndarray:
        return self.by_day[rounds.fold, codes(rounds.batch)]


@dataclass(frozen=True)
class Weekdays(op.Estimator):
    mix: tuple[float, ...] = MIX
    cross_fit: int = 0
    normalised: bool = False

    def members(self, cross_fit: int | None = None) -> tuple[op.Member, ...]:
        return (op.Member(op.Weight(WeekdayRatio(self.mix, self.cross_fit)), normalised=self.normalised),)


def table(rows: int = 600) -> pa.Table:
    rng = np.random.default_rng(1)
    day = rng.choice(3, rows, p=[0.2, 0.3, 0.5])
    return pa.table(
        {
            "weekday": np.array(DAYS)[day],
            "x": rng.normal(size=rows),
            "a": rng.integers(0, 2, rows),
            "r": day + rng.normal(size=rows),
            "p": np.full(rows, 0.5),
            "new": rng.random(rows),
        }
    )


def log(rows: pa.Table, **more: Any) -> op.Log:
    return op.read_log(rows, context=["x"], action="a", reward="r", **{"propensity": "p", **more})


def by_hand(rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    day = np.array([DAYS.index(d) for d in rows["weekday"].to_pylist()])
    share = np.bincount(day) / len(day)
    return (np.array(MIX) / share)[day], rows["r"].to_numpy()


def test_it_is_the_mean_of_weighted_rewards() -> None:
    rows = table()
    w, r = by_hand(rows)
    own = [Weekdays(), Weekdays(normalised=True, name="normalised")]
    result = op.evaluate(log(rows, reward_range=(-10, 10)), op.Column("new"), [op.IPS(), *own], progress=False)
    plain, normalised = result["Weekdays"], result["normalised"]
    np.testing.assert_allclose(plain.value, (w * r).mean(), rtol=1e-12)
    np.testing.assert_allclose(normalised.value, (w * r).sum() / w.sum(), rtol=1e-12)
    np.testing.assert_allclose(plain.std_error, np.std(w * r, ddof=1) / np.sqrt(len(r)), rtol=1e-9)
    np.testing.assert_allclose(plain.diagnostics["effective_sample_size"], w.sum() ** 2 / (w @ w), rtol=1e-9)
    assert plain.diagnostics["fit_not_covered"]
    bounded = plain.confidence_interval(method="cressie-read")  # asks for the largest weight
    assert bounded.low < plain.value < bounded.high


def test_folds_are_weighed_by_the_rounds_of_the_others() -> None:
    rows = table()
    result = op.evaluate(log(rows), op.Column("new"), [Weekdays(cross_fit=2), Weekdays(name="once")], progress=False)
    w, r = by_hand(rows)
    folds = _folds(log(rows), 2)
    day = np.array([DAYS.index(d) for d in rows["weekday"].to_pylist()])
    for fold in range(2):
        other = np.bincount(day[folds != fold])
        w[folds == fold] = (np.array(MIX) / (other / other.sum()))[day[folds == fold]]
    np.testing.assert_allclose(result["Weekdays"].value, (w * r).mean(), rtol=1e-12)
    assert result["Weekdays"].value != result["once"].value


def _folds(some: op.Log, folds: int) -> np.ndarray:
    from offpolicy.core.hashing import buckets, group_of_bucket

    batches = list(some.batches())
    order = np.argsort(np.concatenate([batch.row for batch in batches]))
    return group_of_bucket(folds)[buckets(np.concatenate([batch.unit for batch in batches]), 0)][order]


def test_a_log_without_propensities_is_enough_for_it() -> None:
    rows = table()
    w, r = by_hand(rows)
    result = op.evaluate(log(rows, propensity=None), op.Column("new"), Weekdays(), progress=False)
    np.testing.assert_allclose(result["Weekdays"].value, (w * r).mean(), rtol=1e-12)


def test_what_it_lacks_is_said_in_its_own_words() -> None:
    with pytest.raises(op.InputError, match="Weekdays cannot be computed: its shares do not sum to 1"):
        op.evaluate(log(table()), op.Column("new"), Weekdays(mix=(0.5, 0.5, 0.5)), progress=False)


def test_the_result_shows_and_saves(tmp_path: Path) -> None:
    rows = table()
    result = op.evaluate(log(rows), op.Column("new"), [op.SNIPS(), Weekdays()], progress=False)
    told = next(e for e in result.to_dict()["estimates"] if e["estimator"] == "Weekdays")
    assert told["value"] == result["Weekdays"].value
    assert told["diagnostics"]["fit_not_covered"]
    result.write_html(tmp_path / "page.html")
    assert "Weekdays" in (tmp_path / "page.html").read_text()
    result.save(tmp_path / "result.json")
    assert op.load_result(tmp_path / "result.json")["Weekdays"].value == result["Weekdays"].value
    result["Weekdays"].scores(tmp_path / "scores.parquet")
    w, _ = by_hand(rows)
    np.testing.assert_allclose(pq.read_table(tmp_path / "scores.parquet")["weight"].to_numpy(), w, rtol=1e-12)


def test_a_weight_must_have_a_ratio() -> None:
    with pytest.raises(op.InputError, match="give an op.Ratio"):
        op.Weight("actions")  # type: ignore[arg-type]
    assert op.Weight("action") == op.Weight()
