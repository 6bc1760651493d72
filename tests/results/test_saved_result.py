"""A saved result says what it said; one that was edited says nothing."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offpolicy as op
from offpolicy.core import storage
from offpolicy.inference.functionals import Formula
from offpolicy.report.page import html
from offpolicy.results import storage as files
from offpolicy.scoring.plan import Scaling, Terms
from tests.logs import Small, labelled


def test_a_result_comes_back_in_every_form(awkward_result: op.Evaluation, tmp_path: Path) -> None:
    awkward_result.save(tmp_path / "r.json")
    again = op.load_result(tmp_path / "r.json")
    assert str(again) == str(awkward_result)
    assert again.to_markdown() == awkward_result.to_markdown()
    assert html.page(again.to_dict(shown=2_000)) == html.page(awkward_result.to_dict(shown=2_000))
    assert json.dumps(again.to_dict()) == json.dumps(awkward_result.to_dict())
    assert again.verdict is awkward_result.verdict
    assert again["new", "DR"].reasons == awkward_result["new", "DR"].reasons
    assert again["new", "DR"].explain() == awkward_result["new", "DR"].explain()
    assert again["new", "Auto"].error_covers == awkward_result["new", "Auto"].error_covers
    assert again.headline.value == awkward_result.headline.value
    for level in (0.5, 0.95, 0.99):
        assert again["new", "DR"].confidence_interval(level) == awkward_result["new", "DR"].confidence_interval(level)
        assert again.lift().confidence_interval(level) == awkward_result.lift().confidence_interval(level)
        pair = ("new", "old <i>")
        assert again.difference(*pair).confidence_interval(level) == awkward_result.difference(*pair).confidence_interval(
            level
        )
    assert again.slices["rest"]["new", "SNIPS"].value == awkward_result.slices["rest"]["new", "SNIPS"].value
    again.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "r.json").read_bytes()


def test_a_loaded_result_answers_what_it_was_not_asked_before(awkward_result: op.Evaluation, tmp_path: Path) -> None:
    """It has the sums: other levels and methods, other pairs, and the table by another method."""
    awkward_result.save(tmp_path / "r.json")
    again = op.load_result(tmp_path / "r.json")
    assert type(again) is type(awkward_result)
    for asked in ((0.9, "bootstrap"), (0.99, "normal"), (0.8, "bootstrap")):
        assert again["new", "DR"].confidence_interval(*asked) == awkward_result["new", "DR"].confidence_interval(*asked)
    for pair in (("old <i>", "new"), (("new", "DR"), ("old <i>", "SNIPS"))):
        live, kept = awkward_result.difference(*pair), again.difference(*pair)
        assert (kept.value, kept.std_error, kept.z) == (live.value, live.std_error, live.z)
        assert kept.confidence_interval(0.9, "bootstrap") == live.confidence_interval(0.9, "bootstrap")
    assert again.relative_lift().interval == awkward_result.relative_lift().interval
    assert str(again.with_interval("bootstrap")) == str(awkward_result.with_interval("bootstrap"))
    assert again.slices["rest"].lift().interval == awkward_result.slices["rest"].lift().interval
    assert again.logged_estimator == awkward_result.logged_estimator
    for asked_wrongly, message in [
        (lambda: again["new", "DR"].confidence_interval(2.0), "between 0 and 1"),
        (lambda: again["new", "DR"].confidence_interval(method="magic"), "interval method"),
        (lambda: again.lift("newer"), "no policy 'newer'"),
        (lambda: awkward_result.save(tmp_path / "r.html"), "must end in .json"),
        (lambda: again["new", "LearnedMIPS"].embedding, "has only the map of an embedding"),
    ]:
        with pytest.raises(op.InputError, match=message):
            asked_wrongly()
    with pytest.raises(KeyError, match="several policies"):
        again["DR"]
    with pytest.raises(KeyError, match="no estimator 'DRR'"):
        again["new", "DRR"]


GONE = r"reads the log again, and this result no longer has it: it was pickled, saved or detached\. Call op\.evaluate again"


@pytest.mark.parametrize("way", ["saved", "pickled", "detached"])
def test_what_needs_the_log_says_so_without_it(awkward_result: op.Evaluation, tmp_path: Path, way: str) -> None:
    awkward_result.save(tmp_path / "r.json")
    gone = {
        "saved": lambda: op.load_result(tmp_path / "r.json"),
        "pickled": lambda: pickle.loads(pickle.dumps(awkward_result)),
        "detached": awkward_result.detach,
    }[way]()
    for asked in (
        lambda: gone["new", "DR"].confidence_interval(method="bootstrap", refit=True),
        lambda: gone.with_interval("bootstrap", refit=True),
        lambda: gone.difference("new", "old <i>").confidence_interval(method="bootstrap", refit=True),
        lambda: gone.sensitivity(1.5),
        lambda: gone.with_sensitivity([1.5]),
        lambda: gone["new", "DR"].scores(tmp_path / "scores.parquet"),
    ):
        with pytest.raises(op.InputError, match=GONE):
            asked()
    assert awkward_result.log.attached


def test_a_refitted_result_keeps_its_intervals(both: tuple[Small, Small], tmp_path: Path) -> None:
    policies = {"new": both[0].target, "old": op.Uniform()}
    result = op.evaluate(labelled(both[0]), policies, [op.DM()]).with_interval("bootstrap", refit=True)
    result.save(tmp_path / "r.JSON")
    asked = {"method": "bootstrap", "refit": True}
    for again in (op.load_result(tmp_path / "r.JSON"), pickle.loads(pickle.dumps(result)), result.detach()):
        assert str(again) == str(result)
        for of, live in (
            (again["new", "DM"], result["new", "DM"]),
            (again.lift(), result.lift()),
            (again.difference("new", "old"), result.difference("new", "old")),
        ):
            kept = of.confidence_interval()
            assert kept == live.confidence_interval(**asked) == of.confidence_interval(0.95, "bootstrap, refitted")
            assert kept.method == "bootstrap, refitted"
            with pytest.raises(op.InputError, match="a bootstrap that refits reads the log again"):
                of.confidence_interval(0.9)
            assert of.confidence_interval(0.9, "normal") == live.confidence_interval(0.9, "normal")


def test_a_number_that_is_too_large_is_none(awkward_result: op.Evaluation, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    awkward_result.save(path)
    path.write_text(path.read_text().replace('"level": 0.95', '"level": 1e999'))
    with pytest.raises(op.InputError, match=r"not readable JSON \(1e999 is too large\)"):
        op.load_result(path)


def test_numbers_that_json_does_not_know_come_back(tmp_path: Path) -> None:
    log = op.Log(None, action=[0, 1, 0, 1], reward=[0.0, 0.0, 0.0, 0.0], propensity=[0.5] * 4, reward_range=(0, 1))
    nothing = op.evaluate(log, np.array([[1.0, 0.0]] * 4)[:, ::1], [op.SNIPS(), op.DM()])
    nothing.save(tmp_path / "r.json")
    assert str(op.load_result(tmp_path / "r.json")) == str(nothing)
    told = {"a": math.nan, "b": [math.inf, -math.inf, np.float64(1.5)], "c": {"number": "seven"}}
    assert json.dumps(files.numbers(json.loads(json.dumps(files.plain(told), allow_nan=False)))) == json.dumps(
        {**told, "b": [math.inf, -math.inf, 1.5]}
    )


def edited(path: Path, change: Callable[[dict[str, Any]], None], honest: bool = False) -> None:
    told = json.loads(path.read_text())
    change(told)
    if not honest:  # by someone who knows how to compute a checksum
        told["sha256"] = storage.digest(*(storage.exact(told[part]) for part in ("result", "evidence")))
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
        (
            put("version", value=3),
            True,
            "newer release of offpolicy, in version 3 of the format; this release reads up to version 2",
        ),
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
        (put("evidence", "sums", 0, "n", value="many"), False, r"its sums cannot be read \(ValueError"),
        (put("evidence", "sums", 0, "all", value=1 << 40), False, "its sums cannot be read"),
        (put("evidence", "sums", 0, "mean", "shape", value=[10**9]), False, "its sums cannot be read"),
        (put("evidence", "sums", 0, "mean", "array", value="AAAA"), False, "its sums cannot be read"),
        (put("evidence", "parts", "estimates", 0, "functional", "value", value=7.0), False, "does not follow from its sums"),
        (put("evidence", "parts", "estimates", 0, "functional", "kind", value="exit"), False, "its sums cannot be read"),
        (put("evidence", "parts", "logged", value="X"), False, "no estimator is called 'X'"),
        (put("evidence", value=None), False, "its sums cannot be read"),
        (put("result", "lifts", 0, "relative_interval", value="0 to 1"), False, "it cannot be shown"),
        (put("result", "estimates", 1, "diagnostics", "effective_sample_size", value="many"), False, "it cannot be shown"),
    ],
)
def test_a_result_that_was_edited_is_refused(
    awkward_result: op.Evaluation, tmp_path: Path, change: Callable[[dict[str, Any]], None], honest: bool, message: str
) -> None:
    path = tmp_path / "r.json"
    awkward_result.save(path)
    edited(path, change, honest)
    with pytest.raises(op.InputError, match=message):
        op.load_result(path)


def test_a_result_that_ends_early_or_is_too_large_is_refused(
    awkward_result: op.Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.json"
    awkward_result.save(path)
    monkeypatch.setattr("offpolicy.core.memory.machine_bytes", lambda: 1_000)
    with pytest.raises(op.InputError, match="more than a quarter of this machine's"):
        op.load_result(path)
    monkeypatch.undo()
    path.write_text(path.read_text()[:-100])
    with pytest.raises(op.InputError, match="not readable JSON"):
        op.load_result(path)
    with pytest.raises(op.InputError, match="no such file"):
        op.load_result(tmp_path / "none.json")


def test_what_a_file_says_is_text_in_a_report(awkward_result: op.Evaluation, tmp_path: Path) -> None:
    """A result from a stranger is opened in a browser."""
    evil = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    path = tmp_path / "r.json"
    awkward_result.save(path)
    text = json.loads(path.read_text())
    text["result"] = json.loads(json.dumps(text["result"]).replace("LearnedMIPS", evil).replace("Ridge()", evil))
    text["result"] |= {"reward": evil, "input": {"source": evil, evil: evil}, "skipped": {evil: evil}}
    text["sha256"] = storage.digest(*(storage.exact(text[part]) for part in ("result", "evidence")))
    path.write_text(json.dumps(text))
    loaded = op.load_result(path)
    loaded.write_html(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert "alert(1)" in page  # it is shown, as text
    assert "<script>alert" not in loaded._repr_html_()


def test_a_factor_that_was_saved_as_two_columns_does_not_divide_by_the_mean_weight() -> None:
    """As `ScaledDR` was saved before its correction was divided by the mean weight: 2·(3/4) on top of a baseline of 10."""
    parts = files.packed(Terms(1, 2, 5, False, Scaling(3, 4, 5), True))
    means = np.array([1.0, 10.0, 2.0, 3.0, 4.0, 0.5])
    for scaling, value in ((parts["scaling"], 13.0), ([3, 4], 11.5)):
        formula = Formula(files.unpacked({**parts, "scaling": scaling}), 0.0)
        assert formula(means) == pytest.approx(value)
        steps = [(formula(means + step) - formula(means - step)) / 2e-6 for step in 1e-6 * np.eye(6)]
        assert formula.gradient(means) == pytest.approx(steps, rel=1e-6, abs=1e-6)
