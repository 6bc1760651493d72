"""CSV files and frames as people have them: what cannot be read is refused in words that name column, row and remedy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import offpolicy as op
from offpolicy.core.files import whole_file
from offpolicy.data.list_cells import plain_lists

ROWS = 300


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    item = rng.choice(["Tee, grün", "Boys'", "Girls'"], ROWS)
    return pd.DataFrame({"age": rng.normal(size=ROWS), "land": "Köln", "item": item, "umsatz": rng.random(ROWS), "p": 1 / 3})


def read(source: object, **roles: object) -> op.Log:
    return op.read_log(
        source, **({"context": ["age", "land"], "action": "item", "reward": "umsatz", "propensity": "p"} | roles)
    )


def written(tmp_path: Path, data: pd.DataFrame, **how: object) -> Path:
    path = tmp_path / "log.csv"
    data.to_csv(path, index=False, **how)
    return path


def cell(column: str, row: int, value: object) -> pd.DataFrame:
    data = frame().astype({column: object})
    data.loc[row, column] = value
    return data


@pytest.mark.parametrize("value", ["-", "yes", "12,50", "12.50 €", "27.6%"])
def test_text_where_a_number_is_needed(tmp_path: Path, value: str) -> None:
    with pytest.raises(
        op.InputError, match=rf"umsatz: 1 row does not contain a number \(the first: '{value}'\).*log.csv row 217"
    ):
        read(written(tmp_path, cell("umsatz", 217, value)))


def test_numbers_as_text(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    data = frame().assign(umsatz=frame()["umsatz"].map(str))
    pq.write_table(pa.Table.from_pandas(data), tmp_path / "log.parquet")
    with pytest.raises(op.InputError, match="umsatz: contains numbers as text"):
        read(tmp_path / "log.parquet")


def test_text_that_comes_late(tmp_path: Path) -> None:
    """Beyond the first block, by which the types are told."""
    path = tmp_path / "log.csv"
    rows = "1.5,Köln,a,0.25,0.5\n1.5,Köln,b,0.25,0.5\n"
    path.write_text("age,land,item,umsatz,p\n" + rows * 150_000 + "n/a,Köln,a,0.25,0.5\n")
    with pytest.raises(op.InputError, match="age: log.csv.* contains 'n/a', but the column starts with double values"):
        op.evaluate(read(path), op.Uniform(), op.SNIPS())


def test_the_column_is_that_of_the_file(tmp_path: Path) -> None:
    """Where a later file has its columns in another order."""
    (tmp_path / "a.csv").write_text("age,land,item,umsatz,p\n1.5,K,a,0.25,0.5\n1.5,K,b,0.25,0.5\n")
    rows = "0.25,0.5,a,K,1.5\n0.25,0.5,b,K,1.5\n" * 150_000
    (tmp_path / "b.csv").write_text("umsatz,p,item,land,age\n" + rows + "oops,0.5,a,K,1.5\n")
    with pytest.raises(op.InputError, match="umsatz: b.csv.* contains 'oops'"):
        op.evaluate(read(tmp_path), op.Uniform(), op.SNIPS())


def test_what_is_missing_is_not_taken_for_text(tmp_path: Path) -> None:
    data = cell("umsatz", 9, "yes")
    data.loc[5, "umsatz"] = None
    with pytest.raises(op.InputError, match=r"1 row does not contain a number \(the first: 'yes'\).*row 9"):
        read(written(tmp_path, data))


def test_other_encodings_and_separators(tmp_path: Path) -> None:
    with pytest.raises(op.InputError, match="land has type binary.*not UTF-8 text.*encoding='latin-1'"):
        read(written(tmp_path, frame().assign(item="a"), encoding="latin-1"))
    with pytest.raises(op.InputError, match=r"is not UTF-8 text.*encoding='utf-16'"):
        read(written(tmp_path, frame(), encoding="utf-16"))
    (tmp_path / "log.csv").write_bytes("age,land\r\n1,K\r\n".encode("utf-16"))
    with pytest.raises(op.InputError, match="is not UTF-8 text"):
        read(tmp_path / "log.csv")
    with pytest.raises(op.InputError, match=r"one column, called 'age;land.*delimiter=';'"):
        read(written(tmp_path, frame().assign(item="a"), sep=";"))
    with pytest.raises(op.InputError, match=r"separated by semicolons.*delimiter=';'.*decimal=','"):
        read(written(tmp_path, frame().assign(item="a"), sep=";", decimal=","))
    read(written(tmp_path, frame(), encoding="utf-8-sig", lineterminator="\r\n"))


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("age,land,land,item,umsatz,p,,\n1,a,b,c,0,0.5,,\n2,a,b,d,0,0.5,,\n")
    with pytest.raises(op.InputError, match="land: 2 columns have this name; rename all but one"):
        read(path)
    assert len(read(path, context="age")) == 2  # names that nobody uses may stand twice, as in files from spreadsheets
    twice = pd.concat([frame(), frame()[["land"]]], axis=1)
    with pytest.raises(op.InputError, match="the data frame cannot be read: Duplicate column names found.*'land'"):
        read(twice)


def test_frames_of_mixed_values_and_of_dates() -> None:
    with pytest.raises(op.InputError, match="the data frame cannot be read.*one type"):
        read(cell("land", 7, 12))
    with pytest.raises(op.InputError, match=r"land has type timestamp.*Pass dates=.*\(--dates hour,weekday\)"):
        read(frame().assign(land=pd.Timestamp("2026-01-01")))


def test_what_came_of_the_action_is_no_context() -> None:
    for name in ("umsatz", "item"):
        with pytest.raises(op.InputError, match=f"{name} is also named as context"):
            read(frame(), context=["age", name])


def test_what_is_no_log_or_no_estimator() -> None:
    with pytest.raises(op.InputError, match="log is a DataFrame; create a log first"):
        op.evaluate(frame(), op.Uniform())  # type: ignore[arg-type]
    with pytest.raises(op.InputError, match=r"write DR\(\)"):
        op.evaluate(read(frame()), op.Uniform(), op.DR)  # type: ignore[arg-type]
    with pytest.raises(op.InputError, match=r"'DR' is not an estimator; pass objects, such as op.DR\(\)"):
        op.evaluate(read(frame()), op.Uniform(), "DR")  # type: ignore[arg-type]


def test_bars_win_over_commas_and_quotes_belong_to_labels(tmp_path: Path) -> None:
    path = written(tmp_path, frame().assign(items="Tee, grün | Boys'|Girls'", q="0.2|0.3|0.5"))
    expected = op.evaluate(read(frame()), op.Fixed({"Tee, grün": 0.2, "Boys'": 0.3, "Girls'": 0.5}), op.DR())["DR"].value
    assert op.evaluate(read(path), op.Candidates("items", "q"), op.DR())["DR"].value == pytest.approx(expected, rel=1e-3)


def test_lists_do_not_depend_on_the_cells_around_them() -> None:
    cells = ["a|a,b|b", "a,b", "x;y,z", '["a|b", null]', None, "alone"]
    expected = [["a", "a,b", "b"], ["a", "b"], ["x", "y,z"], ["a|b", None], None, ["alone"]]
    assert plain_lists(pa.array(cells)).to_pylist() == expected
    assert [plain_lists(pa.array([each])).to_pylist()[0] for each in cells if each] == [e for e in expected if e]
    assert plain_lists(pa.array(["a|b,c", "d"])).to_pylist() == [["a", "b,c"], ["d"]]


def test_lists_that_do_not_fit(tmp_path: Path) -> None:
    path = written(tmp_path, frame().assign(items="Tee, grün,Boys'", q="0.2,0.8"))
    with pytest.raises(
        op.InputError, match=r"the first: 3 actions, 2 probabilities.*read as \['Tee', 'grün', \"Boys'\"\].*JSON"
    ):
        op.evaluate(read(path), op.Candidates("items", "q"), op.SNIPS())
    data = frame().assign(items="Boys'|Girls'", q="0.5|0.5")
    data.loc[3, "items"] = None
    with pytest.raises(op.InputError, match="1 row has no list"):
        op.evaluate(read(written(tmp_path, data)), op.Candidates("items", "q"), op.SNIPS())
    data = frame().assign(items="Boys'|Girls'", q="50%|50%")
    with pytest.raises(op.InputError, match="such as '50%', but probabilities are numbers"):
        op.evaluate(read(written(tmp_path, data)), op.Candidates("items", "q"), op.SNIPS())
    with pytest.raises(op.InputError, match="name the column of each action"):
        op.Columns({})
    with pytest.raises(op.InputError, match="Columns: values have mixed"):
        op.evaluate(read(frame()), op.Columns({0: "p", "1": "p"}), op.SNIPS())


def test_a_report_where_nothing_can_be_written(tmp_path: Path) -> None:
    result = op.evaluate(read(frame()), op.Uniform(), op.SNIPS())
    with pytest.raises(op.InputError, match="no such folder"):
        result.write_html(tmp_path / "nowhere" / "r.html")
    with pytest.raises(op.InputError, match="cannot be written"):
        result.write_html("/proc/r.html")


def test_errors_of_other_files_are_theirs(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), whole_file(tmp_path / "out.txt"):
        (tmp_path / "nothere.txt").read_text()
    with pytest.raises(op.InputError, match="cannot be written"), whole_file(tmp_path / ("x" * 252 + ".txt")) as draft:
        draft.write_text("")
