"""Worlds whose actions are numbers: logs agree with their densities and values, and values with arithmetic."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import offpolicy as op
from offpolicy.data.batch import Batch
from offpolicy.worlds import Continuous, DoseResponse, Doses, Pricing, TwoDoses, Warfarin
from offpolicy.worlds.base import sigmoid
from offpolicy.worlds.registry import from_text, world

DEFAULT = Path(__file__).parents[3] / "shared" / "data" / "warfarin" / "warfarin.csv"
FILE = Path(os.environ.get("WARFARIN_CSV", DEFAULT))
needs_data = pytest.mark.skipif(
    not FILE.exists(), reason="the warfarin data are not here; give their CSV file in WARFARIN_CSV"
)

COLUMNS = [
    "Therapeutic Dose of Warfarin", "Height (cm)", "Weight (kg)", "Age", "Gender", "Race (OMB)", "Amiodarone (Cordarone)",
    "Aspirin", "Carbamazepine (Tegretol)", "Phenytoin (Dilantin)", "Rifampin or Rifampicin", "CYP2C9 consensus",
    "VKORC1 -1639 consensus", "Comorbidities",
]  # fmt: skip


def patients(folder: Path, rows: int = 240) -> Path:
    """A small file in the layout of the warfarin data, with gaps; a fifth of the right doses is missing."""
    rng = np.random.default_rng(0)
    lines = [",".join(f'"{name}"' for name in COLUMNS)]
    for k in range(rows):
        height, weight = rng.normal(170, 9), rng.normal(75, 12)
        dose = "NA" if k % 5 == 0 else f"{10 + weight / 4 + rng.normal(0, 4):.2f}"
        gaps = "NA" if k % 7 == 0 else f"{height:.1f}"
        levels = [rng.choice(["male", "female"]), rng.choice(["White", "Asian", "Unknown"]), *rng.choice(["0", "1"], 5)]
        genes = [rng.choice(["*1/*1", "*1/*2", ""]), rng.choice(["A/A", "A/G", "NA"])]
        lines.append(",".join([dose, gaps, f"{weight:.1f}", "60 - 69" if k % 2 else "90+", *levels, *genes, '"a, b"']))
    path = folder / "warfarin.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def rounds(log: op.Log) -> Batch:
    return log.head(len(log))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return patients(tmp_path_factory.mktemp("warfarin"))


KINDS = [
    "doses",
    "doses:rate=10,trust=0.3,steepness=4,noise=0.2",
    "doses:distance=0",
    "two-doses",
    "two-doses:distance=0.5,noise=0.1",
    "pricing",
    "pricing:spread=8,share=0.7",
    "warfarin",
]


@pytest.fixture(params=KINDS)
def there(request: pytest.FixtureRequest, small: Path) -> Continuous:
    kind, settings = from_text(request.param)
    made = world(kind, {**settings, **({"data": str(small)} if kind == "warfarin" else {})}, seed=3)
    assert isinstance(made, Continuous)
    return made


def test_actions_are_drawn_from_the_logged_density(there: Continuous) -> None:
    """The mean of g(a)/p0(a|x) is the integral of g; here powers on the interval of the middle 60% of actions."""
    batch = rounds(there.sample(40_000, seed=5))
    assert batch.propensity is not None
    first, others = there.space.vectors(batch.action)[:, 0], there.space.ranges[1:].prod()
    low, high = np.quantile(first, [0.2, 0.8])
    scaled = (first - (low + high) / 2) / ((high - low) / 2)
    for power in range(3):
        each = np.where(np.abs(scaled) < 1, scaled**power, 0.0) / batch.propensity / (high - low) / others
        exact = 0 if power % 2 else 1 / (power + 1)
        assert abs(each.mean() - exact) < 4.5 * each.std() / np.sqrt(len(each))


def test_the_log_is_of_the_same_world_as_the_value(there: Continuous) -> None:
    """Weighted by a kernel so narrow that its bias is far below the error, rewards average to the value."""
    value, error = there.value_with_error(there.target)
    width = float(there.space.ranges[0]) / (30 if there.space.shape else 60)
    estimate = op.evaluate(there.sample(60_000, seed=2), there.target, op.KernelIPS(width))["KernelIPS"]
    # a kink of the reward at the target's action costs up to rate · h · 3/8
    kink = 0.375 * width * (there.rate if isinstance(there, Doses) else there.space.dimensions)
    assert abs(estimate.value - value) < 4 * np.hypot(estimate.std_error, error) + kink


def test_runs_are_independent_and_a_seed_is_a_log(there: Continuous) -> None:
    a, b, c = (rounds(there.sample(500, seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(a.action, b.action)
    np.testing.assert_array_equal(a.reward, b.reward)
    one, other = (there.space.vectors(batch.action)[:, 0] for batch in (a, c))
    assert abs(np.corrcoef(one, other)[0, 1]) < 4.5 / np.sqrt(500)
    assert not np.isin(a.action, c.action).any()


def test_the_value_of_doses_by_quadrature() -> None:
    """(x·o, x·o′) is bivariate normal, so that the value is an integral over a plane."""
    there = Doses(rate=3, seed=7)
    o, new, _ = there._directions
    z = np.linspace(-7, 7, 1401)
    density = np.exp(-(z**2) / 2) / np.exp(-(z**2) / 2).sum()
    a = np.linalg.norm(o)
    along = o @ new / a
    across = np.sqrt(new @ new - along**2)
    ideal, dose = sigmoid(a * z)[:, None], sigmoid(along * z[:, None] + across * z)
    exact = density @ (1 - np.minimum(3 * np.abs(dose - ideal), 1)) @ density
    value, error = there.value_with_error(there.target)
    assert abs(value - exact) < 4 * error
    assert 0 < error < 3e-4
    assert Doses(distance=0).value_with_error(Doses(distance=0).target) == (1.0, 0.0)


def test_the_value_of_prices_by_quadrature() -> None:
    """The worth of a visitor is normal with mean 30 and variance 8² + 4²."""
    there = Pricing(share=0.7)
    z, density = np.polynomial.hermite_e.hermegauss(200)
    worth = 30 + np.sqrt(80) * z
    price = np.clip(0.7 * worth, 10, 60)
    exact = (price * sigmoid((worth - price) / 4)) @ density / density.sum()
    value, error = there.value_with_error(there.target)
    assert abs(value - exact) < 4 * error + 1e-3
    assert there.value(op.Deterministic(lambda x: np.full(len(x), 60.0))) < 0.2 * value


def test_the_value_of_two_doses_by_quadrature() -> None:
    """Doses of 0 are as far from the ideal as |tanh(steepness · z)|, with z standard normal."""
    there = TwoDoses(steepness=0.8, seed=2)
    assert there.value_with_error(there.target) == (0.0, 0.0)
    z, density = np.polynomial.hermite_e.hermegauss(200)
    exact = -2 * np.abs(np.tanh(0.8 * z)) @ density / density.sum()
    value, error = there.value_with_error(op.Deterministic(lambda x: np.zeros((len(x), 2))))
    assert abs(value - exact) < 4 * error + 1e-3
    far = TwoDoses(0.5, seed=2)
    assert far.value(far.target) < -0.1


def test_doses_near_the_ideal_earn_more() -> None:
    values = [Doses(distance=d, seed=1).value(Doses(distance=d, seed=1).target) for d in (0.0, 0.3, 1.0)]
    assert values[0] > values[1] > values[2]
    shares = [(Doses(trust=t).density(x, Doses()._dose(2, x))).mean() for t in (0.3, 0.7) for x in [np.zeros((1, 6))]]
    assert shares == pytest.approx([3.0, 7.0])


def test_gaps_of_the_warfarin_data(small: Path) -> None:
    """Patients without a right dose are left out; other gaps are means with an indicator, or a level of their own."""
    there = Warfarin(small)
    x, right = there._patients
    assert len(right) == 240 - 48
    assert np.isfinite(x).all()
    assert x[:, 0].mean() == pytest.approx(0, abs=1e-12)
    no_height = sum(1 for k in range(240) if k % 5 and k % 7 == 0)
    assert x[:, 1].sum() == x[:, 3].sum() == no_height  # the body mass index needs the height
    assert (x[x[:, 1] == 1, 0] == 0).all()
    learned, rest = there._halves
    assert not np.intersect1d(learned, rest).size
    assert there.value_with_error(there.target)[1] == 0
    assert there.value(there.target) > there.value(op.Deterministic(lambda x: np.full(len(x), right.mean())))


def test_warfarin_without_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: Path) -> None:
    monkeypatch.delenv("WARFARIN_CSV", raising=False)
    with pytest.raises(op.InputError, match="in the variable WARFARIN_CSV"):
        world("warfarin", {})
    with pytest.raises(op.InputError, match="nothing.csv: no such file"):
        Warfarin(tmp_path / "nothing.csv")
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    with pytest.raises(op.InputError, match="other.csv: cannot be read as the warfarin data"):
        Warfarin(other).sample(10, 0)
    monkeypatch.setenv("WARFARIN_CSV", str(small))
    assert len(world("warfarin", {"theta": 0.2}).sample(10, 0)) == 10


@needs_data
def test_the_published_warfarin_data() -> None:
    """5,528 patients have a right dose, as in the literature; the regression explains over a third of its variance."""
    there = Warfarin(FILE)
    x, right = there._patients
    assert len(right) == 5528
    rest = there._halves[1]
    explained = 1 - np.mean((right[rest] - there.target.actions(_batch(there, x[rest]))) ** 2) / right[rest].var()
    assert 0.33 < explained < 0.5


def _batch(there: Warfarin, x: np.ndarray) -> Batch:
    return rounds(op.Log(x, np.zeros(len(x)), np.zeros(len(x)), actions=there.space))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("doses:trust=2", "trust is 2; give a number from 0 to 1"),
        ("doses:trust=0.9,spread=0.3", "spread is 0.3"),
        ("doses:rate=fast", "rate is 'fast'"),
        ("pricing:tolerance=0", "tolerance is 0"),
        ("pricing:prize=3", "Did you mean"),
    ],
)
def test_settings_out_of_range(text: str, words: str) -> None:
    with pytest.raises(op.InputError, match=words):
        world(*from_text(text))


def test_the_value_of_a_density(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices spread evenly over the box: the mean of the values of many constant prices."""
    there = Pricing()
    monkeypatch.setattr(Pricing, "value_rounds", 100_000)
    value, error = there.value_with_error(op.Uniform())
    grid = np.linspace(10, 60, 41)
    each = [there.value(op.Deterministic(lambda x, price=price: np.full(len(x), price))) for price in grid[::4]]
    assert abs(value - np.trapezoid(each, grid[::4]) / 50) < 4 * error + 0.15
    near, exact = op.Normal(lambda x: 24 + 3 * x[:, 0], 0.01), op.Deterministic(lambda x: 24 + 3 * x[:, 0])
    assert abs(there.value(near) - there.value(exact)) < 0.4  # other contexts


def test_the_logging_policy_is_known_at_logged_actions_only() -> None:
    assert isinstance(Doses(), DoseResponse)
    with pytest.raises(op.InputError, match="at logged actions only"):
        _ = Doses().logging
