"""`Categorical`, from counts of pre-defined categories, and `Exact`, with p(e|a) from the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputError
from offpolicy.data.batch import Batch
from offpolicy.data.features import Features
from offpolicy.data.schema import Dimension
from offpolicy.models.embedding_table import Affine, Embedding
from offpolicy.models.posteriors.base import Known, Pooling, Posterior

TINY = 1e-300


def _dimensions(name: str, kind: str, known: Known) -> list[Dimension]:
    """The dimensions that the embedding consists of."""
    if not len(known.columns):
        raise InputError(
            f"{name}: {kind} is for pre-defined features, not for a learned embedding; use op.Logistic() or op.Gaussian(), "
            "or op.MIPS for the features themselves."
        )
    return [d for d in known.features.dimensions if d.start in known.columns]


@dataclass(frozen=True)
class Categorical(Posterior):
    """p(e|a) = Π_d p(e_d|a), estimated by counting categories.

    Categories of a catalog are known, and are not smoothed.

    Parameters
    ----------
    smoothing : float, default=1.0
        The number of rounds distributed as in the whole log that are added to each action.
    scale : bool, default=True
        Has no effect, since categories have no scale.

    References
    ----------
    Saito and Joachims (2022). Off-policy evaluation for large action spaces via embeddings. ICML.

    Examples
    --------
    >>> import offpolicy as op
    >>> op.MIPS(op.Categorical(smoothing=0.5)).posterior
    Categorical(smoothing=0.5, scale=True)
    """

    smoothing: float = 1.0
    _: KW_ONLY
    scale: bool = True
    kind = "categorical"

    def __post_init__(self) -> None:
        if not self.smoothing >= 0:
            raise InputError(f"Categorical: smoothing is {self.smoothing}; give a number of rounds, 0 or more.")

    def fit(self, name: str, embedding: Embedding, affine: Affine, known: Known) -> Pooling:  # noqa: ARG002
        dimensions = _dimensions(name, "Categorical", known)
        plain = [d.name for d in dimensions if not d.categorical]
        if plain:
            raise InputError(
                f"{name}: Categorical counts categories, and {plain[0]!r} is a number. Use op.Gaussian(), or convert the "
                "column to whole numbers or text."
            )
        flags = np.isin(known.columns, [d.start for d in dimensions if d.flag])
        if not known.features.varies:  # a catalog is not a sample: it has every action
            return _pooling(embedding, embedding.table, flags)
        n = known.sums.n[:, None]
        counts = (known.sums.total + known.sums.origin * n)[:, known.columns]  # sums of one-hot columns are counts
        marginal = counts.sum(axis=0) / n.sum()
        rounds = n + self.smoothing
        p = np.where(rounds > 0, (counts + self.smoothing * marginal) / np.where(rounds > 0, rounds, 1.0), marginal)
        certain = known.columns >= known.features.per_round  # those of a catalog, where there are features per round too
        p[:, certain] = embedding.table[:, certain]
        return _pooling(embedding, p, flags)


@dataclass(frozen=True)
class Exact(Posterior):
    """The true p(e|a), where it is known.

    Parameters
    ----------
    p : callable or sequence of array-like
        A function from the features of the rounds (rounds × columns, as encoded) to p(e|a) (rounds × actions); or, for
        categories, one matrix of actions × categories per dimension, the categories in sorted order.
    scale : bool, default=True
        Has no effect.

    Examples
    --------
    >>> import offpolicy as op
    >>> op.MIPS(op.Exact([[[0.9, 0.1], [0.2, 0.8]]])).posterior.exact
    True
    """

    p: Callable[[FloatArray], npt.ArrayLike] | Sequence[Any]
    _: KW_ONLY
    scale: bool = True
    exact = true_likelihood = True
    fitted = False

    def __post_init__(self) -> None:
        if not callable(self.p) and (isinstance(self.p, str) or not hasattr(self.p, "__iter__")):
            raise InputError(
                f"Exact: p is {self.p!r}; give a function of the features, or one matrix of actions × categories per "
                "dimension."
            )

    __hash__ = object.__hash__  # matrices have no hash

    def __eq__(self, other: object) -> bool:
        return self is other

    def fit(self, name: str, embedding: Embedding, affine: Affine, known: Known) -> Pooling:
        chosen = _dimensions(name, "Exact", known)
        n_actions = len(embedding.table)
        if callable(self.p):
            if len(chosen) < len(known.features.dimensions):
                raise InputError(f"{name}: Exact with a function covers all dimensions together and cannot leave any out.")
            return Pooling(
                "ratio", embedding, affine, np.empty((n_actions, 0)), np.zeros(n_actions),
                likelihood=_Likelihood(self.p, known.features, n_actions),
            )  # fmt: skip
        try:
            matrices = [np.asarray(m, dtype=np.float64) for m in self.p]
        except (TypeError, ValueError):
            raise InputError(f"{name}: Exact: the matrices of p(e|a) must hold numbers.") from None
        dimensions = known.features.dimensions
        flags = [d.start for d, m in zip(dimensions, matrices, strict=False) if d.flag and m.shape == (n_actions, 2)]
        shapes = [(n_actions, 2 if d.start in flags else d.width) for d in dimensions]
        if [m.shape for m in matrices] != shapes:
            raise InputError(
                f"{name}: Exact has matrices of shapes {[m.shape for m in matrices]}; it needs one of actions × categories "
                f"per dimension: {shapes}."
            )
        encoded = [m[:, 1:] if d.start in flags else m for d, m in zip(dimensions, matrices, strict=True)]
        p = np.hstack(encoded)[:, known.columns]
        if not (p >= 0).all() or any(np.abs(m.sum(axis=1) - 1).max() > 1e-6 for m in matrices):
            raise InputError(f"{name}: Exact: each row of p(e|a) must be non-negative and sum to 1.")
        return _pooling(embedding, p, np.isin(known.columns, flags))


@dataclass(frozen=True)
class _Likelihood:
    """p(e|a) from the user's function, for a batch of rounds."""

    function: Callable[[FloatArray], npt.ArrayLike]
    features: Features
    n_actions: int

    def __call__(self, batch: Batch) -> FloatArray:
        try:
            p = np.array(self.function(self.features.rows(batch)), dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"Exact: p failed, or did not return numbers: {error}") from error
        if p.shape != (len(batch), self.n_actions):
            raise InputError(
                f"Exact: p returned shape {p.shape}; it must return rounds × actions, {(len(batch), self.n_actions)}, with "
                "columns in the order of `log.actions`."
            )
        return p


def _pooling(embedding: Embedding, p: FloatArray, flags: npt.NDArray[np.bool_]) -> Pooling:
    """From p(e_d|a), actions × one-hot columns of all dimensions: scores are sums of logarithms.

    Flags are single columns, for which log p(e|a) = e·(log p − log(1 − p)) + log(1 − p).
    """
    plain = Affine(np.zeros(p.shape[1]), np.eye(p.shape[1]))
    weight, bias = np.log(np.maximum(p, TINY)), np.zeros(len(p))
    for j in np.flatnonzero(flags):
        if (p[:, j] < 1).any():  # else all actions have the same category
            zero = np.log(np.maximum(1 - p[:, j], TINY))
            weight[:, j], bias = weight[:, j] - zero, bias + zero
    return Pooling("ratio", embedding, plain, weight, bias)
