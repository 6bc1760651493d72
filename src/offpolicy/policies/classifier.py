"""`Classifier`: the policy of a fitted classifier, whose classes are the actions."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError, InputWarning
from offpolicy.data.batch import Batch
from offpolicy.data.checks import to_arrow
from offpolicy.data.log import Log
from offpolicy.policies.base import Policy, check_probabilities
from offpolicy.policies.deterministic import as_integers
from offpolicy.policies.functions import OfColumns, Score, called, column_names

SHOWN = 5
NAMES = ("feature_names_in_", "feature_name_", "feature_names_")
"""Where scikit-learn and XGBoost, LightGBM, and CatBoost keep the names of the training columns."""
AUTOMATIC = ("Column_{}", "{}", "f{}")
"""The names that LightGBM, CatBoost and XGBoost give to the columns of an array."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class Classifier(Policy):
    """The policy of a fitted classifier: π(a|x) is its `predict_proba`, with one class per action.

    A model that was trained on a data frame gets one with the same columns of the log, by name; one that was trained on an
    array gets the context. Actions that are not among the classes of the model get probability 0, which is reported as a
    warning and in the description of the policy. Train on other rounds than those of the evaluation (see `op.split`).

    Parameters
    ----------
    model : classifier
        A fitted classifier or pipeline of scikit-learn, or one with its interface, as in LightGBM, XGBoost and CatBoost.
    classes : array-like, optional
        The action label of each column of `predict_proba`; `model.classes_` by default. Needed where labels were encoded as
        numbers for the training, as XGBoost requires: give `encoder.classes_`.
    columns : sequence of str, optional
        The columns of the log to pass, in the order of the training; by default those that the model was trained on by name,
        or else the context.

    Examples
    --------
    >>> import offpolicy as op
    >>> from sklearn.linear_model import LogisticRegression
    >>> log = op.Log([[0.0], [1.0]], action=["a", "b"], reward=[1, 0], propensity=[0.5, 0.5])
    >>> model = LogisticRegression().fit([[0.0], [0.2], [0.8], [1.0]], ["a", "a", "b", "b"])
    >>> round(op.evaluate(log, op.Classifier(model), [op.IPS()])["IPS"].value, 2)
    0.58
    """

    model: Any
    classes: npt.ArrayLike | None = None
    columns: Sequence[str] | None = None  # type: ignore[assignment]
    codes: IntArray | None = field(default=None, init=False)
    missing: str = field(default="", init=False)

    def __post_init__(self) -> None:
        name = type(self.model).__name__
        if isinstance(self.model, type):
            name = self.model.__name__
            raise InputError(f"Classifier: {name} is a class; give a fitted model, {name}().fit(…).")
        if not hasattr(self.model, "predict_proba"):
            raise InputError(
                f"Classifier: {name} has no predict_proba, and a policy needs probabilities. Calibrate it with "
                "scikit-learn's CalibratedClassifierCV, or follow its predictions with op.Deterministic(model.predict)."
            )
        if self.classes is None and not hasattr(self.model, "classes_"):
            raise InputError(f"Classifier: {name} has no classes_; fit it first, or name the actions with `classes=`.")
        object.__setattr__(self, "columns", self._column_names())

    def __repr__(self) -> str:
        return f"Classifier({type(self.model).__name__}{self.missing and f', {self.missing}'})"

    def _column_names(self) -> tuple[str, ...]:
        """The columns that are read by name; none where the model takes the context."""
        if self.columns is not None:
            return column_names(self.columns, "Classifier")
        return self._trained_on or ()

    @property
    def _trained_on(self) -> tuple[str, ...] | None:
        """The columns of the data frame that the model was trained on; None for an array."""
        names = next((names for place in NAMES if (names := getattr(self.model, place, None)) is not None), None)
        if names is None:
            return None
        names = tuple(map(str, names))
        automatic = any(names == tuple(form.format(k) for k in range(len(names))) for form in AUTOMATIC)
        return None if automatic else names

    def settled(self, log: Log) -> Policy:
        codes = self._codes(log)
        unknown = np.setdiff1d(np.arange(log.n_actions), codes)
        missing = f"probability 0 for {len(unknown):,} of {log.n_actions:,} actions" if len(unknown) else ""
        settled = replace(self)
        object.__setattr__(settled, "codes", codes)
        object.__setattr__(settled, "missing", missing)
        return settled

    def _codes(self, log: Log) -> IntArray:
        """The action code of each class."""
        classes = np.asarray(self.model.classes_ if self.classes is None else self.classes)
        labels = as_integers(to_arrow(classes.tolist(), "Classifier: classes"))
        advice = "If labels were encoded for the training, name the actions with `classes=`, such as encoder.classes_."
        try:
            codes, bad = log.space.encode(labels)
        except InputError as error:
            raise InputError(f"Classifier: the classes of the model do not fit the log: {error} {advice}") from None
        if bad.any():
            shown = ", ".join(repr(label) for label in labels.filter(pa.array(bad)).slice(0, SHOWN).to_pylist())
            more = ", …" if bad.sum() > SHOWN else ""
            raise InputError(
                "Classifier: the model has classes that are not actions of the log "
                f"({int(bad.sum()):,} of {len(labels):,}): {shown}{more}. List all actions with `actions=` (--catalog). "
                f"{advice}"
            )
        if len(np.unique(codes)) < len(codes):
            raise InputError("Classifier: two classes of the model are the same action; give each column its own label.")
        return codes

    def check(self, log: Log) -> None:
        """Raise if the model cannot be applied to the log, and warn about actions that are not among its classes.

        Parameters
        ----------
        log : Log
            The log that the policy is evaluated on.
        """
        expected, context = getattr(self.model, "n_features_in_", None), log.schema.context
        if not self.columns and expected is not None and expected != len(context):
            raise InputError(
                f"Classifier: the number of columns that the model was trained on is {expected:,}, and the context of the "
                f"log has {len(context):,} ({', '.join(context[:SHOWN])}{', …' if len(context) > SHOWN else ''}). Name the "
                "columns that it was trained on, in order, with `columns=`."
            )
        try:
            log.source.check_columns(self.columns or ())
        except InputError as error:
            raise InputError(f"Classifier: the log lacks a column that the model needs: {error}") from None
        if self.missing and self.codes is not None:
            unknown = log.actions[np.setdiff1d(np.arange(log.n_actions), self.codes)]
            shown = ", ".join(repr(label) for label in unknown[:SHOWN].tolist())
            warnings.warn(
                f"Classifier: {self.missing}, not among the classes of the model: {shown}"
                f"{', …' if len(unknown) > SHOWN else ''}.",
                InputWarning, stacklevel=2,
            )  # fmt: skip

    def distribution(self, batch: Batch) -> FloatArray:
        codes = self.codes
        if codes is None:
            raise InputError("Classifier: the classes are not aligned with the actions of a log yet; use policy.on(log).")
        columns = tuple(self.columns or ())
        function: Score = OfColumns(self._of_columns, columns) if columns else self.model.predict_proba
        p = np.zeros((len(batch), batch.n_actions))
        if not len(batch):
            return p
        predicted = called(function, batch, f"Classifier({type(self.model).__name__})")
        if predicted.shape != (len(batch), len(codes)):
            raise InputError(
                f"Classifier: predict_proba returned shape {predicted.shape} for {len(batch)} rounds and {len(codes)} "
                "classes; give one label per column, with `classes=` if they are not those of the model."
            )
        p[:, codes] = predicted
        return check_probabilities(p, batch, "Classifier")

    def _of_columns(self, columns: dict[str, npt.NDArray[Any]]) -> npt.ArrayLike:
        names = self._trained_on or ()
        if not names and hasattr(self.model, "n_features_in_"):  # it was trained on an array
            inputs: Any = np.column_stack(list(columns.values()))
        else:
            inputs = _frame(dict(zip(names, columns.values(), strict=True)) if len(names) == len(columns) else columns)
        predicted: npt.ArrayLike = self.model.predict_proba(inputs)
        return predicted


def _frame(columns: dict[str, npt.NDArray[Any]]) -> Any:
    try:
        import pandas as pd
    except ImportError:
        raise InputError(
            "Classifier: the model was trained on a data frame, and pandas is not installed: pip install pandas."
        ) from None
    return pd.DataFrame(columns)


def is_model(policy: Any) -> bool:
    """Whether it has the interface of a scikit-learn model."""
    return not isinstance(policy, type) and hasattr(policy, "predict") and hasattr(policy, "fit")


def model_advice(model: Any) -> str:
    """What to write instead of a model where a policy is expected."""
    name = type(model).__name__
    if hasattr(model, "predict_proba"):
        return (
            f"{name} is a classifier, not a policy. If it predicts the action, write op.Classifier(model): its "
            "probabilities are then the policy. If it predicts the reward, give it to an estimator: op.DR(rewards=model)."
        )
    return (
        f"{name} is a model, not a policy. If it predicts the action, write op.Deterministic(model.predict). If it predicts "
        "the reward, give it to an estimator: op.DR(rewards=model)."
    )
