"""`Classifier`: classes and actions, frames and arrays, and models that are no policies."""

from __future__ import annotations

import importlib
import os
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelEncoder, OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

import offpolicy as op

N = 300
LABELS = ("ash", "elm", "fir")


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(40, 10, N), "country": rng.choice(["de", "fr"], N)})
    frame["item"] = rng.choice(LABELS, N)
    return frame.assign(p=1 / 3, click=rng.integers(0, 2, N), wish=rng.choice(LABELS, N))


@pytest.fixture(scope="module")
def log(frame: pd.DataFrame) -> op.Log:
    return op.read_log(frame, context=["age", "country"], action="item", reward="click", propensity="p")


def ips(log: op.Log, policy: Any) -> float:
    return op.evaluate(log, policy, [op.IPS()])["IPS"].value


def test_a_pipeline_gets_the_columns_of_its_training(frame: pd.DataFrame, log: op.Log) -> None:
    """Text as it is in the log, in another order than the context, in which it is one-hot encoded."""
    columns = make_column_transformer((OneHotEncoder(), ["country"]), (StandardScaler(), ["age"]))
    model = make_pipeline(columns, LogisticRegression()).fit(frame[["country", "age"]], frame["wish"])
    policy = op.Classifier(model)
    assert policy.columns == ("country", "age")
    assert ips(log, policy) == pytest.approx(ips(log, model.predict_proba(frame[["country", "age"]])))
    assert repr(policy) == "Classifier(Pipeline)"


def test_a_model_of_an_array_gets_the_context_or_the_named_columns(frame: pd.DataFrame, log: op.Log) -> None:
    context = log.head(N).context
    whole = LogisticRegression().fit(context, frame["wish"])
    assert ips(log, op.Classifier(whole)) == pytest.approx(ips(log, whole.predict_proba(context)))
    age = LogisticRegression().fit(frame[["age"]].to_numpy(), frame["wish"])
    expected = age.predict_proba(frame[["age"]].to_numpy())
    assert ips(log, op.Classifier(age, columns=["age"])) == pytest.approx(ips(log, expected))
    with pytest.raises(op.InputError, match=r"trained on is 1, and the context of the log has 3 \(age, .*`columns=`"):
        ips(log, op.Classifier(age))


def test_classes_in_another_order_and_actions_that_are_no_class(frame: pd.DataFrame) -> None:
    known = op.read_log(
        frame, context=["age"], action="item", reward="click", propensity="p", actions=["fir", "yew", "elm", "ash"]
    )
    model = LogisticRegression().fit(frame[["age"]], frame["wish"])
    p = model.predict_proba(frame[["age"]])
    with pytest.warns(op.InputWarning, match="^Classifier: probability 0 for 1 of 4 actions, not among the classes.*'yew'"):
        value = ips(known, op.Classifier(model))
    assert value == pytest.approx(ips(known, np.column_stack([p[:, 2], np.zeros(N), p[:, 1], p[:, 0]])))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", op.InputWarning)
        assert "probability 0 for 1 of 4 actions" in repr(op.Classifier(model).on(known))


def test_labels_that_were_encoded_for_the_training(frame: pd.DataFrame, log: op.Log) -> None:
    encoder = LabelEncoder().fit(frame["wish"])
    model = LogisticRegression().fit(frame[["age"]], encoder.transform(frame["wish"]))
    with pytest.raises(
        op.InputError, match=r"not actions of the log \(3 of 3\): 0, 1, 2.*`classes=`, such as encoder.classes_"
    ):
        ips(log, op.Classifier(model))
    expected = ips(log, model.predict_proba(frame[["age"]]))
    assert ips(log, op.Classifier(model, classes=encoder.classes_)) == pytest.approx(expected)
    with pytest.raises(op.InputError, match="not actions of the log .1 of 3.: 'oak'"):
        ips(log, op.Classifier(model, classes=["ash", "elm", "oak"]))


