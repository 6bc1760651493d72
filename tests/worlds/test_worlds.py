"""Worlds: a log agrees with the world's own value, runs are independent, and what a world says of itself is true."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import offpolicy as op
from offpolicy.data.batch import Batch
from offpolicy.worlds import Classification, Items, Linear, NonLinear, OpenBandit, Simulated, Synthetic, Toy, World
from offpolicy.worlds.base import as_batch
from offpolicy.worlds.registry import from_text, world


def rounds(log: op.Log) -> Batch:
    return log.head(len(log))


MAKERS = {
    "linear": lambda seed: Linear(12, seed=seed),
    "linear clicks": lambda seed: Linear(12, clicks=True, seed=seed),
    "linear rare clicks": lambda seed: Linear(12, clicks=True, odds=-4.0, overlap=1.7, seed=seed),
    "linear tails": lambda seed: Linear(12, tails=3.0, catalog="informative", seed=seed),
    "toy": lambda seed: Toy(12, seed=seed),
    "synthetic": lambda seed: Synthetic(12, seed=seed),
    "hidden": lambda seed: Synthetic(12, dimensions=6, hidden=3, seed=seed),
    "deficient": lambda seed: Synthetic(12, deficient=4, seed=seed),
    "clicks": lambda seed: Synthetic(12, clicks=True, seed=seed),
    "nonlinear": lambda seed: NonLinear(12, dimensions=2, categories=4, seed=seed),
    "nonlinear clicks": lambda seed: NonLinear(12, dimensions=2, categories=4, clicks=True, seed=seed),
    "classification": lambda seed: Classification("wine", seed=seed),
    "faulty classification": lambda seed: Classification("wine", faulty=True, rate=0.2, seed=seed),
    "items": lambda seed: Items("wine", 20, seed=seed),
    "greedy items": lambda seed: Items("wine", 20, greedy=True, faulty=True, rate=0.2, seed=seed),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_the_log_is_of_the_same_world_as_the_value(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over many worlds, the mean of the logged rewards is a draw around the world's own value of the logging policy."""
    for cls in (Simulated, NonLinear):  # fewer draws for the value: its error is part of z
        monkeypatch.setattr(cls, "value_rounds", 20_000)
    z = []
    for seed in range(30):
        there = MAKERS[kind](seed)
        value, error = there.value_with_error(there.logging)
        reward = rounds(there.sample(2000, seed + 50)).reward[:, 0]
        z.append((reward.mean() - value) / np.hypot(error, reward.std() / np.sqrt(2000)))
    assert abs(np.mean(z)) < 3.5 / np.sqrt(30)
    assert 0.6 < np.std(z) < 1.5


def test_a_seed_is_a_log() -> None:
    there = Linear(10)
    a, b = (rounds(there.sample(2000, 1)) for _ in range(2))
    np.testing.assert_array_equal(a.action, b.action)
    np.testing.assert_array_equal(a.reward, b.reward)


def equal_actions(logs: list[op.Log], n_actions: int) -> tuple[float, float]:
    """How far the share of rows with the same action in two logs is from chance, in standard errors; and the share."""
    a, b = (rounds(log) for log in logs)
    n = len(a)
    chance = (np.bincount(a.action, minlength=n_actions) / n) @ (np.bincount(b.action, minlength=n_actions) / n)
    share = float((a.action == b.action).mean())
    return (share - chance) / np.sqrt(chance * (1 - chance) / n), share


@pytest.mark.parametrize("kind", ["linear", "toy", "synthetic", "nonlinear", "classification"])
def test_runs_are_independent(kind: str) -> None:
    """Actions of two runs at the same row are equal no more often than by chance; one stream for all would show at once."""
    there = MAKERS[kind](3)
    runs = [there.sample(4000, np.random.SeedSequence(0, spawn_key=(0, 3, log))) for log in range(2)]
    assert abs(equal_actions(runs, there.n_actions)[0]) < 4
    same = [there.sample(4000, np.random.SeedSequence(0, spawn_key=(0, 3, 0))) for _ in range(2)]
    z, share = equal_actions(same, there.n_actions)
    assert share == 1
    assert z > 20


