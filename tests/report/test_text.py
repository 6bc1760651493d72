"""The text of a result: it fits a terminal, says the answer first, and no label can act on terminal or page."""

from __future__ import annotations

import io
import json
import math
import os
import pty
import re
import subprocess
import sys
import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from rich.cells import cell_len

import offpolicy as op
from offpolicy.report import markdown, text
from offpolicy.report.formatting import count, label, number, percent, visible, wrapped
from offpolicy.report.markdown import escaped
from offpolicy.report.sentences import answer
from tests.logs import Small

NAIVE = {"verdict": "CAUTION", "code": "naive", "seen": "It is the log.", "why": "It says nothing.", "do": "Compare."}
HOSTILE = "[red]x[/red]\x1b[2J\x07\u202e|`<b>*_"


def between(low: float, high: float) -> dict[str, Any]:
    return {"low": low, "high": high, "level": 0.95, "method": "normal"}


def estimate(policy: str, name: str, value: float, error: float, *reasons: dict[str, str], **seen: Any) -> dict[str, Any]:
    order = ["OK", "CAUTION", "DO_NOT_TRUST"]
    return {
        "policy": policy, "estimator": name, "reward": "click", "value": value, "std_error": error, "error_covers": "sampling",
        "interval": between(value - 1.96 * error, value + 1.96 * error), "n": 1000, "diagnostics": seen,
        "verdict": max((r["verdict"] for r in reasons), key=order.index, default="OK"), "reasons": list(reasons),
    }  # fmt: skip


def reason(verdict: str, seen: str, do: str) -> dict[str, str]:
    return {"verdict": verdict, "code": "test", "seen": seen, "why": "Because.", "do": do}


def lift(policy: str, value: float, error: float, relative: float | None = None) -> dict[str, Any]:
    ci = between(value - 1.96 * error, value + 1.96 * error)
    return {"policy": policy, "value": value, "std_error": error, "interval": ci, "relative": relative,
            "relative_interval": None if relative is None else ci}  # fmt: skip


def summary(*estimates: dict[str, Any], **more: Any) -> dict[str, Any]:
    policies = list(dict.fromkeys(e["policy"] for e in estimates))
    return {
        "schema": 1, "reward": "click", "rounds": 1000, "actions": 50, "level": 0.95, "policies": policies,
        "headline": {"policy": policies[0], "estimator": estimates[0]["estimator"]}, "verdict": estimates[0]["verdict"],
        "estimates": list(estimates), "skipped": {}, "settings": {"seed": 0}, **more,
    }  # fmt: skip


def logged(value: float, error: float) -> dict[str, Any]:
    return {"value": value, "std_error": error, "interval": between(value - 1.96 * error, value + 1.96 * error)}


def one_line(words: str) -> str:
    return " ".join(words.split())


class TestNumbers:
    @pytest.mark.parametrize(
        ("value", "error", "shown"),
        [
            (0.0905, 0.0013, "0.0905"),
            (-0.0001, 0.01, "0.000"),
            (-0.4, 30, "0"),
            (12_345_678.0, 1e5, "12,350,000"),
            (2.5e10, 3e9, "25.0 billion"),
            (-3.21e13, 1e11, "-32.10 trillion"),
            (0.00012, 0.00001, "0.000120"),
            (3.4e-6, 1.2e-7, "3.40e-6"),
            (1e300, 1e298, "1.000e300"),
            (0.0, 1e-9, "0"),
            (0.0, 0.0, "0"),
            (1 / 3, None, "0.3333"),
            (123456.789, 1e-12, "123,457"),
            (123456.789, 1e-7, "123,456.789"),
            (float("inf"), 1.0, "∞"),
            (float("nan"), 1.0, "undefined"),
            (7.0, float("nan"), "7"),
            (None, None, "–"),
        ],
    )
    def test_a_number_has_the_digits_that_its_error_allows(self, value: float, error: float, shown: str) -> None:
        assert number(value, error) == shown

    @given(st.floats(), st.floats(min_value=0))
    def test_any_number(self, value: float, error: float) -> None:
        shown = number(value, error)
        assert len(shown) <= 20
        assert not re.fullmatch(r"-[0.,]*", shown)
        if math.isfinite(value) and math.isfinite(error) and error >= 1e-14 * abs(value) and "e" not in shown:
            scale = {"billion": 1e9, "trillion": 1e12}.get(shown.split(" ")[-1], 1.0)
            back = float(shown.split(" ")[0].replace(",", "")) * scale
            assert abs(back - value) <= 0.051 * error + 1e-8 * abs(value) + 1e-9

    def test_shares_and_counts(self) -> None:
        assert (percent(0.95), percent(0.999), percent(3.06, 0.12), percent(0.004, 0.01)) == ("95%", "99.9%", "306%", "0.4%")
        assert (count(1235.4), count(None), count(float("nan"))) == ("1,235", "–", "undefined")


