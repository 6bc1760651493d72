"""Saved work comes back as it was; a file that is not what it says it is does not come back at all."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.tree import DecisionTreeRegressor
from typer.testing import CliRunner

import offpolicy as op
from conftest import Small, make_small
from offpolicy.cli import settings
from offpolicy.cli.app import app, evaluate
from offpolicy.core import storage
from offpolicy.experiments.config import load
from offpolicy.models.rewards import fitted
from offpolicy.report import html
from offpolicy.results import saved_result as recalled

LABELS = np.array(["ash", "birch", "cedar", "fir"])
SOURCE = Path(op.__file__).parent


def labelled(w: Small, **more: Any) -> op.Log:
    settings = {"propensity": w.propensity, "actions": LABELS.tolist(), **more}
    return op.Log(w.context, LABELS[w.action], w.reward, **settings)


@pytest.fixture(scope="module")
def both() -> tuple[Small, Small]:
    """Two logs of one world: one to fit on, one to evaluate."""
    w = make_small(n=900, seed=3)
    cut = [Small(*(getattr(w, f)[rows] for f in w.__dataclass_fields__)) for rows in (slice(0, 500), slice(500, 900))]
    return cut[0], cut[1]


# --- embeddings


def test_an_embedding_comes_back(both: tuple[Small, Small], tmp_path: Path) -> None:
    table = op.embed(labelled(both[0]), rewards=op.Ridge(penalty=3.0))
    table.save(tmp_path / "e.parquet")
    again = op.load_embedding(tmp_path / "e.parquet")
    for name in ("actions", "counts", "reward", "values", "published", "scaled"):
        np.testing.assert_array_equal(getattr(again, name), getattr(table, name))
    assert again.model == "Ridge(penalty=3.0)"
    assert again.nearest("fir") == table.nearest("fir")
    columns = pq.read_table(tmp_path / "e.parquet").column_names  # any tool reads it
    assert columns == ["action", "count", "reward", "e0", "e1", "e2", "published", "scaled"]


def test_an_embedding_of_features_has_no_reward_and_codes_stay_numbers(small: Small, tmp_path: Path) -> None:
    log = small.log(action_features=small.features)
    table = op.evaluate(log, small.target, [op.MIPS()])["MIPS"].embedding
    table.save(tmp_path / "e.pq")
    again = op.load_embedding(tmp_path / "e.pq")
    assert again.reward is None
    assert again.actions.tolist() == [0, 1, 2, 3]


def test_an_embedding_is_a_catalog_for_another_log(both: tuple[Small, Small]) -> None:
    table = op.embed(labelled(both[0]))
    other = table.aligned(np.array(["fir", "ash"]))
    np.testing.assert_array_equal(other.values, table.values[[3, 0]])
    with pytest.raises(
        op.InputError, match="the embedding does not know 2 of the 3 actions of the log: 'oak', 'yew'.*'ash'"
    ):
        table.aligned(np.array(["oak", "ash", "yew"]))


def edited_table(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(path)), path)


def said_of(table: pa.Table, **other: Any) -> pa.Table:
    about = {**json.loads(table.schema.metadata[b"offpolicy"]), **other}
    return table.replace_schema_metadata({b"offpolicy": json.dumps(about)})


def with_column(name: str, value: Callable[[pa.ChunkedArray], Any]) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        at = table.column_names.index(name)
        return table.set_column(at, name, value(table.column(at)))

    return change


def first(value: float | None) -> Callable[[pa.ChunkedArray], Any]:
    return lambda column: pa.array([value, *column.to_pylist()[1:]], pa.float64())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: said_of(t, version=2),
            "newer offpolicy, in version 2 of the format; this one reads up to version 1.*Upgrade",
        ),
        (lambda t: said_of(t, version="1"), "its version is '1'"),
        (lambda t: said_of(t, format="offpolicy/rewards"), "holds a saved rewards, not a saved embedding; op.load_rewards"),
        (lambda t: t.replace_schema_metadata({}), "is not a saved embedding"),
        (lambda t: said_of(t, sha256="0" * 64), "does not match its checksum"),
        (lambda t: said_of(t, model="Ridge(rank=1)"), "does not match its checksum"),
        (with_column("e0", first(7.0)), "does not match its checksum"),
        (with_column("action", lambda c: pa.array(["oak", *c.to_pylist()[1:]])), "does not match its checksum"),
        (with_column("e0", first(math.nan)), "the column 'e0' does not hold a finite number"),
        (with_column("count", first(None)), "the column 'count' does not hold a finite number"),
        (with_column("e1", lambda c: c.cast(pa.float32())), "the column 'e1' does not hold"),
        (with_column("scaled", lambda c: pa.array([[1.0]] * len(c))), "the column 'scaled' does not hold"),
        (lambda t: t.slice(1), "does not match its checksum"),
        (lambda t: t.drop_columns(["e0"]), "its columns are action, count"),
    ],
)
def test_an_embedding_that_was_edited_is_refused(
    both: tuple[Small, Small], tmp_path: Path, change: Callable[[pa.Table], pa.Table], message: str
) -> None:
    path = tmp_path / "e.parquet"
    op.embed(labelled(both[0])).save(path)
    edited_table(path, change)
    with pytest.raises(op.InputError, match=message) as raised:
        op.load_embedding(path)
    assert str(path) in str(raised.value)


def test_a_file_that_ends_early_is_named(both: tuple[Small, Small], tmp_path: Path) -> None:
    path = tmp_path / "e.parquet"
    op.embed(labelled(both[0])).save(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(op.InputError, match=r"e.parquet: it cannot be read as Parquet.*save it again"):
        op.load_embedding(path)
    with pytest.raises(op.InputError, match="no such file"):
        op.load_embedding(tmp_path / "other.parquet")
    with pytest.raises(op.InputError, match="must end in .parquet"):
        op.embed(labelled(both[0])).save(tmp_path / "e.csv")


# --- reward models


MODELS = [
    (op.Ridge(), {}), (op.Ridge(penalty=2.0, rank=1, intercept=False), {}), (op.Ridge(), {"action_features": True}),
    (op.AdamW(epochs=1), {}), (op.Torch(op.two_layer(3, 5), epochs=1), {}),
    (op.Torch(op.two_layer(3, 5), epochs=1), {"action_features": True}),
]  # fmt: skip


@pytest.mark.parametrize(("model", "more"), MODELS)
def test_a_reward_model_comes_back(both: tuple[Small, Small], tmp_path: Path, model: Any, more: dict[str, Any]) -> None:
    if not isinstance(model, op.Ridge):
        pytest.importorskip("torch")
    old, new = (labelled(w, logging=w.logging, **({"action_features": w.features} if more else {})) for w in both)
    fit = op.fit_rewards(old, model, progress=False)
    fit.save(tmp_path / "q.safetensors")
    again = op.load_rewards(tmp_path / "q.safetensors")
    assert repr(again) == repr(fit)
    results = [
        op.evaluate(new, both[1].target, [op.DM(q), op.DR(q), op.LearnedMIPS(rewards=q), op.OffCEM(2, q)])
        for q in (fit, again)
    ]
    for a, b in zip(*results, strict=True):
        assert a.value == b.value
        assert a.std_error == b.std_error


def test_a_fitted_model_gives_what_its_predictions_give(both: tuple[Small, Small]) -> None:
    """DM by hand: the mean over rounds of Σ_a π(a|x) q(x, a), with q from least squares an action on the other log."""
    old, new = both
    q = op.fit_rewards(labelled(old), op.Ridge(penalty=0))
    design = np.column_stack([old.context, np.ones(len(old.action))])
    coef = np.array([
        np.linalg.lstsq(design[old.action == a], old.reward[old.action == a], rcond=None)[0] for a in range(4)
    ])  # fmt: skip
    predicted = np.column_stack([new.context, np.ones(len(new.action))]) @ coef.T
    result = op.evaluate(labelled(new), new.target, [op.DM(q), op.DR(q)])
    assert result["DM"].value == pytest.approx((new.target * predicted).sum(axis=1).mean(), rel=1e-9)
    given = op.evaluate(labelled(new), new.target, [op.DR(op.Given(predicted))])["DR"]
    assert result["DR"].value == pytest.approx(given.value, rel=1e-9)
    assert result["DR"].std_error == pytest.approx(given.std_error, rel=1e-9)
    assert "fit not covered" in [reason.code for reason in result["DM"].reasons]
    assert "fit not covered" not in [reason.code for reason in result["DR"].reasons]
    told = result["DM"].diagnostics["reward_model"]
    left = new.reward - predicted[np.arange(len(new.action)), new.action]
    assert told["fitted_before"] == 500
    assert told["r2"] == pytest.approx(1 - (left @ left) / ((new.reward - new.reward.mean()) ** 2).sum(), rel=1e-9)


@pytest.mark.parametrize("model", [op.Ridge(), op.Torch(op.two_layer(2, 4), epochs=1)])
def test_a_model_follows_the_labels_of_another_log(both: tuple[Small, Small], model: Any) -> None:
    if isinstance(model, op.Torch):
        pytest.importorskip("torch")
    old, new = both
    q = op.fit_rewards(labelled(old), model, progress=False)
    usual = op.evaluate(labelled(new), new.target, [op.DR(q)])["DR"].value
    turned = op.Log(new.context, LABELS[new.action], new.reward, propensity=new.propensity, actions=LABELS[::-1].tolist())
    assert op.evaluate(turned, new.target[:, ::-1], [op.DR(q)])["DR"].value == pytest.approx(usual, rel=1e-6)


def test_a_log_that_does_not_suit_a_model_is_told_why(both: tuple[Small, Small]) -> None:
    old, new = both
    q = op.fit_rewards(labelled(old))

    def refused(log: op.Log, message: str, model: Any = q) -> None:
        with pytest.raises(op.InputError, match=message):
            op.evaluate(log, op.Uniform(), [op.DR(model)])

    names = np.array(["ash", "birch", "cedar", "yew"])[new.action]
    refused(op.Log(new.context, names, new.reward, propensity=new.propensity), "does not know 1 of the 4 actions.*'yew'")
    refused(new.log(logging=None), "does not know 4 of the 4 actions of the log: 0, 1, 2, …. .It knows 4, such as 'ash'")
    refused(op.Log(new.context[:, :1], LABELS[new.action], new.reward, propensity=new.propensity), "context x0, x1.*has x0")
    two = np.column_stack([new.reward, new.reward])
    refused(op.Log(new.context, LABELS[new.action], two, propensity=new.propensity), "predicts reward, .* 'reward_0'")
    featured = op.fit_rewards(labelled(old, action_features=old.features))
    refused(labelled(new), "features e0, e1, and the log has .none.", featured)


def test_models_that_are_code_are_not_saved(both: tuple[Small, Small], tmp_path: Path) -> None:
    log = labelled(both[0])
    tree = op.fit_rewards(log, DecisionTreeRegressor(max_depth=2))
    assert op.evaluate(labelled(both[1]), both[1].target, [op.DR(tree)])["DR"].n == 400  # it can be used
    with pytest.raises(op.InputError, match=r"Regressor.*cannot be saved.*only pickle could write.*op.Given"):
        tree.save(tmp_path / "q.safetensors")
    turned = labelled(both[1], actions=LABELS[::-1].tolist())
    with pytest.raises(op.InputError, match="the same actions in the same order"):
        op.evaluate(turned, op.Uniform(), [op.DR(tree)])
    with pytest.raises(op.InputError, match="must end in .safetensors"):
        op.fit_rewards(log).save(tmp_path / "q.pt")
    assert not list(tmp_path.iterdir())


def test_a_network_of_ones_own_is_not_saved(both: tuple[Small, Small], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    own = op.fit_rewards(labelled(both[0]), op.Torch(lambda *sizes: op.two_layer(2, 3)(*sizes), epochs=1), progress=False)
    with pytest.raises(op.InputError, match="its module is code of your own, and files hold numbers only"):
        own.save(tmp_path / "q.safetensors")


# --- safetensors


def raw(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def one(**other: Any) -> dict[str, Any]:
    return {"a": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8], **other}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "too short"),
        (b"\x01\x00\x00", "too short"),
        ((1 << 62).to_bytes(8, "little") + b"{}", "too short"),
        (raw(b"\xff\xfe"), "no readable JSON"),
        (raw(b"[" * 100_000), "no readable JSON"),
        (raw(b'{"a": NaN}'), "NaN is no JSON"),
        (raw(b'{"a": 1, "a": 2}'), "a name occurs twice"),
        (raw([1]), "its header is not that of"),
        (raw({"__metadata__": {"a": 1}}), "its header is not that of"),
        (raw(one(dtype="O"), bytes(8)), "its arrays cannot be read"),
        (raw(one(more=1), bytes(8)), "does not match its checksum"),
        (raw(one(dtype=["F64"]), bytes(8)), "its arrays cannot be read"),
        (raw(b'{"a": 1e999}'), "1e999 is too large"),
        (raw(one(shape=[-1]), bytes(8)), "its arrays cannot be read"),
        (raw(one(shape=[True]), bytes(8)), "its arrays cannot be read"),
        (raw(one(data_offsets=[0, 80]), bytes(8)), "its arrays cannot be read"),
        (raw(one(data_offsets=[8, 0]), bytes(8)), "its arrays cannot be read"),
        (raw(one(shape=[2]), bytes(8)), "its arrays cannot be read"),
        (raw(one(shape=[1 << 62, 1 << 62]), bytes(8)), "its arrays cannot be read"),
        (raw(one(), bytes(16)), "its arrays cannot be read"),
        (raw({**one(), "b": one()["a"]}, bytes(8)), "its arrays cannot be read"),
        (raw(one(), bytes(8)), "does not match its checksum"),
    ],
)
def test_a_broken_safetensors_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "q.safetensors"
    path.write_bytes(content)
    with pytest.raises(op.InputError, match=message):
        storage.read_arrays(path)


def test_every_byte_of_a_safetensors_file_counts(tmp_path: Path) -> None:
    path = tmp_path / "q.safetensors"
    arrays = {
        "a": np.arange(3.0),
        "b": np.array(2.5, np.float32),
        "c": np.zeros((0, 2), np.int64),
        "d": np.arange(3, dtype=np.uint8),
    }
    storage.write_arrays(path, arrays, {"x": "y"})
    found, metadata = storage.read_arrays(path)
    assert metadata == {"x": "y"}
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
    whole = path.read_bytes()
    header = json.loads(whole[8 : 8 + int.from_bytes(whole[:8], "little")])
    assert header["__metadata__"]["x"] == "y"
    for at in range(len(whole)):
        if whole[at : at + 1] == b" ":
            continue  # spaces between words mean nothing
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(op.InputError, match="q.safetensors"):
            storage.read_arrays(path)
    path.write_bytes(whole[:-1])
    with pytest.raises(op.InputError, match="its arrays cannot be read"):
        storage.read_arrays(path)


def rewritten(path: Path, arrays: Callable[[dict[str, Any]], dict[str, Any]], **metadata: str) -> None:
    """The file edited by someone who knows how to compute a checksum."""
    found, told = storage.read_arrays(path)
    storage.write_arrays(path, arrays(found), {**told, **metadata})


def about(**other: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        _, told = storage.read_arrays(path)
        rewritten(path, dict, about=json.dumps({**json.loads(told["about"]), **other}))

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: rewritten(p, dict, version="9"), "by a newer offpolicy, in version 9"),
        (lambda p: rewritten(p, dict, version="x"), "its version is 'x'"),
        (lambda p: rewritten(p, dict, version="9" * 5_000), "its version is '9{39}\\."),
        (about(rounds=math.inf), "Infinity is no JSON"),
        (
            lambda p: rewritten(
                p, dict, about=storage.read_arrays(p)[1]["about"].replace('"rounds": 500', '"rounds": 1e999')
            ),
            "1e999",
        ),
        (lambda p: rewritten(p, dict, format="other"), "is not a saved rewards"),
        (lambda p: rewritten(p, dict, about="[]"), "its parts do not fit together"),
        (lambda p: rewritten(p, lambda a: {**a, "0.coef": a["0.coef"] * np.nan}), "'0.coef' holds NaN"),
        (lambda p: rewritten(p, lambda a: {**a, "0.coef": a["0.coef"][1:]}), r"'coef' has shape \(3, 3\), but \(4, 3\)"),
        (lambda p: rewritten(p, lambda a: {**a, "0.own": a["0.coef"]}), "do not fit together"),
        (lambda p: rewritten(p, lambda a: {k: v for k, v in a.items() if k != "0.centre"}), "'centre' is missing"),
        (lambda p: rewritten(p, lambda a: {**a, "0.extra": a["0.coef"]}), "'extra' is unknown"),
        (lambda p: rewritten(p, lambda a: {k: v for k, v in a.items() if k != "actions"}), "do not fit together"),
        (about(kinds=[{"kind": "os:system", "settings": {}}]), "do not fit together"),
        (about(inputs="all"), "inputs is 'all'"),
        (about(rewards=["a", "b"]), "do not fit together"),
    ],
)
def test_a_reward_model_whose_parts_do_not_fit_is_refused(
    both: tuple[Small, Small], tmp_path: Path, change: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "q.safetensors"
    op.fit_rewards(labelled(both[0])).save(path)
    change(path)
    with pytest.raises(op.InputError, match=message):
        op.load_rewards(path)


# --- results


@pytest.fixture(scope="module")
def result(both: tuple[Small, Small]) -> op.Evaluation:
    by = np.where(np.arange(500) % 3 == 0, "<b>third</b>", "rest")
    log = labelled(both[0], by=by, logging=both[0].logging)
    policies = {"new": both[0].target, "old <i>": op.Uniform()}
    return op.evaluate(log, policies, [op.SNIPS(), op.DR(), op.LearnedMIPS(), op.Auto()])


def test_a_result_comes_back_in_every_form(result: op.Evaluation, tmp_path: Path) -> None:
    result.save(tmp_path / "r.json")
    again = op.load_result(tmp_path / "r.json")
    assert str(again) == str(result)
    assert again.to_markdown() == result.to_markdown()
    assert html.page(again.to_dict(shown=2_000)) == html.page(result.to_dict(shown=2_000))
    assert json.dumps(again.to_dict()) == json.dumps(result.to_dict())
    assert again.verdict is result.verdict
    assert again["new", "DR"].reasons == result["new", "DR"].reasons
    assert again["new", "DR"].explain() == result["new", "DR"].explain()
    assert again["new", "Auto"].error_covers == result["new", "Auto"].error_covers
    assert again.headline.value == result.headline.value
    for level in (0.5, 0.95, 0.99):
        assert again["new", "DR"].confidence_interval(level) == result["new", "DR"].confidence_interval(level)
        assert again.lift().confidence_interval(level) == result.lift().confidence_interval(level)
        pair = ("new", "old <i>")
        assert again.difference(*pair).confidence_interval(level) == result.difference(*pair).confidence_interval(level)
    assert again.slices["rest"]["new", "SNIPS"].value == result.slices["rest"]["new", "SNIPS"].value
    again.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "r.json").read_bytes()


def test_what_a_saved_result_cannot_say_it_says(result: op.Evaluation, tmp_path: Path) -> None:
    result.with_interval("bootstrap").save(tmp_path / "r.json")
    again = op.load_result(tmp_path / "r.json")
    kept = result["new", "DR"].confidence_interval(method="bootstrap")
    assert again["new", "DR"].confidence_interval() == kept
    assert again["new", "DR"].confidence_interval(0.9, "normal") == result["new", "DR"].confidence_interval(0.9)
    for asked, message in [
        (lambda: again["new", "DR"].confidence_interval(0.9), "the bootstrap one at level 0.95; for others evaluate again"),
        (lambda: again["new", "DR"].confidence_interval(2.0), "between 0 and 1"),
        (lambda: again["new", "DR"].confidence_interval(method="magic"), "interval method"),
        (lambda: again.difference("old <i>", "new"), "is not in the saved result; it has new − old <i>"),
        (lambda: again.lift("newer"), "no policy 'newer'"),
        (lambda: again.lift().explain(), "only estimates are explained"),
        (lambda: result.save(tmp_path / "r.html"), "must end in .json"),
    ]:
        with pytest.raises(op.InputError, match=message):
            asked()
    with pytest.raises(KeyError, match="several policies"):
        again["DR"]
    with pytest.raises(KeyError, match="no estimator 'DRR'"):
        again["new", "DRR"]


def test_a_refitted_result_keeps_its_intervals(both: tuple[Small, Small], tmp_path: Path) -> None:
    policies = {"new": both[0].target, "old": op.Uniform()}
    result = op.evaluate(labelled(both[0]), policies, [op.DM()]).with_interval("bootstrap", refit=True)
    result.save(tmp_path / "r.JSON")
    again = op.load_result(tmp_path / "r.JSON")
    asked = {"method": "bootstrap", "refit": True}
    for of, live in (
        (again["new", "DM"], result["new", "DM"]),
        (again.lift(), result.lift()),
        (again.difference("new", "old"), result.difference("new", "old")),
    ):
        kept = of.confidence_interval()
        assert kept == live.confidence_interval(**asked)
        assert of.confidence_interval(0.95, "bootstrap, refitted") == kept
        with pytest.raises(op.InputError, match="the bootstrap, refitted one at level 0.95; for others evaluate again"):
            of.confidence_interval(0.9)
        assert of.confidence_interval(0.9, "normal") == live.confidence_interval(0.9, "normal")


def test_a_number_that_is_too_large_is_none(result: op.Evaluation, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    result.save(path)
    path.write_text(path.read_text().replace('"level": 0.95', '"level": 1e999'))
    with pytest.raises(op.InputError, match=r"no readable JSON \(1e999 is too large\)"):
        op.load_result(path)


def test_numbers_that_json_does_not_know_come_back(tmp_path: Path) -> None:
    log = op.Log(None, action=[0, 1, 0, 1], reward=[0.0, 0.0, 0.0, 0.0], propensity=[0.5] * 4, reward_range=(0, 1))
    nothing = op.evaluate(log, np.array([[1.0, 0.0]] * 4)[:, ::1], [op.SNIPS(), op.DM()])
    nothing.save(tmp_path / "r.json")
    assert str(op.load_result(tmp_path / "r.json")) == str(nothing)
    told = {"a": math.nan, "b": [math.inf, -math.inf, np.float64(1.5)], "c": {"number": "seven"}}
    assert json.dumps(recalled._numbers(json.loads(json.dumps(recalled._plain(told), allow_nan=False)))) == json.dumps(
        {**told, "b": [math.inf, -math.inf, 1.5]}
    )


def edited(path: Path, change: Callable[[dict[str, Any]], None], honest: bool = False) -> None:
    told = json.loads(path.read_text())
    change(told)
    if not honest:  # by someone who knows how to compute a checksum
        told["sha256"] = storage.digest(storage.exact(told["result"]))
    path.write_text(json.dumps(told))


def put(*where: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(told: dict[str, Any]) -> None:
        for key in where[:-1]:
            told = told[key]
        told[where[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "honest", "message"),
    [
        (put("result", "estimates", 0, "value", value=1e6), True, "does not match its checksum"),
        (put("version", value=3), True, "newer offpolicy, in version 3 of the format; this one reads up to version 1"),
        (put("format", value="offpolicy/embedding"), True, "op.load_embedding"),
        (put("format", value=None), True, "is not a saved result"),
        (put("result", "estimates", 0, "value", value="<script>"), False, r"estimates\[0\].value is '<script>'"),
        (put("result", "estimates", 0, "verdict", value="FINE"), False, "verdict is 'FINE'"),
        (put("result", "rounds", value=True), False, "rounds is 'True'"),
        (put("result", "slices", value={"a": {}}), False, "result.slices.a.reward is missing"),
        (put("result", "headline", "estimator", value="X"), False, "has no estimate by 'X'"),
        (put("result", "embedding", "points", 0, "x", value="0"), False, r"embedding.points\[0\].x"),
        (put("result", value=[]), False, "result is"),
        (put("result", "propensities", value={}), False, "result.propensities.source is missing"),
        (put("result", "propensities", "bins", 0, "predicted", value="0"), False, r"propensities.bins\[0\].predicted"),
        (put("result", "sensitivity", value=[{}]), False, r"sensitivity\[0\].policy is missing"),
        (put("result", "sensitivity", value={}), False, "result.sensitivity is"),
        (put("result", "lifts", 0, "relative_interval", value="0 to 1"), False, "it cannot be shown"),
        (put("result", "estimates", 1, "diagnostics", "effective_sample_size", value="many"), False, "it cannot be shown"),
    ],
)
def test_a_result_that_was_edited_is_refused(
    result: op.Evaluation, tmp_path: Path, change: Callable[[dict[str, Any]], None], honest: bool, message: str
) -> None:
    path = tmp_path / "r.json"
    result.save(path)
    edited(path, change, honest)
    with pytest.raises(op.InputError, match=message):
        op.load_result(path)


def test_a_result_that_ends_early_or_is_too_large_is_refused(
    result: op.Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.json"
    result.save(path)
    monkeypatch.setattr("offpolicy.core.memory.machine_bytes", lambda: 1_000)
    with pytest.raises(op.InputError, match="more than a quarter of this machine's"):
        op.load_result(path)
    monkeypatch.undo()
    path.write_text(path.read_text()[:-100])
    with pytest.raises(op.InputError, match="no readable JSON"):
        op.load_result(path)
    with pytest.raises(op.InputError, match="no such file"):
        op.load_result(tmp_path / "none.json")


def test_what_a_file_says_is_text_in_a_report(result: op.Evaluation, tmp_path: Path) -> None:
    """A result from a stranger is opened in a browser."""
    evil = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    path = tmp_path / "r.json"
    result.save(path)
    text = json.loads(path.read_text())
    text["result"] = json.loads(json.dumps(text["result"]).replace("LearnedMIPS", evil).replace("Ridge()", evil))
    text["result"] |= {"reward": evil, "input": {"source": evil, evil: evil}, "skipped": {evil: evil}}
    text["sha256"] = storage.digest(storage.exact(text["result"]))
    path.write_text(json.dumps(text))
    loaded = op.load_result(path)
    loaded.write_html(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert "alert(1)" in page  # it is shown, as text
    assert "<script>alert" not in loaded._repr_html_()


# --- the command


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli")
    assert run("simulate", path / "log.parquet", "--rounds", 3000, "--actions", 5).exit_code == 0
    (path / "mine_saved.py").write_text("import offpolicy as op\nnew = op.Uniform()\nestimator = op.SNIPS(name='mine')\n")
    return path


def usual(folder: Path) -> list[object]:
    return [folder / "log.parquet", "--context", "x0,x1,x2,x3,x4", "--action", "item", "--reward", "click",
            "--propensity", "propensity"]  # fmt: skip


def test_the_command_saves_and_reports_again(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    done = run("evaluate", *usual(folder), "--target", "items,p_items_new", "--save", path)
    again = run("report", path, "--html", tmp_path / "r.html", "--markdown", tmp_path / "r.md", "--plot", tmp_path / "r.png")
    assert (again.exit_code, again.stdout) == (done.exit_code, done.stdout)
    assert f"Saved: {path}" in done.stderr
    assert {p.name for p in tmp_path.iterdir()} == {"r.json", "r.html", "r.md", "r.png"}
    assert json.loads(run("report", path, "--json").stdout)["rounds"] == 3000
    loud = run("evaluate", *usual(folder), "--target", "p_new", "--estimator", "snips", "--save", tmp_path / "LOUD.JSON")
    assert f"Saved: {tmp_path / 'LOUD.JSON'}" in loud.stderr
    with pytest.raises(op.InputError, match=r"its name ends in \.json"):
        raise run("evaluate", *usual(folder), "--target", "p_new", "--save", tmp_path / "r.txt").exception


def test_a_verdict_keeps_its_exit_code(result: op.Evaluation, tmp_path: Path) -> None:
    told = result.to_dict()
    recalled.write({**told, "verdict": "DO_NOT_TRUST"}, tmp_path / "r.json")
    assert run("report", tmp_path / "r.json").exit_code == 3


def test_the_embedding_of_the_command_can_be_loaded(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "e.parquet"
    assert run("embed", *usual(folder)[:-2], "--out", out).exit_code == 0
    assert op.load_embedding(out).model == "Ridge()"


# --- no code from files


SETTINGS = """
logs = "{folder}/log.parquet"
context = "x0,x1,x2,x3,x4"
action = "item"
reward = "click"
propensity = "propensity"
"""


@pytest.mark.parametrize(
    "line", ['target = "a=mine_saved:new"', 'logging = "mine_saved:new"', 'estimator = ["mine_saved:estimator"]']
)
def test_a_settings_file_may_not_choose_what_is_imported(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(folder)
    file = tmp_path / "settings.toml"
    file.write_text(SETTINGS.format(folder=folder) + line)
    loaded: list[str] = []
    monkeypatch.setattr(settings, "imported", lambda text: loaded.append(text) or op.Uniform())
    given = {} if line.startswith("target") else {"target": ["p_new"]}
    with pytest.raises(op.InputError, match=r"settings.toml: \w+ names 'mine_saved:\w+'.*add --import mine_saved"):
        settings.merged(file, given, settings.settings_of(evaluate))
    with pytest.raises(op.InputError, match="--import mine_saved"):
        settings.merged(file, given, settings.settings_of(evaluate), imports=["mine"])
    assert not loaded
    assert settings.merged(file, given, settings.settings_of(evaluate), imports=["mine_saved"])["action"] == "item"


def test_embed_sees_of_a_shared_file_what_it_uses(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "imported", lambda text: pytest.fail(f"{text} was imported"))
    file, out = tmp_path / "settings.toml", tmp_path / "e.parquet"
    code = 'target = "mine_saved:new"\nlogging = "mine_saved:new"\nestimator = "mine_saved:estimator"\n'
    file.write_text(SETTINGS.format(folder=folder).replace('propensity = "propensity"', code))
    assert run("embed", "--config", file, "--out", out).exit_code == 0
    assert op.load_embedding(out).model == "Ridge()"


def test_the_user_may_allow_it(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    file = tmp_path / "settings.toml"
    file.write_text(SETTINGS.format(folder=folder) + 'target = "mine_saved:new"\nestimator = "mine_saved:estimator"')
    refused = run("evaluate", "--config", file)
    assert isinstance(refused.exception, op.InputError)
    done = run("evaluate", "--config", file, "--import", "mine_saved", "--json")
    assert "mine" in [e["estimator"] for e in json.loads(done.stdout)["estimates"]]
    typed = run("evaluate", *usual(folder), "--target", "mine_saved:new", "--estimator", "mine_saved:estimator", "--json")
    assert typed.stdout == done.stdout  # what is typed needs no leave


def test_nor_may_a_file_of_an_experiment(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    file = tmp_path / "e.toml"
    file.write_text('rounds = 100\n[world]\nkind = "linear"\n[estimators]\n"Mine" = "mine_saved:estimator"\n')
    with pytest.raises(op.InputError, match="Mine names 'mine_saved:estimator'.*--import mine_saved"):
        load(str(file))
    assert load(str(file), imports=["mine_saved"]).entries[0].foreign


FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "yaml", "code"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}
FORBIDDEN_METHODS = {
    ("torch", "load"), ("torch", "save"), ("np", "load"), ("np", "save"), ("numpy", "load"), ("pd", "read_pickle"),
    ("yaml", "load"), ("joblib", "load"), ("os", "system"), ("os", "popen"),
}  # fmt: skip
SPARK = {"engines/faults.py", "engines/spark.py"}
"""PySpark sends functions to its workers as pickles of its own making; ours are wrapped once more, for words in errors."""


def breaches(source: str) -> list[str]:
    """What could run code that came from a file."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] + ([node.module or ""] if isinstance(node, ast.ImportFrom) else [])
            found += [name for name in names if FORBIDDEN_MODULES & set(name.split("."))]
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
                found.append(node.func.id)
            if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
                called = (node.func.value.id, node.func.attr)
                found += [".".join(called)] if called in FORBIDDEN_METHODS else []
            for word in node.keywords:
                risky = word.arg in ("allow_pickle", "shell") and getattr(word.value, "value", True) is not False
                found += [str(word.arg)] if risky else []
    return found


