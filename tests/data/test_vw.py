"""Logs of Vowpal Wabbit: made by it, and evaluated as its own estimators do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offpolicy as op
from tests.data.s3 import needs


def decision(i: int, rng: np.random.Generator, p: list[float], order: list[int], x: float, **more: Any) -> str:
    """One line: the first candidate of `order` is the one taken."""
    taken = int(order[0])
    reward = float(rng.random() < 0.2 + 0.15 * taken)
    multi = [{"Action": {"id": f"item{k}", "price": float(k)}} for k in range(len(p))]
    line = {
        "_label_cost": -reward, "_label_probability": p[taken], "_label_Action": taken + 1, "_labelIndex": taken,
        "EventId": f"e{i}", "Version": "1", "a": [k + 1 for k in order], "p": [p[k] for k in order],
        "c": {"User": {"x": x, "device": "phone" if x > 0 else "desk"}, "_multi": multi}, **more,
    }  # fmt: skip
    return json.dumps(line)


def example(x: float, count: int) -> str:
    """The same decision without a label, in Vowpal Wabbit's text format."""
    shared = f"shared |User x:{x} device={'phone' if x > 0 else 'desk'}"
    return "\n".join([shared, *(f"|Action id=item{k} price:{k}" for k in range(count))])


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, list[list[float]]]:
    """A log of 600 rounds taken from the probabilities of one Vowpal Wabbit policy, and those of another, by candidate."""
    import vowpalwabbit

    rng = np.random.default_rng(0)
    old = vowpalwabbit.Workspace("--cb_explore_adf --softmax --lambda 3 --quiet")
    new = vowpalwabbit.Workspace("--cb_explore_adf --epsilon 0.3 --quiet")
    lines, target = [], []
    for i in range(600):
        count, x = int(rng.integers(2, 5)), round(float(rng.normal()), 4)
        p = np.array(old.predict(example(x, count)))
        p = (p / p.sum()).tolist()
        q = np.array(new.predict(example(x, count)))
        taken = int(rng.choice(count, p=p))
        lines.append(decision(i, rng, p, [taken, *(k for k in range(count) if k != taken)], x))
        target.append((q / q.sum()).tolist())
        if i < 300:  # both learn from the log, so that they differ
            new.learn(lines_to_text(example(x, count), taken, json.loads(lines[-1])))
            old.learn(lines_to_text(example(x, count), taken, json.loads(lines[-1])))
    path = tmp_path / "log.dsjson"
    path.write_text("\n".join(lines) + "\n")
    reader = vowpalwabbit.Workspace(f"--cb_explore_adf --dsjson -d {path} --quiet")  # its own parser accepts every line
    assert reader.get_weighted_examples() == 600
    return path, target


def lines_to_text(text: str, taken: int, line: dict[str, Any]) -> str:
    rows = text.split("\n")
    rows[1 + taken] = f"0:{line['_label_cost']}:{line['_label_probability']} {rows[1 + taken]}"
    return "\n".join(rows)


@needs("vowpalwabbit", "estimators")
@pytest.mark.filterwarnings("ignore")
def test_ips_and_snips_are_those_of_its_own_estimators(made: tuple[Path, list[list[float]]]) -> None:
    from estimators.bandits import ips, snips

    path, target = made
    log = op.read_vw(path, action="id")
    assert len(log) == 600
    assert log.actions.tolist() == ["item0", "item1", "item2", "item3"]
    assert log.schema.context == ("User.x", "User.device=desk", "User.device=phone")
    matrix = np.zeros((600, 4))
    own = {"IPS": ips.Estimator(), "SNIPS": snips.Estimator()}
    for i, text in enumerate(path.read_text().splitlines()):
        line, q = json.loads(text), target[i]
        matrix[i, : len(q)] = q
        for each in own.values():
            each.add_example(line["_label_probability"], -line["_label_cost"], q[line["_labelIndex"]])
    result = op.evaluate(log, matrix, [op.IPS(), op.SNIPS(), op.DR()])
    for name, each in own.items():
        assert result[name].value == pytest.approx(each.get(), rel=1e-6)
    assert result["DR"].std_error > 0


def file_of(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "log.dsjson"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_dropped_and_skipped_rounds(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    lines = [decision(i, rng, [0.4, 0.6], [i % 2, 1 - i % 2], 0.1 * i, pdrop=0.5 * (i == 3)) for i in range(6)]
    lines.append(decision(6, rng, [0.4, 0.6], [0, 1], 0.0, _skipLearn=True))
    with pytest.warns(op.InputWarning, match="1 rounds have _skipLearn and are left out"):
        log = op.read_vw(file_of(tmp_path, *lines), action="id")
    batch = log.head()
    assert batch.weight is not None
    assert batch.weight.tolist() == [1, 1, 1, 2, 1, 1]


def test_an_action_without_a_name_is_the_text_of_its_features(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    log = op.read_vw(file_of(tmp_path, *(decision(i, rng, [0.4, 0.6], [i, 1 - i], 0.0) for i in range(2))))
    assert log.actions.tolist()[0] == '{"Action": {"id": "item0", "price": 0.0}}'


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"p": [0.5]}, "a, p and _multi do not belong together"),
        ({"_label_probability": 0.9}, "_label_probability is 0.9, and p has 0.4"),
        ({"c": {}}, r"line 2: no decision of a contextual bandit .*: _multi is missing"),
        ({"pdrop": 1}, "pdrop is 1"),
        ({"a": [1, "x"]}, "'str' object cannot be interpreted as an integer"),
        ({"a": [1, 2.5]}, "'float' object cannot be interpreted as an integer"),
        ({"c": {"_multi": [{"id": 1}, 2]}}, "an action is an object of JSON, not 2"),
        ({"c": {"_multi": [{"id": 1}, {"id": 1}]}}, "two candidates have the same name, '1'"),
    ],
)
def test_other_lines_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    rng = np.random.default_rng(1)
    lines = [decision(i, rng, [0.4, 0.6], [0, 1], 0.0) for i in range(2)]
    lines[1] = json.dumps(json.loads(lines[1]) | change)
    with pytest.raises(op.InputError, match=message):
        op.read_vw(file_of(tmp_path, *lines), action="id")
    with pytest.raises(op.InputError, match="line 1: not JSON"):
        op.read_vw(file_of(tmp_path, "{"), action="id")
