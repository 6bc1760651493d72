"""Slices in one table: a row for each, its difference from the whole log, and intervals that hold for all together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import offpolicy as op
from offpolicy.report.slices import DIFFERS

TARGET = op.Fixed([0.6, 0.2, 0.2])


def sample(seed: int, n: int = 600, slices: int = 4, lift: float = 0.0, **more: object) -> op.Log:
    """The first slice earns `lift` more than the others."""
    rng = np.random.default_rng(seed)
    by, action = rng.integers(0, slices, n), rng.integers(0, 3, n)
    reward = 1.0 + (action == 0) + lift * (by == 0) + rng.normal(size=n)
    names = np.array([f"slice {k}" for k in range(slices)])
    return op.Log(None, action, reward, propensity=np.full(n, 1 / 3), by=names[by], **more)


@pytest.fixture(scope="module")
def many() -> op.Evaluation:
    return op.evaluate(sample(0, n=8_000, slices=21, lift=1.0), TARGET, [op.SNIPS(), op.DR()])


def test_many_slices_take_one_line_each(many: op.Evaluation) -> None:
    lines = str(many).splitlines()
    assert len(lines) < 60
    assert max(map(len, lines)) <= 80
    for k in range(21):
        (line,) = (line for line in lines if line.startswith(f"slice {k} ") and "(" not in line)
        part = many.slices[f"slice {k}"]
        assert f"{part.rounds:,}" in line
        assert f"{part.headline.value:.3f}" in line
        assert part.verdict.value in line
    assert [line.split()[1] for line in lines if DIFFERS in line and line.startswith("slice")] == ["0"]
    assert f"{DIFFERS} slice 0 differs from the whole log." in lines
    assert sum("The same concern applies to" in line for line in lines) <= 3  # slices with the same concern share a line
    assert sum(line.startswith("| slice ") for line in many.to_markdown().splitlines()) == 22  # with the header


def test_rows_are_those_of_the_slices_and_the_whole(many: op.Evaluation) -> None:
    rows = many.to_dict()["by_slice"]
    assert [row["slice"] for row in rows] == list(many.slices)
    frame = many.to_frame(by_slice=True)
    for row, flat in zip(rows, frame.to_dict("records"), strict=True):
        own = many.slices[row["slice"]].headline
        assert (row["value"], row["rounds"], row["verdict"]) == (own.value, own.n, own.verdict.name)
        assert row["difference"]["value"] == pytest.approx(own.value - many.headline.value)
        low, high = row["simultaneous_interval"]["low"], row["simultaneous_interval"]["high"]
        assert low < row["interval"]["low"] < row["interval"]["high"] < high
        assert (flat["simultaneous_low"], flat["difference"]) == (low, row["difference"]["value"])
    width = [(row["simultaneous_interval"]["high"] - row["value"]) / row["std_error"] for row in rows]
    assert width == pytest.approx([3.03] * 21, abs=0.01)  # the quantile at (1 + 0.95^(1/21)) / 2


@pytest.mark.parametrize("clustered", [False, True])
def test_the_error_of_a_difference_from_the_whole_is_its_spread_over_logs(clustered: bool) -> None:
    """The slice is a quarter of the log and shares its errors with the whole. Clusters have an effect of their own."""
    values, errors = [], []
    for seed in range(150):
        rng = np.random.default_rng(1_000 + seed)
        user = rng.integers(0, 120, 600)
        log = sample(seed)
        if clustered:
            batch = next(iter(log.batches(600)))
            effect, group = rng.normal(size=120), np.arange(120) % 4
            names = np.array([f"slice {k}" for k in range(4)])[group[user]]
            log = op.Log(
                None, batch.codes, batch.reward[:, 0] + effect[user], propensity=np.full(600, 1 / 3), by=names, cluster=user
            )
        row = op.evaluate(log, TARGET, op.SNIPS(), engine=op.Local(threads=1)).to_dict()["by_slice"][0]
        values.append(row["difference"]["value"])
        errors.append(row["difference"]["std_error"])
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(values), rel=0.15)


def test_all_simultaneous_intervals_hold_in_most_logs() -> None:
    """In each log all four intervals of the values hold at once, and all four of the differences."""
    held = np.zeros((200, 2))
    for seed in range(200):
        rows = op.evaluate(sample(seed), TARGET, op.SNIPS(), engine=op.Local(threads=1)).to_dict()["by_slice"]
        for k, (each, truth) in enumerate([((row for row in rows), 1.6), ((row["difference"] for row in rows), 0.0)]):
            ends = [row["simultaneous_interval"] for row in each]
            held[seed, k] = all(end["low"] <= truth <= end["high"] for end in ends)
    assert (held.mean(axis=0) > 0.91).all()
    assert (held.mean(axis=0) < 0.99).all()


def test_tiny_and_empty_slices_claim_nothing() -> None:
    rng = np.random.default_rng(0)
    by, weight = np.array(["big"] * 497 + ["one", "none", "none"]), np.ones(500)
    weight[-2:] = 0
    log = op.Log(None, rng.integers(0, 3, 500), rng.normal(size=500), propensity=np.full(500, 1 / 3), by=by, weight=weight)
    result = op.evaluate(log, TARGET, op.SNIPS())
    rows = {row["slice"]: row for row in result.to_dict()["by_slice"]}
    assert np.isnan(rows["one"]["difference"]["std_error"])
    assert np.isnan(rows["none"]["value"])
    assert "No slice is shown to differ" in str(result)
    assert "all 1 contain" in str(result)


def test_several_rewards_and_policies_have_a_table_each(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    log = op.Log(
        None,
        rng.integers(0, 3, 400),
        rng.random((400, 2)),
        propensity=np.full(400, 1 / 3),
        by=np.arange(400) % 2,
        n_actions=3,
    )
    result = op.evaluate(log, {"new": TARGET, "old": op.Uniform()}, op.SNIPS())
    rows = result.to_dict()["by_slice"]
    assert len({(row["reward"], row["policy"], row["slice"]) for row in rows}) == len(rows) == 8
    assert [line for line in str(result).splitlines() if "by slice" in line] == [
        f"{reward} by slice: SNIPS for {policy}" for reward in result.rewards for policy in ("new", "old")
    ]
    result.save(tmp_path / "result.json")
    assert str(op.load_result(tmp_path / "result.json")) == str(result)


def test_the_page_draws_every_slice_beside_the_whole(many: op.Evaluation, tmp_path: Path) -> None:
    many.write_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    section = page[page.index('<section id="slices">') :].partition("</table>")[0]
    assert section.count('<tr role="row"') >= 22
    assert section.count('class="bar"') == 22
    assert section.count('class="beyond"') == 0
    assert section.count(DIFFERS) == 1
    assert "the value on all rounds" in page
