"""The pictures show the numbers of the plain dict, on the axes that they are given."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import offpolicy as op
from offpolicy.report import plots
from tests.logs import make_small

DRAWN = ("estimates", "weights", "calibration", "embedding", "differences")


@pytest.fixture(scope="module")
def result() -> op.Evaluation:
    small = make_small(n=3000, actions=12, seed=3)
    policies = {"new": small.target, "old": small.logging}
    return op.evaluate(
        small.log(), policies, [op.Auto(), op.SNIPS(), op.DR(), op.LearnedMIPS(posterior=op.Gaussian("slope"))]
    )


@pytest.fixture(scope="module")
def full(result: op.Evaluation) -> dict[str, Any]:
    return result.to_dict(shown=2000)


@pytest.fixture
def summary(full: dict[str, Any]) -> dict[str, Any]:
    return copy.deepcopy(full)


@pytest.fixture
def ax() -> Axes:
    return Figure(layout="constrained").subplots()


@pytest.fixture(autouse=True)
def _no_figures_left() -> Iterator[None]:
    """Pyplot holds no figure that a test did not ask for, and its settings stay."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.close("all")
    before = dict(mpl.rcParams)
    yield
    plt.close("all")
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize("name", DRAWN)
def test_given_axes_come_back_and_nothing_else_is_opened(
    name: str, summary: dict[str, Any], ax: Axes, capsys: pytest.CaptureFixture[str]
) -> None:
    import matplotlib.pyplot as plt

    before = copy.deepcopy(summary)
    draw = getattr(plots, name)
    assert draw(summary, ax) is ax
    ax.figure.savefig("/dev/null", format="png")
    assert plt.get_fignums() == []
    own = draw(summary)
    assert own is not ax
    assert len(plt.get_fignums()) == 1
    assert repr(summary) == repr(before)  # NaN is not equal to itself
    assert capsys.readouterr() == ("", "")


class TestEstimates:
    def test_points_intervals_and_verdicts(self, summary: dict[str, Any], ax: Axes) -> None:
        plots.estimates(summary, ax)
        naive = [e for e in summary["estimates"] if e["estimator"] == "LoggedMean"]
        rows = [naive[0], *(e for e in summary["estimates"] if e["estimator"] != "LoggedMean")]
        spans = [line for line in ax.lines if len(line.get_xdata()) == 2 and line.get_linewidth() > 1]
        points = [line for line in ax.lines if len(line.get_xdata()) == 1]
        for k, (e, between, point) in enumerate(zip(rows, spans, points, strict=True)):
            np.testing.assert_array_equal(between.get_xdata(), [e["interval"]["low"], e["interval"]["high"]])
            np.testing.assert_array_equal(between.get_ydata(), [k, k])
            assert (point.get_xdata()[0], point.get_ydata()[0]) == (e["value"], k)
            kind = "the log" if e["estimator"] == "LoggedMean" else e["verdict"]
            assert point.get_marker() == plots.MARKERS[kind]
            assert point.get_color() == plots.COLOURS[kind]
        names = [tick.get_text() for tick in ax.get_yticklabels()]
        assert names[:3] == ["LoggedMean", "new: Auto", "new: SNIPS"]
        bold = [tick.get_text() for tick in ax.get_yticklabels() if tick.get_fontweight() == "bold"]
        assert bold == ["new: Auto", "old: Auto"]
        assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the first row is at the top

    def test_the_log_and_the_truth_are_lines_with_names(self, summary: dict[str, Any], ax: Axes) -> None:
        plots.estimates(summary | {"truth": {"new": 0.25, "old": 0.5}}, ax)
        thin = [line.get_xdata()[0] for line in ax.lines if line.get_linewidth() < 1]
        assert thin == [summary["logged"]["value"], 0.25, 0.5]
        assert [t.get_text() for t in ax.texts] == ["logged mean", "true value of new", "true value of old"]
        assert len({t.xyann[1] for t in ax.texts}) == 3  # none over another

    def test_what_is_no_number_is_said(self, summary: dict[str, Any], ax: Axes) -> None:
        gone = summary["estimates"][1]
        gone["value"] = gone["interval"]["low"] = math.nan
        plots.estimates(summary, ax)
        assert [t.get_text() for t in ax.texts if "no estimate" in t.get_text()] == ["no estimate"]
        ax.figure.savefig("/dev/null", format="png")


