"""The HTML report without a browser: what stands where, that names from data stay text, and that no number breaks it."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections import Counter
from collections.abc import Mapping
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

import offpolicy as op
from offpolicy.diagnostics import overlap as dx
from offpolicy.diagnostics.verdict import worst
from offpolicy.report.formatting import label
from offpolicy.report.page import charts
from offpolicy.report.page.html import MOST_IN_FULL, MOST_SLICES, embedded, page
from offpolicy.report.page.views import cards, overlaps, shown, signed
from offpolicy.worlds import Linear
from tests.logs import make_small
from tests.report import summaries as reports

VOID = {"meta"}
GEOMETRY = {"x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height", "dx", "dy"}
SUMMARIES = {
    "usual": reports.usual(),
    "several": reports.several(),
    "hostile": reports.hostile(),
    "nan": reports.undefined(reports.NAN),
    "inf": reports.undefined(reports.INF),
    "one action": reports.usual(1),
}


class Document(HTMLParser):
    """Elements with their attributes, their text, and whether every element is closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == [], f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open[-1:] == [tag], f"</{tag}> closes {self._open[-1:]}"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script":
            self.scripts.append(data)
        elif not self._open or self._open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


def read(summary: Mapping[str, Any], **more: str) -> Document:
    return Document(page(summary, **more))


@pytest.mark.parametrize("name", SUMMARIES)
def test_the_page_is_well_formed_and_semantic(name: str) -> None:
    document = read(SUMMARIES[name])
    tags = Counter(tag for tag, _ in document.elements)
    assert tags["h1"] == tags["main"] == tags["header"] == 1
    ids = [a["id"] for _, a in document.elements if "id" in a]
    assert len(ids) == len(set(ids))
    levels = [int(tag[1]) for tag, _ in document.elements if re.fullmatch("h[1-6]", tag)]
    assert all(b <= a + 1 for a, b in pairwise(levels)), "a heading level is skipped"
    assert all("scope" in a for a in document.all("th"))
    for picture in document.all("svg"):
        assert picture.get("aria-hidden") == "true" or (picture["role"] == "img" and picture["aria-label"])
    assert all(a["href"][1:] in ids for tag, a in document.elements if tag in ("a", "use"))


@pytest.mark.parametrize("name", SUMMARIES)
def test_nothing_is_loaded_and_only_our_script_may_run(name: str) -> None:
    text = page(SUMMARIES[name])
    document = Document(text)
    assert not [a for _, a in document.elements if any(key.startswith("on") for key in a)]
    assert not [a for _, a in document.elements for key in a if key in ("src", "srcset", "action", "background", "data")]
    assert all(a.get("href", "#").startswith("#") for _, a in document.elements)
    assert not {tag for tag, _ in document.elements} & {"img", "link", "iframe", "object", "embed", "base", "form", "image"}
    assert "http://" not in text
    assert "https://" not in text
    assert "url(" not in text
    assert "@import" not in text
    (script,) = document.scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [a["content"] for a in document.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith(f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}';")


@pytest.mark.parametrize("name", SUMMARIES)
def test_every_place_in_a_picture_is_a_number_within_it(name: str) -> None:
    for tag, attributes in read(SUMMARIES[name]).elements:
        if tag in ("svg", "line", "rect", "circle", "use", "text"):
            for key in GEOMETRY & set(attributes):
                match = re.fullmatch(r"(-?\d+(?:\.\d+)?(?:e-\d+)?)(%?)", attributes[key])
                assert match, f"{tag} {key}={attributes[key]!r}"
                assert not match[2] or -0.001 <= float(match[1]) <= 100.001, f"{tag} {key}={attributes[key]!r}"


def test_names_from_data_come_out_as_text() -> None:
    summary = reports.hostile()
    document, text = read(summary), page(summary)
    said = document.text
    for name in reports.HOSTILE:
        assert label(name) in said
    assert len(document.scripts) == 1
    assert "<script>alert" not in text
    assert "<img" not in text
    assert "{{7*7}}" in said
    assert "x" * 41 not in text.replace("x" * 299 + "…", "")  # settings are shown to a length, labels to a shorter one
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]", text)
    text.encode("utf-8")


def test_the_frame_holds_the_same_document() -> None:
    summary = reports.hostile()
    (frame,) = Document(embedded(summary)).all("iframe")
    assert frame["sandbox"] == "allow-scripts"
    inner = Document(frame["srcdoc"])
    assert inner.text.startswith(Document(page(summary)).text[:40])
    assert not inner.all("nav"), "links within a frame would lead to the notebook's own page"
    assert "<iframe" not in page(summary)


