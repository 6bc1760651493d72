"""Worlds of lists: their values against enumeration of all lists, who depends on whom, and the published constants."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import offpolicy as op
from offpolicy.worlds import Cascade, Diverse, ListWorld, RankedDocuments, Ranking
from offpolicy.worlds.lists import list_batch, list_policy

DATA = Path("../shared/data/ranking")
BEHAVIOURS = ("independent", "position", "cascade", "neighbours", "standard", "mixed")


def enumerated(world: ListWorld, n: int = 4_000) -> tuple[float, float]:
    """The value of the target, exact over all lists, on contexts of its own; and its standard error."""
    x = world.contexts(n, np.random.default_rng(5))
    values = np.zeros(n)
    for each in itertools.product(range(world.n_actions), repeat=world.slots):
        if getattr(world, "policies", "factored") == "plackett-luce" and len(set(each)) < world.slots:
            continue
        lists = np.tile(each, (n, 1))
        batch = op.Log(x, lists, np.zeros(lists.shape), propensity=np.ones(lists.shape), actions=world.space).head(n)
        values += list_policy(world.target).slots(batch).prod(axis=1) * world.mean_reward(x, lists).sum(axis=1)
    return float(values.mean()), float(values.std() / np.sqrt(n))


class Small:
    """Values from fewer rounds than usual."""

    value_rounds = 100_000


def small(kind: type[ListWorld], *args: object, **settings: object) -> ListWorld:
    return type(kind.__name__, (Small, kind), {})(*args, **settings)  # type: ignore[no-any-return]


@pytest.mark.parametrize("world", [
    small(Ranking, "mixed", 3, 3), small(Ranking, "position", 3, 4, policies="plackett-luce", clicks=True),
    small(Cascade, slots=3, n_actions=3), small(Diverse, 3),
], ids=lambda world: repr(world)[:40])  # fmt: skip
def test_the_value_is_that_of_all_lists(world: ListWorld) -> None:
    value, error = world.value_with_error(world.target)
    exact, other = enumerated(world)
    assert abs(value - exact) < 4 * np.hypot(error, other)
    assert error < 0.02


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_which_slots_matter(behaviour: str) -> None:
    """Change the item of one slot, and see which other slots notice."""
    world = Ranking(behaviour, slots=4, n_actions=5)  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    x, lists = world.contexts(50, rng), rng.integers(5, size=(50, 4))
    noticed = np.zeros((4, 4), dtype=bool)
    for j in range(4):
        other = lists.copy()
        other[:, j] = (other[:, j] + 1) % 5
        noticed[:, j] = (np.abs(world.mean_reward(x, lists) - world.mean_reward(x, other)) > 1e-12).any(axis=0)
    slot = np.arange(4)
    apart = slot[:, None] - slot
    matters = {
        "independent": apart == 0, "position": apart == 0, "cascade": apart >= 0, "neighbours": np.abs(apart) <= 1,
        "standard": apart == apart, "mixed": apart == apart,
    }[behaviour]  # fmt: skip
    np.testing.assert_array_equal(noticed, matters)


@pytest.mark.parametrize("world", [Ranking("mixed"), Ranking("cascade", clicks=True), Diverse(), Cascade()], ids=repr)
def test_rewards_have_the_stated_means(world: ListWorld) -> None:
    rng = np.random.default_rng(3)
    x = np.tile(world.contexts(1, rng), (40_000, 1))
    lists, _ = list_policy(world.logging).draw(list_batch(x[:1], world.space), rng)
    every = np.tile(lists, (40_000, 1))
    rewards = world.outcome(x, every, rng)
    error = rewards.std(axis=0) / 200
    assert (np.abs(rewards.mean(axis=0) - world.mean_reward(x[:1], lists)[0]) < 4.5 * error).all()


def test_logs_of_different_seeds_differ_and_of_the_same_do_not() -> None:
    world = Ranking("standard", 3, 4)
    one, two, again = (world.sample(20, seed=seed).head(20) for seed in (1, 2, 1))
    assert (one.action == again.action).all()
    assert (one.reward == again.reward).all()
    assert (one.reward != two.reward).all()


def test_the_published_constants_of_diverse_readers() -> None:
    """As stated with the published code: the logging policy, and E[w²] of a slot and of a list."""
    world = Diverse()
    lists = np.tile(np.arange(3)[:, None], (1, 8))
    batch = op.Log(np.zeros((3, 5)), lists, np.zeros((3, 8)), propensity=np.ones((3, 8)), actions=world.space).head(3)
    p, q = (list_policy(policy).slots(batch)[:, 0] for policy in (world.logging, world.target))
    assert p == pytest.approx([0.285, 0.413, 0.302], abs=5e-4)
    assert q == pytest.approx([0.8, 0.1, 0.1])
    assert (q**2 / p).sum() == pytest.approx(2.3, abs=0.01)
    assert (q**2 / p).sum() ** 8 == pytest.approx(785, rel=0.005)


@pytest.mark.parametrize("make", [
    lambda: Ranking("downwards"), lambda: Ranking(policies="uniform"), lambda: Ranking(slots=0), lambda: Ranking(noise=-1),
    lambda: Ranking(slots=9, n_actions=5, policies="plackett-luce"), lambda: Diverse(slots=1), lambda: Diverse(mixing=2),
    lambda: Cascade(interaction="none"), lambda: Cascade(n_actions=1), lambda: RankedDocuments("nowhere"),
])  # fmt: skip
def test_bad_settings(make: object) -> None:
    with pytest.raises(op.InputError):
        make()  # type: ignore[operator]


def write(folder: Path, documents: int, queries: int) -> Path:
    rng = np.random.default_rng(0)
    lines = [
        f"{rng.integers(5)} " + " ".join(f"{j}:{rng.random():.3f}" for j in range(1, 20)) for _ in range(documents * queries)
    ]
    (folder / "rank.train").write_text("\n".join(lines) + "\n")
    (folder / "rank.train.query").write_text(f"{documents}\n" * queries)
    return folder


@pytest.mark.parametrize("behaviour", ["position", "cascade"])
def test_ranked_documents_of_a_file(tmp_path: Path, behaviour: str) -> None:
    world = RankedDocuments(write(tmp_path, 6, 5), 3, 6, behaviour=behaviour)  # type: ignore[arg-type]
    x = world.contexts(20_000, np.random.default_rng(0))
    assert len(np.unique(x[:, -1])) == 5
    lists, _ = list_policy(world.logging).draw(list_batch(x, world.space), np.random.default_rng(1))
    rewards = world.outcome(x, lists, np.random.default_rng(2))
    assert set(np.unique(rewards)) == {0.0, 1.0}
    assert np.abs((rewards - world.mean_reward(x, lists)).mean(axis=0)).max() < 0.02


def test_ranked_documents_that_do_not_fit(tmp_path: Path) -> None:
    write(tmp_path, 6, 5)
    (tmp_path / "rank.train.query").write_text("6\n6\n")
    with pytest.raises(op.InputError, match="30 documents, but the queries have 12"):
        RankedDocuments(tmp_path, 3, 6).sample(10, 0)
    (tmp_path / "rank.train").write_text("1 2:0.5\nx 2:0.5\n")
    with pytest.raises(op.InputError, match=r"line 2 is not in LIBSVM form: 'x 2:0\.5"):
        RankedDocuments(tmp_path, 3, 6).sample(10, 0)


@pytest.mark.skipif(not DATA.is_dir(), reason="the ranking data are not in ../shared/data")
def test_the_target_ranks_real_documents_better() -> None:
    world = RankedDocuments(DATA)
    x = world.contexts(20_000, np.random.default_rng(0))
    values = []
    for policy in (world.logging, world.target):
        lists, _ = list_policy(policy).draw(list_batch(x, world.space), np.random.default_rng(1))
        values.append(world.mean_reward(x, lists).sum(axis=1).mean())
    assert values[1] > values[0] + 0.01