class TestLabels:
    def test_nothing_in_a_label_acts(self) -> None:
        assert label("a\nb\tc") == "a b c"
        assert label("\x1b[31mred\x07") == "\\x1b[31mred\\x07"
        assert label("\u202eabc\u2066\u200b") == "\\u202eabc\\u2066\\u200b"
        assert label("\ud800") == "\\ud800"
        assert label("") == label(" \n") == "(empty)"
        assert label("\u0301") == "\\u0301"
        assert label("日本" * 30) == "日本" * 9 + "日…"
        assert label("👨‍👩‍👧") == "👨‍👩‍👧"

    @given(st.text(alphabet=st.characters()))
    def test_any_label(self, name: str) -> None:
        shown = label(name)
        assert 0 < cell_len(shown) <= 40
        assert shown.replace("\u200c", "").replace("\u200d", "").isprintable()

    @given(st.text(alphabet=st.characters()), st.integers(20, 80))
    def test_wrapping_loses_nothing(self, words: str, width: int) -> None:
        lines = wrapped(words, width, indent="  ")
        assert max(map(cell_len, lines)) <= width
        assert "".join("".join(lines).split()) == "".join(visible(words).split())


class TestTheAnswer:
    def test_a_lift(self) -> None:
        auto = estimate("new", "Auto", 0.367, 0.011)
        result = summary(auto, logged=logged(0.0905, 0.0013), lifts=[lift("new", 0.277, 0.0112, 3.06)])
        assert answer(result, auto) == (
            "Auto estimates 0.367 per round, 0.277 more than the 0.0905 in the log (95% interval 0.255 to 0.299; +306%)."
        )
        shown = text.plain(result).splitlines()
        assert shown[0] == "click: 1,000 rounds, 50 actions"
        assert shown[2].startswith("Auto estimates 0.367 per round, 0.277 more")
        assert shown[4] == "Verdict: ok."

    def test_a_loss_and_no_difference(self) -> None:
        auto = estimate("new", "Auto", 0.367, 0.011)
        less = summary(auto, logged=logged(0.5, 0.001), lifts=[lift("new", -0.133, 0.011, -0.266)])
        assert "0.133 less than the 0.5000 in the log (95% interval -0.155 to -0.111; -26.6%)" in answer(less, auto)
        same = summary(auto, logged=logged(0.36, 0.001), lifts=[lift("new", 0.007, 0.011, 0.02)])
        assert answer(same, auto) == (
            "Auto estimates 0.367 per round, the log has 0.3600: no significant difference (0.007 more, 95% interval -0.015 to 0.029)."
        )

    def test_a_share_of_nothing_is_not_told(self) -> None:
        auto = estimate("new", "Auto", 3.0, 0.1)
        result = summary(auto, logged=logged(0.001, 0.01), lifts=[lift("new", 2.999, 0.1, 2999.0)])
        assert "%)" not in answer(result, auto)

    def test_what_to_do_first_is_the_remedy_of_the_worst_reason(self) -> None:
        reasons = [
            reason("CAUTION", "Mild.", "Wait."),
            reason("DO_NOT_TRUST", "Grave.", "Stop."),
            reason("CAUTION", "Odd.", "Look."),
        ]
        shown = text.plain(summary(estimate("new", "Auto", 1.0, 0.1, *reasons)))
        assert "Verdict: do not trust.\nNext step: Stop.\n" in shown
        assert (
            'Why the verdict is "do not trust":\n- Grave. Because.\n- Mild. Because. Wait.\n- Odd. Because. Look.' in shown
        )
        assert shown.count("Stop.") == 1

    def test_no_number_and_the_log_alone(self) -> None:
        nothing = estimate("new", "SNIPS", math.nan, math.nan, reason("DO_NOT_TRUST", "Every weight is 0.", "Log some."))
        assert "SNIPS produced no estimate." in text.plain(summary(nothing))
        alone = text.plain(summary(estimate("new", "LoggedMean", 0.5, 0.01, NAIVE)))
        assert "The logging policy earned 0.500 per round (95% interval 0.480 to 0.520)." in alone

    def test_policies_are_compared(self) -> None:
        each = [estimate(p, "Auto", v, 0.01) for p, v in (("a", 0.5), ("b", 0.4))]
        pair = {"a": "a", "b": "b", "estimator": "Auto", **lift("", 0.1, 0.01)}
        shown = text.plain(summary(*each, differences=[pair] * 5))
        assert "a earns 0.100 more than b (95% interval 0.080 to 0.120, paired)." in shown
        assert "2 more pairs" in shown