class TestWeights:
    def test_outlines_are_the_counts(self, summary: dict[str, Any], ax: Axes) -> None:
        plots.weights(summary, ax)
        assert len(ax.patches) == len(summary["overlap"]) > 2
        for o, outline in zip(summary["overlap"], ax.patches, strict=True):
            counts, edges, _ = outline.get_data()
            np.testing.assert_array_equal(counts, o["counts"])
            np.testing.assert_array_equal(edges, o["edges"])
            assert sum(o["counts"]) + o["zero"] == pytest.approx(summary["rounds"])
        looks = {(to_hex(outline.get_edgecolor()), str(outline.get_linestyle())) for outline in ax.patches}
        assert len(looks) == len(ax.patches)
        assert ax.get_xscale() == "log"
        words = [t.get_text() for t in ax.get_legend().get_texts()]
        assert words[0].startswith(f"π/π₀ of new: {summary['overlap'][0]['effective_sample_size']:,.0f} effective rounds")

    def test_one_histogram_has_bars_and_says_what_has_no_weight(self, summary: dict[str, Any], ax: Axes) -> None:
        summary["overlap"] = summary["overlap"][:1]
        summary["overlap"][0]["zero"] = 1234.0
        plots.weights(summary, ax, policy="new")
        (o,) = summary["overlap"]
        assert [bar.get_height() for bar in ax.patches] == o["counts"]
        assert [bar.get_x() for bar in ax.patches] == o["edges"][:-1]
        np.testing.assert_allclose([bar.get_x() + bar.get_width() for bar in ax.patches], o["edges"][1:])
        assert "1,234 rounds have weight 0" in ax.get_legend().get_texts()[0].get_text()

    def test_one_policy(self, summary: dict[str, Any], ax: Axes) -> None:
        plots.weights(summary, ax, policy="old")
        assert all(" of old: " in t.get_text() for t in ax.get_legend().get_texts())


def test_calibration_shows_every_bin_and_its_error(summary: dict[str, Any], ax: Axes) -> None:
    plots.calibration(summary, ax, model=1)
    model = summary["calibration"][1]
    (container,) = ax.containers
    points, _, (bars,) = container
    np.testing.assert_array_equal(points.get_xdata(), [b["predicted"] for b in model["bins"]])
    np.testing.assert_array_equal(points.get_ydata(), [b["observed"] for b in model["bins"]])
    for segment, b in zip(bars.get_segments(), model["bins"], strict=True):
        np.testing.assert_allclose(
            segment[:, 1], [b["observed"] - 1.96 * b["std_error"], b["observed"] + 1.96 * b["std_error"]]
        )
    diagonal = ax.lines[0]
    np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    assert f"R² = {model['r2']:.3f}" in ax.get_title()


class TestEmbedding:
    def test_points_sizes_and_colours(self, summary: dict[str, Any], ax: Axes) -> None:
        points = sorted(summary["embedding"]["points"], key=lambda p: -p["count"])
        points[-1]["count"] = 0.0
        points[-2]["reward"] = None
        plots.embedding(summary, ax)
        hollow, grey, dots = ax.collections
        np.testing.assert_allclose(dots.get_offsets(), [(p["x"], p["y"]) for p in points[:-2]])
        np.testing.assert_allclose(dots.get_array(), [p["reward"] for p in points[:-2]])
        grown = (dots.get_sizes() - 6) / np.sqrt([p["count"] for p in points[:-2]])
        np.testing.assert_allclose(grown, grown[0])
        np.testing.assert_allclose(hollow.get_offsets(), [(points[-1]["x"], points[-1]["y"])])
        np.testing.assert_allclose(grey.get_offsets(), [(points[-2]["x"], points[-2]["y"])])
        assert hollow.get_facecolors().size == 0
        assert "never logged (1)" in ax.get_title()
        assert len(ax.figure.axes) == 2  # the colour bar
        assert f"{summary['embedding']['explained']:.0%}"[:-1] in ax.get_xlabel()

    def test_names_do_not_meet(self, summary: dict[str, Any], ax: Axes) -> None:
        plots.embedding(summary, ax)
        figure = ax.figure
        figure.draw_without_rendering()
        boxes = [t.get_window_extent() for t in ax.texts]
        most = max(summary["embedding"]["points"], key=lambda p: p["count"])
        assert ax.texts[0].get_text() == most["action"]
        assert not any(a.overlaps(b) for k, a in enumerate(boxes) for b in boxes[:k])

    def test_all_in_one_place_name_one(self, summary: dict[str, Any], ax: Axes) -> None:
        for p in summary["embedding"]["points"]:
            p["x"] = p["y"] = 0.0
        plots.embedding(summary, ax)
        assert len(ax.texts) == 1