def test_a_log_never_draws_from_the_stream_of_the_parameters() -> None:
    theta = Linear(50, seed=3)._parameters[0]
    x = rounds(Linear(50, seed=3).sample(200, np.random.SeedSequence(3))).context
    assert not np.isin(x.ravel(), theta.ravel() / 0.5).any()


def test_the_published_flaw_on_request() -> None:
    """With `redraw_importance` logs come from worlds with other importances, so their mean is not around the value."""
    z, z_redrawn = [], []
    for seed in range(6):
        right, wrong = (
            Synthetic(12, seed=seed, noise=0.5, beta=2),
            Synthetic(12, seed=seed, noise=0.5, beta=2, redraw_importance=True),
        )
        value = right.value(right.logging)
        for there, found in ((right, z), (wrong, z_redrawn)):
            reward = rounds(there.sample(5000, 9)).reward[:, 0]
            found.append((reward.mean() - value) / (reward.std() / np.sqrt(5000)))
    assert np.abs(z).max() < 4
    assert np.abs(z_redrawn).max() > 6
    assert wrong.value(wrong.target) == right.value(right.target)
    assert right.of_log(1) is right
    assert wrong.of_log(1) != wrong.of_log(2)


def test_deficient_actions_are_never_logged() -> None:
    there = Synthetic(10, deficient=4)
    batch = rounds(there.sample(5000, 0))
    assert batch.action.max() == 5
    assert there.target.probabilities(batch)[:, 6:].max() > 0.9


def test_each_dimension_of_the_synthetic_reward_is_standardised() -> None:
    """f_k has mean 0 and variance 1 over contexts and categories, so η alone says how much a dimension matters."""
    there = Synthetic(5, dimensions=1, noise=0)
    x, e = np.random.default_rng(0).normal(size=(200_000, 10)), np.random.default_rng(1).integers(10, size=(200_000, 1))
    score = there._score_of(x, e)
    assert score.mean() == pytest.approx(0, abs=0.02)
    assert score.var() == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("there", [Synthetic(4, dimensions=2), NonLinear(4, dimensions=2, categories=3)])
def test_the_mean_reward_is_the_mean_over_embeddings(there: Synthetic | NonLinear) -> None:
    x = np.random.default_rng(0).normal(size=(3, there.context))
    exact = there.mean_reward(x)
    rng, n = np.random.default_rng(1), 40_000
    for row in range(3):
        for action in range(4):
            e = there._embeddings(np.full(n, action), rng)
            drawn = there._score_of(np.repeat(x[[row]], n, axis=0), e)
            assert exact[row, action] == pytest.approx(drawn.mean(), abs=5 * drawn.std() / np.sqrt(n))


def test_no_linear_model_is_right_in_the_nonlinear_world() -> None:
    there, rng = NonLinear(5, noise=0), np.random.default_rng(0)
    x = rng.normal(size=(5000, there.context))
    q = there.mean_reward(x)
    design = np.column_stack([x, np.ones(len(x))])
    residual = q - design @ np.linalg.lstsq(design, q, rcond=None)[0]
    assert (residual.var(axis=0) / q.var(axis=0)).min() > 0.05


def test_mips_true_is_unbiased(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all dimensions in the log, weights by the known p(e|a) give the value on average."""
    monkeypatch.setattr(Simulated, "value_rounds", 100_000)
    z = []
    for seed in range(25):
        there = Synthetic(30, seed=seed)
        result = op.evaluate(there.sample(2000, seed), there.target, [op.MIPS(there.exact)], engine=op.Local(1))
        z.append((result["MIPS"].value - there.value(there.target)) / result["MIPS"].std_error)
    assert abs(np.mean(z)) < 3.5 / np.sqrt(25)


def test_hidden_dimensions_are_not_in_the_log() -> None:
    assert len(Synthetic(5, dimensions=4, hidden=3).sample(500, 0).schema.feature_dimensions) == 1


MEMORY = """
import re
from pathlib import Path
from offpolicy.worlds import Synthetic
Synthetic(2000).sample(100_000, 0)
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text()).group(1)) / 1024)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not tell the peak of a process")
def test_a_large_log_is_made_in_little_memory() -> None:
    """100,000 rounds × 2,000 actions would be 1.6 GB; the whole process stays below 500 MB."""
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 500


