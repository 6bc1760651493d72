"""One answer from several candidates: the rules by hand, what they are made of, and what they say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression

import offpolicy as op
from offpolicy.estimators import Combined, Estimator, Member
from offpolicy.estimators.bias_prior import BiasPrior, tempered_posterior
from offpolicy.estimators.selection import CandidateEstimates, blend, cross_validated, optimism, stacked, widest
from offpolicy.inference.blending import covariance
from offpolicy.inference.functionals import Functional
from offpolicy.ratios.weights import Switch, Weight
from offpolicy.worlds import Linear
from tests.logs import Small, make_small


def candidates(values: Sequence[float], matrix: Sequence[Sequence[float]], **more: object) -> CandidateEstimates:
    """The first is nearly unbiased."""
    size = len(values)
    settings: dict = {
        "names": tuple("abcdef"[:size]),
        "values": np.array(values, float),
        "covariance": np.array(matrix, float),
        "sampled": np.array([matrix], float),
        "unbiased": (True, *[False] * (size - 1)),
        "known": (True,) * size,
        "uncorrected": (0.0, *[1.0] * (size - 1)),
        "least_biases": (0.0,) * size,
        "logged": 0.0,
        "evidence": 1e6,
        "resampled": lambda k, counts: np.full(len(counts), values[k]),
        "buckets": 10,
        **more,
    }
    return CandidateEstimates(**settings)


class TestBiasPrior:
    def test_by_hand(self) -> None:
        """One smooth candidate without an error of its own, one value of κ: w = (var + gap-scaled bias²) by hand."""
        prior = BiasPrior(least=1.0, grid=1, common=0.5)
        found = prior.choose(candidates([2, 0], [[1, 0], [0, 0]], logged=-1.0))
        unit = 3**2 + 1  # the gap from the logged mean, and the error of the anchor
        for _ in range(2):  # then those of the blend
            weight = unit / (1 + unit)
            unit = (2 * weight + 1) ** 2 + weight**2
        assert found.weights == pytest.approx([unit / (1 + unit), 1 / (1 + unit)])
        assert found.biases == pytest.approx([0, -2 * unit / (1 + unit)])
        assert found.hedge == 0.2

    def test_a_contradicted_model_gets_no_weight_and_an_agreeing_one_does(self) -> None:
        far = BiasPrior().choose(candidates([100, 0], [[1, 0], [0, 0.01]], evidence=1e6))
        assert far.weights[0] == pytest.approx(1, abs=1e-3)
        near = BiasPrior().choose(candidates([1.0, 1.05], [[0.01, 0], [0, 0.0001]], evidence=1e6))
        assert near.weights[1] > 0.2

    def test_few_rounds_do_not_clear_a_model(self) -> None:
        """The same agreement counts for less where the anchor has few effective rounds."""
        many, few = (
            BiasPrior().choose(candidates([1.0, 1.05], [[0.01, 0], [0, 0.0001]], evidence=m)).weights[1] for m in (1e6, 1.0)
        )
        assert few < many

    def test_few_rounds_do_contradict_a_model(self) -> None:
        """A difference of ten standard errors counts in full; a tenth of one clears the model only if rounds are many."""
        few = BiasPrior().choose(candidates([1.0, 0.0], [[0.01, 0], [0, 0.0001]], evidence=1.0))
        many = BiasPrior().choose(candidates([1.0, 0.0], [[0.01, 0], [0, 0.0001]], evidence=1e6))
        assert few.weights[1] < 0.05
        assert few.details["expected_bias_share"] >= many.details["expected_bias_share"] > 0.3

    def test_the_posterior_by_hand(self) -> None:
        """Even prior, κ of three sizes, the middle one most likely: of the evidence that it is not the largest, a quarter counts."""
        found = tempered_posterior(np.log([0.25, 0.5, 0.03125]), np.zeros(3), counts=0.25)
        assert found == pytest.approx(np.array([0.5, 1.0, 0.5]) / 2)

    def test_units_and_origin_do_not_matter(self) -> None:
        c = candidates([1.0, 1.3, 0.9], [[0.02, 0.001, 0], [0.001, 0.004, 0.001], [0, 0.001, 0.003]], evidence=50.0)
        plain = BiasPrior().choose(c)
        moved = replace(c, values=c.values * 1e6 + 5, covariance=c.covariance * 1e12, logged=5.0)
        other = BiasPrior().choose(moved)
        assert other.weights == pytest.approx(plain.weights, abs=1e-6)
        assert other.biases == pytest.approx(plain.biases * 1e6, rel=1e-5, abs=1e-3)

    def test_without_smooth_candidates_it_is_the_stack(self) -> None:
        c = candidates([1.0, 2.0], [[1, 0], [0, 3]], unbiased=(True, True), uncorrected=(0.0, 0.0))
        assert BiasPrior().choose(c).weights == pytest.approx(stacked(c).weights)

    def test_rewards_that_are_all_the_same(self) -> None:
        found = BiasPrior().choose(candidates([1.0, 1.0], np.zeros((2, 2)), logged=1.0))
        assert found.weights == pytest.approx([1, 0])


def test_the_stack_has_the_least_variance_on_the_simplex() -> None:
    matrix = [[1.0, 0.2, 0.0], [0.2, 2.0, 0.0], [0.0, 0.0, 0.01]]
    c = candidates([1, 2, 3], matrix, unbiased=(True, True, False), uncorrected=(0.0, 0.0, 1.0))
    share = (2.0 - 0.2) / (1 + 2.0 - 0.4)
    assert stacked(c).weights == pytest.approx([share, 1 - share, 0])
    assert stacked(candidates([1, 2], [[1, 1.5], [1.5, 4]], unbiased=(True, True))).weights == pytest.approx([1, 0])


def test_few_effective_rounds_leave_the_weight_to_what_requires_the_fewest() -> None:
    """Two nearly unbiased candidates; the second requires 3 effective rounds more, in squares, and there are 2."""
    given = {"unbiased": (True, True), "uncorrected": (0.0, 0.0), "required": np.array([4.0, 5.0])}
    few, many = (candidates([1, 2], [[2, 0], [0, 1]], effective=np.array([m, 9.0]), **given) for m in (2.0, 1e9))
    assert few.doubts == pytest.approx([0, (5**2 - 4**2) / 2**2 * 1])
    assert stacked(few, few.doubts).weights == pytest.approx(np.array([3.25, 2]) / 5.25)
    for weights in (stacked(many, many.doubts).weights, stacked(few).weights):
        assert weights == pytest.approx([1 / 3, 2 / 3])


def test_the_optimism_of_fitted_weights_by_hand() -> None:
    """Two groups of units: the whole has weights of ½ and a variance of 2; held out, each group has weights of ¼ and ¾."""
    parts = np.array([np.diag([1.0, 3.0]), np.diag([3.0, 1.0])])
    held_out = 2 * (1 * 0.25**2 + 3 * 0.75**2)
    assert optimism(parts) == pytest.approx((held_out / 2 - 1) / 2)
    assert optimism(np.array([np.diag([1.0, 3.0])] * 2)) == pytest.approx(0, abs=1e-9)  # the groups agree
    assert optimism(parts[:, :1, :1]) == 0  # a single candidate has no weights to fit
    assert stacked(candidates([1, 2], parts.sum(axis=0), sampled=parts, unbiased=(True, True))).optimism == optimism(parts)


class TestStackedDR:
    LOG = op.Log(None, [0, 1, 0, 1, 1, 0], [1.0, 0.0, 2.0, 1.0, 3.0, 1.0], propensity=np.full(6, 0.5), n_actions=2)
    TARGET = np.tile([0.7, 0.3], (6, 1))

    def test_by_hand(self) -> None:
        """IPS and SNIPS without each of six rounds; the weight of IPS from the covariance of these twelve numbers.

        IPS, which does not divide by the mean weight, requires 55 effective rounds, and its variance is doubted without them.
        """
        w, r = np.array([1.4, 0.6, 1.4, 0.6, 0.6, 1.4]), np.array([1.0, 0.0, 2.0, 1.0, 3.0, 1.0])
        ips = ((w * r).sum() - w * r) / 5
        snips = ((w * r).sum() - w * r) / (w.sum() - w)
        c = np.cov(ips, snips)
        c[0, 0] += (55 / (w.sum() ** 2 / (w**2).sum())) ** 2 * min(c[0, 0], c[1, 1])
        share = np.clip((c[1, 1] - c[0, 1]) / (c[0, 0] + c[1, 1] - 2 * c[0, 1]), 0, 1)
        result = op.evaluate(self.LOG, self.TARGET, [op.StackedDR([op.IPS(), op.SNIPS()]), op.IPS(), op.SNIPS()])
        weights = {c["name"]: c["weight"] for c in result["StackedDR"].diagnostics["candidates"]}
        assert weights == pytest.approx({"IPS": share, "SNIPS": 1 - share}, abs=1e-6)
        mix = share * result["IPS"].value + (1 - share) * result["SNIPS"].value
        assert result["StackedDR"].value == pytest.approx(mix)

    def test_a_mix_of_one_is_that_one(self, small: Small) -> None:
        result = op.evaluate(small.log(), small.target, [op.StackedDR([op.IPS()]), op.IPS()])
        assert result["StackedDR"].value == pytest.approx(result["IPS"].value, rel=1e-12)
        assert result["StackedDR"].std_error == pytest.approx(result["IPS"].std_error, rel=1e-3)  # by buckets, and by rows

    def test_never_more_estimated_variance_than_the_best_candidate(self) -> None:
        rng = np.random.default_rng(0)
        for size in (2, 4, 6):
            roots = rng.normal(size=(5, size, 3)) * rng.uniform(0.1, 3, size=(size, 1))
            parts = roots @ roots.transpose(0, 2, 1)
            c = candidates(np.zeros(size), parts.sum(axis=0), sampled=parts, unbiased=(True,) * size)
            assert c.variance(stacked(c).weights) <= c.errors.min() ** 2 * (1 + 1e-9)
            assert stacked(c).optimism > 0

    def test_any_reward_model_can_be_stacked(self, small: Small) -> None:
        """The error of a model cancels with exact weights, so that a scikit-learn model is a candidate as any other."""
        trees = op.SNDR(HistGradientBoostingRegressor(max_iter=20), name="trees")
        stack = op.StackedDR([op.SNIPS(), op.SNDR(op.Ridge(0.3)), trees])
        made = op.evaluate(small.log(), small.target, [stack])["StackedDR"]
        told = {c["name"]: c for c in made.diagnostics["candidates"]}
        assert set(told) == {"SNIPS", "SNDR", "trees"}
        assert all(c["error_known"] and c["nearly_unbiased"] for c in told.values())
        assert made.value == pytest.approx(sum(c["weight"] * c["value"] for c in told.values()))

    def test_the_standard_error_is_the_spread_where_few_weights_are_large(self) -> None:
        """A target near the logging policy: the weights of 300 rounds often sum to too little. The spread is known to 8%."""
        world = op.worlds.Classification("iris", trust=0.8, epsilon=0.3)
        truth, off, errors = world.value(world.target), [], []
        every = [op.StackedDR(), op.SNIPS(), op.SNDR()]
        for seed in range(80):
            made = op.evaluate(world.sample(300, seed), world.target, every, progress=False)
            off.append([made[name].value - truth for name in ("StackedDR", "SNIPS", "SNDR")])
            errors.append(made["StackedDR"].std_error)
        squared = np.square(off).mean(axis=0)
        assert np.sqrt(np.square(errors).mean()) == pytest.approx(np.std(off, axis=0)[0], rel=0.2)
        assert squared[0] < 1.15 * squared[1:].min()


def test_any_rule_gives_unknown_errors_no_weight() -> None:
    c = candidates([1, 5, 1.1], np.diag([1, 0.01, 0.01]), known=(True, False, True))
    for choice in (BiasPrior().choose(c), blend(c, 1.0), widest(c, 2.0), cross_validated(c, one_error=True)):
        assert choice.weights[1] == 0
        assert choice.weights.sum() == pytest.approx(1)


def test_blend_is_the_best_point_of_the_simplex() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(3, 3))
    c = candidates([1.0, 1.8, -0.5], root @ root.T / 20)
    found = blend(c, 1.0)
    matrix = c.covariance + np.outer(found.biases, found.biases)
    grid = np.array([(a, b, 1 - a - b) for a in np.linspace(0, 1, 201) for b in np.linspace(0, 1 - a, 201)])
    best = np.einsum("ij,jk,ik->i", grid, matrix, grid).min()
    assert found.weights @ matrix @ found.weights <= best + 1e-9
    assert found.weights.sum() == pytest.approx(1)
    assert (found.weights >= 0).all()


def test_slope_takes_the_last_that_agrees_with_all_before() -> None:
    c = candidates([0, 0.5, 0.6, 9], np.diag([1, 0.3, 0.1, 0.01]))
    assert widest(c, 2.0).weights.tolist() == [0, 0, 1, 0]


def test_ocv_takes_the_nearest_to_what_it_has_not_seen() -> None:
    values = np.array([0.0, 0.2, 3.0])

    def resampled(k: int, counts: np.ndarray) -> np.ndarray:
        noise = np.random.default_rng(int(1e6 * counts[0].mean()) + k).normal(size=len(counts)) * [0.5, 0.1, 0.1][k]
        return values[k] + noise

    c = candidates(values.tolist(), np.diag([0.25, 0.01, 0.01]), resampled=resampled, buckets=4096)
    assert cross_validated(c, one_error=False).weights.tolist() == [0, 1, 0]


BOTH = [op.SNDR(), op.DM(op.Ridge(0.3)), op.LearnedMDR("identity", op.Ridge(0.3), op.Gaussian(0.56))]


def test_the_covariance_is_that_over_logs() -> None:
    """Errors of estimates and of their differences, fits included, within a third; the chance error is about 10%."""
    world = Linear(6, context=2, seed=1)
    values, errors = [], []
    for seed in range(60):
        result = op.evaluate(world.sample(600, seed), world.target, BOTH, progress=False)
        parts = [result[e.name] for e in BOTH]
        matrix = covariance([part.evidence.functional for part in parts], parts[0].evidence.sums)
        values.append([part.value for part in parts])
        errors.append([matrix[i, i] + matrix[j, j] - 2 * matrix[i, j] for i in range(3) for j in range(i)])
        errors[-1] += np.diag(matrix).tolist()
    v = np.array(values)
    over_logs = [np.var(v[:, i] - v[:, j], ddof=1) for i in range(3) for j in range(i)] + np.var(v, axis=0, ddof=1).tolist()
    ratio = np.sqrt(np.mean(errors, axis=0) / over_logs)
    assert ratio[2:] == pytest.approx(np.ones(4), rel=0.34)
    assert (ratio > 0.7).all()  # SNDR and DM − SNDR differ in second order only, and are overstated


def gradient_by_differences(f: Functional, means: np.ndarray) -> np.ndarray:
    steps = 1e-6 * np.maximum(np.abs(means), 1e-3)
    up, down = (f.evaluate(means + sign * np.diag(steps)) for sign in (1, -1))
    return (up - down) / (2 * steps)


@pytest.mark.parametrize("estimator", [op.ScaledDR(op.Ridge(1.0), clip=0.7), op.Auto(), op.Blend()], ids=lambda e: e.name)
def test_gradients(small: Small, estimator: Estimator) -> None:
    estimate = op.evaluate(small.log(), small.target, [estimator])[estimator.name]
    f, means = estimate.evidence.functional, estimate.evidence.sums.moments["mean"]
    assert f.evaluate(means) == pytest.approx(estimate.value, rel=1e-9)
    np.testing.assert_allclose(f.gradient, gradient_by_differences(f, means), rtol=1e-4, atol=1e-6)


def test_scaled_dr_from_sndr_to_the_mean_residual(small: Small) -> None:
    log = small.log()
    every = [op.ScaledDR(op.Ridge(1.0), clip=c, name=f"{c}") for c in (np.inf, 1e-4)] + [
        op.SNDR(op.Ridge(1.0)),
        op.DM(op.Ridge(1.0), cross_fit=5),
    ]
    result = op.evaluate(log, small.target, every)
    assert result["inf"].value == pytest.approx(result["SNDR"].value, rel=1e-12)
    assert result["inf"].std_error == pytest.approx(result["SNDR"].std_error, rel=1e-9)
    residual = op.evaluate(log, small.logging, [op.DR(op.Ridge(1.0)), op.DM(op.Ridge(1.0), cross_fit=5)])
    mean_residual = residual["DR"].value - residual["DM"].value
    assert result["0.0001"].value == pytest.approx(result["DM"].value + mean_residual, rel=1e-3)


def test_scaled_dr_where_the_residuals_cancel() -> None:
    """w = 1 throughout: it is SNDR, whose error is not 0 because the mean residual is."""
    reward = np.array([1.0, -1, -1, 1])
    log = op.Log(None, [0, 1, 0, 1], reward, logging=op.Uniform(), n_actions=2)
    given = op.Given(np.zeros((4, 2)))
    result = op.evaluate(log, op.Uniform(), [op.ScaledDR(given, clip=1), op.SNDR(given)])
    assert result["ScaledDR"].std_error == pytest.approx(result["SNDR"].std_error)


@pytest.fixture(scope="module")
def result() -> op.Evaluation:
    w = make_small(n=1500)
    other = 0.98 * w.target + 0.02 * w.logging
    return op.evaluate(w.log(), {"new": w.target, "near": other, "same": w.target.copy()})


class TestAuto:
    def test_it_leads_and_the_defaults_are_there(self, result: op.Evaluation) -> None:
        assert result.estimators == ("Auto", "LoggedMean", "SNIPS", "DR", "LearnedMIPS")
        assert result.headline.estimator == "Auto"

    def test_it_is_the_weighted_sum_of_its_candidates(self, result: op.Evaluation) -> None:
        told = result["new", "Auto"].diagnostics["candidates"]
        assert sum(c["weight"] for c in told) == pytest.approx(1)
        assert sum(c["weight"] * c["value"] for c in told) == pytest.approx(result["new", "Auto"].value)
        assert [c["weight"] for c in told] == sorted((c["weight"] for c in told), reverse=True)

    def test_it_explains_itself(self, result: op.Evaluation) -> None:
        words, shown = (" ".join(text.split()) for text in (result["new", "Auto"].explain(), str(result)))
        heaviest = result["new", "Auto"].diagnostics["candidates"][0]
        assert f"{heaviest['weight']:.0%} {heaviest['name']} [± {heaviest['std_error']:.2g}, bias " in words
        assert f"{heaviest['weight']:.0%} {heaviest['name']} [± " in shown
        assert "The runner-up, " in words
        assert "(nearly unbiased)" in words
        assert "est. bias" in words
        assert heaviest["name"] in shown
        assert "verdict" in result["new", "DR"].explain()

    def test_differences_between_policies_stay_paired(self, result: op.Evaluation) -> None:
        """The way from the anchor is the same for both policies, and does not count against their difference."""
        auto, dr = (result.difference("near", "new", estimator=name) for name in ("Auto", "DR"))
        assert auto.value == pytest.approx(dr.value, abs=4 * dr.std_error)
        assert auto.std_error < 3 * dr.std_error
        assert result.difference("same", "new", estimator="Auto").std_error == pytest.approx(0, abs=1e-9)

    def test_the_interval_counts_the_way_from_the_anchor(self, result: op.Evaluation) -> None:
        estimate = result["new", "Auto"]
        told = {c["name"]: c for c in estimate.diagnostics["candidates"]}
        way = estimate.value - told[estimate.diagnostics["anchor"]]["value"]
        assert estimate.std_error >= abs(way)
        low, high = (getattr(estimate.confidence_interval(method="bootstrap"), end) for end in ("low", "high"))
        normal = estimate.confidence_interval()
        assert high - low == pytest.approx(normal.high - normal.low, rel=0.15)


def test_auto_does_not_care_for_units() -> None:
    w = make_small(n=800)
    plain = op.evaluate(w.log(), w.target, [op.Auto()])["Auto"]
    moved = op.evaluate(op.Log(w.context, w.action, 1e3 * w.reward - 7, logging=w.logging), w.target, [op.Auto()])["Auto"]
    assert moved.value == pytest.approx(1e3 * plain.value - 7, rel=1e-6)
    assert moved.std_error == pytest.approx(1e3 * plain.std_error, rel=1e-6)


def test_auto_finds_the_truth_as_rounds_grow() -> None:
    """Clicks, which no linear model fits: the direct method stays off, Auto does not."""
    world = Linear(5, context=2, clicks=True, seed=2)
    truth = world.value(world.target)
    off = {}
    for n in (2_000, 200_000):
        result = op.evaluate(world.sample(n, 3), world.target, [op.Auto(), op.DM(op.Ridge(1.0))])
        off[n] = {name: abs(result[name].value - truth) for name in ("Auto", "DM")}
    assert off[200_000]["Auto"] < 0.005
    assert off[200_000]["DM"] > 3 * off[200_000]["Auto"]


def test_one_pass_to_fit_and_one_to_score(small: Small) -> None:
    reads = []

    class Counted(op.Local):
        def reduce(self, log: op.Log, *rest: object) -> object:
            reads.append(len(log))
            return super().reduce(log, *rest)

    op.evaluate(small.log(), small.target, [op.Auto()], engine=Counted())
    assert reads == [400, 400]


@dataclass(frozen=True)
class Nothing(Estimator):
    """Self-normalised weights that are all 0."""

    def members(self, cross_fit: int | None = None) -> tuple[Member, ...]:
        return (Member(Weight(bend=Switch(0.0)), normalised=True),)


@pytest.mark.parametrize("kind", [op.Auto, op.Blend, op.SLOPE, op.OCV])
class TestBadCandidates:
    def test_nothing_nearly_unbiased(self, kind: type[Combined], small: Small) -> None:
        words = (
            "first candidate, DM, is not nearly unbiased"
            if kind is op.SLOPE
            else "none of the candidates .* nearly unbiased"
        )
        with pytest.raises(op.InputError, match=words):
            op.evaluate(small.log(), small.target, [kind([op.DM(), op.LearnedMIPS()])])

    def test_one_that_cannot_be_computed_is_left_out_and_said(self, kind: type[Combined], small: Small) -> None:
        log = op.Log(small.context, small.action, small.reward, propensity=small.propensity, n_actions=4)
        result = op.evaluate(log, small.target, [kind([op.SNIPS(), op.DR(), op.LearnedMIPS()])])
        assert list(result[kind.__name__].diagnostics["left_out"]) == ["LearnedMIPS"]
        assert np.isfinite(result[kind.__name__].value)
        if kind is op.Auto:
            assert "Auto excludes LearnedMIPS. It weights rounds by embeddings" in " ".join(str(result).split())

    def test_one_that_fails_in_the_fit_is_left_out_and_said(self, kind: type[Combined], small: Small) -> None:
        log = op.Log(small.context, small.action, np.full(400, 3.0), logging=small.logging, n_actions=4)
        estimate = op.evaluate(log, small.target, [kind()])[kind.__name__]
        assert "the same for every action" in estimate.diagnostics["left_out"]["LearnedMDR"]
        assert estimate.value == pytest.approx(3.0)

    def test_nan_is_left_out_and_said(self, kind: type[Combined], small: Small) -> None:
        result = op.evaluate(small.log(), small.target, [kind([op.SNIPS(), op.DM(), Nothing()])])
        assert result[kind.__name__].diagnostics["left_out"] == {"Nothing": "gave no number"}
        assert np.isfinite(result[kind.__name__].value)

    def test_no_overlap_at_all(self, kind: type[Combined], small: Small) -> None:
        action = np.zeros(400, int)
        logging = np.tile([0.5, 0.5, 0, 0], (400, 1))
        log = op.Log(small.context, action, small.reward, logging=logging, n_actions=4)
        estimate = op.evaluate(log, np.tile([0, 1.0, 0, 0], (400, 1)), [kind()])[kind.__name__]
        assert np.isnan(estimate.value)
        assert estimate.verdict is op.Verdict.DO_NOT_TRUST

    def test_what_is_no_list_of_estimators(self, kind: type[Combined]) -> None:
        for bad in ([], op.SNIPS(), "snips", [op.SNIPS], [op.SNIPS(), kind()], [op.LoggedMean()]):
            with pytest.raises(op.InputError, match="candidate"):
                kind(bad)
        with pytest.raises(op.InputError, match="two candidates are called 'DM'"):
            kind([op.SNIPS(), op.DM(), op.DM(op.Ridge(1.0))])


def test_settings_out_of_range() -> None:
    for kind in (op.Blend, op.SLOPE):
        with pytest.raises(op.InputError, match="reach is -1"):
            kind(reach=-1)
    with pytest.raises(op.InputError, match="prior is 3"):
        op.Auto(prior=3)
    with pytest.raises(op.InputError, match="least is 2"):
        op.BiasPrior(least=2)
    with pytest.raises(op.InputError, match="ClippedIPS is not nearly unbiased"):
        op.StackedDR([op.SNIPS(), op.ClippedIPS(10)]).checked()
    with pytest.raises(op.InputError, match="one_error is 'no'"):
        op.OCV(one_error="no")
    with pytest.raises(op.InputError, match="clip is 0"):
        op.ScaledDR(clip=0)


def test_a_tuned_estimator_is_no_anchor_but_a_candidate(small: Small) -> None:
    with pytest.raises(op.InputError, match="nearly unbiased"):
        op.evaluate(small.log(), small.target, [op.Auto([op.ClippedIPS(), op.DM()])])
    assert np.isfinite(
        op.evaluate(small.log(), small.target, [op.Auto([op.SNIPS(), op.ClippedIPS(), op.DM()])])["Auto"].value
    )


def test_weights_alone_where_nothing_can_be_modelled(small: Small) -> None:
    chance = small.target[np.arange(400), small.action]
    log = op.Log(small.context, small.action, small.reward, propensity=small.propensity, n_actions=4)
    estimate = op.evaluate(log, op.Column(chance))["Auto"]
    assert {c["name"] for c in estimate.diagnostics["candidates"]} == {"SNIPS"}


def test_features_of_a_catalog_are_candidates_whatever_else_is_lacking(small: Small) -> None:
    catalog = np.arange(8.0).reshape(4, 2) ** 2
    log = op.Log(small.context, small.action, small.reward, propensity=small.propensity, n_actions=4, catalog=catalog)
    names = [c["name"] for c in op.evaluate(log, small.target, [op.Auto()])["Auto"].diagnostics["candidates"]]
    assert "SNDR with features" in names
    assert "DM with features" in names


def test_a_shortfall_of_weights_widens_only_where_it_matters() -> None:
    """A mean weight of 1 − 4e-9 is 60 of its tiny standard errors from 1, and means nothing."""
    w = make_small(n=1000)
    off = (w.logging + 1e-9)[np.arange(1000), w.action]
    log = op.Log(w.context, w.action, w.reward, propensity=off, n_actions=4)
    result = op.evaluate(log, w.logging, [op.Auto(), op.SNDR()])
    assert result["Auto"].std_error == pytest.approx(result["SNDR"].std_error, rel=0.2)


def test_slices_and_several_rewards(small: Small) -> None:
    log = op.Log(
        small.context, small.action, np.column_stack([small.reward, small.reward**2]), logging=small.logging, n_actions=4,
        by=np.where(small.context[:, 0] > 0, "a", "b"),
    )  # fmt: skip
    result = op.evaluate(log, small.target)
    assert len(result.rewards) == 2
    for part in result.slices.values():
        assert np.isfinite(part["Auto"].value)
        assert part["Auto"].std_error > 0


class Silent(LinearRegression):
    def predict(self, x: np.ndarray) -> np.ndarray:
        return super().predict(x) * np.nan


class Failing(LinearRegression):
    def fit(self, *data: object) -> None:
        raise RuntimeError(f"boom, with {len(data)} arrays")


def test_a_model_that_gives_nan_takes_nobody_with_it(small: Small) -> None:
    result = op.evaluate(small.log(), small.target, [op.SNIPS(), op.Auto([op.DR(), op.DM(Silent())]), op.DM(Silent())])
    assert result["Auto"].diagnostics["left_out"] == {"DM": "gave no number"}
    for name in ("SNIPS", "Auto"):
        assert result[name].std_error > 0
    assert {reason.code for reason in result["DM"].reasons} >= {"no number"}
    alone = op.evaluate(small.log(), small.target, [op.SNIPS()])["SNIPS"]
    assert result["SNIPS"].std_error == pytest.approx(alone.std_error, rel=1e-12)


def test_a_model_that_raises_is_left_out_and_said(small: Small) -> None:
    result = op.evaluate(small.log(), small.target, [op.Auto([op.DR(), op.DM(Failing())])])
    assert "Auto excludes DM. It failed (RuntimeError: boom" in " ".join(str(result).split())
    with pytest.raises(RuntimeError, match="boom"):
        op.evaluate(small.log(), small.target, [op.DM(Failing())])


def test_unknown_errors_are_shown_and_get_no_weight(small: Small) -> None:
    estimate = op.evaluate(small.log(), small.target, [op.Auto([op.DR(), op.DM(LinearRegression())])])["Auto"]
    words = " ".join(estimate.explain().split())
    assert "DM 0.0% 1.663 unknown unknown 0.371 ± 0.067" in words
    assert "A candidate whose standard error is unknown gets no weight." in words
    assert estimate.diagnostics["candidates"][-1]["weight"] == 0


def test_a_policy_that_is_known_in_part_takes_no_model_from_the_others(small: Small) -> None:
    """Auto, DR and Learned MIPS of the other are those that it has alone."""
    log = op.Log(small.context, small.action, small.reward, logging=small.logging)
    part, new = op.Column(small.target[np.arange(400), small.action]), small.target
    both = op.evaluate(log, {"part": part, "new": new})
    alone = {"new": op.evaluate(log, new), "part": op.evaluate(log, part)}
    assert both.estimators == alone["new"].estimators
    for policy, result in alone.items():
        for each in result:
            same = both[policy, each.estimator]
            assert (same.value, same.std_error) == pytest.approx((each.value, each.std_error), rel=1e-9), each
    with pytest.raises(KeyError, match="DR for 'part' was skipped: .*only that of the logged action is known"):
        both["part", "DR"]
    words = " ".join(str(both).split())
    assert "Auto for part excludes SNDR" in words
    assert "Not shown: DR for 'part', LearnedMIPS for 'part'. Each needs the new policy's probability" in words
    assert both.headline_estimator == "Auto"
    assert both.difference("new", "part").std_error > 0


def test_a_policy_that_is_known_in_part_survives_files_and_refits(small: Small, tmp_path: Path) -> None:
    part = op.Column(small.target[np.arange(400), small.action])
    result = op.evaluate(small.log(), {"part": part, "new": small.target})
    result.save(tmp_path / "result.json")
    assert str(op.load_result(tmp_path / "result.json")) == str(result)
    interval = result["new", "DR"].confidence_interval(method="bootstrap", refit=True, draws=10)
    assert interval.low < result["new", "DR"].value < interval.high


def test_an_estimator_that_is_named_must_serve_every_policy(small: Small) -> None:
    part = op.Column(small.target[np.arange(400), small.action])
    with pytest.raises(op.InputError, match="DR cannot be computed for 'part': it needs the new policy's probability"):
        op.evaluate(small.log(), {"new": small.target, "part": part}, [op.DR()])
    log = op.Log(small.context, small.action, small.reward)
    with pytest.raises(op.InputError, match="the policy 'part' cannot be evaluated: it weights rounds by π/π0"):
        op.evaluate(log, {"new": small.target, "part": part})


def test_blends_say_that_their_interval_is_another(small: Small) -> None:
    result = op.evaluate(small.log(reward_range=(-20, 20)), small.target).with_interval("bernstein")
    assert "Auto †" in str(result)
    assert "† a Student interval" in str(result)


def test_slices_say_why(small: Small) -> None:
    by = np.where(np.arange(400) < 394, "large", "tiny")
    words = " ".join(str(op.evaluate(small.log(by=by), small.target)).split())
    assert "large (caution): The 394 rounds are worth" in words


def test_few_effective_rounds_are_never_ok_and_in_the_first_sentence(tmp_path: Path) -> None:
    """Whatever carries the blend: here models, which agree with an anchor of some thirty effective rounds."""
    world = op.worlds.Synthetic(100, seed=2)
    result = op.evaluate(world.sample(4_000, 1), world.target, [op.Auto(), op.LearnedMIPS("identity"), op.SNIPS()])
    assert result["SNIPS"].diagnostics["effective_sample_size"] < 100
    assert op.Verdict.OK not in {result[name].verdict for name in ("Auto", "LearnedMIPS")}
    result.write_html(tmp_path / "report.html")
    for shown in (str(result), (tmp_path / "report.html").read_text()):
        assert "It rests on few rounds: the log is worth" in " ".join(shown.split())
    near = op.worlds.Linear(5, overlap=1.5, seed=1)
    assert "few rounds" not in str(op.evaluate(near.sample(4_000, 1), near.target))


def test_a_blend_whose_interval_ignores_unseen_biases_needs_as_many_rounds_as_its_anchor() -> None:
    """Some 200 effective rounds: enough for Auto, whose interval allows for them, and not for a choice among candidates."""
    world = op.worlds.Linear(20, overlap=0.6, seed=1)
    every = [op.SNIPS(), op.DM(op.Ridge(0.3))]
    rules = [op.Auto(every), op.Blend(every), op.SLOPE(every), op.OCV(every)]
    result = op.evaluate(world.sample(2_000, 1), world.target, [*rules, op.SNIPS()])
    assert 100 < result["SNIPS"].diagnostics["effective_sample_size"] < 500
    few = {name: {f.code: f.scale for f in result[name].checks} for name in ("Auto", "Blend", "SLOPE", "OCV")}
    weights = {c["name"]: c["weight"] for c in result["Blend"].diagnostics["candidates"]}
    assert weights["DM"] > 0.5
    for name in ("Blend", "SLOPE", "OCV"):
        assert few[name]["effective sample size"] == "effective rounds"
        assert result[name].verdict is op.Verdict.CAUTION


def test_a_blend_among_the_candidates_adds_its_own(small: Small) -> None:
    result = op.evaluate(small.log(), small.target, [op.Auto([op.SNIPS(), op.LearnedMIPS()])])
    names = [c["name"] for c in result["Auto"].diagnostics["candidates"]]
    assert sorted(names) == ["LearnedMIPS (bandwidth 0.03)", "LearnedMIPS (bandwidth 0.1)", "LearnedMIPS (bandwidth 0.3)",
                             "LearnedMIPS (bandwidth 1)", "SNIPS"]  # fmt: skip


def test_stacked_dr_mixes_reward_models_of_any_kind(small: Small) -> None:
    stack = op.StackedDR([op.SNIPS(), op.SNDR(), op.SNDR(LinearRegression(), name="SNDR, scikit-learn")])
    result = op.evaluate(small.log(), small.target, [stack, op.SNIPS(), op.SNDR()])
    weights = {c["name"]: c["weight"] for c in result["StackedDR"].diagnostics["candidates"]}
    assert sum(weights.values()) == pytest.approx(1)
    assert result["StackedDR"].std_error <= 1.01 * min(result["SNIPS"].std_error, result["SNDR"].std_error)


def test_published_learned_mips(small: Small) -> None:
    """The paper's form is the old default with a model of its own, and not a blend."""
    published = op.LearnedMIPS.published(rewards=op.Ridge(1.0))
    by_hand = op.LearnedMIPS("identity", op.Ridge(1.0), op.Logistic(scale=False), normalised=False, name="by hand")
    result = op.evaluate(small.log(), small.target, [published, by_hand])
    assert result["LearnedMIPS"].value == result["by hand"].value
    assert "candidates" not in result["LearnedMIPS"].diagnostics
    assert isinstance(op.LearnedMIPS.published().rewards, op.AdamW)