class TestTheTable:
    def test_policies_are_headings_and_the_log_stands_once(self) -> None:
        rows = [
            estimate(p, n, 1.0, 0.1, *([NAIVE] if n == "LoggedMean" else []))
            for p in ("new", "old")
            for n in ("Auto", "LoggedMean", "DR")
        ]
        table = text.plain(summary(*rows)).split("\n\n")[3].splitlines()
        assert [line.split("  1.")[0].rstrip() for line in table[2:]] == [
            "LoggedMean",
            "new",
            "  Auto",
            "  DR",
            "old",
            "  Auto",
            "  DR",
        ]
        assert table[2].endswith("the log")

    def test_wide_characters_align(self) -> None:
        table = text.plain(summary(estimate("new", "Auto", 1.0, 0.1), estimate("new", "推定量", 1.0, 0.1))).split("\n\n")[2]
        assert len({cell_len(line[: line.index("1.00")]) for line in table.splitlines()[2:]}) == 1

    def test_a_narrow_terminal_loses_the_least_needed_column_and_says_so(self) -> None:
        result = summary(estimate("new", "LearnedMIPS (scaled)", 0.123, 0.01, effective_sample_size=1e3), truth={"new": 0.1})
        assert "eff. rounds" in text.page(result, 80).plain
        narrow = text.page(result, 60).plain
        assert "(Columns that do not fit: eff. rounds.)" in narrow
        assert "verdict" in narrow
        assert max(map(cell_len, narrow.splitlines())) <= 60

    def test_marks_are_explained(self) -> None:
        starred = estimate("new", "DM", 1.0, 0.1, fit_not_covered=True)
        starred["interval"] |= {"method": "student"}
        other = {**estimate("new", "IPS", 1.0, 0.1), "interval": between(0, 2) | {"method": "bernstein"}}
        shown = text.plain(summary(starred, other, settings={"interval": "bernstein"}))
        assert "DM * †" in shown
        assert shown.endswith(
            "* the interval does not include the error of the fitted models.\n"
            "† a Student interval: the requested method is not available for this estimator."
        )
        assert "†" not in text.plain(summary(other, settings={"interval": "bernstein"}))
        assert "†" not in text.plain(summary(starred, other, settings={"interval": "auto"}))

    def test_an_estimate_outside_its_interval_is_marked(self) -> None:
        outside = {
            **estimate("new", "IPS", 1.0, 0.1),
            "interval": between(1.1, 1.4) | {"method": "cressie-read", "value": 1.2},
        }
        shown = text.plain(summary(outside))
        assert "IPS ‡" in shown
        assert "‡ outside its interval" in shown
        assert "The interval belongs to 1.20, the estimate" in one_line(text.explained(outside))


