"""Worlds by name, for the command line and TOML files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offpolicy.core.errors import InputError, unknown_name
from offpolicy.worlds.base import World
from offpolicy.worlds.cascade import Cascade
from offpolicy.worlds.classification import Classification
from offpolicy.worlds.diverse import Diverse
from offpolicy.worlds.documents import RankedDocuments
from offpolicy.worlds.doses import Doses
from offpolicy.worlds.items import Items
from offpolicy.worlds.linear import Linear
from offpolicy.worlds.open_bandit import OpenBandit
from offpolicy.worlds.pricing import Pricing
from offpolicy.worlds.ranking import Ranking
from offpolicy.worlds.synthetic import NonLinear, Synthetic
from offpolicy.worlds.toy import Toy
from offpolicy.worlds.two_doses import TwoDoses
from offpolicy.worlds.variants import Unlogged, Users
from offpolicy.worlds.warfarin import Warfarin

WORLDS: dict[str, type[World]] = {
    "toy": Toy, "synthetic": Synthetic, "nonlinear": NonLinear, "linear": Linear, "classification": Classification,
    "items": Items, "open-bandit": OpenBandit, "users": Users, "unlogged": Unlogged,
    "ranking": Ranking, "diverse": Diverse, "cascade": Cascade, "ranked-documents": RankedDocuments,
    "doses": Doses, "two-doses": TwoDoses, "pricing": Pricing, "warfarin": Warfarin,
}  # fmt: skip

DATA_VARIABLE = "OPEN_BANDIT_DATASET"
OPENML_VARIABLE = "OPENML_CSV"
WARFARIN_VARIABLE = "WARFARIN_CSV"
RANKING_VARIABLE = "RANKING_DATA"
OPENML = "openml:"
"""Marks the name of an OpenML set, as in "openml:yeast"."""


@dataclass(frozen=True)
class Folders:
    """The folders of data that are not part of the package; those that are None are taken from the environment."""

    open_bandit: Path | None = None
    openml: Path | None = None

    @property
    def open_bandit_folder(self) -> Path | None:
        """The folder of the Open Bandit Dataset, if it is known."""
        return self.open_bandit or _of_environment(DATA_VARIABLE)

    @property
    def openml_folder(self) -> Path | None:
        """The folder of the OpenML sets as CSV files, if it is known."""
        return self.openml or _of_environment(OPENML_VARIABLE)

    def located(self, kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a world with the paths of its data."""
        found = dict(settings)
        if kind == "open-bandit" and (self.open_bandit is not None or "path" not in found):
            found["path"] = str(self._open_bandit_path())
        if needs_openml(settings):
            found["data"] = str(self._openml_path(settings["data"].removeprefix(OPENML)))
        if kind == "warfarin" and "data" not in found:
            found["data"] = str(_warfarin_path())
        if kind == "ranked-documents" and "data" not in found:
            found["data"] = str(_ranking_path())
        return found

    def _open_bandit_path(self) -> Path:
        if self.open_bandit_folder is None:
            raise InputError(
                f"the Open Bandit Dataset is needed: give its folder with --data, or in the variable {DATA_VARIABLE}. "
                "It is published by ZOZO under CC BY 4.0 (https://research.zozo.com/data.html)."
            )
        return self.open_bandit_folder

    def _openml_path(self, name: str) -> Path:
        if self.openml_folder is None:
            raise InputError(
                f"the OpenML set {name!r} is needed: give the folder of the sets as CSV files in the variable "
                f"{OPENML_VARIABLE}, or to `offpolicy bench` with --openml."
            )
        return self.openml_folder / f"{name}.csv"


def _warfarin_path() -> Path:
    file = _of_environment(WARFARIN_VARIABLE)
    if file is None:
        raise InputError(
            f"the warfarin data are needed: give the CSV file as data=…, or in the variable {WARFARIN_VARIABLE}."
        )
    return file


def _ranking_path() -> Path:
    folder = _of_environment(RANKING_VARIABLE)
    if folder is None:
        raise InputError(
            "ranked documents are needed: give the folder of rank.train and rank.train.query as data=…, or in the variable "
            f"{RANKING_VARIABLE}."
        )
    return folder


def _of_environment(variable: str) -> Path | None:
    folder = os.environ.get(variable)
    return Path(folder) if folder else None


def needs_openml(settings: Mapping[str, Any]) -> bool:
    """Whether the data of a world are an OpenML set."""
    return str(settings.get("data")).startswith(OPENML)


def world(kind: str, settings: Mapping[str, Any], seed: int = 0) -> World:
    """The world of a kind with these settings and this seed.

    >>> world("toy", {"n_actions": 20}, seed=3)
    Toy(n_actions=20, context=5, noise=0.1, logging_seed=None, seed=3)
    """
    if kind not in WORLDS:
        raise unknown_name("world", kind, WORLDS)
    fields = {f.name: f for f in dataclasses.fields(WORLDS[kind])}  # type: ignore[arg-type]
    public = sorted(set(fields) - {"seed", "importance_seed"})
    for name, value in settings.items():
        if name not in public:
            raise InputError(f"world {kind!r}: {unknown_name('setting', name, public)}")
        if not isinstance(value, (str, int, float)):
            raise InputError(f"world {kind!r}: {name} is {value!r}; give a number, text, or true or false.")
    chosen = Folders().located(kind, settings)
    try:
        return WORLDS[kind](**chosen, **({"seed": seed} if "seed" in fields else {}))
    except TypeError as error:
        raise InputError(f"world {kind!r}: {error}") from None


def from_text(text: str) -> tuple[str, dict[str, Any]]:
    """A kind and its settings from text.

    >>> from_text("synthetic:n_actions=50,clicks=true,beta=-0.5")
    ('synthetic', {'n_actions': 50, 'clicks': True, 'beta': -0.5})
    """
    kind, _, options = text.partition(":")
    settings: dict[str, Any] = {}
    for option in filter(None, options.split(",")):
        name, separator, value = option.partition("=")
        if not separator:
            raise InputError(f"world {text!r}: {option!r} is not a setting; write NAME=VALUE.")
        key = name.strip().replace("-", "_")
        if key in settings:
            raise InputError(f"world {text!r}: {key} is given twice.")
        settings[key] = _value(value.strip())
    return kind.strip().lower().replace("_", "-"), settings


def _value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
