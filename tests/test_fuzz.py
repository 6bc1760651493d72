"""A few hundred fuzz cases, and tests that the oracle detects failures. `python -m fuzz` runs many more."""

from __future__ import annotations

import math
from collections import Counter

import pytest

import offpolicy as op
from fuzz.again import again
from fuzz.arrays import Arrays
from fuzz.commands import Ended, judge_ended
from fuzz.judging import Outcome, Truth, judged, truth_of
from fuzz.parts import PARTS, run
from fuzz.tables import Csv

GOOD = {"reward": [1.0, 0.0, 2.0], "p": [0.5, 0.25, 0.5], "q": [0.25, 0.5, 0.5]}
CASES = {
    "arrays": 80,
    "tables": 70,
    "csv": 70,
    "policies": 70,
    "bytes": 60,
    "places": 60,
    "lists": 60,
    "toml": 30,
    "commands": 40,
    "others": 30,
    "processes": 2,
}


@pytest.mark.parametrize("part", PARTS)
def test_the_right_answer_or_a_refusal(part: str) -> None:
    ended = run(part, CASES[part], seed=8)
    failed = [
        f"{why}\n  python -m fuzz.again {part} {case!r}" for outcome, why, case in ended if outcome == Outcome.FAILED.value
    ]
    assert not failed, "\n".join(failed)
    counts = Counter(outcome for outcome, _, _ in ended)
    assert len(ended) == CASES[part]
    if CASES[part] > 30:
        assert min(counts[Outcome.RIGHT.value], counts[Outcome.REFUSED.value]) >= len(ended) / 8, counts


def test_the_right_answer_by_hand() -> None:
    """Weights 0.5, 2 and 1: IPS is (0.5·1 + 2·0 + 1·2) / 3, SNIPS the same sum over 3.5."""
    truth = truth_of(GOOD)
    assert truth is not None
    assert truth.n == 3
    assert {name: value for name, (value, _) in truth.values.items()} == {
        "LoggedMean": 1.0,
        "IPS": 2.5 / 3,
        "SNIPS": 2.5 / 3.5,
    }


@pytest.mark.parametrize(
    ("column", "cell"),
    [("reward", None), ("reward", math.nan), ("p", 0.0), ("p", 1.5), ("q", -0.1), ("q", "x"), ("p", True)],
)
def test_what_has_no_right_answer(column: str, cell: object) -> None:
    corrupted = {**GOOD, column: [*GOOD[column][:2], cell]}
    assert (truth_of(corrupted) is None) == (cell is not True)


@pytest.mark.parametrize("column", ["x", "reward", "p", "q", "action"])
@pytest.mark.parametrize("cell", ["1e400", "١"])
def test_numbers_of_python_need_not_be_numbers_of_csv(cell: str, column: str) -> None:
    """Python reads 1e400 as infinity and the digits of every script; a CSV reader need not."""
    cells = {
        "action": ["0", "1", "1"],
        "x": ["0.5", "1", "2"],
        **{name: list(map(str, values)) for name, values in GOOD.items()},
    }
    assert Csv(list(cells.items())).judge().outcome is Outcome.RIGHT
    cells[column][1] = cell
    answered = column == "action" or (column, cell) == ("x", "١")  # as a label, and as a category
    assert Csv(list(cells.items())).judge().outcome is (Outcome.RIGHT if answered else Outcome.REFUSED)
    assert not Csv(list(cells.items())).truth() or not Csv(list(cells.items())).truth().certain


def test_a_number_of_threads_that_no_machine_has() -> None:
    with pytest.raises(op.InputError, match=r"threads is 1000.*; give a whole number from 1 to 1,024"):
        op.Local(threads=10**300)


def log() -> op.Log:
    return op.Log(None, [0, 1, 1], GOOD["reward"], propensity=GOOD["p"])


def test_the_oracle_says_no() -> None:
    truth = truth_of(GOOD)

    def evaluated() -> op.Evaluation:
        return op.evaluate(log(), op.Column(GOOD["q"]), [op.IPS(), op.SNIPS()])

    assert judged(evaluated, truth).outcome is Outcome.RIGHT
    assert judged(evaluated, None).why == "invalid input was answered"
    other = Truth.of([1.0, 0.0, 2.1], GOOD["p"], GOOD["q"])
    assert "is right" in judged(evaluated, other).why
    fewer = Truth.of(GOOD["reward"][:2], GOOD["p"][:2], GOOD["q"][:2])
    assert "n is 3, but 2 rows were passed" in judged(evaluated, fewer).why

    def refused() -> op.Evaluation:
        raise op.InputError("no")

    assert "valid input was refused" in judged(refused, truth).why
    assert judged(refused, None).outcome is Outcome.REFUSED
    assert judged(lambda: [][1], None).why.startswith("IndexError")


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (Ended(1, "", "oh"), "exit code 1"),
        (Ended(2, "", ""), "refused without a message"),
        (Ended(2, "", "Traceback (most recent call last)"), "a traceback"),
        (Ended(0, "", ""), "no answer"),
        (Ended(0, "x", "warning: overflow encountered in multiply"), "a warning of ours"),
        (Ended(0, '{"estimates": [{"estimator": "IPS", "n": 2, "value": 1}]}', ""), "n is 2"),
    ],
)
def test_commands_that_fail(ended: Ended, words: str) -> None:
    assert words in judge_ended(ended, truth_of(GOOD), certain=False).why


def test_a_case_can_be_tried_again() -> None:
    case = Arrays({**GOOD, "action": [0, 1, 1], "x": [0.0, 0.5, 1.0]}, evaluate={"level": math.nan}, expected="bad")
    assert again(repr(case)) == case.judge()
    assert case.judge().outcome is Outcome.REFUSED
