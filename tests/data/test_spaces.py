"""Action spaces: `Discrete` is today's two ways, and a second space passes through everything that serves it."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression

import offpolicy as op
from offpolicy.data.batch import Batch, in_blocks
from offpolicy.data.spaces import ActionSpace
from offpolicy.diagnostics.estimates import UNDEFINED
from offpolicy.estimators import REGISTRY, Combined
from offpolicy.policies.conversion import as_policy
from offpolicy.ratios.embeddings import EmbeddingRatio
from offpolicy.scoring.requirements import mismatch_of, serving
from tests.engines.sessions import NEEDS_SPARK, OWN_WARNINGS, classic
from tests.logs import DISCRETE, LABELS, Small

N = 300


@final
@dataclass(frozen=True)
class Ramp(op.Policy):
    """The density 2a on 0..1, known for logged actions alone."""

    spaces = (op.Box,)

    @property
    def whole(self) -> bool:
        return False

    def distribution(self, batch: Batch) -> np.ndarray:
        raise NotImplementedError

    def entries(self, batch: Batch, row: np.ndarray, code: np.ndarray) -> np.ndarray:
        np.testing.assert_array_equal(code, batch.action)
        return 2 * code


def columns() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    a = rng.beta(2, 2, N)
    return {"x": rng.normal(size=N), "a": a, "r": a + rng.normal(size=N), "p": 6 * a * (1 - a), "user": np.arange(N) // 3}


def doses(**more: Any) -> op.Log:
    c = columns()
    given: dict[str, Any] = {"action": c["a"], "propensity": c["p"], "actions": op.Box(0, 1), **more}
    return op.Log(c["x"], given.pop("action"), c["r"], **given)


ROLES: dict[str, Any] = {"context": "x", "action": "a", "reward": "r", "propensity": "p", "actions": op.Box(0, 1)}


def write(path: Path, **changed: np.ndarray) -> Path:
    """Two files, so that rows of the second are counted in it."""
    table = pa.table({**columns(), **changed})
    pq.write_table(table.slice(0, 200), path / "one.parquet")
    pq.write_table(table.slice(200), path / "two.parquet")
    return path


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> Callable[[op.Log], op.Log]:
    """A log whose rows cannot be read: what is refused must be refused before."""

    def unread(*_: Any) -> Any:
        raise AssertionError("a row was read")

    def of(log: op.Log) -> op.Log:
        for name in ("head", "partitions"):
            monkeypatch.setattr(log, name, unread)
        return log

    return of


def test_an_unread_log_stays_unread(blind: Callable[[op.Log], op.Log]) -> None:
    with pytest.raises(AssertionError, match="a row was read"):
        op.evaluate(blind(doses()), Ramp(), [op.LoggedMean()])


def test_a_discrete_space_is_what_labels_and_numbers_of_actions_are(small: Small) -> None:
    listed, named = ({"action": LABELS[small.action], "actions": of} for of in (LABELS, op.Discrete(LABELS)))
    counted, coded = ({"action": small.action, **how} for how in ({"n_actions": 6}, {"actions": op.Discrete(6)}))
    rest = {"context": small.context, "reward": small.reward, "propensity": small.propensity}
    for one, other in ((listed, named), (counted, coded)):
        logs = [op.Log(**rest, **how) for how in (one, other)]
        told = [op.evaluate(log, op.Uniform(), [op.SNIPS()]).to_dict() for log in logs]
        assert told[0] == told[1]
        assert logs[0].actions.tolist() == logs[1].actions.tolist()
        assert logs[1].head().action.dtype == np.int64
        tables = [op.read_log(pa.table({"x": small.context[:, 0], "r": small.reward, "action": log["action"]}),
                              context="x", reward="r", action="action", **{k: v for k, v in log.items() if k != "action"})
                  for log in (one, other)]  # fmt: skip
        assert tables[0].space == tables[1].space == logs[0].space


def test_a_discrete_space_says_what_it_is() -> None:
    space = op.Discrete(["a", "b", "c"])
    assert (space.described, space.nature, space.summary()) == ("3 actions", "discrete", {"actions": 3})
    assert [repr(s) for s in (space, op.Discrete(2000))] == ["Discrete(3 string labels)", "Discrete(2,000)"]
    assert op.Discrete([0, 1]) == op.Discrete(2) != op.Discrete([1, 0])
    assert pickle.loads(pickle.dumps(space)) == space
    assert space.tally(np.array([2, 2, 0])).tolist() == [1, 0, 2]
    for wrong in (0, True, ["a", "a"], [["a"]], "labels"):
        with pytest.raises(op.InputError):
            op.Discrete(wrong)  # type: ignore[arg-type]


def test_the_catalog_and_the_space_must_agree(small: Small) -> None:
    table = pa.table({"x": small.context[:, 0], "r": small.reward, "a": LABELS[small.action]})
    catalog = pa.table({"a": LABELS, "size": [1.0, 2.0, 3.0, 4.0]})
    read = {"context": "x", "reward": "r", "action": "a", "catalog": catalog}
    assert op.read_log(table, **read, actions=op.Discrete(LABELS)).n_actions == 4
    with pytest.raises(op.InputError, match="list different actions, or the same ones in a different order"):
        op.read_log(table, **read, actions=op.Discrete(LABELS[::-1]))


def test_batches_carry_the_actions_of_their_space(tmp_path: Path) -> None:
    read = op.read_log(write(tmp_path), **ROLES)
    for log in (doses(), read):
        batches = [batch for part in log.partitions() for batch in part.batches(70)]
        assert all(batch.action.dtype == np.float64 and batch.space == op.Box(0, 1) for batch in batches)
        np.testing.assert_array_equal(np.concatenate([b.action for b in in_blocks(batches, 64)]), columns()["a"])
        np.testing.assert_array_equal(batches[0].take(np.array([3, 1])).action, columns()["a"][[3, 1]])
        assert repr(log) == f"Log(300 rounds, actions: numbers from 0 to 1, context 1, rewards {list(log.schema.rewards)})"
    assert pickle.loads(pickle.dumps(read.space)) == read.space


@pytest.mark.parametrize(("values", "said"), [
    ([1.5, -0.25], r"2 rows have an action outside 0..1 \(1.5\) \(first, counted from 0: {}\). Correct the actions or the bounds."),
    ([np.nan, np.nan], r"2 rows (are missing|have an action outside 0..1 \(nan\)) \(first, counted from 0: {}\)."),
])  # fmt: skip
def test_wrong_values_are_named(tmp_path: Path, values: list[float], said: str) -> None:
    a = columns()["a"]
    a[[7, 222]] = values
    with pytest.raises(op.InputError, match="^action: " + said.format("7, 222")):
        doses(action=a)
    with pytest.raises(op.InputError, match="^a: " + said.format("one.parquet row 7, two.parquet row 22")):
        list(op.read_log(write(tmp_path, a=a), **ROLES).batches())


def test_values_of_another_type_are_named(tmp_path: Path) -> None:
    with pytest.raises(op.InputError, match="actions are numbers from 0 to 1, but the column contains string"):
        doses(action=["a"] * N)
    with pytest.raises(op.InputError, match=r"^a: 1 row is missing \(null\) .*two.parquet row 99"):
        list(op.read_log(write(tmp_path, a=pa.array([0.5] * 299 + [None])), **ROLES).batches())  # type: ignore[arg-type]


def test_a_density_may_exceed_1_and_a_probability_may_not(tmp_path: Path) -> None:
    p = np.full(N, 7.0)
    assert doses(propensity=p).head().propensity[0] == 7
    assert op.read_log(write(tmp_path, p=p), **ROLES).head().propensity[0] == 7
    with pytest.raises(op.InputError, match="density of 0 or less"):
        doses(propensity=0 * p)
    with pytest.raises(op.InputError, match="propensity above 1"):
        doses(propensity=p, action=np.arange(N) % 2, actions=None)


def test_the_mean_of_the_log_of_numbers(tmp_path: Path) -> None:
    c = columns()
    log = doses(cluster=c["user"], by=np.where(c["x"] > 0, "warm", "cold"))
    result = op.evaluate(log, Ramp(), [op.LoggedMean()])
    assert result.headline.value == pytest.approx(c["r"].mean())
    assert result.slices["warm"].headline.value == pytest.approx(c["r"][c["x"] > 0].mean())
    told = result.to_dict()
    assert (told["actions"], told["actions_logged"], told["action_space"]) == (None, None, "numbers from 0 to 1")
    assert (told["input"]["actions"], told["input"]["action_space"]) == (None, "numbers from 0 to 1")
    assert (told["propensities"]["source"], told["propensities"]["bins"]) == ("logged", [])  # densities, tested by range
    assert [(view["kind"], view["target_mass_never_logged"]) for view in told["overlap"]] == [("action", None)]
    result.save(tmp_path / "result.json")
    result.write_html(tmp_path / "result.html")
    saved = op.load_result(tmp_path / "result.json")
    for shown in (str(result), str(saved), result.to_markdown(), (tmp_path / "result.html").read_text()):
        assert "actions: numbers from 0 to 1" in shown
        assert "None actions" not in shown
    result.headline.scores(tmp_path / "scores.parquet")
    assert pq.read_table(tmp_path / "scores.parquet")["correction"].to_numpy().mean() == pytest.approx(c["r"].mean())


def test_the_fingerprint_knows_the_space_and_the_actions() -> None:
    moved = columns()["a"]
    moved[0] /= 2
    logs = [doses(), doses(), doses(actions=op.Box(0, 2)), doses(action=moved)]
    marks = [op.evaluate(log, Ramp(), [op.LoggedMean()]).input["fingerprint"] for log in logs]
    assert marks[0] == marks[1]
    assert len({*marks}) == 3


@OWN_WARNINGS
@NEEDS_SPARK
def test_spark_partitions_carry_the_space(tmp_path: Path) -> None:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not find the tests
    here = op.evaluate(op.read_log(write(tmp_path), **ROLES), Ramp(), [op.LoggedMean()])
    there = op.evaluate(op.read_log(classic().read.parquet(str(tmp_path)), **ROLES), Ramp(), [op.LoggedMean()])
    assert there.headline.value == pytest.approx(here.headline.value, rel=1e-12)
    assert there.input["fingerprint"] == here.input["fingerprint"]
    a = columns()["a"]
    a[222] = 3.0
    bad = op.read_log(classic().read.parquet(str(write(tmp_path, a=a))), **ROLES)
    with pytest.raises(op.InputError, match=r"^a: 1 row has an action outside 0..1 \(3.0\) .*partition \d row 22"):
        op.evaluate(bad, Ramp(), [op.LoggedMean()])


ENDS = r"discrete actions, and the actions here are numbers from 0 to 1"
EITHER = ENDS.replace(",", "( or lists)?,")
POLICIES: dict[str, Any] = {
    "Fixed": op.Fixed([0.5, 0.5]),
    "Table": np.full((N, 2), 0.5),
    "Function": lambda x: np.full((len(x), 2), 0.5),
    "Softmax": op.Softmax(lambda x: x),
    "EpsilonGreedy": op.EpsilonGreedy(lambda x: x, epsilon=0.1),
    "Columns": "p_*",
    "Candidates": ("items", "chances"),
    "Classifier": op.Classifier(LogisticRegression().fit([[0.0], [1.0]], [0, 1])),
    "Mixture": op.Mixture([op.Fixed([0.5, 0.5]), op.Fixed([0.5, 0.5])], [0.5, 0.5]),
    "WholeBatches": op.WholeBatches(op.Softmax(lambda x: x)),
}


@pytest.mark.parametrize("name", POLICIES)
def test_policies_over_discrete_actions_are_refused(name: str, blind: Callable[[op.Log], op.Log]) -> None:
    said = f"^{name} is a policy over {EITHER if name == 'Column' else ENDS}; use a policy over those.$"
    with pytest.raises(op.InputError, match=said):
        op.evaluate(blind(doses()), POLICIES[name], [op.LoggedMean()])
    with pytest.raises(op.InputError, match=said):
        op.evaluate(blind(doses(propensity=None, logging=POLICIES[name])), Ramp(), [op.LoggedMean()])


def test_every_public_policy_over_discrete_actions_is_among_them() -> None:
    public = {name: getattr(op, name) for name in op.__all__ if isinstance(getattr(op, name), type)}
    kinds = {name for name, kind in public.items() if issubclass(kind, op.Policy) and _spaces(kind) == (op.Discrete,)}
    assert {type(as_policy(policy)).__name__ for policy in POLICIES.values()} == kinds - {"Policy"}


def _spaces(kind: type[op.Policy]) -> tuple[type[ActionSpace], ...]:
    """What its policies serve by default: those that differ from each other in it compute it."""
    return kind.spaces if isinstance(kind.spaces, tuple) else (op.Discrete,)


def test_a_policy_over_numbers_is_refused_by_discrete_logs_and_worlds(small: Small) -> None:
    said = "^Ramp is a policy over numbers from an interval, and the actions here are discrete; use a policy over those.$"
    with pytest.raises(op.InputError, match=said):
        op.evaluate(small.log(), Ramp(), [op.LoggedMean()])
    for world in (op.worlds.Toy(4), op.worlds.Linear(4)):
        with pytest.raises(op.InputError, match=said):
            world.value(Ramp())


def test_mixtures_are_over_what_all_of_their_policies_are() -> None:
    mixed = op.Mixture([Ramp(), Ramp()], [0.5, 0.5])
    assert mixed.spaces == (op.Box,)
    assert op.evaluate(doses(), mixed, [op.LoggedMean()]).headline.n == N
    with pytest.raises(op.InputError, match="Mixture: the policies are over different kinds of actions"):
        op.Mixture([Ramp(), op.Fixed([0.5, 0.5])], [0.5, 0.5])


ONLY_DISCRETE = {n for n, kind in DISCRETE.items() if not issubclass(kind, Combined) and n not in serving(op.Box(0, 1))}


def test_weights_of_actions_serve_numbers_too() -> None:
    assert {"CAB", "LearnedMIPS", "MIPS", "MR"} <= ONLY_DISCRETE
    assert {"IPS", "SNIPS", "DR", "SNDR", "DM", "MRDR"} <= {*serving(op.Box(0, 1))}


@pytest.mark.parametrize("name", sorted(ONLY_DISCRETE))
def test_estimators_for_discrete_actions_are_refused(name: str, blind: Callable[[op.Log], op.Log]) -> None:
    with pytest.raises(op.InputError, match=f"^{name} cannot be computed: it.* {EITHER}; use IPS, SNIPS, ClippedIPS, ….$"):
        op.evaluate(blind(doses()), Ramp(), [DISCRETE[name]()])


@pytest.mark.parametrize("learn", [op.embed, op.fit_rewards])
def test_nothing_is_learned_about_single_actions(learn: Any, blind: Callable[[op.Log], op.Log]) -> None:
    with pytest.raises(op.InputError, match=f"^{learn.__name__} is for {ENDS}.$"):
        learn(blind(doses()))


@pytest.mark.parametrize("rewards", [op.AdamW()])
def test_reward_models_for_discrete_actions_are_refused(rewards: Any, blind: Callable[[op.Log], op.Log]) -> None:
    with pytest.raises(
        op.InputError,
        match=f"^DM cannot be computed: its reward model predicts the rewards of {EITHER}; use IPS, SNIPS, ClippedIPS, ….$",
    ):
        op.evaluate(blind(doses()), Ramp(), [op.DM(rewards)])
    for learn in (op.embed, op.fit_rewards):
        said = f"^{learn.__name__}: {type(rewards).__name__} predicts the rewards of {ENDS}.$"
        with pytest.raises(op.InputError, match=said):
            learn(blind(doses()), rewards=rewards)


@dataclass(frozen=True)
class DensityRatio(op.Ratio, op.FittedRatio):
    """π/π0, of actions of every space."""

    spaces = (ActionSpace,)

    def fit(self, fitting: Any, results: Sequence[Any]) -> op.FittedRatio:
        return self

    def weights(self, rounds: Any) -> np.ndarray:
        return rounds.action


class DensityIPS(op.Estimator):
    def members(self, cross_fit: int | None = None) -> tuple[op.Member, ...]:
        return (op.Member(op.Weight(DensityRatio())),)


def test_a_ratio_that_serves_the_actions_weighs_them(tmp_path: Path) -> None:
    c = columns()
    result = op.evaluate(doses(), Ramp(), [DensityIPS()])
    assert result["DensityIPS"].value == pytest.approx((2 * c["a"] / c["p"] * c["r"]).mean())
    result.save(tmp_path / "result.json")
    saved = op.load_result(tmp_path / "result.json")
    assert (saved.actions, saved.action_space) == (None, "numbers from 0 to 1")


def test_the_weights_of_such_a_ratio_are_checked() -> None:
    c = columns()
    w = 2 * c["a"] / c["p"]
    estimate = op.evaluate(doses(), Ramp(), [DensityIPS()])["DensityIPS"]
    assert estimate.diagnostics["effective_sample_size"] == pytest.approx(w.sum() ** 2 / (w @ w))
    assert estimate.diagnostics["mean_weight"] == pytest.approx(w.mean())
    assert "target_mass_never_logged" not in estimate.diagnostics
    codes = [check.code for check in estimate.checks]
    assert "effective sample size" in codes
    assert "support" not in codes


def test_nothing_to_weigh_is_said_of_such_a_ratio() -> None:
    class Normalised(op.Estimator):
        def members(self, cross_fit: int | None = None) -> tuple[op.Member, ...]:
            return (op.Member(op.Weight(DensityRatio()), normalised=True),)

    class Nowhere(op.Policy):
        spaces = (op.Box,)

        def distribution(self, batch: Batch) -> np.ndarray:
            raise NotImplementedError

        def entries(self, batch: Batch, row: np.ndarray, code: np.ndarray) -> np.ndarray:
            return np.zeros(len(row))

    estimate = op.evaluate(doses(), Nowhere(), [Normalised()])["Normalised"]
    assert np.isnan(estimate.value)
    assert estimate.checks[0] == UNDEFINED


def test_estimators_that_serve_the_actions_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "DensityIPS" not in serving(op.Box(0, 1))
    monkeypatch.setitem(REGISTRY, "DensityIPS", DensityIPS)
    assert "DensityIPS" in serving(op.Box(0, 1))


def test_only_a_few_of_them_are_named(small: Small) -> None:
    class BoxRatio(DensityRatio):
        spaces = (op.Box,)

    class BoxIPS(op.Estimator):
        def members(self, cross_fit: int | None = None) -> tuple[op.Member, ...]:
            return (op.Member(op.Weight(BoxRatio())),)

    said = "it weights rounds by numbers from an interval, and the actions here are discrete; use IPS, SNIPS, ClippedIPS, …"
    with pytest.raises(op.InputError, match=f"^BoxIPS cannot be computed: {said}.$"):
        op.evaluate(small.log(), small.target, [BoxIPS()])


def test_every_part_of_a_member_is_asked() -> None:
    class AnyPosterior(op.Gaussian):
        spaces = (ActionSpace,)

    def why(posterior: op.Posterior, rewards: op.RewardModel | None) -> str | None:
        return mismatch_of([op.Member(op.Weight(EmbeddingRatio(posterior, rewards)))], op.Box(0, 1))

    assert why(op.Gaussian(), None) == f"it weights rounds by {ENDS}"
    assert why(AnyPosterior(), op.AdamW()) == f"its embedding is learned from the rewards of {ENDS}"
    assert why(AnyPosterior(), None) is None


def test_the_defaults_serve_a_density() -> None:
    result = op.evaluate(doses(), Ramp())
    assert {"SNIPS", "Auto"} <= {*result.estimators}
    assert {"KernelDR", "KernelSNIPS"} <= {*result.skipped}


def test_what_describes_discrete_actions_is_refused() -> None:
    served = "discrete actions or numbers from an interval, and the actions here are lists"
    with pytest.raises(op.InputError, match=f"^logging: EstimatedLogging estimates the probabilities of {served}"):
        op.Log(None, [["a", "b"]] * 3, np.ones((3, 2)), actions=op.Slate(2), logging=op.EstimatedLogging())
    for described in ({"catalog": [[1.0], [2.0]]}, {"action_features": np.zeros((N, 1))}):
        with pytest.raises(op.InputError, match=f"^action_features= and catalog= are for {EITHER}; leave them out"):
            doses(**described)
    with pytest.raises(op.InputError, match=f"^action_features= and catalog= are for {EITHER}; leave them out"):
        op.read_log(pa.table(columns()), **ROLES, catalog=pa.table({"a": [0.1, 0.2], "size": [1.0, 2.0]}))
    for name in ("actions", "n_actions"):
        with pytest.raises(op.InputError, match=f"^log.{name} is for {EITHER}.$"):
            getattr(doses(), name)
    with pytest.raises(op.InputError, match="^sensitivity needs discrete actions"):
        op.evaluate(doses(propensity=None), Ramp(), [op.LoggedMean()]).sensitivity(1.5)
