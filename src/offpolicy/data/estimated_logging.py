"""`EstimatedLogging`: how to estimate the logging policy from the log, where nobody wrote the propensities down."""

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
    """π0 estimated from the log itself, cross-fitted: `op.Log(…, logging=op.EstimatedLogging())`.

    `model` is "logistic" (multinomial, on the standardised context), "boosting" (scikit-learn's histogram trees) or
    "counts" (how often each action was taken, whatever the context: exact, from the whole log); None: logistic where there
    is a context, else counts. A round's chances come from one of `folds` models, which has seen nothing of the round's unit.
    Logistic and boosting are fitted on at most `rows` rounds, chosen by hash, so that memory does not grow with the log;
    with `calibrated`, a temperature that sharpens or softens them is chosen on rounds that the model has not seen. `trim`
    raises estimated chances to at least so much (how many is told); `smoothing` adds so many rounds to each action's count.
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
            raise InputError(f"EstimatedLogging: trim is {self.trim!r}; give a chance above 0 and below 0.5, such as 0.001.")
        if not (is_number(self.smoothing) and 0 <= self.smoothing < float("inf")):
            raise InputError(f"EstimatedLogging: smoothing is {self.smoothing!r}; give a number of rounds, 0 or more.")
        if self.smoothing and self.model not in ("counts", None):
            raise InputError(f"EstimatedLogging: smoothing is for counts, and the model is {self.model!r}.")
