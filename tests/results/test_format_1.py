"""Files that version 0.1 saved in the first format are still read, and say what they said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import offpolicy as op
from tests.golden.__main__ import with_rewards

SAVED = Path(__file__).parent.parent / "golden" / "format_1"


def test_a_result(tmp_path: Path) -> None:
    result = op.load_result(SAVED / "result.json")
    assert str(result) == (SAVED / "result.txt").read_text()
    result.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (SAVED / "result.json").read_bytes()


def test_what_a_file_without_sums_cannot_say_it_says() -> None:
    result = op.load_result(SAVED / "result.json")
    assert type(result) is op.Evaluation is op.SavedResult
    assert result["DR"].confidence_interval() == result["DR"].interval
    wide, narrow = result["DR"].confidence_interval(0.99), result["DR"].confidence_interval(0.5)
    assert wide.low < narrow.low < result["DR"].value < narrow.high < wide.high
    assert result.lift().value == pytest.approx(result.headline.value - result["LoggedMean"].value)
    assert result.lift().confidence_interval(0.99).low < result.lift().interval.low
    no_sums = "saved by an older offpolicy, without sums"
    for asked, message in [
        (
            lambda: result["DR"].confidence_interval(0.9, "bootstrap"),
            f"{no_sums}.*normal interval at level 0.95; for others, evaluate",
        ),
        (lambda: result["DR"].confidence_interval(method="magic"), "interval method"),
        (lambda: result.with_interval("bootstrap"), no_sums),
        (lambda: result.difference("DR", "SNIPS"), f"{no_sums}.*for others, evaluate again"),
        (lambda: result.relative_lift(), no_sums),
        (lambda: result.sensitivity(1.5), "no longer has it"),
        (lambda: result["DR"].scores("scores.parquet"), "no longer has it"),
    ]:
        with pytest.raises(op.InputError, match=message):
            asked()


def test_an_embedding() -> None:
    table = op.load_embedding(SAVED / "embedding.parquet")
    assert (len(table), table.values.shape, table.counts.sum()) == (12, (12, 6), 6_000)
    assert np.isfinite(table.scaled).all()


def test_a_reward_model(tmp_path: Path) -> None:
    lines = (SAVED / "rewards.txt").read_text().splitlines()
    for found, kept in zip(with_rewards(SAVED / "rewards.safetensors").splitlines(), lines, strict=True):
        (name, *numbers), (other, *others) = found.split(), kept.split()
        assert name == other
        assert list(map(float, numbers)) == pytest.approx(list(map(float, others)), rel=1e-9)
    op.load_rewards(SAVED / "rewards.safetensors").save(tmp_path / "again.safetensors")
    assert with_rewards(tmp_path / "again.safetensors") == with_rewards(SAVED / "rewards.safetensors")


def test_the_files_say_which_format_they_are_in() -> None:
    assert json.loads((SAVED / "result.json").read_text())["version"] == 1
