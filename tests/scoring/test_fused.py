"""The fused kernel: in Triton's interpreter against plain arrays, and whole evaluations against the local engine."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import offpolicy as op
from offpolicy.core.device import Device
from offpolicy.policies.scores import Softmax
from offpolicy.results.job import Job
from offpolicy.scoring.fused.forms import Form, Forms, FusedSums, Run

torch = pytest.importorskip("torch")
with pytest.MonkeyPatch.context() as early:
    early.setenv("TRITON_INTERPRET", "1")  # Triton reads it when it is imported, and its own functions are defined
    pytest.importorskip("triton")


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU, Triton runs its kernels in NumPy."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")


def random_forms(actions: int, sizes: tuple[int, int], pools: int, models: int, spread: float = 1.0) -> Forms:
    """Forms of 40 rounds in two folds, in double precision; rewards are in thousandths."""
    rng, rounds, (users, context) = np.random.default_rng(actions), 40, sizes
    none = torch.empty(0, dtype=torch.float64)

    def normal(*shape: int) -> Any:
        return torch.tensor(rng.normal(size=shape))

    action = torch.tensor(rng.integers(actions, size=rounds))
    fold = torch.tensor([0] * 17 + [1] * 23)
    pooled = []
    for _ in range(pools):
        means = normal(2, actions, context + 1)
        bias = -0.5 * (means**2).sum(dim=2)
        pooled.append(Form(means[fold, action], means, bias, -bias[fold, action]))
    x = 100 * normal(rounds, context)
    predicted = [Form(x, 1e-3 * normal(2, actions, context), 1e-3 * normal(2, actions), none) for _ in range(models)]
    policies = [Form(spread * normal(rounds, users), normal(1, actions, users) / math.sqrt(users), none, none) for _ in "10"]
    return Forms(
        [Run(0, 17, (0,) * (pools + models)), Run(17, 40, (1,) * (pools + models))], *policies, pooled, predicted, action
    )


def by_hand(forms: Forms) -> dict[str, np.ndarray]:
    """With arrays of rounds × actions."""

    def scores(form: Form) -> np.ndarray:
        versions = np.zeros(40, int) if len(form.right) == 1 else np.repeat([0, 1], [17, 23])
        out = np.einsum("tk,tak->ta", form.left.numpy(), form.right.numpy()[versions])
        return out + form.bias.numpy()[versions] if form.bias.numel() else out

    def softmax(form: Form) -> tuple[np.ndarray, np.ndarray]:
        s = scores(form)
        norm = np.log(np.exp(s - s.max(axis=1, keepdims=True)).sum(axis=1)) + s.max(axis=1)
        return np.exp(s - norm[:, None]), norm

    (pi, norm), (pi0, norm0) = softmax(forms.target), softmax(forms.logging)
    shares = [np.exp(scores(form) - form.shift.numpy()[:, None]) for form in forms.pools]
    return {
        "target": norm,
        "logging": norm0,
        "above": np.array([(pi * q).sum(axis=1) for q in shares]),
        "below": np.array([(pi0 * q).sum(axis=1) for q in shares]),
        "baselines": np.array([(pi * scores(form)).sum(axis=1) for form in forms.models]),
    }


def assert_sums(found: FusedSums, expected: dict[str, np.ndarray], tolerance: float) -> None:
    for name, values in expected.items():
        seen = getattr(found, name).double().numpy()
        assert seen.shape == values.shape or not values.size
        np.testing.assert_allclose(
            seen.reshape(values.shape), values, rtol=tolerance, atol=tolerance * np.abs(values).max(initial=0)
        )


CASES = {
    "a partial tile": (50, (5, 4), 2, 2, 1.0),
    "whole tiles": (32, (16, 16), 1, 1, 1.0),
    "fewer actions than a tile, a column more than a power of 2": (7, (17, 16), 1, 1, 1.0),
    "more of each than one launch takes": (33, (3, 2), 3, 1, 1.0),
    "no poolings, scores that would overflow": (40, (6, 3), 0, 3, 300.0),
}


@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize("case", CASES)
def test_the_kernel_sums_as_plain_arrays_do(case: str) -> None:
    from offpolicy.scoring.fused import plain
    from offpolicy.scoring.fused.launch import Launcher, Tiling

    forms, tiling = random_forms(*CASES[case]), Tiling(16, 16, 4, 1)
    expected, spread = by_hand(forms), CASES[case][-1]
    assert_sums(plain.row_sums(torch, forms), expected, 1e-11)
    assert_sums(Launcher(Device("cpu", "float64"), tiling).row_sums(forms, half=False), expected, 1e-11)
    single = Launcher(Device("cpu"), tiling)
    assert_sums(single.row_sums(forms.to(torch.float32), half=False), expected, 1e-5 * spread)
    if spread == 1.0:  # 11 significant bits in each factor
        assert_sums(single.row_sums(forms.to(torch.float32), half=True), expected, 1e-2)


def world(rounds: int, actions: int, **more: Any) -> tuple[op.Log, op.Softmax]:
    """A log of one two-tower policy, and another to evaluate."""
    rng = np.random.default_rng(1)
    x, mixing = rng.normal(size=(rounds, 3)), rng.normal(size=(3, 5))
    old = rng.normal(size=(actions, 5)) / 2
    new = old + rng.normal(size=old.shape) / 4
    scores = x @ mixing @ old.T
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    action = (p.cumsum(axis=1) > rng.random((rounds, 1))).argmax(axis=1)
    reward = 0.3 * (x @ rng.normal(size=(3, actions)))[np.arange(rounds), action] + np.sin(action) + rng.normal(size=rounds)
    logging = op.Softmax(op.TwoTower(old, lambda x: x @ mixing))
    target = op.Softmax(op.TwoTower(new, lambda x: x @ mixing, bias=rng.normal(size=actions) / 4), temperature=1.5)
    settings = {name: make(rng, rounds) for name, make in more.items()}
    return op.Log(x, action, reward, logging=logging, n_actions=actions, **settings), target


MORE = {
    "plain": {},
    "weights, clusters and slices": {
        "weight": lambda rng, n: rng.uniform(0.5, 2, n),
        "cluster": lambda rng, n: rng.integers(0, n // 3, n),
        "by": lambda rng, n: np.array(["a", "b"])[rng.integers(0, 2, n)],
    },
}


def served() -> list[op.Estimator]:
    return [
        op.SNIPS(), op.DM(), op.DR(), op.LearnedMIPS(posterior=op.Gaussian()), op.LearnedMDR(posterior=op.Gaussian()),
        op.LearnedMDR(posterior=op.Gaussian(0.5), cross_fit=0, name="fixed bandwidth"),
    ]  # fmt: skip


def numbers(result: op.Evaluation) -> dict[tuple[str, ...], tuple[float, ...]]:
    found = {}
    for name in result.estimators:
        for slice_, part in {"": result, **result.slices}.items():
            overlap = part[name].diagnostics.get("effective_sample_size", 0.0)
            found[name, slice_] = (part[name].value, part[name].std_error, overlap)
    return found


def assert_same(a: op.Evaluation, b: op.Evaluation, tolerance: float) -> None:
    assert numbers(a).keys() == numbers(b).keys()
    for key, values in numbers(a).items():
        np.testing.assert_allclose(numbers(b)[key], values, rtol=tolerance, atol=tolerance, err_msg=str(key))


@pytest.mark.parametrize("more", MORE)
def test_cpu_tensors_agree_with_the_local_engine(more: str) -> None:
    log, target = world(1_500, 23, **MORE[more])
    local, found = (op.evaluate(log, target, served(), engine=each) for each in (op.Local(1), op.GPU("cpu", "float64")))
    assert_same(local, found, 1e-9)
    assert found.settings["accelerator"]["precision"] == "float64"
    assert "accelerator" not in local.settings


@pytest.mark.parametrize("more", MORE)
def test_sums_by_action_on_a_device_agree_with_the_local_engine(more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one covariance for all actions, these, the solutions of the ridge and embeddings are computed there."""
    monkeypatch.setattr("offpolicy.ratios.embeddings.MOST_ELEMENTS", 1)
    monkeypatch.setattr("offpolicy.scoring.fit_pass.rung_for", lambda *_: "shared")
    monkeypatch.setattr("offpolicy.models.rewards.ridge.packed.BLOCK_NUMBERS", 200)  # several blocks of actions
    log, target = world(1_500, 23, **MORE[more])
    local, found = (op.evaluate(log, target, served(), engine=each) for each in (op.Local(1), op.GPU("cpu", "float64")))
    assert_same(local, found, 1e-9)
    seen = found["target", "DR"].diagnostics["reward_model"]
    assert seen["covariance"] == "shared by all actions"
    assert seen["penalty"] == pytest.approx(local["target", "DR"].diagnostics["reward_model"]["penalty"])