def test_a_classification_value_is_the_mean_chance_of_the_right_class() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3))
    y = np.array(["low", "mid", "high"])[np.digitize(x[:, 0], [-0.5, 0.5])]
    there = Classification((x, y))
    assert there.n_actions == 3
    assert there.value(op.Uniform()) == pytest.approx(1 / 3)
    assert there.value(there.target) > 0.7 > there.value(there.logging)
    log = there.sample(50, 0)
    assert set(rounds(log).reward.ravel()) <= {0.0, 1.0}


def test_a_csv_file_is_the_same_world_as_its_arrays(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 2))
    y = np.where(x[:, 0] > 0, "a", "b")
    y[0] = "rare"  # too rare for every third, but an action nevertheless
    path = tmp_path / "data.csv"
    path.write_text("\n".join(["u,v,class", *(f"{u},{v},{c}" for (u, v), c in zip(x.tolist(), y, strict=True))]))
    from_file, from_arrays = Classification(str(path)), Classification((x, y))
    assert from_file.n_actions == 3
    assert from_file.value(from_file.target) == from_arrays.value(from_arrays.target)
    (tmp_path / "text.csv").write_text("u,class\nred,a\nblue,b\n")
    with pytest.raises(op.InputError, match="text.csv: cannot be read as numbers"):
        _ = Classification(str(tmp_path / "text.csv")).n_actions


def test_a_faulty_logging_policy_and_a_rate_lower_the_values() -> None:
    plain, faulty, rare = Classification("wine"), Classification("wine", faulty=True), Classification("wine", rate=0.1)
    assert faulty.value(faulty.logging) < 1 / 3 < plain.value(plain.logging)
    assert faulty.value(faulty.target) == plain.value(plain.target)
    assert rare.value(rare.target) == pytest.approx(0.1 * plain.value(plain.target))


def test_items_of_the_class_of_the_round_are_rewarded() -> None:
    there = Items("wine", 30)
    _, y = there._labelled.rows
    _, classes, appeal = there._items
    rows = there._labelled.thirds[2]
    same = np.array([(appeal * (classes == y[row])).mean() for row in rows])
    assert there.value(op.Uniform()) == pytest.approx(same.mean())
    assert there.value(there.target) > there.value(there.logging) > there.value(op.Uniform())
    greedy = Items("wine", 30, greedy=True, epsilon=0.0)
    assert set(np.unique(greedy.target.probabilities(there.sample(20, 0).head(20)))) == {0.0, 1.0}
    with pytest.raises(op.InputError, match="a third of the data has 60 rows"):
        Items("wine", 100).sample(10, 0)


@pytest.mark.parametrize(
    ("data", "words"),
    [("diggits", "digits"), ((np.zeros((4, 2)), [0, 0, 1, 1]), "6 rows"), ((np.zeros(4), [0, 1, 0, 1]), "rows × columns")],
)
def test_data_that_is_no_classification(data: object, words: str) -> None:
    with pytest.raises(op.InputError, match=words):
        _ = Classification(data).n_actions


def open_bandit(folder: Path, rows: int = 300, campaign: str = "all") -> Path:
    """A small folder in the layout of the Open Bandit Dataset: four items, three positions."""
    rng = np.random.default_rng(0)
    for policy in ("random", "bts"):
        there = folder / policy / campaign
        there.mkdir(parents=True)
        lines = [
            ",timestamp,item_id,position,click,propensity_score,user_feature_0,user_feature_1,user_feature_2,user_feature_3"
        ]
        for k in range(rows):
            item, position, click = rng.integers(4), rng.integers(1, 4), int(rng.random() < 0.3)
            users = ",".join("abc"[u] for u in rng.integers(3, size=4))
            lines.append(f"{k},2019-11-24,{item},{position},{click},0.25,{users}")
        (there / f"{campaign}.csv").write_text("\n".join(lines) + "\n")
        items = "\n".join(f"{k},{k},{k / 7},{'xy'[k % 2]},{'uv'[k // 2]},{'wz'[k % 3 > 0]}" for k in range(4))
        (there / "item_context.csv").write_text(
            ",item_id,item_feature_0,item_feature_1,item_feature_2,item_feature_3\n" + items
        )
    (folder / f"bts_prior_{campaign}.json").write_text(json.dumps({"alpha": [1, 2, 3, 40], "beta": [10, 10, 10, 10]}))
    return folder


