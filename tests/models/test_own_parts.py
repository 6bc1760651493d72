"""A reward model and a posterior that are defined in one file outside the package do what ours do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import offpolicy as op
from offpolicy.cli.app import app
from offpolicy.estimators.text import estimator, own_objects
from offpolicy.experiments.config import load
from offpolicy.experiments.entries import from_text
from offpolicy.models.rewards.base import FitShape, RewardModel, Savable
from offpolicy.scoring.fit_pass import Sizes
from offpolicy.scoring.plan import Plan, plan_estimators
from tests.logs import LABELS, Small, labelled
from tests.models.own_parts import ActionMeans, Kernel, Means, plain

ROOT = Path(__file__).parent.parent.parent
MODULE = "tests.models.own_parts"


def means(w: Small, prior_rounds: float) -> np.ndarray:
    n = np.bincount(w.action, minlength=4)
    return (np.bincount(w.action, w.reward, 4) + prior_rounds * w.reward.mean()) / (n + prior_rounds)


def test_its_dm_and_dr_by_hand(small: Small) -> None:
    q = means(small, 5)
    result = op.evaluate(small.log(), small.target, [op.DM(ActionMeans(5)), op.DR(ActionMeans(5), cross_fit=0)])
    direct = small.target @ q
    w = small.target[np.arange(400), small.action] / small.propensity
    assert result["DM"].value == pytest.approx(direct.mean(), rel=1e-12)
    assert result["DR"].value == pytest.approx((direct + w * (small.reward - q[small.action])).mean(), rel=1e-12)


def test_it_is_cross_fitted(small: Small) -> None:
    """The one large reward of an action is behind all predictions, or behind those of the other fold alone."""
    action = np.where(np.arange(400) == 0, 3, small.action % 3)
    log = op.Log(small.context, action, np.where(action == 3, 1e6, 0.0), propensity=np.full(400, 0.25), n_actions=4)
    asked = [op.DM(ActionMeans(1), name="all"), op.DM(ActionMeans(1), cross_fit=2, name="apart")]
    result = op.evaluate(log, op.Fixed([0, 0, 0, 1.0]), asked)
    assert result["all"].value == pytest.approx(0.5e6, rel=0.01)
    assert result["apart"].value == pytest.approx(0.25e6, rel=0.2)


def test_what_it_states_reaches_the_result(small: Small) -> None:
    """It is fitted, although it has no diagnostics; its error is not covered; and its packages are named."""
    given = op.Given(np.tile(means(small, 0), (400, 1)))
    result = op.evaluate(small.log(), small.target, [op.DM(plain), op.DM(given, name="given")])
    reasons = {name: [reason.code for reason in result[name].reasons] for name in ("DM", "given")}
    assert "fit not covered" in reasons["DM"]
    assert "fit not covered" not in reasons["given"]
    assert result["DM"].value == pytest.approx(result["given"].value, rel=1e-12)
    assert "pandas" in result.versions
    assert "pandas" not in op.evaluate(small.log(), small.target, [op.DM(given)]).versions


def test_it_gives_no_embedding(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ActionMeans, "statistics", lambda *_: pytest.fail("it was asked for its statistics"))
    for asked in (op.LearnedMIPS(rewards=plain), op.GroupIPS(rewards=plain)):
        with pytest.raises(op.InputError, match=f"{asked.name}: this reward model has no embedding"):
            op.evaluate(small.log(), small.target, [asked])
    with pytest.raises(op.InputError, match="the two steps are defined for op.Ridge"):
        op.OffCEM(rewards=plain)


def test_it_is_saved_and_loaded(both: tuple[Small, Small], tmp_path: Path) -> None:
    old, new = both
    fit = op.fit_rewards(labelled(old), ActionMeans(3))
    path = tmp_path / "means.safetensors"
    fit.save(path)
    again = op.load_rewards(path)
    assert repr(again) == repr(fit) == "FittedRewards(model='ActionMeans(prior_rounds=3)')"
    value = op.evaluate(labelled(new), new.target, [op.DM(again)])["DM"].value
    assert value == pytest.approx((new.target @ means(old, 3)).mean(), rel=1e-12)
    turned = labelled(new, actions=LABELS[::-1].tolist())
    assert op.evaluate(turned, new.target[:, ::-1], [op.DM(again)])["DM"].value == pytest.approx(value, rel=1e-12)

    def elsewhere(code: str) -> str:
        done = subprocess.run([sys.executable, "-c", code, path], cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout

    loading = "import offpolicy as op, sys\ntry: print(op.load_rewards(sys.argv[1]))\nexcept op.InputError as e: print(e)"
    assert "no class has the kind 'action-means'" in elsewhere(loading)
    assert "import its module first" in elsewhere(loading)
    assert elsewhere(f"import {MODULE}\n{loading}").strip() == repr(fit)


def test_a_predictor_without_a_kind_of_its_own_is_not_saved(both: tuple[Small, Small], tmp_path: Path) -> None:
    class Unnamed(Means):
        pass

    fit = op.fit_rewards(labelled(both[0]), plain)
    other = op.FittedRewards(**{**vars(fit), "by_reward": {"reward": Unnamed(np.zeros(4))}})
    with pytest.raises(op.InputError, match="cannot be saved"):
        other.save(tmp_path / "q.safetensors")


def test_two_classes_of_one_kind_are_refused() -> None:
    class Second(Means):
        kind = "linear"

    try:
        with pytest.raises(op.InputError, match="LinearPredictor and .*Second have the same kind, 'linear'"):
            Savable.kinds()
    finally:
        del Second.kind
    assert Savable.kinds()["action-means"] is Means
    assert list(RewardModel.kinds())[:3] == ["adamw", "network", "ridge"]


def test_its_memory_is_in_the_refusal() -> None:
    log = op.Log(np.zeros((10, 1)), np.arange(10), np.arange(10.0), n_actions=5_000_000, logging=op.Uniform())
    with pytest.raises(op.InputError, match=r"GB reward sums \(5,000,000 actions × 10 numbers × \d+ × 8 bytes\)"):
        op.evaluate(log, op.Uniform(), [op.DR(plain)], memory="400MB")


def sizes(*estimators: op.Estimator, policies: int = 1) -> Sizes:
    plan = Plan(policies, 1)
    plan_estimators([dict.fromkeys(range(policies), e) for e in estimators], plan, None, range(policies))
    shape = FitShape(n_actions=1_000, context=2, rewards=1, groups=20, seed=0)
    return Sizes(shape, 5, plan, threads=2, schema=op.worlds.Toy(4).sample(10, seed=0).schema)


def test_equal_needs_are_counted_once() -> None:
    """Models that differ in a setting share their sums; those of MRDR are weighed by each target."""

    def bytes_of(*estimators: op.Estimator, policies: int = 1) -> float:
        return sum(need.bytes for need in sizes(*estimators, policies=policies).needs("folds") if need.what == "reward sums")

    one = 8 * 5 * 2 * 1_000 * 3
    assert bytes_of(op.DM(plain)) == one
    assert bytes_of(op.DM(plain), op.DR(ActionMeans(3)), policies=3) == one
    assert bytes_of(op.DM(plain), op.MRDR(plain), policies=3) == 4 * one
    assert bytes_of(op.DM()) == 0


def test_room_to_solve_in_is_counted_once() -> None:
    """One fit is solved after the other; where one takes all actions at once there is room for the others."""

    def solving(*estimators: op.Estimator) -> list[str]:
        return [need.what for need in sizes(*estimators, policies=2).needs("folds") if "solving" in need.what]

    assert solving(op.DR(), op.MRDR()) == ["solving"]
    assert solving(op.DR(), op.OffCEM()) == ["full matrices for solving"]


def test_the_memory_of_its_posterior() -> None:
    def embeddings(posterior: op.Posterior) -> float:
        needs = sizes(op.LearnedMIPS("identity", posterior=posterior)).needs("folds")
        return next(need.bytes for need in needs if need.what == "embeddings")

    assert embeddings(Kernel()) - embeddings(op.Gaussian(1.0)) == 8 * 1_000 * (1_000 + 3)


@pytest.mark.parametrize(("width", "limit"), [(1e-3, op.IPS()), (1e6, None)])
def test_its_posterior_at_the_ends(small: Small, width: float, limit: op.Estimator | None) -> None:
    """Narrow: each action speaks for itself, as in IPS. Wide: p(a|e) is the share of the action."""
    learned = op.LearnedMIPS("identity", posterior=Kernel(width))
    result = op.evaluate(small.log(), small.target, [learned, op.IPS()])
    share = np.bincount(small.action, minlength=4) / 400
    by_hand = ((small.target / small.logging) @ share * small.reward).mean()
    expected = by_hand if limit is None else result[limit.name].value
    assert result["LearnedMIPS"].value == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"dm:rewards={MODULE}:plain", op.DM(plain)),
        (f"dr:cross_fit=2,rewards={MODULE}:ActionMeans,prior_rounds=3", op.DR(ActionMeans(3), cross_fit=2)),
        (
            f"learned-mips:rewards={MODULE}:plain,posterior={MODULE}:Kernel",
            op.LearnedMIPS(rewards=plain, posterior=Kernel()),
        ),
        ("dm:rewards=action-means", op.DM(ActionMeans())),
        ("learned-mips:posterior=kernel,width=2,rank=1", op.LearnedMIPS(rewards=op.Ridge(rank=1), posterior=Kernel(2.0))),
    ],
)
def test_it_is_chosen_by_text(text: str, expected: op.Estimator) -> None:
    assert estimator(text) == expected
    assert repr(estimator(text)) == repr(expected)  # a whole number stays one


def test_any_regressor_is_chosen_by_text() -> None:
    made = estimator("dm:rewards=sklearn.linear_model:LinearRegression")
    assert type(made.rewards.estimator).__name__ == "LinearRegression"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"dm:rewards={MODULE}:Mean", "Did you mean 'Means'"),
        (f"dm:rewards={MODULE}:ROOT", "there is no object"),
        ("dm:rewards=no_such_module:model", "cannot import 'no_such_module'"),
        (f"dm:rewards={MODULE}:Kernel", "Kernel is not a reward model"),
        (f"learned-mips:posterior={MODULE}:plain", "posterior is ActionMeans"),
        (f"dm:rewards={MODULE}:Means", "Means: cannot be created without settings"),
        (f"dm:rewards={MODULE}:ActionMeans,prior_rounds=few", "prior_rounds must be a whole number"),
        (f"dm:rewards={MODULE}:ActionMeans,penalty=1", "penalty is a setting of ridge"),
        (f"snips:rewards={MODULE}:plain", "there is no setting 'rewards'"),
        ("learned-mips:width=2", "there is no setting 'width'"),  # of Kernel, which a text must name
    ],
)
def test_text_that_names_no_such_part(text: str, message: str) -> None:
    with pytest.raises(op.InputError, match=message):
        estimator(text)


def test_the_objects_that_a_text_names() -> None:
    assert own_objects("learned-mips: rewards = a.b:c ,posterior=d:e,rank=2") == ["a.b:c", "d:e"]
    assert own_objects("a.b:c") == ["a.b:c"]
    assert own_objects("dr:rewards=ridge,name=x:y") == own_objects("dr") == []


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own")
    assert run("simulate", path / "log.parquet", "--rounds", 1_000, "--actions", 4).exit_code == 0
    return path


def test_the_command_takes_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    columns = [
        folder / "log.parquet",
        "--context",
        "x0,x1",
        "--action",
        "item",
        "--reward",
        "click",
        "--logging",
        "items,p_items_old",
    ]
    asked = f"dm:rewards={MODULE}:ActionMeans,prior_rounds=0"
    learned = f"learned-mips:posterior={MODULE}:Kernel"
    done = run("evaluate", *columns, "--target", "items,p_items_new", "--estimator", asked, "--estimator", learned, "--json")
    told = json.loads(done.stdout)
    assert told["settings"]["estimators"][1:] == [
        "DM(rewards=ActionMeans(prior_rounds=0))",
        "LearnedMIPS(posterior=Kernel())",
    ]
    log = op.read_log(
        folder / "log.parquet",
        context=["x0", "x1"],
        action="item",
        reward="click",
        logging=op.Candidates("items", "p_items_old"),
    )
    expected = op.evaluate(log, op.Candidates("items", "p_items_new"), [op.DM(plain)])["DM"].value
    assert next(e["value"] for e in told["estimates"] if e["estimator"] == "DM") == expected


def test_a_settings_file_names_it_where_the_user_allows(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    file = tmp_path / "job.toml"
    file.write_text(
        f'logs = "{folder}/log.parquet"\ncontext = "x0"\naction = "item"\nreward = "click"\nlogging = "items,p_items_old"\n'
        f'target = "items,p_items_new"\nestimator = "dm:rewards={MODULE}:plain"\n'
    )
    refused = run("evaluate", "--config", file)
    assert f"names '{MODULE}:plain'" in str(refused.exception)
    done = run("evaluate", "--config", file, "--import", MODULE, "--json")
    assert [e["estimator"] for e in json.loads(done.stdout)["estimates"]] == ["LoggedMean", "DM"]


def test_experiments_take_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "e.toml"
    file.write_text('rounds = 100\n[world]\nkind = "linear"\n[estimators]\nMine = "dm:rewards=own_part:model"\n')
    (tmp_path / "own_part.py").write_text("import offpolicy as op\nmodel = op.Ridge(3.0)\n")
    with pytest.raises(op.InputError, match="Mine names 'own_part:model'.*--import own_part"):
        load(str(file))
    made = load(str(file), imports=["own_part"]).entries[0]
    assert made.build(None) == op.DM(op.Ridge(3.0), name="Mine")  # type: ignore[arg-type]
    before = from_text("mine=dm:rewards=own_part:model").identity
    (tmp_path / "own_part.py").write_text("import offpolicy as op\nmodel = op.Ridge(4.0)\n")
    assert from_text("mine=dm:rewards=own_part:model").identity != before
    sys.modules.pop("own_part")