def test_the_package_reads_no_pickle_and_evaluates_no_text() -> None:
    found = {str(f.relative_to(SOURCE)): breaches(f.read_text()) for f in sorted(SOURCE.rglob("*.py"))}
    assert len(found) > 100
    assert {name: what for name, what in found.items() if what and name not in SPARK} == {}
    assert {name for name in SPARK if set(found[name]) - {"cloudpickle"}} == set()


@pytest.mark.parametrize(
    "line",
    ["import pickle", "from joblib import load", "from pyspark import cloudpickle", "eval('1')", "np.load(f, allow_pickle=True)",
     "import torch\ntorch.load(f)", "read(allow_pickle=x)", "run('ls', shell=True)", "import os.path, dill.source"],
)  # fmt: skip
def test_the_search_finds_what_it_looks_for(line: str) -> None:
    assert breaches(line)


def test_modules_are_imported_by_name_in_three_places() -> None:
    """Our own names; PyTorch; and what the user typed or allowed."""
    users = {str(f.relative_to(SOURCE)) for f in SOURCE.rglob("*.py") if "import_module" in f.read_text()}
    assert users == {"__init__.py", "rewards/training.py", "settings.py"}
    callers = {str(f.relative_to(SOURCE)) for f in SOURCE.rglob("*.py") if "imported(" in f.read_text()}
    assert callers == {"settings.py"}


def test_states_travel_as_plain_arrays() -> None:
    """Even Spark: what comes back from the workers is Arrow, and an array of objects, which is a pickle, is no dtype there."""
    from offpolicy.statistics.wire import Leaf

    row = {"piece": "a", "leaf": 0, "dtype": "|O", "shape": [1], "data": bytes(8)}
    scalars = {name: pa.scalar(value) for name, value in row.items()}
    with pytest.raises(ValueError, match="cannot create an OBJECT array"):
        Leaf.of(scalars)


def test_kinds_of_saved_files_have_loaders() -> None:
    assert all(callable(getattr(op, f"load_{kind}")) for kind in storage.VERSIONS)
    assert set(fitted.KINDS) == {"linear", "dotted", "network"}
