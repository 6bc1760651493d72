"""Missing values, dates and very many levels in the context: refused with the option to use, and prepared with it."""

from __future__ import annotations

import html
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import offpolicy as op
from offpolicy.core.hashing import hash_values

N = 3_000
ROLES: dict[str, Any] = {"action": "item", "reward": "click", "propensity": "p"}
ALL: dict[str, Any] = {"missing": "mean", "dates": ("hour", "weekday"), "levels": 16}


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({
        "age": rng.normal(40, 10, N), "country": rng.choice(["DE", "FR", "IT"], N),
        "time": pd.Timestamp("2026-03-01") + pd.to_timedelta(rng.integers(0, 90 * 86_400, N), unit="s"),
        "shop": [f"shop {k}" for k in rng.permutation(N) // 2], "item": rng.choice(["a", "b", "c"], N),
        "click": rng.integers(0, 2, N), "p": 1 / 3, "id": np.arange(N),
    })  # fmt: skip
    table.loc[::10, "age"] = np.nan
    table.loc[::7, "country"] = None
    table.loc[::11, "time"] = pd.NaT
    return table


FRAME = frame()


def read(source: Any = FRAME, **options: Any) -> op.Log:
    return op.read_log(source, **{**ROLES, "context": ["age", "country", "time", "shop"], **options})


def context(log: op.Log) -> np.ndarray:
    return np.vstack([batch.context for batch in log.batches()])


def evaluated(log: op.Log, policy: Any = None) -> op.Evaluation:
    return op.evaluate(log, op.Uniform() if policy is None else policy, [op.DR()])


@pytest.mark.parametrize(
    ("column", "option"),
    [
        ("age", r'age: 300 rows are missing.*missing="mean" \(--missing mean\)'),
        ("country", r'country: 429 rows are missing.*missing="level" \(--missing level\)'),
        ("time", r"time has type timestamp.*dates=.*\(--dates hour,weekday\)"),
        ("shop", r"shop: 1,500 different values are too many.*levels=64 \(--levels 64\)"),
    ],
)
def test_what_is_refused_names_the_option(column: str, option: str) -> None:
    with pytest.raises(op.InputError, match=option):
        evaluated(read(context=column))


def test_missing_numbers_become_the_mean_and_are_marked() -> None:
    log = read(context="age", missing="mean")
    assert log.schema.context == ("age", "age is missing")
    x = context(log)
    missing = FRAME["age"].isna().to_numpy()
    np.testing.assert_array_equal(x[:, 1], missing)
    np.testing.assert_allclose(x[missing, 0], FRAME["age"].mean(), rtol=1e-14)
    np.testing.assert_array_equal(x[~missing, 0], FRAME["age"][~missing])


def test_missing_text_is_a_level_of_its_own() -> None:
    for missing in ("level", "mean"):
        log = read(context="country", missing=missing)
        assert log.schema.context == ("country=DE", "country=FR", "country=IT", "country is missing")
        np.testing.assert_array_equal(context(log).argmax(axis=1)[:8], pd.Categorical(FRAME["country"]).codes[:8] % 4)
        np.testing.assert_array_equal(context(log).sum(axis=1), 1)


def test_columns_without_missing_values_are_read_as_before() -> None:
    full = FRAME.fillna({"age": 1.0, "country": "DE"})
    assert read(full, context=["age", "country"], missing="mean").schema.context == (
        "age",
        *(f"country={c}" for c in ("DE", "FR", "IT")),
    )


def test_missing_numbers_are_not_a_level() -> None:
    with pytest.raises(op.InputError, match=r'age: 300 rows are missing.*missing="mean"'):
        evaluated(read(context=["age", "country"], missing="level"))


def test_infinite_values_and_empty_columns_have_no_mean() -> None:
    with pytest.raises(op.InputError, match="age: 1 row is infinite"):
        evaluated(read(FRAME.assign(age=FRAME["age"].where(FRAME.index != 5, np.inf)), context="age", missing="mean"))
    with pytest.raises(op.InputError, match="age: all 3,000 values are missing"):
        read(FRAME.assign(age=np.nan), context="age", missing="mean")


def test_no_two_columns_of_the_context_have_one_name() -> None:
    with pytest.raises(op.InputError, match="age is missing: two columns of the prepared context have this name"):
        read(FRAME.assign(**{"age is missing": 1.0}), context=["age", "age is missing"], missing="mean")


def test_slices_and_features_still_need_every_value() -> None:
    with pytest.raises(op.InputError, match=r"country: 429 rows are missing \(null\).*remove those rows first\. "):
        read(context=["country"], missing="level", by="country")
    with pytest.raises(op.InputError, match="country: 429 rows are missing"):
        read(context=[], action_features="country", missing="mean")
    with pytest.raises(op.InputError, match="shop: 1,500 different values are too many for a slice"):
        read(context=["shop"], levels=16, by="shop")


def test_parts_of_dates() -> None:
    times = pd.Series(pd.to_datetime(["2026-01-05 18:00", "1969-12-28 06:00", "2024-02-29 00:00", "2026-12-31 12:00"]))
    table = pd.DataFrame({"time": times, "item": [0, 1, 0, 1], "click": [0, 1, 1, 0], "p": 0.5})
    log = read(table, context="time", dates=("hour", "weekday", "weekend", "month", "days"))
    x = dict(zip(log.schema.context, context(log).T, strict=True))
    np.testing.assert_allclose(x["time hour sin"], [-1, 1, 0, 0], atol=1e-12)
    np.testing.assert_allclose(x["time hour cos"], [0, 0, 1, -1], atol=1e-12)
    days = [name.partition("=")[2] for name in x if "weekday" in name]
    assert [
        days[k] for k in np.array([x[f"time weekday={day}"] for day in days]).argmax(axis=0)
    ] == times.dt.day_name().tolist()
    assert x["time weekend"].tolist() == [0, 1, 0, 0]
    np.testing.assert_allclose(
        np.arctan2(x["time month sin"], x["time month cos"]) % (2 * np.pi) * 6 / np.pi, times.dt.month - 1, atol=1e-9
    )
    np.testing.assert_allclose(x["time days"], (times - pd.Timestamp(0)) / pd.Timedelta(days=1), rtol=1e-15)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_units_and_time_zones_do_not_matter(unit: str) -> None:
    dates = ("hour", "weekday", "days")
    whole = read(context="time", dates=dates, missing="mean")
    zoned = FRAME.assign(time=FRAME["time"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo").dt.as_unit(unit))
    np.testing.assert_array_equal(context(read(zoned, context="time", dates=dates, missing="mean")), context(whole))


def test_dates_without_a_time_have_no_hour() -> None:
    table = FRAME.assign(day=FRAME["time"].fillna(pd.Timestamp("2026-01-01")).dt.date)
    assert "day weekend" in read(table, context=["day"], dates=("hour", "weekend")).schema.context
    with pytest.raises(op.InputError, match="day has dates without a time of day"):
        read(table, context="day", dates="hour")
    with pytest.raises(op.InputError, match=r"dates: no column of the context has dates or timestamps: age \(double\)"):
        read(context="age", dates="hour")


def test_text_with_many_values_is_hashed() -> None:
    log = read(context=["shop"], levels=16)
    assert log.schema.context == tuple(f"shop=hash {k}" for k in range(16))
    bucket = hash_values(pa.array(FRAME["shop"])) % np.uint64(16)
    np.testing.assert_array_equal(context(log).argmax(axis=1), bucket)
    assert read(context=["country"], levels=16, missing="level").schema.context[0] == "country=DE"  # few enough
    lost = FRAME.assign(shop=FRAME["shop"].where(FRAME.index % 5 > 0))
    x = context(read(lost, context=["shop"], levels=16, missing="level"))
    np.testing.assert_array_equal(x[:, 16], lost["shop"].isna())
    np.testing.assert_array_equal(x.sum(axis=1), 1)


def test_the_context_is_the_same_from_every_source(tmp_path: Path) -> None:
    shuffled = FRAME.sample(frac=1, random_state=0)
    FRAME.to_csv(tmp_path / "log.csv", index=False)
    pq.write_table(pa.table(FRAME), tmp_path / "log.parquet", row_group_size=700)
    folder = tmp_path / "parts"
    folder.mkdir()
    for k, piece in enumerate(np.array_split(np.arange(N), 5)):
        pq.write_table(pa.table(shuffled.iloc[piece]), folder / f"{k}.parquet")
    options = {**ALL, "row_id": "id"}
    whole = read(**options)
    for source in (tmp_path / "log.csv", tmp_path / "log.parquet"):
        log = read(source, **options)
        assert (log.schema.context, log.schema.preparation) == (whole.schema.context, whole.schema.preparation)
        np.testing.assert_array_equal(context(log), context(whole))
    parts = read(folder, **options)
    assert parts.schema.preparation == whole.schema.preparation
    np.testing.assert_array_equal(context(parts), context(whole)[shuffled["id"]])
    assert evaluated(parts)["DR"].value == pytest.approx(evaluated(whole)["DR"].value, rel=1e-12)


def test_a_later_cell_of_a_csv_file_that_is_no_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offpolicy.data.sources.parts.CSV_BLOCK_BYTES", 1 << 12)
    table = FRAME.assign(time=FRAME["time"].fillna(pd.Timestamp("2026-01-01")).dt.strftime("%Y-%m-%d %H:%M:%S"))
    table.loc[2_500, "time"] = "2026-02-31 00:00:00"
    table.loc[2_600, "time"] = "soon"
    table.to_csv(tmp_path / "log.csv", index=False)
    with pytest.raises(op.InputError, match="time: 2 rows do not contain a date .*log.csv row 2500, log.csv row 2600"):
        evaluated(read(tmp_path / "log.csv", context="time", dates=("hour",)))


def test_arrays_are_prepared_as_tables_are() -> None:
    columns = FRAME[["age", "country", "time", "shop"]]
    log = op.Log(columns, FRAME["item"], FRAME["click"], propensity=FRAME["p"], **ALL)
    np.testing.assert_array_equal(context(log), context(read(**ALL)))
    named = dict(zip(columns, ("x0", "x1", "x2", "x3"), strict=True))
    assert log.schema.context[:2] == ("x0", "x0 is missing")
    assert [note.partition(":")[0] for note in log.schema.preparation.notes] == list(named.values())
    rows = [[1, "a"], [None, "b"], [3, None]]
    few = op.Log(rows, [0, 1, 0], [1, 0, 1], propensity=[0.5] * 3, missing="mean")
    assert context(few).tolist() == [[1, 0, 1, 0, 0], [2, 1, 0, 1, 0], [3, 0, 0, 0, 1]]


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (FRAME["age"], {}, r'context: 300 rows are missing.*missing="mean"'),
        (FRAME["time"], {}, r"context x0 has type timestamp.*dates="),
        (FRAME["country"], {"levels": 5}, r'context x0: 429 rows are missing.*missing="level"'),
        (FRAME["shop"], {"missing": "level"}, "context x0: 1,500 different values.*levels=64"),
        (FRAME["age"], {"dates": "hour", "missing": "mean"}, "dates: no column of the context has dates"),
        (FRAME["time"].dt.to_period("D").astype(object), {"missing": "level"}, "context x0: values have mixed or unsupported"),
        (FRAME["age"][1:], {"missing": "mean"}, r"context has shape \(2999, 1\), which does not fit 3000 rounds"),
    ],
)  # fmt: skip
def test_arrays_that_are_refused(values: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(op.InputError, match=message):
        op.Log(values.to_numpy(), FRAME["item"], FRAME["click"], propensity=FRAME["p"], **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"missing": "median"}, "missing is 'median'; give \"level\""),
        ({"dates": "minute"}, "there is no part of dates 'minute'.*Known: 'hour', 'weekday'"),
        ({"dates": [3]}, "there is no part of dates '3'"),
        ({"dates": 5}, "there is no part of dates '5'"),
        ({"missing": ["mean"]}, "missing is .'mean'.; give"),
        ({"levels": 1}, "levels is 1; give a whole number from 2 to 1,000"),
        ({"levels": True}, "levels is True"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(op.InputError, match=message):
        read(**options)


def test_policies_see_the_encoded_context_and_named_columns_as_they_are() -> None:
    log = read(**ALL)
    width = len(log.schema.context)

    def of_context(x: np.ndarray) -> np.ndarray:
        assert x.shape[1] == width
        assert np.isfinite(x).all()
        return np.full((len(x), 3), 1 / 3)

    def of_columns(columns: dict[str, np.ndarray]) -> np.ndarray:
        raw, missing = columns["age"], columns["age is missing"]
        np.testing.assert_array_equal(np.isnan(raw), missing == 1)
        assert {type(value) for value in columns["country"]} == {str, type(None)}
        assert columns["time"].dtype.kind == "M"
        assert columns["shop"][0].startswith("shop ")
        return np.full((len(raw), 3), 1 / 3)

    named = op.Function(of_columns, columns=["age", "age is missing", "country", "time", "shop"])
    values = [evaluated(log, policy)["DR"].value for policy in (of_context, named)]
    assert values[0] == values[1]


@pytest.mark.parametrize("shown", [str, lambda r: r.to_markdown(), lambda r: html.unescape(r._repr_html_())])
def test_the_result_shows_what_was_done(shown: Callable[[op.Evaluation], str], tmp_path: Path) -> None:
    result = evaluated(read(**ALL))
    assert {name: result.settings[name] for name in ALL} == {**ALL, "dates": ["hour", "weekday"]}
    text = " ".join(shown(result).split())
    for said in (
        f"age: 300 missing values replaced by the mean, {FRAME['age'].mean():.6g}",
        "country: 429 missing values as a level of their own",
        "time: hour, weekday, with 273 missing values replaced by the means",
        "shop: more than 16 different values, hashed into 16 columns",
    ):
        assert said in text
    result.save(tmp_path / "result.json")
    assert str(op.load_result(tmp_path / "result.json")) == str(result)
    assert "prepared" not in str(evaluated(read(context=[])))


def test_categories_of_polars() -> None:
    polars = pytest.importorskip("polars")
    lands = polars.Series(["DE", None, "FR", "DE"] * 5, dtype=polars.Categorical)
    table = polars.DataFrame({"land": lands, "item": [0, 1] * 10, "click": [1, 0] * 10, "p": [0.5] * 20})
    log = read(table, context="land", missing="level")
    assert context(log)[:4].tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]]