def test_a_page_is_the_same_each_time_and_changes_nothing() -> None:
    first, second = reports.several(), reports.several()
    assert page(first) == page(first) == page(second)
    assert first == second


@pytest.mark.parametrize(("actions", "length", "most"), [(50, 8, 100), (2000, 8, 450), (2000, 60, 500)])
def test_the_file_is_small(actions: int, length: int, most: int) -> None:
    summary = reports.usual(actions, lambda k: f"{k:06d}".ljust(length, "語" if length > 40 else "a"))
    assert len(page(summary).encode()) < most * 1000


def test_many_slices_stay_small_and_say_what_is_left_out() -> None:
    summary = reports.usual()
    summary["slices"] = {f"slice {k}": reports.part(10_000 - k, 0.3) for k in range(1000)}
    document = read(summary)
    assert len(page(summary).encode()) < 500_000
    assert f"headlines of the {MOST_SLICES} largest of 1,000 slices" in document.text
    assert f"slice {MOST_SLICES - 1}" in document.words
    assert f"slice {MOST_SLICES}" not in document.words
    assert sum("slice" in w and "·" in w for w in document.words) == MOST_IN_FULL


def statement(change: float, error: float, verdict: str = "OK", value: float = 0.4) -> tuple[str, str, str]:
    summary = reports.usual()
    summary["estimates"][0] |= {
        "value": value,
        "verdict": verdict,
        "reasons": [reports.TOO_FEW] if verdict == "DO_NOT_TRUST" else [],
    }
    summary["lifts"] = [reports.lift("new", change, error, change / 0.0905)]
    (card,) = cards(summary)
    return card["answer"], card["word"], card["relative"]


def test_the_headline_says_whether_to_believe_it() -> None:
    assert statement(0.2765, 0.0108) == ("More: +0.277 per round", "OK", "+306%")
    assert statement(-0.02, 0.003) == ("Less: −0.0200 per round", "OK", "−22%")
    assert statement(0.002, 0.003)[0] == "No significant difference"
    assert statement(0.002, reports.NAN)[0] == "No significant difference"
    assert statement(0.2765, 0.0108, "CAUTION")[:2] == ("More: +0.277 per round", "Caution")
    assert statement(0.2765, 0.0108, "DO_NOT_TRUST")[:2] == ("The log cannot tell", "Do not trust")
    assert statement(reports.NAN, 0.01, "OK", reports.NAN)[:2] == ("No estimate", "Do not trust")


def test_findings_stand_worst_first_with_what_to_do() -> None:
    text = read(reports.several()).text
    worst, other = text.index(reports.TOO_FEW["why"]), text.index(reports.CONCENTRATED["why"])
    assert worst < other
    assert f"Next step {reports.TOO_FEW['do']}" in text
    assert "SNIPS for new, old (Caution) : One bucket" in text


def test_each_section_is_there_with_its_data_and_says_why_not_without() -> None:
    whole = read({**reports.several(), "command": "offpolicy evaluate log.csv"}, made="16 November 2026").text
    for words in ("Estimates side by side", "How far to trust the answer", "Action weights: new", "Ridge(penalty='auto')",
                  "The 20 most frequently logged actions", "Policies compared", "Other rewards", "All estimates by slice",
                  "16 November 2026", "offpolicy evaluate log.csv", "0f1e2d3c4b5a6978", "Not shown MIPS, MDR"):  # fmt: skip
        assert words in whole, words
    bare = {
        **reports.usual(),
        "overlap": [],
        "calibration": [],
        "embedding": None,
        "skipped": {},
        "logged": None,
        "lifts": [],
        "input": {"columns": {}},
    }
    text = read(bare).text
    for words in (
        "This log has no propensities",
        "No reward model was cross-fitted",
        "None of these estimators learned an embedding",
    ):
        assert words in text, words
    for words in ("Policies compared", "Other rewards", "All estimates by slice", "Not shown", "weights:"):
        assert words not in text, words
    logged = {**bare, "input": {"columns": {"propensity": True}}}
    assert "No estimator weights rounds by the probability of their logged action" in read(logged).text


def test_a_difference_is_not_better_than_its_policies() -> None:
    text = read(reports.several()).text
    assert "new minus old +0.277 +0.257 to +0.296 the first earns more" in text
    assert "old minus bold −0.530 −0.942 to −0.118 do not trust" in text


def test_a_blend_shows_its_parts() -> None:
    text = read(reports.usual()).text
    assert "79% SNDR, 20% ScaledDR (clip 30), 1.0% LearnedMDR ." in text
    assert "All 4 candidates" in text
    assert "unknown" in text
    assert "nearly unbiased" in text
    assert "Excluded: MIPS . The log has no features of actions." in text