class Boosted:
    """The interface of LightGBM, CatBoost and XGBoost: labels as floats, and names of their own for an array's columns."""

    classes_ = np.array([0.0, 1.0, 2.0])

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def fit(self, inputs: Any, labels: Any) -> Boosted:
        raise NotImplementedError

    def predict(self, inputs: Any) -> Any:
        raise NotImplementedError

    def predict_proba(self, inputs: Any) -> np.ndarray:
        assert isinstance(inputs, pd.DataFrame) == hasattr(self, "frame")
        return np.full((len(inputs), 3), 1 / 3, np.float32)


@pytest.mark.parametrize("model", [
    Boosted(feature_name_=["Column_0", "Column_1", "Column_2"], n_features_in_=3),
    Boosted(feature_names_=["0", "1", "2"]),
    Boosted(n_features_in_=3),
    Boosted(frame=True, feature_names_=["age", "country"]),
    Boosted(frame=True, feature_name_=["age"], n_features_in_=1),
])  # fmt: skip
def test_other_libraries_with_the_interface_of_scikit_learn(frame: pd.DataFrame, model: Boosted) -> None:
    codes = frame.assign(item=frame["item"].map(LABELS.index))
    log = op.read_log(codes, context=["age", "country"], action="item", reward="click", propensity="p")
    assert ips(log, op.Classifier(model)) == pytest.approx(frame["click"].mean())


def test_a_model_in_the_place_of_a_policy_names_the_line_to_write(frame: pd.DataFrame, log: op.Log) -> None:
    clicks = LogisticRegression().fit(frame[["age"]], frame["click"])
    with pytest.raises(
        op.InputError, match=r"LogisticRegression is a classifier.*write op\.Classifier\(model\).*op\.DR\(rewards=model"
    ):
        op.evaluate(log, clicks)
    with pytest.raises(op.InputError, match=r"LinearRegression is a model.*op\.Deterministic\(model\.predict\)"):
        op.evaluate(log, {"new": LinearRegression()})
    with pytest.raises(op.InputError, match="LinearSVC has no predict_proba.*CalibratedClassifierCV"):
        op.Classifier(LinearSVC())
    with pytest.raises(op.InputError, match="LogisticRegression has no classes_; fit it first"):
        op.Classifier(LogisticRegression())
    with pytest.raises(op.InputError, match="LogisticRegression is a class; give a fitted model"):
        op.Classifier(LogisticRegression)
    trained = LogisticRegression().fit(frame[["age"]].rename(columns={"age": "years"}), frame["wish"])
    with pytest.raises(op.InputError, match="Classifier: the log lacks a column that the model needs: .*'years'"):
        ips(log, op.Classifier(trained))
    expected = ips(log, trained.predict_proba(frame[["age"]].rename(columns={"age": "years"})))
    assert ips(log, op.Classifier(trained, columns=["age"])) == pytest.approx(expected)


BOOSTERS = {
    "lightgbm": ("LGBMClassifier", {"n_estimators": 5, "verbose": -1}),
    "xgboost": ("XGBClassifier", {"n_estimators": 5}),
    "catboost": ("CatBoostClassifier", {"iterations": 5, "verbose": 0, "allow_writing_files": False}),
}


@pytest.mark.parametrize("framed", [True, False], ids=["frame", "array"])
@pytest.mark.parametrize("library", BOOSTERS)
def test_boosting_libraries(frame: pd.DataFrame, library: str, framed: bool) -> None:
    """Trained on a frame whose columns are in another order than the context, or on the context itself."""
    if os.environ.get("OFFPOLICY_BOOSTERS") != "required":
        pytest.importorskip(library, reason=f"{library} is not installed: make boosters")
    name, settings = BOOSTERS[library]
    model = getattr(importlib.import_module(library), name)(**settings)
    table = frame.assign(income=np.random.default_rng(1).normal(size=N))
    log = op.read_log(table, context=["age", "income"], action="item", reward="click", propensity="p")
    x = table[["income", "age"]] if framed else log.head(N).context
    labels = LabelEncoder().fit(table["wish"])  # XGBoost takes classes from 0 on only
    model.fit(x, labels.transform(table["wish"]) if library == "xgboost" else table["wish"])
    policy = op.Classifier(model, classes=labels.classes_) if library == "xgboost" else op.Classifier(model)
    assert policy.columns == (("income", "age") if framed else ())
    assert ips(log, policy) == pytest.approx(ips(log, model.predict_proba(x)))
