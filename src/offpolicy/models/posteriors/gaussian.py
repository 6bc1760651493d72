"""`Gaussian`: p(e|a) is normal around the embedding of the action."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

import numpy as np

from offpolicy.core.arrays import FloatArray, library, like
from offpolicy.core.errors import InputError
from offpolicy.models.embedding_table import Affine, Embedding, FeatureMap
from offpolicy.models.posteriors.base import Known, Pooling, Posterior, kept_at

BANDWIDTHS = (0.01, 0.03, 0.1, 0.18, 0.32, 0.56, 1.0, 3.0)
"""The grid of "slope", from the least biased (hardly any pooling) to the most."""
RCOND = 1e-8
SHARPEST = 1e-6


@dataclass(frozen=True)
class Gaussian(Posterior):
    """p(e|a) = N(f(a), Σ), in the ratio form, self-normalised by default.

    Where embeddings vary within an action (features per round), Σ is by default their covariance within actions, which all
    actions share, as in linear discriminant analysis (LDA). Where the embedding is a function of the action, that covariance
    is 0, and `bandwidth` controls how strongly actions are pooled.

    Parameters
    ----------
    bandwidth : float or {"auto", "slope", "estimation"}, default="auto"
        A number is the standard deviation, in units of the root mean square distance of the embeddings from their mean.
        "slope" scores a grid and picks the widest bandwidth that agrees with all narrower ones. "estimation" uses the
        covariance of the estimated coefficients of a ridge model. "auto" is LDA where embeddings vary within actions, else
        "estimation".
    neighbours : int, optional
        Sum only over this number of actions nearest to the logged one. It bounds the work for very many actions and
        policies that do not list a few. The diagnostics report how much the others could add at most.
    scale : bool, default=True
        Bring the embeddings to a common scale first.

    References
    ----------
    Cief, Golebiowski, Schmidt, Abedjan and Bekasov (2023). Learning action embeddings for off-policy evaluation.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> learned = op.LearnedMIPS(posterior=op.Gaussian(0.3))
    >>> round(op.evaluate(log, op.Uniform(), learned)["LearnedMIPS"].value, 3)
    0.48
    """

    bandwidth: float | Literal["auto", "slope", "estimation"] = "auto"
    _: KW_ONLY
    neighbours: int | None = None
    scale: bool = True
    kind = "gaussian"
    self_normalised = True

    def __post_init__(self) -> None:
        if self.neighbours is not None and not (isinstance(self.neighbours, int) and self.neighbours >= 1):
            raise InputError(
                f"Gaussian: neighbours is {self.neighbours!r}; give the number of nearest actions to sum over, 1 or more."
            )
        named = self.bandwidth in ("auto", "slope", "estimation")
        number = isinstance(self.bandwidth, (int, float)) and not isinstance(self.bandwidth, bool)
        if not named and not (number and float(self.bandwidth) > 0):
            raise InputError(
                f'Gaussian: bandwidth is {self.bandwidth!r}; give a number above 0, "auto", "slope" or "estimation".'
            )

    def fit(self, name: str, embedding: Embedding, affine: Affine, known: Known) -> Pooling:
        precision, details = self._precision(name, embedding, affine, known)
        means = affine(embedding.table)
        weight = means @ like(precision, means)
        bias = -0.5 * library(means).einsum("ai,ai->a", weight, means)
        return Pooling(
            "ratio", embedding, affine, weight, bias, precision=precision, free=self._is_lda(embedding), details=details,
            neighbours=self.neighbours if embedding.varying is None else None,
        )  # fmt: skip

    @property
    def kept(self) -> float:
        return kept_at(self.bandwidth)

    def _is_lda(self, embedding: Embedding) -> bool:
        return embedding.varying is not None and self.bandwidth == "auto"

    def _precision(
        self, name: str, embedding: Embedding, affine: Affine, known: Known
    ) -> tuple[FloatArray, dict[str, float]]:
        """Σ⁻¹ in the coordinates of z."""
        size = affine.matrix.shape[1]
        if isinstance(self.bandwidth, (int, float)):
            width = float(self.bandwidth) * (np.sqrt(size) if self.scale else 1.0)
            return np.eye(size) / width**2, {"bandwidth": float(self.bandwidth)}
        if self._is_lda(embedding):
            if not isinstance(embedding.varying, FeatureMap):
                raise InputError(
                    f"{name}: the covariance of embeddings that are not linear in the features is unknown; give Gaussian a "
                    "`bandwidth`, or use Logistic()."
                )
            to_z = embedding.varying.shared @ affine.matrix
            share, means = embedding.counts / embedding.counts.sum(), affine(embedding.table)
            around = means - share @ means
            return _lda(to_z.T @ known.sums.within() @ to_z, (around * share[:, None]).T @ around), {}
        if embedding.covariance is None:
            raise InputError(
                f"{name}: this embedding has no estimation covariance (only op.Ridge has one, except for features that vary "
                'within actions), so Gaussian needs a bandwidth: give `bandwidth=` a number, or "slope".'
            )
        covariance = affine.matrix.T @ embedding.covariance @ affine.matrix
        return np.asarray(np.linalg.pinv(covariance, rcond=RCOND, hermitian=True), dtype=np.float64), {}


def _lda(within: FloatArray, between: FloatArray) -> FloatArray:
    """The inverse of the covariance within actions.

    A direction that varies between actions but not within them distinguishes actions perfectly; its variance within actions
    is set to the fraction `SHARPEST` of its total variance. A direction that never varies gets no weight.
    """
    values, vectors = np.linalg.eigh(within + between)
    varies = values > RCOND * max(float(values.max(initial=0.0)), 1e-300)
    white = vectors[:, varies] / np.sqrt(values[varies])
    parts, axes = np.linalg.eigh(white.T @ within @ white)
    turned = white @ axes
    precision: FloatArray = (turned / np.maximum(parts, SHARPEST)) @ turned.T
    return precision