names = st.one_of(
    st.text(alphabet=st.characters(), max_size=60), st.just(HOSTILE), st.just("推定" * 30), st.just("Auto")
).filter(lambda name: "-0" not in name)
numbers = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 1e300, -1e300, 5e-324, 1e-7, math.nan, math.inf]))
reasons = st.builds(reason, st.sampled_from(["CAUTION", "DO_NOT_TRUST"]), names, names)


@st.composite
def summaries(draw: st.DrawFn, parts: bool = True) -> dict[str, Any]:
    policies = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    estimators = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    found = []
    for policy in policies:
        for name in estimators:
            e = estimate(policy, name, draw(numbers), abs(draw(numbers)), *draw(st.lists(reasons, max_size=2)))
            e["interval"] |= {"low": draw(numbers), "high": draw(numbers), "level": draw(st.floats(0.5, 0.9999))}
            e["diagnostics"] = {"effective_sample_size": draw(numbers), "fit_not_covered": draw(st.booleans())}
            found.append(e)
    lifts = [lift(p, draw(numbers), abs(draw(numbers)), draw(st.none() | numbers)) for p in policies]
    pairs = [
        {**lift("", draw(numbers), abs(draw(numbers))), "a": policies[0], "b": p, "estimator": ""} for p in policies[1:]
    ]
    more: dict[str, Any] = {"lifts": lifts, "logged": logged(draw(numbers), abs(draw(numbers))), "differences": pairs}
    more["skipped"] = draw(st.dictionaries(names, names, max_size=2))
    if draw(st.booleans()):
        more["truth"] = {policy: draw(numbers) for policy in policies}
    if parts and draw(st.booleans()):
        more["slices"] = {draw(names): draw(summaries(parts=False))}
    return summary(*found, **more) | {"reward": draw(names), "command": draw(names)}


@settings(max_examples=200, deadline=None)
@given(summaries(), st.integers(60, 80))
def test_any_result_fits_and_nothing_in_it_acts(result: dict[str, Any], width: int) -> None:
    for page, cells in ((text.plain(result), 80), (text.page(result, width).plain, width)):
        for line in page.split("\n"):
            assert cell_len(line) <= cells, repr(line)
            assert line.replace("\u200c", "").replace("\u200d", "").isprintable(), repr(line)
            assert not re.search(r"(^|\s)-0[.,0]*(\s|$)", line)
    written = markdown.markdown(result)
    assert not any(unicodedata.category(c) in ("Cc", "Cs") for c in written.replace("\n", ""))


def test_markdown_of_hostile_labels_is_text() -> None:
    assert escaped("|`<*_[") == "\\|\\`\\<\\*\\_\\["
    doubt = reason("CAUTION", f"Seen {HOSTILE}.", "Look.")
    result = summary(estimate(HOSTILE, HOSTILE, 1.0, 0.1, doubt), command="offpolicy evaluate '```'")
    result |= {"input": {"fingerprint": "0123456789abcdef", "source": "a|b.parquet"}, "versions": {"numpy": "2.0"}}
    written = markdown.markdown(result)
    bare = re.sub(r"\\.", "", written.partition("## How this report was made")[0])
    assert not set("`<_[") & set(bare)
    table = [line for line in bare.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in table} == {6}
    assert "- fingerprint: 0123456789abcdef" in written
    assert "- log: a\\|b.parquet" in written
    assert "- versions: numpy 2.0" in written
    assert "- seed: 0" in written
    assert written.endswith("````\noffpolicy evaluate '```'\n````\n")
    assert "- Seen " in written
    assert "Verdict: **caution**." in written