def test_open_bandit_layout(tmp_path: Path) -> None:
    there = OpenBandit(open_bandit(tmp_path))
    assert there.n_actions == 12
    log = there.sample(100, 0)
    batch = rounds(log)
    assert batch.propensity is not None
    np.testing.assert_allclose(batch.propensity, there.logging.probabilities(batch, batch.action))
    chances = there.thompson_chances()
    np.testing.assert_allclose(chances.sum(axis=0), 1)
    np.testing.assert_allclose(there.target.probabilities(batch)[0].sum(), 1)
    assert chances[3, 0] > 0.95
    clicks = [int(line.split(",")[4]) for line in (tmp_path / "bts/all/all.csv").read_text().splitlines()[1:]]
    assert there.value(there.target) == pytest.approx(np.mean(clicks))
    with pytest.raises(op.InputError, match="only their values are known"):
        there.value(op.Uniform())
    other = OpenBandit(tmp_path, behaviour="bts")
    assert other.value(other.logging) == pytest.approx(np.mean(clicks))
    assert other.sample(50, 1).logging is None


def test_the_log_of_open_bandit_is_the_log_itself(tmp_path: Path) -> None:
    there = OpenBandit(open_bandit(tmp_path))
    lines = [line.split(",") for line in (tmp_path / "random/all/all.csv").read_text().splitlines()[1:]]
    batch = rounds(there.log())
    np.testing.assert_array_equal(batch.action, [3 * int(line[2]) + int(line[3]) - 1 for line in lines])
    np.testing.assert_array_equal(batch.reward[:, 0], [float(line[4]) for line in lines])
    np.testing.assert_array_equal(batch.propensity, [float(line[5]) / 3 for line in lines])
    assert op.evaluate(there.log(), there.target, op.LoggedMean()).headline.value == there.value(there.logging)
    assert rounds(OpenBandit(tmp_path, behaviour="bts").log()).action.tolist() != batch.action.tolist()


def test_every_campaign_of_the_folder_can_be_read(tmp_path: Path) -> None:
    folder = open_bandit(open_bandit(tmp_path, 50, "men"), 40, "women")
    (folder / "random" / "half").mkdir()
    (folder / "random" / "half" / "half.csv").write_text("")  # the other policy has no such log
    assert OpenBandit.campaigns(folder) == ("men", "women")
    assert len(OpenBandit(folder, campaign="men").log()) == 50
    assert len(OpenBandit(folder, campaign="women").log()) == 40
    with pytest.raises(op.InputError, match="has no campaign 'all'; it has 'men', 'women'"):
        OpenBandit(folder)


def test_the_logged_frequencies_are_offered_as_the_target(tmp_path: Path) -> None:
    """The mean of a log is the value of the frequencies in it; that of the priors is another policy, and is called so."""
    folder = open_bandit(tmp_path)
    logged, other = OpenBandit(folder, thompson="logged"), rounds(OpenBandit(folder, behaviour="bts").log())
    frequencies = logged.target.probabilities(rounds(logged.log()))[0]
    np.testing.assert_allclose(frequencies, np.bincount(other.action, minlength=12) / len(other.action))
    assert logged.value(logged.target) == other.reward.mean()
    assert "frequencies" in logged.value_note
    assert "another policy" in OpenBandit(folder).value_note
    assert "uniform" in OpenBandit(folder, behaviour="bts").value_note
    (folder / "bts_prior_all.json").unlink()
    assert OpenBandit(folder, thompson="logged").target is not None  # which needs no priors
    with pytest.raises(op.InputError, match=r'lacks bts_prior_all.json.*or use .*thompson="logged"'):
        OpenBandit(folder)