@pytest.mark.usefixtures("interpreter")
def test_the_kernel_agrees_with_the_local_engine() -> None:
    log, target = world(400, 70)
    local, found = (op.evaluate(log, target, served(), engine=each) for each in (op.Local(1), op.GPU("cpu", "float64", 1)))
    assert_same(local, found, 1e-9)
    assert 0 < found.settings["accelerator"]["largest_relative_error_of_a_weight"] < 1e-12


def test_single_precision_is_measured_against_float64() -> None:
    log, target = world(1_500, 23)
    local, found = (op.evaluate(log, target, served(), engine=each) for each in (op.Local(1), op.GPU("cpu")))
    assert_same(local, found, 1e-3)
    told = found.settings["accelerator"]
    assert 1e-8 < told["largest_relative_error_of_a_weight"] < 1e-4
    assert told["rounds_checked_in_float64"] == 512
    assert "Computed on CPU tensors" in str(found)


@pytest.mark.usefixtures("interpreter")
def test_terms_of_logged_actions_are_not_rounded() -> None:
    """Where they dominate, sums are almost as exact as in single precision."""
    from offpolicy.scoring.fused import plain
    from offpolicy.scoring.fused.launch import Launcher, Tiling

    forms = random_forms(33, (3, 63), 2, 0)  # means in 64 dimensions, so far apart that hardly anything is pooled
    exact = plain.row_sums(torch, forms)
    found = Launcher(Device("cpu"), Tiling(16, 16, 4, 1)).row_sums(forms.to(torch.float32), half=True)
    for name, norm in (("above", "target"), ("below", "logging")):
        seen, true = ((getattr(each, name) * getattr(each, norm).exp()).double() for each in (found, exact))
        np.testing.assert_allclose(seen, true, rtol=5e-5)