def test_differences_are_filled_where_they_are_not_zero(summary: dict[str, Any], ax: Axes) -> None:
    apart = summary["differences"][0]
    same = copy.deepcopy(apart) | {"value": 0.0, "interval": apart["interval"] | {"low": -1.0, "high": 1.0}}
    apart["interval"] |= {"low": 0.1, "high": 0.3}
    summary["differences"] = [apart, same]
    plots.differences(summary, ax)
    zero, *rest = ax.lines
    assert list(zero.get_xdata()) == [0, 0]
    assert list(rest[0].get_xdata()) == [0.1, 0.3]
    assert rest[1].get_xdata()[0] == apart["value"]
    assert list(rest[2].get_xdata()) == [-1.0, 1.0]
    assert (rest[1].get_markerfacecolor(), rest[3].get_markerfacecolor()) == (plots.BLUE, "white")
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["new − old"] * 2


def test_what_is_missing_is_asked_for(summary: dict[str, Any], ax: Axes) -> None:
    bare = summary | {"overlap": [], "calibration": [], "embedding": None, "differences": []}
    for name, words in (
        ("weights", "propensity="), ("calibration", "no reward model was cross-fitted; add op.DR"),
        ("embedding", "add op.LearnedMIPS"), ("differences", "give op.evaluate a dict"),
    ):  # fmt: skip
        with pytest.raises(op.InputError, match=words):
            getattr(plots, name)(bare, ax)
    with pytest.raises(op.InputError, match="there is no model 7"):
        plots.calibration(summary, ax, model=7)
    with pytest.raises(op.InputError, match="no policy 'newer'; the policies are 'new', 'old'"):
        plots.weights(summary, ax, policy="newer")


def test_plots_ask_for_what_they_need(full: dict[str, Any], ax: Axes) -> None:
    asked = []

    def give(shown: int) -> dict[str, Any]:
        asked.append(shown)
        return full

    drawn = plots.Plots(give, lambda gamma, policy: {}, lambda baseline: {})
    for name in DRAWN:
        figure = Figure(layout="constrained")
        given = figure.subplots()
        assert getattr(drawn, name)(given) is given
    drawn.embedding(ax, shown=50)
    assert asked == [0, 0, 0, 2000, 0, 50]
    with pytest.raises(AttributeError):
        drawn.summary = give  # type: ignore[misc]


@pytest.mark.parametrize("name", ["$x^2$", "$", "$\\frac{", "_hidden", "a\x1b[31m\u202eb", "", "x" * 500])
def test_names_from_the_data_are_text(name: str, summary: dict[str, Any]) -> None:
    for e in summary["estimates"]:
        e["policy"], e["estimator"] = (name, e["estimator"]) if e["policy"] == "new" else ("old", name + e["estimator"])
    summary |= {"reward": name, "policies": [name, "old"], "truth": {name: 1.0}}
    for o in summary["overlap"]:
        o |= {"policy": name, "estimators": [name]}
    summary["embedding"]["estimator"] = summary["calibration"][0]["model"] = name
    for p in summary["embedding"]["points"]:
        p["action"] = name
    summary["differences"][0] |= {"a": name}
    for kind in DRAWN:
        figure = Figure(layout="constrained", figsize=(12, 8))
        shown = getattr(plots, kind)(summary, figure.subplots())
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "constrained_layout not applied")  # a label of 500 is cut, but still long
            figure.savefig("/dev/null", format="png")
        for found in figure.findobj(mpl.text.Text):
            assert "\x1b" not in found.get_text()
            assert not mpl.cbook.is_math_text(found.get_text()) or (kind == "weights" and "mathdefault" in found.get_text())
        assert shown.figure is figure


def test_a_file_is_written_without_a_screen(summary: dict[str, Any], tmp_path: Path) -> None:
    import matplotlib.pyplot as plt

    summary["reward"] = "推定"  # not in the font: a box, not a warning
    for kind, start in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        plots.write(summary, tmp_path / "draft", kind)
        assert (tmp_path / "draft").read_bytes().startswith(start)
    assert plt.get_fignums() == []