def test_a_real_result_says_the_same_everywhere(small: Small) -> None:
    result = op.evaluate(small.log(), {"new": small.target, "old": small.logging}, [op.SNIPS(), op.DR()])
    assert str(result) == text.plain(result.to_dict()) == text.page(result.to_dict()).plain
    assert "\x1b" not in str(result)
    assert max(map(cell_len, str(result).splitlines())) <= 80
    first = one_line(str(result)).split(" Verdict")[0].split("actions ")[1]
    assert escaped(first) in result.to_markdown()


SHOW = "import json, sys; from offpolicy.report import text as t; t.say(t.shown(json.loads(sys.argv[1])))"


def in_a_terminal(result: dict[str, Any], columns: int = 100, **environment: str) -> str:
    """What is printed on a pseudo-terminal."""
    kept = {
        k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "COLORTERM")
    }
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", SHOW, json.dumps(result)], stdout=theirs, stdin=theirs,
        env={**kept, "TERM": "xterm-256color", "COLUMNS": str(columns), **environment},
    ) as program:  # fmt: skip
        os.close(theirs)
        printed = b""
        while True:
            try:
                block = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not block:
                break
            printed += block
        assert program.wait() == 0
    os.close(ours)
    return printed.decode().replace("\r\n", "\n")


def show_result() -> dict[str, Any]:
    return summary(
        estimate("new", "Auto", 1.0, 0.1), estimate("new", HOSTILE, 1.0, 0.1, reason("DO_NOT_TRUST", HOSTILE, "Stop."))
    )


def test_a_terminal_has_colours_and_the_same_words() -> None:
    shown = in_a_terminal(show_result())
    styles = set(re.findall(r"\x1b\[([\d;]*)m", shown))
    assert styles == {"0", "1", "2", "1;32", "31"}  # bold, dim, bold green, red
    assert "\x1b[1;32mok\x1b[0m" in shown
    assert re.sub(r"\x1b\[[\d;]*m", "", shown) == text.plain(show_result()) + "\n"
    assert "[red]x[/red]\\x1b[2J" in shown


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colours_where_none_are_wanted(environment: dict[str, str]) -> None:
    assert in_a_terminal(show_result(), **environment) == text.plain(show_result()) + "\n"


def test_a_narrow_terminal_is_not_overrun() -> None:
    shown = in_a_terminal(show_result(), columns=60, NO_COLOR="1")
    assert shown == text.page(show_result(), 60).plain + "\n"
    assert max(map(cell_len, shown.splitlines())) <= 60


def test_an_empty_no_color_means_nothing() -> None:
    assert "\x1b" in in_a_terminal(show_result(), NO_COLOR="")


def test_a_pipe_gets_the_plain_text(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    text.say(text.shown(show_result()))
    assert capsys.readouterr().out == text.plain(show_result()) + "\n"


def test_an_output_with_few_characters_gets_simpler_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="cp1252"))
    text.say("─── ± … 推")
    sys.stdout.flush()
    assert raw.getvalue().decode("cp1252").rstrip() == "--- +- ~ ?"


def test_explained_fits(small: Small) -> None:
    words = op.evaluate(small.log(), small.target)["Auto"].explain()
    assert max(map(cell_len, words.splitlines())) <= 80


def test_an_explanation_keeps_its_lines_in_a_notebook_and_at_a_prompt(small: Small) -> None:
    said = op.evaluate(small.log(), small.target, op.DR(name="<b>"))["<b>"].explain()
    assert said.count("\n") > 1
    assert repr(said) == said
    assert "\n" in said._repr_html_()
    assert said._repr_html_().startswith("<pre>&lt;b&gt; for ")


def test_a_table_has_the_same_decimals_in_every_row() -> None:
    rows = [estimate("new", "Auto", 0.3552, 0.025), estimate("new", "DR", 12.4, 3.0), estimate("new", "DM", 0.09241, 0.0004)]
    table = text.plain(summary(*rows)).split("\n\n")[2].splitlines()[2:]
    assert [line.split()[1] for line in table] == ["0.355", "12.400", "0.092"]
    ends = [number for line in table for number in line.split()[2:5:2]]
    assert {len(number.partition(".")[2]) for number in ends} == {3}
