"""`EstimatedLogging`: how to estimate the logging policy when propensities were not logged."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal, get_args

from offpolicy.core.errors import InputError, unknown_name
from offpolicy.data.box import Box
from offpolicy.data.checks import is_number, whole
from offpolicy.data.spaces import ActionSpace, Discrete, Serves

OfProbabilities = Literal["logistic", "boosting", "counts"]
OfDensities = Literal["normal", "kernel"]
Model = OfProbabilities | OfDensities
MODELS: tuple[Model, ...] = (*get_args(OfProbabilities), *get_args(OfDensities))
MOST_FOLDS = 64
LEAST_ROWS = 1_000


@dataclass(frozen=True)
class EstimatedLogging(Serves):
    """Estimate the logging policy π0 from the log itself, with cross-fitting.

    Pass it as `op.Log(…, logging=op.EstimatedLogging())` or `op.read_log(…, logging=op.EstimatedLogging())`.

    Parameters
    ----------
    model : {"logistic", "boosting", "counts", "normal", "kernel"}, optional
        For discrete actions: multinomial logistic regression on the standardised context, scikit-learn's histogram gradient
        boosting, or the relative frequencies of the actions, which ignore the context. By default logistic if there is a
        context, else counts. For an `op.Box`: a normal distribution around a linear mean, truncated to the box, or a
        location and a spread that are additive in the columns, with a kernel density of what remains. By default normal if
        there is a context, else kernel, which then is the kernel density of all actions.
    folds : int, default 5
        The number of cross-fitting folds. The probabilities of a round come from a model that has not seen its unit.
    calibrated : bool, default True
        Whether to choose a temperature that sharpens or softens the probabilities, on rounds that the model has not seen.
        For densities: whether the spread comes from such rounds.
    trim : float, optional
        A lower bound for estimated propensities; for densities, as a share of the even density over the box. The number of
        trimmed rounds is reported.
    smoothing : float, default 0.0
        Rounds that are added to the count of each action, for `model="counts"`.
    rows : int, default 100,000
        The largest number of rounds that a model other than counts is fitted on. They are chosen by hash.

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
    spaces = (Discrete, Box)

    def unserved(self, space: ActionSpace) -> str | None:
        """Why the model does not support the actions of a space; None if it does.

        Parameters
        ----------
        space : ActionSpace
            The action space of a log.
        """
        of, kind = (OfDensities, "numbers") if space.likelihood == "density" else (OfProbabilities, "discrete actions")
        if self.model is None or self.model in get_args(of):
            return None
        models = " or ".join(f'"{name}"' for name in get_args(of))
        return f"EstimatedLogging: {self.model!r} is for other actions than {kind}, which the log has; use {models}."

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
