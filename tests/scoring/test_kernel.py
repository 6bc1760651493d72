"""The kernel: its sums against plain arrays, and that the scoring pass takes its numbers from the kernel it is given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import offpolicy as op
from offpolicy.models.rewards.base import LinearPredictor, design
from offpolicy.policies.blocks import Grid, Listed, Lists
from offpolicy.ratios.pools import BlockRows
from offpolicy.results.job import Job
from offpolicy.scoring.kernel import (
    BaselinePart,
    Baselines,
    BlockInput,
    BlockSums,
    Kernel,
    NumpyKernel,
    Probabilities,
)  # fmt: skip
from tests.logs import make_small

SMALL = make_small(n=30)
BATCH = SMALL.log().head(30)
CLIP = 1.5


def block(clip: float | None) -> tuple[BlockInput, np.ndarray]:
    """A block with one linear model, and q of every action."""
    coef = np.random.default_rng(3).normal(size=(4, 3))
    part = BaselinePart(clip, 0, [2], [(coef, 0.0)], [])
    centre = np.zeros(2)
    rounds = BlockRows(slice(0, 30), BATCH, 0, 20, True)
    omega = np.linspace(0.5, 1.5, 30)
    tables = [None, np.arange(10)]
    given = BlockInput(rounds, design(BATCH, centre), omega, Baselines([part]), (), True, tables)
    return given, LinearPredictor(coef, centre).all(BATCH)


def listed() -> Probabilities:
    """The same probabilities, with every action on the list of every round."""
    codes = np.tile(np.arange(4), 30)
    both = [Listed(np.arange(31) * 4, codes, side.ravel()) for side in (SMALL.target, SMALL.logging)]
    layout, chances = Lists.union(BATCH.action, 4, *both)
    return Probabilities(layout, chances[0], chances[1])


@pytest.mark.parametrize("clip", [None, CLIP])
@pytest.mark.parametrize("layout", ["grid", "lists"])
def test_sums_are_those_of_plain_arrays(layout: str, clip: float | None) -> None:
    p = Probabilities(Grid(BATCH.action), SMALL.target, SMALL.logging) if layout == "grid" else listed()
    given, q = block(clip)
    share = SMALL.target if clip is None else np.maximum(SMALL.target - clip * SMALL.logging, 0)
    sums = NumpyKernel().sums(p, given)
    rows = np.arange(30)
    np.testing.assert_allclose(sums.baselines[2], (share * q).sum(axis=1))
    np.testing.assert_allclose(sums.target, SMALL.target[rows, BATCH.action])
    np.testing.assert_allclose(sums.logging, SMALL.logging[rows, BATCH.action])
    assert sums.mass is not None
    np.testing.assert_allclose(sums.mass.by_action, given.omega @ SMALL.target)
    whole, first = sums.tables[0]
    np.testing.assert_allclose(whole, share.T @ (given.x * given.omega).T)
    np.testing.assert_allclose(first, share[:10].T @ (given.x * given.omega)[:, :10].T)


def test_a_loose_policy_is_normalised() -> None:
    given, q = block(None)
    sums = NumpyKernel().sums(Probabilities(Grid(BATCH.action), 7 * SMALL.target, None, loose=True), given)
    np.testing.assert_allclose(sums.baselines[2], (SMALL.target * q).sum(axis=1))
    np.testing.assert_allclose(sums.target, SMALL.target[np.arange(30), BATCH.action])


@dataclass(frozen=True)
class Shifted(Kernel):
    """Adds 1 to every baseline, and doubles every pooled ratio."""

    plain: NumpyKernel

    def sums(self, p: Probabilities, block: BlockInput) -> BlockSums:
        sums = self.plain.sums(p, block)
        baselines = {column: values + 1 for column, values in sums.baselines.items()}
        return replace(sums, baselines=baselines, pools=[replace(pool, ratio=2 * pool.ratio) for pool in sums.pools])

    def near(self, *given: Any) -> Any:
        return self.plain.near(*given)

    def mass(self, *given: Any) -> Any:
        return self.plain.mass(*given)


def test_the_scoring_pass_takes_its_numbers_from_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    estimators = [op.DM(), op.GroupIPS(clusters=[0, 0, 1, 1])]
    before = op.evaluate(SMALL.log(), SMALL.target, estimators, progress=False)
    plain = Job._scorer
    monkeypatch.setattr(Job, "_scorer", lambda *given: replace(plain(*given), kernel=Shifted(NumpyKernel())))
    after = op.evaluate(SMALL.log(), SMALL.target, estimators, progress=False)
    np.testing.assert_allclose(after["DM"].value, before["DM"].value + 1)
    np.testing.assert_allclose(after["GroupIPS"].value, 2 * before["GroupIPS"].value)
