"""`EstimatedLogging`: how to estimate the logging policy when propensities were not logged."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal, get_args

from offpolicy.core.errors import InputError, unknown_name
from offpolicy.data.checks import is_number, whole
from offpolicy.data.spaces import Serves

Model = Literal["logistic", "boosting", "counts"]
MODELS: tuple[Model, ...] = get_args(Model)
MOST_FOLDS = 64
LEAST_ROWS = 1_000


@dataclass(frozen=True)
class EstimatedLogging(Serves):
    """Estimate the logging policy π0 from the log itself, with cross-fitting.

    Pass it as `op.Log(…, logging=op.EstimatedLogging())` or `op.read_log(…, logging=op.EstimatedLogging())`.

    Parameters
    ----------
    model : {"logistic", "boosting", "counts"}, optional
        Multinomial logistic regression on the standardised context, scikit-learn's histogram gradient boosting, or the
        relative frequencies of the actions, which ignore the context. By default logistic if there is a context, else
        counts.
    folds : int, default 5
        The number of cross-fitting folds. The probabilities of a round come from a model that has not seen its unit.
    calibrated : bool, default True
        Whether to choose a temperature that sharpens or softens the probabilities, on rounds that the model has not seen.
    trim : float, optional
        A lower bound for estimated propensities. The number of trimmed rounds is reported.
    smoothing : float, default 0.0
        Rounds that are added to the count of each action, for `model="counts"`.
    rows : int, default 100,000
        The largest number of rounds that logistic regression and boosting are fitted on. They are chosen by hash.

    Examples
    --------
    >>> import offpolicy as op
    >>> log = op.Log(None, action=[0, 1, 1, 0] * 50, reward=[1, 0, 1, 1] * 50, logging=op.EstimatedLogging())
    >>> round(op.evaluate(log, op.Fixed([1, 0]), [op.SNIPS()])["SNIPS"].value, 2)
    1.0
    """

    model: Model | None = None
    folds: int = 5
    _: KW_ONLY
    calibrated: bool = True
    trim: float | None = None
    smoothing: float = 0.0
    rows: int = 100_000

    def __post_init__(self) -> None:
        if self.model is not None and self.model not in MODELS:
            raise unknown_name("model of EstimatedLogging", str(self.model), MODELS)
        object.__setattr__(self, "folds", whole("EstimatedLogging: folds", self.folds, 2, MOST_FOLDS))
        object.__setattr__(self, "rows", whole("EstimatedLogging: rows", self.rows, LEAST_ROWS))
        if not isinstance(self.calibrated, bool):
            raise InputError(f"EstimatedLogging: calibrated is {self.calibrated!r}; give True or False.")
        if self.calibrated and self.folds < 3 and self.model != "counts":
            raise InputError(
                "EstimatedLogging: with 2 folds no rounds are left to calibrate on; give 3 or more, or calibrated=False."
            )
        if self.trim is not None and not (is_number(self.trim) and 0 < self.trim < 0.5):
            raise InputError(f"EstimatedLogging: trim is {self.trim!r}; give a number above 0 and below 0.5, such as 0.001.")
        if not (is_number(self.smoothing) and 0 <= self.smoothing < float("inf")):
            raise InputError(f"EstimatedLogging: smoothing is {self.smoothing!r}; give a number of rounds, 0 or more.")
        if self.smoothing and self.model not in ("counts", None):
            raise InputError(f"EstimatedLogging: smoothing is only for counts, and the model is {self.model!r}.")