@pytest.mark.usefixtures("interpreter")
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # infinity minus infinity, which is what is noticed
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_scores_beyond_half_precision_fall_back_to_single(monkeypatch: pytest.MonkeyPatch) -> None:
    from offpolicy.scoring.fused.kernel import FusedKernel

    monkeypatch.setattr(FusedKernel, "_half", True)
    log, _ = world(100, 7)
    items = np.zeros((7, 3))
    items[:, 0] = np.arange(7) - 3
    target = op.Softmax(op.TwoTower(items, lambda x: 5e4 * x))
    estimators = [op.SNIPS(), op.DM()]
    local, found = (op.evaluate(log, target, estimators, engine=each) for each in (op.Local(1), op.GPU("cpu", threads=1)))
    assert_same(local, found, 1e-2)


def test_a_result_takes_no_memory_on_the_device_and_reads_the_log_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("offpolicy.scoring.fit_pass.rung_for", lambda *_: "shared")
    monkeypatch.setattr("offpolicy.ratios.embeddings.MOST_ELEMENTS", 1)
    log, target = world(600, 23)
    seen: list[Any] = []

    def scored(job: Job, fitted: Any, scorer: Any) -> Any:
        seen.append(weakref.ref(next(iter(scorer.models.values()))[0]))
        return score(job, fitted, scorer)

    monkeypatch.setattr(Job, "score", scored)
    local, found = (op.evaluate(log, target, served(), engine=each) for each in (op.Local(1), op.GPU("cpu", "float64")))
    assert [model() is None for model in seen] == [False, True]
    for name, result in {"local": local, "found": found}.items():
        result["LearnedMDR"].scores(tmp_path / f"{name}.parquet")
    written = [pq.read_table(tmp_path / f"{name}.parquet").to_pandas() for name in ("local", "found")]
    np.testing.assert_allclose(*written, rtol=1e-9, atol=1e-9)


