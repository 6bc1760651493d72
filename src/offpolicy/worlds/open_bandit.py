"""`OpenBandit`: the real Open Bandit Dataset (Saito et al. 2021), where one policy's log tells the other one's value."""

from __future__ import annotations

import json
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from offpolicy.core.arrays import FloatArray, IntArray
from offpolicy.core.errors import InputError
from offpolicy.data.log import Log
from offpolicy.policies.base import Policy
from offpolicy.policies.tables import Fixed
from offpolicy.worlds.base import Seed, World, average, check_count, generator

POSITIONS = 3
USER_FEATURES = tuple(f"user_feature_{k}" for k in range(4))
ITEM_FEATURES = tuple(f"item_feature_{k}" for k in range(1, 4))
"""The categories; item_feature_0 is a number, and is left out as in the paper's code."""

Behaviour = Literal["random", "bts"]
DRAW_BLOCK = 10_000


@dataclass(frozen=True)
class OpenBandit(World):
    """Rounds drawn with replacement from the log of one policy; the other is the target, its own log gives its value.

    The 80 items × 3 positions are 240 actions, item by item. The context is the user's features (one-hot); the item's
    categories and the position are the pre-defined embedding. Thompson sampling is context-free: the chance of an item in a
    position comes from `draws` draws of every item's Beta prior, best three first. The policy that made the `bts` log went
    on learning from there, so its propensities drift away from these chances: a log of `bts` comes without the whole of π0.
    """

    path: str | Path
    _: KW_ONLY
    campaign: str = "all"
    behaviour: Behaviour = "random"
    draws: int = 100_000

    def __post_init__(self) -> None:
        if self.behaviour not in get_args(Behaviour):
            raise InputError(f'OpenBandit: behaviour is {self.behaviour!r}; give "random" or "bts".')
        check_count("OpenBandit", "draws", self.draws, 1)
        wanted = [self._log_path("random"), self._log_path("bts"), self._items_path, self._prior_path]
        missing = [str(path.relative_to(self.path)) for path in wanted if not path.is_file()]
        if missing:
            raise InputError(
                f"{self.path}: not a folder of the Open Bandit Dataset: it lacks {', '.join(missing)}. Give the folder that "
                "holds random/ and bts/, with the priors of Thompson sampling beside them as JSON lists `alpha` and `beta`."
            )

    def _log_path(self, behaviour: str) -> Path:
        return Path(self.path) / behaviour / self.campaign / f"{self.campaign}.csv"

    @property
    def _items_path(self) -> Path:
        return self._log_path(self.behaviour).with_name("item_context.csv")

    @property
    def _prior_path(self) -> Path:
        return Path(self.path) / f"bts_prior_{self.campaign}.json"

    @cached_property
    def _catalog(self) -> IntArray:
        """The categories of each of the actions: item's features, and the position."""
        table = _read(self._items_path, ("item_id", *ITEM_FEATURES)).sort_by("item_id")
        codes = np.column_stack([_codes(table[name]) for name in ITEM_FEATURES])
        if table["item_id"].to_pylist() != list(range(len(table))):
            raise InputError(f"{self._items_path}: item_id must be 0 to n−1, each once.")
        return np.column_stack([np.repeat(codes, POSITIONS, axis=0), np.tile(np.arange(POSITIONS), len(codes))])

    @property
    def n_actions(self) -> int:  # type: ignore[override]
        return len(self._catalog)

    @cached_property
    def _rounds(self) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
        """User features as codes, action, click and propensity of every logged round."""
        path = self._log_path(self.behaviour)
        table = _read(path, ("item_id", "position", "click", "propensity_score", *USER_FEATURES))
        item, position = table["item_id"].to_numpy(), table["position"].to_numpy()
        action = item * POSITIONS + position - 1
        bad = np.flatnonzero((position < 1) | (position > POSITIONS) | (item < 0) | (action >= self.n_actions))
        if len(bad):
            raise InputError(f"{path}: {len(bad):,} rows have an unknown item or position (first: row {bad[0]}, from 0).")
        click = table["click"].to_numpy()
        if not np.isin(click, (0, 1)).all():
            raise InputError(f"{path}: click must be 0 or 1; {click[~np.isin(click, (0, 1))][0]} is neither.")
        users = np.column_stack([_codes(table[name]) for name in USER_FEATURES])
        # the position is given by the page, alike for each: it divides out of every ratio
        propensity = table["propensity_score"].to_numpy() / POSITIONS
        return users, action, click.astype(np.float64), propensity

    @cached_property
    def _uniform(self) -> Policy:
        return Fixed(np.full(self.n_actions, 1 / self.n_actions))

    @cached_property
    def _thompson(self) -> Policy:
        return Fixed(self.thompson_chances().ravel() / POSITIONS)

    @property
    def logging(self) -> Policy:
        return self._uniform if self.behaviour == "random" else self._thompson

    @property
    def target(self) -> Policy:
        return self._thompson if self.behaviour == "random" else self._uniform

    def thompson_chances(self) -> FloatArray:
        """How often Thompson sampling shows an item in a position: items × positions; every column sums to 1."""
        try:
            prior = json.loads(self._prior_path.read_text())
            alpha, beta = (np.asarray(prior[name], dtype=np.float64) for name in ("alpha", "beta"))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{self._prior_path}: needs the lists `alpha` and `beta`: {error!r}") from None
        items = self.n_actions // POSITIONS
        if alpha.shape != (items,) or beta.shape != (items,) or not (min(alpha.min(), beta.min()) > 0):
            raise InputError(f"{self._prior_path}: `alpha` and `beta` need {items} numbers above 0, one an item.")
        rng, shown = np.random.default_rng(0xB75), np.zeros((items, POSITIONS))
        for start in range(0, self.draws, DRAW_BLOCK):
            theta = rng.beta(alpha, beta, size=(min(DRAW_BLOCK, self.draws - start), items))
            best = np.argsort(-theta, axis=1)[:, :POSITIONS]
            shown += np.column_stack([np.bincount(best[:, k], minlength=items) for k in range(POSITIONS)])
        return shown / self.draws

    def sample(self, n: int, seed: Seed) -> Log:
        check_count("OpenBandit", "n", n, 2, 10**9)
        users, action, click, propensity = self._rounds
        rows = generator(seed).integers(len(action), size=n)
        context = [np.eye(users[:, k].max() + 1)[users[rows, k], 1:] for k in range(users.shape[1])]
        whole = self.logging if self.behaviour == "random" else None
        return Log(
            np.hstack(context), action[rows], click[rows], propensity=propensity[rows], logging=whole,
            n_actions=self.n_actions, catalog=self._catalog, reward_range=(0.0, 1.0),
        )  # fmt: skip

    def value_with_error(self, policy: Any) -> tuple[float, float]:
        """The mean of the clicks that the policy earned in its own log, and its standard error."""
        if policy is self.target:
            other = "bts" if self.behaviour == "random" else "random"
            return average(_read(self._log_path(other), ("click",))["click"].to_numpy().astype(np.float64))
        if policy is self.logging:
            return average(self._rounds[2])
        raise InputError("OpenBandit: only its own `target` and `logging` have a log, so only their values are known.")


def _read(path: Path, columns: tuple[str, ...]) -> pa.Table:
    try:
        # numbers where they are expected, so that no column is guessed at
        kinds: dict[str, Any] = {"item_id": pa.int64(), "position": pa.int64(), "click": pa.int64()}
        kinds |= {"propensity_score": pa.float64()} | dict.fromkeys((*USER_FEATURES, *ITEM_FEATURES), pa.string())
        read = csv.ConvertOptions(include_columns=list(columns), column_types={c: kinds[c] for c in columns})
        table = csv.read_csv(path, convert_options=read)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise InputError(f"{path}: cannot read the columns {', '.join(columns)}: {error}") from None
    if not len(table):
        raise InputError(f"{path}: holds no rows.")
    empty = next((name for name in columns if table[name].null_count), None)
    if empty is not None:
        raise InputError(f"{path}: {empty} is missing in {table[empty].null_count:,} rows.")
    return table


def _codes(column: pa.ChunkedArray) -> IntArray:
    """Categories as codes, in the order of their names."""
    order = pc.unique(column).sort()
    codes: npt.NDArray[Any] = pc.index_in(column, order).to_numpy()
    return codes.astype(np.int64)
