"""`Predicted`: p(e|a) is normal around the reward that the model predicts for the action in the context of the round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from offpolicy.core.errors import InputError
from offpolicy.data.checks import is_number
from offpolicy.models.embedding_table import Affine, Embedding
from offpolicy.models.posteriors.base import Known, Pooling, Posterior, kept_at

BANDWIDTHS = (0.03, 0.1, 0.3, 1.0)
"""The grid of "auto", from the least biased (hardly any pooling) to the most."""


@dataclass(frozen=True)
class Predicted(Posterior):
    """Pool actions by their predicted reward e·x in the context x of the round, in the ratio form, self-normalised.

    Two actions are alike if the reward model predicts similar rewards for them here, even where their embeddings e differ in
    directions that do not matter in this context. It needs a model that is linear in the context, such as `op.Ridge()`,
    without a reduced rank and without features that vary within actions.

    Parameters
    ----------
    bandwidth : float or "auto", default="auto"
        The standard deviation, in units of the spread of the predictions between actions. "auto" scores a grid in the same
        pass, from exact weights to strong pooling, and blends them.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.worlds.Toy(10).sample(1_000, seed=0)
    >>> learned = op.LearnedMIPS(posterior=op.Predicted(0.3))
    >>> round(op.evaluate(log, op.Uniform(), learned)["LearnedMIPS"].value, 3)
    0.473
    """

    bandwidth: float | Literal["auto"] = "auto"
    kind = "predicted"
    scale = True
    self_normalised = True

    def __post_init__(self) -> None:
        if self.bandwidth != "auto" and not (is_number(self.bandwidth) and self.bandwidth > 0):
            raise InputError(f'Predicted: bandwidth is {self.bandwidth!r}; give a number above 0, or "auto".')

    @property
    def kept(self) -> float:
        return kept_at(self.bandwidth)

    def fit(self, name: str, embedding: Embedding, affine: Affine, known: Known) -> Pooling:  # noqa: ARG002
        if embedding.own_units is None or embedding.varying is not None:
            raise InputError(
                f"{name}: Predicted needs the reward that the embedding predicts in a context, and so a model that is "
                "linear in the context, without a reduced rank and without features that vary within actions. Use "
                "op.Ridge(), or op.Gaussian()."
            )
        coef = embedding.table @ embedding.own_units
        size = coef.shape[1]
        relative = 1.0 if self.bandwidth == "auto" else float(self.bandwidth)
        spread = np.sqrt(size) / affine.matrix[0, 0]  # the mean distance of the embeddings from their mean
        context = Affine(np.zeros(size - 1), np.eye(size - 1))
        return Pooling(
            "ratio", embedding, affine, coef[:, :-1], coef[:, -1], context=context, width=relative * float(spread),
            precision=np.eye(size) / relative**2, details={"bandwidth": self.bandwidth},
        )  # fmt: skip
