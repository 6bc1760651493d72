"""`OpenBandit`: the real Open Bandit Dataset (Saito et al. 2021), in which one policy's log gives the value of another."""

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
"""The categories; item_feature_0 is a number, and is omitted as in the paper's code."""

Behaviour = Literal["random", "bts"]
Thompson = Literal["prior", "logged"]
DRAW_BLOCK = 10_000


@dataclass(frozen=True)
class OpenBandit(World):
    """The logs of two policies that ran side by side; each can be evaluated from the log of the other.

    The items of a campaign (80 in "all") × 3 positions are the actions, item by item. The context is the user's features
    (one-hot); the item's categories and the position are the pre-defined embedding.

    There are two truths to compare with, and neither is exact. Thompson sampling kept learning while it ran, so the mean of
    its log is the value of a policy that changed. With `thompson="prior"`, as in the paper, the target is the policy that it
    started from, which is another one. With `thompson="logged"`, the target takes each item in each position as often as it
    was shown, so the mean of the log is its value as far as click rates do not depend on time. `value_note` states which
    applies.

    Parameters
    ----------
    path : str or Path
        The folder of the data set, which holds `random/CAMPAIGN/` and `bts/CAMPAIGN/`.
    campaign : str, default="all"
        A campaign in the folder, such as "all", "men" or "women"; `campaigns` lists them.
    behaviour : {"random", "bts"}, default="random"
        The policy whose log is used: uniform, or Bernoulli Thompson sampling. The target is the other one. A log of "bts"
        has propensities, but not the probabilities of all actions.
    thompson : {"prior", "logged"}, default="prior"
        Thompson sampling by its Beta priors, read from `bts_prior_CAMPAIGN.json` with the lists `alpha` and `beta`; or by
        the frequencies in its log.
    draws : int, default=100_000
        Draws from the priors that give the probability of an item in a position.

    References
    ----------
    Y. Saito, S. Aihara, M. Matsutani, Y. Narita. Open Bandit Dataset and Pipeline: Towards Realistic and Reproducible
    Off-Policy Evaluation. NeurIPS Datasets and Benchmarks, 2021.
    """

    path: str | Path
    _: KW_ONLY
    campaign: str = "all"
    behaviour: Behaviour = "random"
    thompson: Thompson = "prior"
    draws: int = 100_000

    def __post_init__(self) -> None:
        if self.behaviour not in get_args(Behaviour):
            raise InputError(f'OpenBandit: behaviour is {self.behaviour!r}; give "random" or "bts".')
        if self.thompson not in get_args(Thompson):
            raise InputError(f'OpenBandit: thompson is {self.thompson!r}; give "prior" or "logged".')
        check_count("OpenBandit", "draws", self.draws, 1)
        there = self.campaigns(self.path)
        if not there:
            raise InputError(
                f"{self.path}: not a folder of the Open Bandit Dataset; give the folder that contains random/CAMPAIGN/ and "
                "bts/CAMPAIGN/, each with CAMPAIGN.csv and item_context.csv."
            )
        if self.campaign not in there:
            raise InputError(f"{self.path} has no campaign {self.campaign!r}; it has {', '.join(map(repr, there))}.")
        if self.thompson == "prior" and not self._prior_path.is_file():
            raise InputError(
                f"{self.path}: lacks {self._prior_path.name}, the priors of Thompson sampling as JSON lists `alpha` and "
                '`beta`. Add it, or use the frequencies of its log with thompson="logged".'
            )

    @classmethod
    def campaigns(cls, path: str | Path) -> tuple[str, ...]:
        """The campaigns for which a folder has the logs of both policies.

        Parameters
        ----------
        path : str or Path
            The folder of the data set.

        Returns
        -------
        tuple of str
            Their names in alphabetical order.
        """
        found = [
            {log.parent.name for log in Path(path).glob(f"{behaviour}/*/*.csv")
             if log.stem == log.parent.name and log.with_name("item_context.csv").is_file()}
            for behaviour in get_args(Behaviour)
        ]  # fmt: skip
        return tuple(sorted(set.intersection(*found)))

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
        """The categories of each action: the item's features and the position."""
        table = _read(self._items_path, ("item_id", *ITEM_FEATURES)).sort_by("item_id")
        codes = np.column_stack([_codes(table[name]) for name in ITEM_FEATURES])
        if table["item_id"].to_pylist() != list(range(len(table))):
            raise InputError(f"{self._items_path}: item_id must contain 0 to n−1, each once.")
        return np.column_stack([np.repeat(codes, POSITIONS, axis=0), np.tile(np.arange(POSITIONS), len(codes))])

    @property
    def n_actions(self) -> int:  # type: ignore[override]
        """The number of items times the number of positions."""
        return len(self._catalog)

    def _table(self, behaviour: str, columns: tuple[str, ...]) -> tuple[pa.Table, IntArray]:
        """Columns of a log, and the action of each round."""
        path = self._log_path(behaviour)
        table = _read(path, ("item_id", "position", *columns))
        item, position = table["item_id"].to_numpy(), table["position"].to_numpy()
        action = item * POSITIONS + position - 1
        bad = np.flatnonzero((position < 1) | (position > POSITIONS) | (item < 0) | (action >= self.n_actions))
        if len(bad):
            raise InputError(f"{path}: {len(bad):,} rows have an unknown item or position (first: row {bad[0]}, from 0).")
        return table, action

    @cached_property
    def _rounds(self) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
        """User features as codes, action, click and propensity of every logged round."""
        table, action = self._table(self.behaviour, ("click", "propensity_score", *USER_FEATURES))
        click = table["click"].to_numpy()
        if not np.isin(click, (0, 1)).all():
            wrong = click[~np.isin(click, (0, 1))][0]
            raise InputError(f"{self._log_path(self.behaviour)}: click must be 0 or 1; {wrong} is neither.")
        users = np.column_stack([_codes(table[name]) for name in USER_FEATURES])
        # the page determines the position, in the same way for both policies: it cancels in every ratio
        propensity = table["propensity_score"].to_numpy() / POSITIONS
        return users, action, click.astype(np.float64), propensity

    @cached_property
    def _uniform(self) -> Policy:
        return Fixed(np.full(self.n_actions, 1 / self.n_actions))

    @cached_property
    def _thompson(self) -> Policy:
        if self.thompson == "prior":
            return Fixed(self.thompson_chances().ravel() / POSITIONS)
        action = self._table("bts", ())[1]
        return Fixed(np.bincount(action, minlength=self.n_actions) / len(action))

    @property
    def logging(self) -> Policy:
        return self._uniform if self.behaviour == "random" else self._thompson

    @property
    def target(self) -> Policy:
        return self._thompson if self.behaviour == "random" else self._uniform

    def thompson_chances(self) -> FloatArray:
        """The probability of each item in each position under Thompson sampling from its priors.

        Returns
        -------
        ndarray of shape (items, positions)
            Each column sums to 1.
        """
        try:
            prior = json.loads(self._prior_path.read_text())
            alpha, beta = (np.asarray(prior[name], dtype=np.float64) for name in ("alpha", "beta"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{self._prior_path} needs the lists `alpha` and `beta`: {error!r}") from None
        items = self.n_actions // POSITIONS
        if alpha.shape != (items,) or beta.shape != (items,) or not (min(alpha.min(), beta.min()) > 0):
            raise InputError(f"{self._prior_path}: `alpha` and `beta` need {items} numbers above 0, one per item.")
        rng, shown = np.random.default_rng(0xB75), np.zeros((items, POSITIONS))
        for start in range(0, self.draws, DRAW_BLOCK):
            theta = rng.beta(alpha, beta, size=(min(DRAW_BLOCK, self.draws - start), items))
            best = np.argsort(-theta, axis=1)[:, :POSITIONS]
            shown += np.column_stack([np.bincount(best[:, k], minlength=items) for k in range(POSITIONS)])
        return shown / self.draws

    def log(self) -> Log:
        """The log itself: every round of the policy `behaviour`, in order.

        Returns
        -------
        Log
            Rewards are clicks.
        """
        return self._log(slice(None))

    def sample(self, n: int, seed: Seed) -> Log:
        """Rounds drawn with replacement from the log.

        Parameters
        ----------
        n : int
            The number of rounds.
        seed : int or numpy.random.SeedSequence
            The seed of the sample.

        Returns
        -------
        Log
            A bootstrap sample; `log` returns the log itself.
        """
        check_count("OpenBandit", "n", n, 2, 10**9)
        return self._log(generator(seed).integers(len(self._rounds[1]), size=n))

    def _log(self, rows: Any) -> Log:
        users, action, click, propensity = self._rounds
        context = [np.eye(users[:, k].max() + 1)[users[rows, k], 1:] for k in range(users.shape[1])]
        whole = self.logging if self.behaviour == "random" else None
        return Log(
            np.hstack(context), action[rows], click[rows], propensity=propensity[rows], logging=whole,
            n_actions=self.n_actions, catalog=self._catalog, reward_range=(0.0, 1.0),
        )  # fmt: skip

    def value_with_error(self, policy: Any) -> tuple[float, float]:
        """The mean click rate in the policy's own log, and its standard error.

        Parameters
        ----------
        policy : Policy
            The `target` or the `logging` of this world; the others have no log.

        Returns
        -------
        tuple of float
            The mean and its standard error. `value_note` states how far it is the value of the policy.
        """
        if policy is self.target:
            other = "bts" if self.behaviour == "random" else "random"
            return average(_read(self._log_path(other), ("click",))["click"].to_numpy().astype(np.float64))
        if policy is self.logging:
            return average(self._rounds[2])
        raise InputError("OpenBandit: only its own `target` and `logging` have a log, so only their values are known.")

    @property
    def value_note(self) -> str:
        if self.behaviour == "bts":
            return "The true value is the mean click rate in the log of the uniform policy, which is the target."
        if self.thompson == "logged":
            return (
                "The true value is the mean click rate in the log of Thompson sampling. The target has the frequencies of "
                "that log, so this is its value as far as click rates do not depend on time."
            )
        return (
            "The true value is the mean click rate in the log of Thompson sampling, which kept learning. The target is the "
            "policy that it started from, so this is the value of another policy."
        )


def _read(path: Path, columns: tuple[str, ...]) -> pa.Table:
    try:
        # explicit types, so that none is inferred
        kinds: dict[str, Any] = {"item_id": pa.int64(), "position": pa.int64(), "click": pa.int64()}
        kinds |= {"propensity_score": pa.float64()} | dict.fromkeys((*USER_FEATURES, *ITEM_FEATURES), pa.string())
        read = csv.ConvertOptions(include_columns=list(columns), column_types={c: kinds[c] for c in columns})
        table = csv.read_csv(path, convert_options=read)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise InputError(f"{path}: cannot read the columns {', '.join(columns)}: {error}") from None
    if not len(table):
        raise InputError(f"{path} has no rows.")
    empty = next((name for name in columns if table[name].null_count), None)
    if empty is not None:
        raise InputError(f"{path}: {empty} is missing in {table[empty].null_count:,} rows.")
    return table


def _codes(column: pa.ChunkedArray) -> IntArray:
    """Categories as codes, in alphabetical order."""
    order = pc.unique(column).sort()
    codes: npt.NDArray[Any] = pc.index_in(column, order).to_numpy()
    return codes.astype(np.int64)
