"""`RankedDocuments`: documents with graded relevance, as logs of clicks on rankings."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.policies.base import Policy
from offpolicy.policies.plackett_luce import PlackettLuce
from offpolicy.worlds.base import check_count, check_number, clicks
from offpolicy.worlds.lists import ListWorld

MOST_RELEVANT = 4
FEWER = 8
PENALTY = 100.0
"""Of the regressions of relevance that rank documents."""


@dataclass(frozen=True, eq=False)
class RankedDocuments(ListWorld):
    """Queries whose documents have known relevance: rankings of them, and clicks by a model of how people read.

    In each round a query is drawn, and its first `n_actions` documents are the items. Items are numbered by the score of the
    logging policy, so that item 0 is what it likes best. A document with relevance l attracts a click with probability
    0.1 + 0.9·(2^l − 1)/15. By the position-based model, users look at position k with probability 1/k. By the cascade model,
    they read from the top and leave after a click with probability `leave`.

    Both policies are Plackett–Luce policies: the logging policy by a regression of relevance on every eighth feature, and
    the target by one on all features. The context consists of both scores of every item, and the number of the query.

    Parameters
    ----------
    data : str or Path
        A folder with `rank.train`, in LIBSVM form (relevance from 0 to 4), and `rank.train.query`, with the number of
        documents of each query.
    slots : int, default=5
        The length of the lists.
    n_actions : int, default=10
        The number of documents of each query; queries with fewer are left out.
    behaviour : {"position", "cascade"}, default="position"
        How users read.
    leave : float, default=0.7
        The probability with which a reader leaves after a click, in the cascade model.
    sharpness : float, default=2.0
        The inverse temperature of both policies, for scores with a standard deviation of 1.
    """

    value_rounds: ClassVar[int] = 250_000
    data: Any
    slots: int = 5
    n_actions: int = 10
    _: KW_ONLY
    behaviour: Literal["position", "cascade"] = "position"
    leave: float = 0.7
    sharpness: float = 2.0

    def __post_init__(self) -> None:
        for file in ("rank.train", "rank.train.query"):
            if not isinstance(self.data, (str, Path)) or not (Path(self.data) / file).is_file():
                raise InputError(f"RankedDocuments: {self.data}: no folder with a file {file}.")
        check_count("RankedDocuments", "slots", self.slots, 1, 1_000)
        check_count("RankedDocuments", "n_actions", self.n_actions, 2)
        if self.slots > self.n_actions:
            raise InputError(f"RankedDocuments: {self.slots} slots need as many documents; n_actions is {self.n_actions}.")
        if self.behaviour not in ("position", "cascade"):
            raise InputError(f'RankedDocuments: behaviour is {self.behaviour!r}; give "position" or "cascade".')
        check_number("RankedDocuments", "leave", self.leave, 0, 1)
        check_number("RankedDocuments", "sharpness", self.sharpness, 0)

    @cached_property
    def _queries(self) -> tuple[FloatArray, FloatArray]:
        """The contexts of all queries, and the probability with which each item attracts a click."""
        relevance, features = read_libsvm(Path(self.data) / "rank.train")
        if not ((relevance >= 0) & (relevance <= MOST_RELEVANT)).all():
            raise InputError(f"RankedDocuments: relevance must be from 0 to {MOST_RELEVANT}.")
        sizes = np.loadtxt(Path(self.data) / "rank.train.query", dtype=np.int64, ndmin=1)
        if sizes.sum() != len(relevance):
            raise InputError(f"RankedDocuments: {len(relevance):,} documents, but the queries have {sizes.sum():,}.")
        logged, new = (_scores(part, relevance) for part in (features[:, ::FEWER], features))
        starts = (np.cumsum(sizes) - sizes)[sizes >= self.n_actions]
        if not len(starts):
            raise InputError(f"RankedDocuments: no query has {self.n_actions} documents.")
        document = starts[:, None] + np.arange(self.n_actions)
        document = np.take_along_axis(document, np.argsort(-logged[document], axis=1, kind="stable"), axis=1)
        number = np.arange(len(starts)) / len(starts)
        attraction = 0.1 + 0.9 * (2 ** relevance[document] - 1) / (2**MOST_RELEVANT - 1)
        return np.column_stack([logged[document], new[document], number]), attraction

    def _attraction(self, contexts: FloatArray, lists: IntArray) -> FloatArray:
        """The probability that the item in each slot attracts a click."""
        _, attraction = self._queries
        query = np.rint(contexts[:, -1] * len(attraction)).astype(np.int64)
        return attraction[query[:, None], lists]

    @property
    def logging(self) -> Policy:
        return PlackettLuce(lambda x: self.sharpness * x[:, : self.n_actions])

    @property
    def target(self) -> Policy:
        return PlackettLuce(lambda x: self.sharpness * x[:, self.n_actions : -1])

    def contexts(self, n: int, rng: np.random.Generator) -> FloatArray:
        every = self._queries[0]
        return every[rng.integers(len(every), size=n)]

    def mean_reward(self, contexts: FloatArray, lists: IntArray) -> FloatArray:
        attraction = self._attraction(contexts, lists)
        if self.behaviour == "position":
            return attraction / np.arange(1, self.slots + 1)
        stays = np.cumprod(1 - self.leave * attraction[:, :-1], axis=1)
        return attraction * np.column_stack([np.ones(len(lists)), stays])

    def outcome(self, contexts: FloatArray, lists: IntArray, rng: np.random.Generator) -> FloatArray:
        attraction = self._attraction(contexts, lists)
        if self.behaviour == "position":
            return clicks(attraction / np.arange(1, self.slots + 1), rng)
        attracted = clicks(attraction, rng)
        left = attracted * (rng.random(attracted.shape) < self.leave)
        clicked: FloatArray = attracted * (np.cumsum(left, axis=1) - left == 0)
        return clicked


def read_libsvm(path: Path) -> tuple[FloatArray, FloatArray]:
    """The labels and the features of a file in LIBSVM form: a label, and then index:value for features other than 0."""
    labels, rows, columns, values = list[float](), list[int](), list[int](), list[float]()
    with path.open() as file:
        for number, line in enumerate(file):
            label, *cells = line.split("#")[0].split() or [""]
            try:
                labels.append(float(label))
                for cell in cells:
                    index, _, value = cell.partition(":")
                    if index == "qid":
                        continue
                    rows.append(number)
                    columns.append(int(index))
                    values.append(float(value))
            except ValueError:
                raise InputError(f"{path}: line {number + 1} is not in LIBSVM form: {line[:60].strip()!r}") from None
    features = np.zeros((len(labels), max(columns, default=-1) + 1))
    features[rows, columns] = values
    return np.array(labels), features


def _scores(features: FloatArray, relevance: FloatArray) -> FloatArray:
    """A ridge regression of relevance, standardised."""
    spread = features.std(axis=0)
    x = (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    fitted = x @ np.linalg.solve(x.T @ x + PENALTY * np.eye(x.shape[1]), x.T @ (relevance - relevance.mean()))
    return np.asarray(fitted / fitted.std())