def test_extreme_rewards_keep_their_digits() -> None:
    for size in (1e12, 1e-9):
        summary = reports.usual()
        summary["estimates"] = [reports.estimate("DR", 3.21 * size, 0.01 * size)]
        summary["headline"] = {"policy": "new", "estimator": "DR"}
        summary["truth"], summary["logged"] = (
            None,
            {"value": size, "std_error": 0.0, "interval": reports.interval(size, size)},
        )
        summary["lifts"] = [reports.lift("new", 2.21 * size, 0.01 * size, 2.21)]
        text = read(summary).text
        assert "3.21" in text
        assert "+221%" in text


def test_a_real_evaluation() -> None:
    small = make_small(features=3)
    names = np.array(["a", "b", "<c>", "d"])
    early = np.where(small.action > 1, "late", "early")
    log = op.Log(small.context, names[small.action], small.reward, logging=small.logging, actions=list(names), by=early)
    result = op.evaluate(log, {"new": small.target, "old": small.logging})
    summary = result.to_dict(shown=100)
    document = read(summary)
    assert {"new", "old", "early", "late", "a", "<c>", summary["input"]["fingerprint"]} <= set(document.words)
    assert len(re.findall(r'<circle [^>]*class="k\d', page(summary))) == 4
    assert document.text.count("Used by") == len(summary["overlap"]) + len(summary["calibration"]) > 2
    estimate, lift = result["new", result.headline_estimator], result.lift("new")
    assert shown(estimate.value, estimate.std_error) in document.words
    assert any(signed(lift.value, lift.std_error) in words for words in document.words)
    assert all(reason.do in document.text for reason in estimate.reasons)


def test_what_the_page_calls_good_is_what_the_verdict_calls_good() -> None:
    """The thresholds that the page names are those of the diagnostics."""
    good = dx.Overlap(n=100_000, ess=501.0, mean_weight=1.0, mean_weight_z=0.0, largest_weight=4_900.0, largest_share=0.049, top_share=0.49,
                      never_logged=0.009, no_support=0.009)  # fmt: skip
    assert worst(dx.weight_findings(good) + dx.support_findings(good, False, True)) is op.Verdict.OK
    bad = dx.Overlap(n=100_000, ess=4.9, mean_weight=1.0, mean_weight_z=0.0, largest_weight=5_100.0, largest_share=0.051, top_share=0.5,
                     never_logged=0.011, no_support=0.011)  # fmt: skip
    found = [f for f in dx.weight_findings(bad) + dx.support_findings(bad, False, True) if f.verdict is not op.Verdict.OK]
    assert [f.code for f in found] == ["effective sample size", "top weights", "largest weight", "support", "support"]
    assert found[0].verdict is op.Verdict.DO_NOT_TRUST


def test_pareto_k_is_shown_where_it_is_defined() -> None:
    for kind, expected in (("action", "0.58"), ("embedding", None)):
        [view] = overlaps({"overlap": [reports.overlap(kind=kind)]})
        assert {name: value for name, value, _ in view["facts"]}.get("Pareto k") == expected


ANY = st.floats(allow_nan=True, allow_infinity=True) | st.none()


@given(st.lists(ANY, max_size=6))
@example([5e-324, 0.0])
@example([1e-308, 2e-308])
@example([-1e299, 1e299])
def test_a_scale_holds_what_is_finite(values: list[float | None]) -> None:
    scale = charts.Scale.over(values)
    assert scale.low < scale.high
    places = [scale.at(v) for v in values if v is not None]
    assert all(0 <= place <= 100 for place in places)
    assert all(0 < scale.at(v) < 100 for v in values if v is not None and charts.finite(v))
    ticks = scale.ticks()
    assert len(ticks) <= 12
    assert [t.at for t in ticks] == sorted({t.at for t in ticks})
    assert len({t.text for t in ticks}) == len(ticks)


@given(st.lists(st.tuples(ANY, ANY, ANY), min_size=1, max_size=5))
def test_an_interval_is_never_drawn_outside_its_axis(triples: list[tuple[float | None, float | None, float | None]]) -> None:
    axis = charts.Axis.of(list(triples[0]), [v for triple in triples for v in triple], {"zero": 0.0})
    for value, low, high in triples:
        strip = charts.Strip.of(axis.scale, value, {"low": low, "high": high})
        assert all(place is None or 0 <= place <= 100 for place in (strip.value, strip.low, strip.high))


def test_an_axis_is_cut_where_one_estimate_is_far_off() -> None:
    axis = charts.Axis.of([0.3, 0.4], [0.3, 0.4, -50.0, 80.0], {"logged": 0.1})
    assert axis.scale.high - axis.scale.low <= charts.WIDE * 0.34
    strip = charts.Strip.of(axis.scale, 3.0, {"low": -50.0, "high": 80.0})
    assert (strip.value, strip.cut_low, strip.cut_high) == (None, True, True)


