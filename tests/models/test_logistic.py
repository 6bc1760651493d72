"""The logistic posterior's fit ends at the minimum in either precision, however many rounds there are."""

from __future__ import annotations

import numpy as np
import pytest

from offpolicy.models.posteriors.logistic import GRADIENT, Counts, Problem


def problem(rounds: float) -> Problem:
    """Sixty-five points in three of eleven dimensions, and five actions."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(65, 3)) @ rng.normal(size=(3, 11))
    z /= z.std(axis=0)
    n = np.ceil(rng.random((65, 5)) * rounds / 65)
    return Problem(Counts(z, n.sum(axis=1), n.sum(axis=0), n.T @ z).rounded(), 1.0)


@pytest.mark.parametrize("rounds", [1e2, 1e5, 1e7])
def test_a_fit_ends_where_the_gradient_in_double_precision_is_small(rounds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In single precision, changes of the loss near the minimum of 10⁷ rounds would be smaller than its rounding errors."""
    fitted, loss, evaluations = problem(rounds), Problem.loss, list[np.dtype]()

    def counted(self: Problem, theta: np.ndarray, z: np.ndarray) -> tuple[float, np.ndarray]:
        evaluations.append(z.dtype)
        return loss(self, theta, z)

    monkeypatch.setattr(Problem, "loss", counted)
    theta = fitted.minimum()
    _, gradient = loss(fitted, theta, fitted.z)
    assert np.abs(fitted.factors(theta, fitted.z) @ gradient[..., None]).max() < 1.5 * GRADIENT
    assert len(evaluations) < 15
    assert (evaluations.count(np.dtype(np.float64)) == 1) == (rounds < 1e6)