def test_no_estimator_makes_a_policy_compute_its_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    log, target = world(300, 9)

    def refuse(*given: Any) -> Any:
        raise AssertionError("the policy was evaluated on the processor")

    for name in ("answers", "listed"):
        monkeypatch.setattr(Softmax, name, refuse)
    for estimator in (op.SNIPS(), op.DM(), op.LearnedMIPS(posterior=op.Gaussian())):
        assert math.isfinite(op.evaluate(log, target, estimator, engine=op.GPU("cpu"))[estimator.name].value)


LEFT_ALONE: dict[str, tuple[Sequence[Any], str]] = {
    "posterior": ([op.LearnedMIPS(posterior=op.Logistic())], "op.Gaussian"),
    "clipped baseline": ([op.CAB(clip=2.0)], "CAB"),
}


@pytest.mark.parametrize("case", LEFT_ALONE)
def test_what_the_device_does_not_serve_is_evaluated_locally_and_reported(case: str) -> None:
    log, target = world(500, 9)
    estimators, reason = LEFT_ALONE[case]
    with pytest.warns(op.InputWarning, match=f"GPU: 'target' was evaluated on the processor, because .*{reason}"):
        found = op.evaluate(log, target, estimators, engine=op.GPU("cpu"))
    assert_same(op.evaluate(log, target, estimators, engine=op.Local(1)), found, 0.0)
    assert reason in found.settings["accelerator"]["not_used_for"]["target"]
    with pytest.warns(op.InputWarning, match="it is not a softmax of products"):
        op.evaluate(log, op.Uniform(), [op.SNIPS()], engine=op.GPU("cpu"))


def test_a_matrix_stands_for_linear_scores() -> None:
    log, _ = world(500, 6)
    weights = np.random.default_rng(0).normal(size=(3, 6))
    linear, function = op.Softmax(weights, temperature=2.0), op.Softmax(lambda x: x @ weights, temperature=2.0)
    estimators = [op.SNIPS(), op.DR()]
    assert_same(op.evaluate(log, function, estimators), op.evaluate(log, linear, estimators), 1e-9)
    assert_same(
        op.evaluate(log, function, estimators), op.evaluate(log, linear, estimators, engine=op.GPU("cpu", "float64")), 1e-9
    )
    with pytest.raises(op.InputError, match="a matrix of context columns × actions"):
        op.Softmax(np.zeros(3))


def test_pytorch_uses_one_thread_only_while_a_log_is_read() -> None:
    device = Device("cpu")
    before = device.torch.get_num_threads()
    device.torch.set_num_threads(2)
    try:
        with device.one_thread():
            assert device.torch.get_num_threads() == 1
        assert device.torch.get_num_threads() == 2
    finally:
        device.torch.set_num_threads(before)


def test_devices_and_settings_that_cannot_be_used_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting, message in (({"device": "tpu"}, "device is 'tpu'"), ({"precision": "bf16"}, "precision is 'bf16'")):
        with pytest.raises(op.InputError, match=message):
            op.GPU(**{"device": "cpu", **setting})
    if not torch.cuda.is_available():
        with pytest.raises(op.InputError, match="PyTorch finds no GPU here"):
            op.GPU()
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(op.InputError, match=r"pip install 'offpolicy\[gpu\]'"):
        op.GPU("cpu")


score = Job.score


class OnAnotherDevice:
    """A tensor that the processor cannot read, as a GPU has them."""

    def __init__(self, values: Any) -> None:
        self.values = torch.tensor(np.asarray(values))

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __array__(self, *given: Any, **more: Any) -> Any:
        raise TypeError("this tensor is not in memory")


def test_tensors_on_a_device_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "from_dlpack", lambda tensor: tensor.values)
    x, action, reward, p = [[0.1], [0.2], [0.3]], [0, 1, 1], [1.0, 0.0, 2.0], [0.5, 0.5, 0.25]
    log = op.Log(*map(OnAnotherDevice, (x, action, reward)), propensity=OnAnotherDevice(p))
    batch = log.head()
    assert (batch.context.tolist(), batch.codes.tolist(), batch.propensity.tolist()) == (x, action, p)
    scores, linear = op.Softmax(lambda x: OnAnotherDevice(np.column_stack([x, -x]))), op.Softmax([[1.0, -1.0]])
    first, second = (op.evaluate(log, policy, [op.IPS()])["IPS"].value for policy in (scores, linear))
    assert first == pytest.approx(second)