ROUNDS = st.just(0.0) | st.floats(0.01, 1e9)  # rounds may have weights of their own


@given(st.lists(ROUNDS, max_size=120), ROUNDS)
def test_the_bars_of_a_histogram_hold_every_round(counts: list[float], zero: float) -> None:
    edges = [2.0 ** (k / 2 - 30) for k in range(len(counts) + 1)]
    drawn = charts.histogram(edges, counts, zero)
    bars = [*drawn.bars, *([drawn.zero] if drawn.zero else [])]
    assert len(drawn.bars) <= charts.MOST_BARS
    assert all(b.left >= 0 and b.left + b.width <= 100.02 and 0 <= b.rounds <= 100 and 0 <= b.weight <= 100 for b in bars)
    shares = [float(re.search(r"([\d.]+)% of rounds", b.title)[1]) for b in bars]  # type: ignore[index]
    assert not bars or sum(shares) == pytest.approx(100, abs=0.05 * len(bars) + 0.1)


def test_places_on_the_map_keep_distances() -> None:
    """Both axes have one unit: what is twice as far away in the data is so in the picture, in any direction."""
    points = [{"x": x, "y": y, "count": 1.0, "reward": 0.0} for x, y in [(0, 0), (4, 0), (0, 2), (-1, -1)]]
    a, b, c, _ = charts.dots(points, None)
    assert a
    assert b
    assert c
    across, up = (b.x - a.x) * charts.MAP_RATIO, a.y - c.y
    assert across == pytest.approx(2 * up, rel=0.01)


def test_sizes_go_with_counts_and_colours_with_rewards() -> None:
    rewards = [*np.linspace(0, 1, 101), 50.0, None]
    points = [{"x": k, "y": 0.0, "count": float(k), "reward": r} for k, r in enumerate(rewards)]
    shades = charts.Shades.of(rewards)
    assert shades
    assert shades.beyond
    assert shades.high < 1.01
    drawn = [dot for dot in charts.dots(points, shades) if dot]
    assert [d.radius for d in drawn] == sorted(d.radius for d in drawn)
    assert [d.colour for d in drawn[1:102]] == sorted(d.colour for d in drawn[1:102])
    assert drawn[0].colour == "k0 unlogged"
    assert drawn[-2].colour == f"k{charts.COLOURS - 1}"
    assert drawn[-1].colour == "none"


def test_text_alternatives_are_escaped_once() -> None:
    text = page(reports.hostile())
    assert html.escape("<script>alert(1)</script>", quote=False) in text
    assert "&amp;lt;" not in text


@pytest.fixture(scope="module")
def world() -> Linear:
    return Linear(10, clicks=True, seed=1)


def shown_of(result: op.Evaluation) -> str:
    return read(result.to_dict()).text


def test_levels_are_told_with_the_digits_they_have(world: Linear) -> None:
    text = shown_of(op.evaluate(world.sample(2_000, seed=1), world.target, op.SNIPS(), level=0.999))
    assert "99.9% interval" in text
    assert "100%" not in text.replace("near 100%, a few", "")


def test_the_logged_mean_alone_is_no_lift(world: Linear) -> None:
    text = shown_of(op.evaluate(world.sample(2_000, seed=1), world.target, op.LoggedMean()))
    assert "No significant difference" not in text
    assert "Relative lift" not in text


def test_a_lift_of_another_kind_of_interval_says_so(world: Linear) -> None:
    log = world.sample(2_000, seed=1)
    log = op.Log(None, log.source.whole.action, log.source.whole.reward, propensity=log.source.whole.propensity,
                 n_actions=10, reward_range=(0, 1))  # fmt: skip
    result = op.evaluate(log, op.Fixed([0.55] + [0.05] * 9), op.IPS()).with_interval("bernstein")
    assert "95% Student interval" in shown_of(result)
    assert "95% Student interval" in " ".join(str(result).split())


def test_a_model_that_nothing_checks_says_whose_word_it_is(world: Linear) -> None:
    batch = world.sample(4_000, seed=1).source.whole
    log = op.Log(batch.context, batch.action, batch.reward, n_actions=10)
    assert "DM estimates" in shown_of(op.evaluate(log, world.target))


def test_only_what_was_checked_is_said_to_be_fine() -> None:
    text = read(reports.usual()).text
    assert "No check raised a concern about Auto" in text
    assert "passed" not in text


def test_several_policies_are_compared_at_the_top() -> None:
    text = read(reports.several()).text
    assert 0 < text.index("than old (95% interval") < text.index("Estimates side by side")
