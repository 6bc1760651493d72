"""Propensities that nobody logged: estimated, cross-fitted, and used like logged ones."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import offpolicy as op
from offpolicy.cli.app import main
from offpolicy.core.arrays import FloatArray
from offpolicy.core.hashing import buckets
from offpolicy.data.batch import Batch
from offpolicy.engines.base import Progress
from offpolicy.models.propensities import FittedLogging, estimate_logging
from offpolicy.statistics.wire import Pieces
from offpolicy.worlds import Linear

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


def drawn(p: FloatArray, rng: np.random.Generator) -> Any:
    return (p.cumsum(axis=1) > rng.random(len(p))[:, None]).argmax(axis=1)


def fitted(log: op.Log, **settings: Any) -> FittedLogging:
    """The estimated logging policy of a log."""
    whole = log.source.whole  # type: ignore[attr-defined]
    asked = op.Log(
        whole.context, whole.action, whole.reward, n_actions=log.n_actions, logging=op.EstimatedLogging(**settings)
    )
    policy = estimate_logging(asked, op.Local(threads=1), 0).logging
    assert isinstance(policy, FittedLogging)
    return policy


def without_propensities(log: op.Log, **settings: Any) -> op.Log:
    b = log.source.whole  # type: ignore[attr-defined]
    return op.Log(b.context, b.action, b.reward, n_actions=log.n_actions, logging=op.EstimatedLogging(**settings))


def whole_of(log: op.Log) -> Batch:
    return next(iter(log.batches(10**6)))


def test_counts_by_hand() -> None:
    """IPS by the counts of the other folds."""
    rng = np.random.default_rng(0)
    action, reward = rng.choice(3, 40, p=[0.5, 0.3, 0.2]), rng.normal(size=40)
    log = op.Log(None, action, reward, logging=op.EstimatedLogging(folds=4))
    fold = buckets(whole_of(log).unit, 0) * 4 // 4096
    target = np.array([0.2, 0.2, 0.6])
    expected = np.mean([
        target[a] / ((action == a) & (fold != k)).sum() * (fold != k).sum() * r
        for a, k, r in zip(action, fold, reward, strict=True)
    ])  # fmt: skip
    result = op.evaluate(log, op.Fixed(target), op.IPS())
    assert result["IPS"].value == pytest.approx(expected, rel=1e-12)
    assert result.settings["logging"] == "EstimatedLogging(model='counts', folds=4)"


def test_counts_go_by_row_weights_and_smoothing() -> None:
    action = np.array([0, 1] * 30)
    log = op.Log(
        None, action, np.zeros(60), weight=np.where(action == 0, 3.0, 1.0), logging=op.EstimatedLogging("counts", 2)
    )
    p = estimate_logging(log, op.Local(), 0).logging.probabilities(whole_of(log))
    fold = buckets(whole_of(log).unit, 0) * 2 // 4096
    zeros, ones = (np.array([((action == a) & (fold != k)).sum() for k in fold]) for a in (0, 1))
    np.testing.assert_allclose(p[:, 0] / p[:, 1], 3 * zeros / ones)
    smooth = op.EstimatedLogging("counts", folds=2, smoothing=1e9)
    log = op.Log(None, action, np.zeros(60), n_actions=4, logging=smooth)
    np.testing.assert_allclose(estimate_logging(log, op.Local(), 0).logging.probabilities(whole_of(log)), 0.25, rtol=1e-6)


def test_an_action_that_other_folds_lack_takes_its_share_of_the_log() -> None:
    action = np.array([0, 1] * 50 + [2])
    log = op.Log(None, action, np.ones(101), logging=op.EstimatedLogging())
    p = estimate_logging(log, op.Local(), 0).logging.probabilities(whole_of(log))
    assert p[-1, 2] == pytest.approx(1 / 101)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    reasons = op.evaluate(log, op.Uniform(), op.SNIPS())["SNIPS"].reasons
    assert "1 rounds have an action that does not occur in the other folds" in str(reasons)
    log = op.Log(None, action, np.ones(101), weight=np.full(101, 40.0), logging=op.EstimatedLogging())
    assert estimate_logging(log, op.Local(), 0).logging.report["rounds_with_an_action_new_to_the_fit"] == 1  # a row, not 40


@pytest.mark.parametrize("model", ["logistic", "boosting", "counts"])
def test_chances_of_a_round_do_not_depend_on_its_own_unit(model: Any) -> None:
    """Other actions in a fold leave the chances of that fold alone, and change those of others."""
    rng = np.random.default_rng(1)
    x, action = rng.normal(size=(400, 2)), rng.integers(0, 3, 400)
    log = op.Log(x, action, np.zeros(400), n_actions=3)
    inside = buckets(whole_of(log).unit, 0) * 3 // 4096 == 0
    changed = op.Log(x, np.where(inside, (action + 1) % 3, action), np.zeros(400), n_actions=3)
    before, after = (fitted(each, model=model, folds=3).probabilities(whole_of(log)) for each in (log, changed))
    np.testing.assert_array_equal(before[inside], after[inside])
    assert np.abs(before - after)[~inside].max() > 0.01
    np.testing.assert_allclose(before.sum(axis=1), 1.0)


def test_with_a_right_model_estimates_agree_with_known_propensities() -> None:
    world = Linear(6, seed=1)
    apart = {}
    for rounds in (1_000, 16_000):
        log = world.sample(rounds, seed=2)
        batch = whole_of(log)
        known, estimated = world.logging.probabilities(batch), fitted(log).probabilities(batch)
        apart[rounds] = float(np.sqrt(np.mean(np.log(estimated / known) ** 2)))
    assert apart[16_000] < 0.09 < apart[1_000] < 0.5
    right, guessed = (op.evaluate(each, world.target, [op.IPS(), op.DR()]) for each in (log, without_propensities(log)))
    for name in ("IPS", "DR"):
        assert abs(guessed[name].value - right[name].value) < 2 * right[name].std_error
        assert abs(guessed[name].value - world.value(world.target)) < 4 * guessed[name].std_error


def test_dr_covers_with_estimated_propensities() -> None:
    world = Linear(3, context=2, seed=4)
    truth = world.value(world.target)
    inside = 0
    for seed in range(50):
        result = op.evaluate(
            without_propensities(world.sample(600, seed)), world.target, op.DR(), engine=op.Local(threads=1)
        )
        ci = result["DR"].confidence_interval()
        inside += ci.low <= truth <= ci.high
    assert inside >= 45


def loss_of(policy: FittedLogging, log: op.Log) -> float:
    batch = whole_of(log)
    return -float(np.log(policy.probabilities(batch, batch.action)).mean())


def test_calibration_mends_an_overfitted_model() -> None:
    """Thirty columns that say nothing make a model too sure of itself."""
    rng = np.random.default_rng(3)
    log = op.Log(rng.normal(size=(800, 30)), rng.integers(0, 4, 800), np.zeros(800), n_actions=4)
    plain, calibrated = fitted(log, calibrated=False), fitted(log)
    assert loss_of(calibrated, log) < loss_of(plain, log) - 0.02
    assert min(calibrated.report["temperature"]) > 1 / 0.6  # as that of op.Softmax: more is softer
    assert calibrated.report["log_loss"] == pytest.approx(loss_of(calibrated, log))


def test_boosting_sees_what_logistic_cannot() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(2_000, 2))
    p = np.where(x[:, 0] * x[:, 1] > 0, 0.85, 0.15)
    log = op.Log(x, (rng.random(2_000) < p).astype(int), np.zeros(2_000))
    assert loss_of(fitted(log, model="boosting"), log) < 0.5 < 0.68 < loss_of(fitted(log), log)
    result = op.evaluate(without_propensities(log), op.Uniform(), op.SNIPS())
    assert "propensities do not fit" not in [r.code for r in result["SNIPS"].reasons]  # marginally a coin fits


def test_the_answer_does_not_depend_on_batches_or_threads() -> None:
    log = without_propensities(Linear(4, seed=1).sample(3_000, 1))
    engines = (op.Local(threads=1), op.Local(threads=2, batch_rows=333))
    first, second = (op.evaluate(log, op.Uniform(), [op.SNIPS(), op.DR()], engine=engine) for engine in engines)
    for name in ("SNIPS", "DR"):
        assert first[name].value == pytest.approx(second[name].value, rel=1e-9)
    assert first.to_dict()["propensities"]["log_loss"] == pytest.approx(second.to_dict()["propensities"]["log_loss"])


class Piecewise(op.Local):
    """What the Spark engine does with states: statistics travel, states are cut, merged by piece, and joined."""

    def reduce(self, log: op.Log, statistic: Any, progress: Progress | None = None) -> Any:
        statistic = pickle.loads(pickle.dumps(statistic))
        pieces, found = Pieces(statistic), {}
        for k, part in enumerate(log.partitions(statistic.columns)):
            state = statistic.zero()
            for batch in part.batches(700):
                state = statistic.fold(state, batch)
            for leaf in pieces.cut(state):
                found.setdefault(leaf.piece, {}).setdefault(k, []).append(leaf.array)
        leaves = [leaf for piece, states in found.items() for leaf in pieces.merged(piece, states.values())]
        return statistic.finish(pieces.joined(leaves))


@pytest.mark.parametrize("model", ["logistic", "counts"])
def test_states_travel_and_are_merged_in_pieces(model: Any) -> None:
    log = without_propensities(Linear(4, seed=1).sample(5_000, 1), model=model, trim=0.1)
    whole, cut = (op.evaluate(log, op.Column(np.full(5_000, 0.25)), op.SNIPS(), engine=e) for e in (op.Local(), Piecewise()))
    assert whole["SNIPS"].value == pytest.approx(cut["SNIPS"].value, rel=1e-9)
    seen = [each.to_dict()["propensities"] for each in (whole, cut)]
    assert seen[0]["trimmed_rounds"] == seen[1]["trimmed_rounds"]
    assert [b["rounds"] for b in seen[0]["bins"]] == [b["rounds"] for b in seen[1]["bins"]]


def test_a_sample_bounds_what_is_held() -> None:
    log = without_propensities(Linear(4, seed=1).sample(5_000, 1), rows=2_000)
    result = op.evaluate(log, op.Uniform(), op.SNIPS())
    (note,) = (r for r in result["SNIPS"].reasons if r.code == "estimated propensities")
    assert "by multinomial logistic regression on the context, on 2,000 of 5,000 rounds, in 5 folds" in note.seen
    assert "does not include the error of that fit" in note.why
    assert not any(r.code == "estimated propensities" for r in result["LoggedMean"].reasons)


def test_what_weighs_by_embeddings_can_be_computed_too() -> None:
    log = without_propensities(Linear(5, seed=1).sample(1_500, 1))
    result = op.evaluate(log, op.Uniform(), op.LearnedMIPS(posterior=op.Gaussian(0.5)))
    assert "estimated propensities" in [r.code for r in result["LearnedMIPS"].reasons]


@pytest.mark.parametrize("trim", [0.08, 0.001])
def test_trimming_is_counted_and_shown(trim: float) -> None:
    log = Linear(6, overlap=0.0, seed=1).sample(2_000, 1)
    plain, trimmed = fitted(log), fitted(log, trim=trim)
    batch = whole_of(log)
    low = plain.probabilities(batch, batch.action) < trim
    p = trimmed.probabilities(batch)
    assert p.min() >= trim * (1 - 1e-12)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    result = op.evaluate(without_propensities(log, trim=trim), op.Uniform(), op.SNIPS())
    view = result.to_dict()["propensities"]
    assert view["trimmed_rounds"] == (p[np.arange(2_000), batch.action] <= trim).sum() >= low.sum()
    assert (view["trimmed_rounds"] > 100) == (trim == 0.08)
    assert f"{view['trimmed_rounds']:,} rounds ({view['trimmed_rounds'] / 2000:.1%}) had a propensity below {trim:g}" in str(result)\
        .replace("\n  ", " ")  # fmt: skip


def rule(kind: str, rounds: int, rng: np.random.Generator) -> tuple[FloatArray, Any]:
    if kind == "linear":
        x = rng.normal(size=(rounds, 2))
        return x, (x @ np.array([[1.0, 0.0, -1.0], [0.0, 1.0, -1.0]])).argmax(axis=1)
    x = rng.integers(0, 2, size=(rounds, 2)).astype(float)
    return x, (x[:, 0] != x[:, 1]).astype(int)


@pytest.mark.parametrize("kind", ["linear", "exclusive or"])
def test_a_rule_is_refused_and_a_rule_with_exceptions_is_not(kind: str) -> None:
    rng = np.random.default_rng(5)
    x, action = rule(kind, 5_000, rng)
    with pytest.raises(op.InputError, match=r"looks deterministic: .* no off-policy estimate"):
        op.evaluate(op.Log(x, action, x[:, 0], logging=op.EstimatedLogging()), op.Uniform(), op.SNIPS())
    explored = np.where(rng.random(5_000) < 0.03, rng.integers(0, action.max() + 1, 5_000), action)
    op.evaluate(op.Log(x, explored, x[:, 0], logging=op.EstimatedLogging()), op.Uniform(), op.SNIPS())


def test_one_action_alone_is_refused() -> None:
    log = op.Log(np.zeros((100, 1)), np.zeros(100, int), np.ones(100), n_actions=2, logging=op.EstimatedLogging())
    with pytest.raises(op.InputError, match="every round of the log has the same action"):
        op.evaluate(log, op.Uniform(), op.SNIPS())


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"model": "logistics"}, "Did you mean 'logistic'"),
        ({"folds": 1}, "folds is 1"),
        ({"folds": 2}, "no rounds are left to calibrate"),
        ({"calibrated": 1}, "give True or False"),
        ({"trim": 0.7}, "trim is 0.7"),
        ({"smoothing": -1}, "smoothing is -1"),
        ({"model": "logistic", "smoothing": 1.0}, "smoothing is only for counts"),
        ({"rows": 10}, "rows is 10"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], what: str) -> None:
    with pytest.raises(op.InputError, match=what):
        op.EstimatedLogging(**settings)


def test_numbers_of_numpy_are_settings() -> None:
    made = op.EstimatedLogging("counts", np.int64(4), rows=np.int32(5_000))
    assert repr(made) == repr(op.EstimatedLogging("counts", 4, rows=5_000))
    assert op.EstimatedLogging(trim=np.float32(0.25), smoothing=np.int64(2)) == op.EstimatedLogging(trim=0.25, smoothing=2)


def test_what_cannot_be_estimated_is_said() -> None:
    x, action, reward = np.zeros((60, 1)), np.arange(60) % 2, np.ones(60)
    estimate = op.EstimatedLogging
    with pytest.raises(op.InputError, match="give one of the two"):
        op.Log(x, action, reward, propensity=np.full(60, 0.5), logging=estimate())
    with pytest.raises(op.InputError, match=r"context: 1 row is missing, NaN"):
        op.Log(np.where(np.arange(60) == 3, np.nan, 0.0), action, reward, logging=estimate())
    for log, what in (
        (op.Log(None, action, reward, logging=estimate("logistic")), "no context for the model 'logistic'"),
        (op.Log(x, action, reward, n_actions=200, logging=estimate("boosting")), "supports up to 100 actions"),
        (op.Log(x, action, reward, n_actions=200, logging=estimate(trim=0.01)), "cannot all have that probability"),
        (op.Log(x, action, reward, logging=estimate()), "rounds with 2 actions remain, which is too few to fit on"),
        (op.Log(x, action, reward, cluster=np.zeros(60), logging=estimate("counts")), "too few units"),
    ):
        with pytest.raises(op.InputError, match=what):
            op.evaluate(log, op.Uniform(), op.SNIPS())
    with pytest.raises(op.InputError, match="cannot read a policy from EstimatedLogging"):
        op.evaluate(op.Log(x, action, reward), estimate())


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Actions are text, and so is a column of the context."""
    rng = np.random.default_rng(6)
    device = rng.choice(["phone", "desk"], 1_200)
    p = np.where((device == "phone")[:, None], [0.6, 0.3, 0.1], [0.2, 0.3, 0.5])
    action = np.array(["a", "b", "c"])[drawn(p, rng)]
    click = (rng.random(1_200) < np.where(action == "c", 0.4, 0.2)).astype(float)
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    pq.write_table(pa.table({"device": device, "item": action, "click": click, "new": np.full(1_200, 1 / 3)}), path)
    return path