def test_open_bandit_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(op.InputError, match="nowhere: not a folder of the Open Bandit Dataset"):
        OpenBandit(tmp_path / "nowhere")
    folder = open_bandit(tmp_path / "data")
    with pytest.raises(op.InputError, match="has no campaign 'men'; it has 'all'"):
        OpenBandit(folder, campaign="men")
    with pytest.raises(op.InputError, match='give "prior" or "logged"'):
        OpenBandit(folder, thompson="posterior")  # type: ignore[arg-type]
    csv = folder / "random/all/all.csv"
    whole = csv.read_text()
    csv.write_text(whole.replace(",click,", ",clack,"))
    with pytest.raises(op.InputError, match="cannot read the columns"):
        OpenBandit(folder).sample(10, 0)
    csv.write_text(whole + "9,2019,1,1,7,0.25,a,a,a,a\n")
    with pytest.raises(op.InputError, match="click must be 0 or 1; 7 is neither"):
        OpenBandit(folder).sample(10, 0)
    csv.write_text(whole.splitlines()[0] + "\n")
    with pytest.raises(op.InputError, match="has no rows"):
        OpenBandit(folder).sample(10, 0)
    csv.write_text(whole + "9,2019,99,1,0,0.25,a,a,a,a\n")
    with pytest.raises(op.InputError, match="1 rows have an unknown item or position"):
        OpenBandit(folder).sample(10, 0)
    (folder / "bts_prior_all.json").write_text("[]")
    with pytest.raises(op.InputError, match="alpha"):
        OpenBandit(folder).thompson_chances()


def test_worlds_by_name() -> None:
    assert world(*from_text("synthetic:n_actions=7,clicks=true"), seed=3) == Synthetic(7, clicks=True, seed=3)
    for text, words in (
        ("synthetik", "Did you mean 'synthetic'"),
        ("toy:n_action=5", "Did you mean 'n_actions'"),
        ("toy:n_actions=five", "a whole number"),
        ("toy:n_actions=true", "a whole number"),
        ("toy:n_actions=1", "from 2"),
        ("linear:noise=-3", "at least 0"),
        ("synthetic:noise=nan", "give a number"),
        ("synthetic:hidden=3", "from 0 to 2"),
        ("nonlinear:dimensions=4", "from 1 to 3"),
        ("toy:n_actions", "NAME=VALUE"),
        ("linear:clicks=maybe", "True or False"),
        ("synthetic:redraw_importance=no", "True or False"),
    ):
        with pytest.raises(op.InputError, match=words):
            world(*from_text(text))


def test_the_value_of_the_toy_by_quadrature_is_that_by_monte_carlo() -> None:
    there = Toy(20, seed=4)
    x = np.random.default_rng(0).normal(size=(200_000, 5))
    means = there.mean_reward(x).mean(axis=1)
    assert there.value(there.target) == pytest.approx(means.mean(), abs=4 * means.std() / np.sqrt(len(x)))


def test_toys_share_a_logging_policy_on_request() -> None:
    a, b = (Toy(6, seed=seed, logging_seed=1) for seed in (0, 1))
    asked = [there.logging.probabilities(as_batch(np.zeros((1, 5)), 6)) for there in (a, b)]
    np.testing.assert_array_equal(*asked)
    assert a.value(a.target) != b.value(b.target)
    assert isinstance(a, World)


def test_linear_with_features_and_near_targets() -> None:
    """Informative features predict the scores, misleading ones do not; overlap=2 is the target's own log."""
    scores = {}
    for kind in ("informative", "misleading"):
        there = Linear(2_000, catalog=kind, seed=1)
        mu = there._parameters[1]
        design = np.column_stack([there.features, np.ones(2_000)])
        fitted = design @ np.linalg.lstsq(design, mu, rcond=None)[0]
        scores[kind] = np.corrcoef(fitted, mu)[0, 1] ** 2
        assert rounds(there.sample(50, 1)) is not None
    assert scores["informative"] == pytest.approx(0.5, abs=0.06)
    assert scores["misleading"] < 0.02
    same = Linear(5, overlap=2.0, seed=1)
    x = as_batch(np.random.default_rng(0).normal(size=(20, 5)), 5)
    np.testing.assert_allclose(same.logging.probabilities(x), same.target.probabilities(x))
    for bad, words in (
        ({"catalog": "good"}, "catalog is 'good'"),
        ({"tails": 0.5}, "tails is 0.5"),
        ({"overlap": 3}, "overlap is 3"),
    ):
        with pytest.raises(op.InputError, match=words):
            Linear(5, **bad)