def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: object) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["offpolicy", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out, captured.err


@pytest.mark.parametrize("how", ["estimate", "estimate:counts", "estimate:logistic"])
def test_the_command_estimates(
    file: Path, how: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = ("evaluate", file, "--context", "device", "--action", "item", "--reward", "click", "--target", "new")
    code, out, err = run(capsys, monkeypatch, *ask, "--logging", how, "--estimator", "snips", "--json")
    assert code == 0, err
    told = json.loads(out)["propensities"]
    assert (told["source"], told["model"]) == ("estimated", "counts" if how == "estimate:counts" else "logistic")
    if how != "estimate:counts":
        frequent = next(b for b in told["bins"] if abs(b["predicted"] - 0.55) < 0.1)
        assert abs(frequent["observed"] - frequent["predicted"]) < 4 * frequent["std_error"]
    config = tmp_path / "job.toml"
    config.write_text(f'logging = "{how}"\n')
    code, again, err = run(capsys, monkeypatch, *ask, "--config", config, "--estimator", "snips", "--json")
    assert (code, again) == (0, out), err
    code, out, err = run(capsys, monkeypatch, *ask, "--logging", "estimate:trees")
    assert (code, out) == (2, "")
    assert "Known: 'logistic', 'boosting', 'counts'" in err
