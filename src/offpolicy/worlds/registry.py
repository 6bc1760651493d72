"""Worlds by name, for the command line and TOML files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from offpolicy.core.errors import InputError, unknown_name
from offpolicy.worlds.base import World
from offpolicy.worlds.classification import Classification
from offpolicy.worlds.items import Items
from offpolicy.worlds.linear import Linear
from offpolicy.worlds.open_bandit import OpenBandit
from offpolicy.worlds.synthetic import NonLinear, Synthetic
from offpolicy.worlds.toy import Toy
from offpolicy.worlds.variants import Unlogged, Users

WORLDS: dict[str, type[World]] = {
    "toy": Toy, "synthetic": Synthetic, "nonlinear": NonLinear, "linear": Linear, "classification": Classification,
    "items": Items, "open-bandit": OpenBandit, "users": Users, "unlogged": Unlogged,
}  # fmt: skip

DATA_VARIABLE = "OPEN_BANDIT_DATASET"


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
    chosen = dict(settings)
    if kind == "open-bandit" and "path" not in chosen:
        chosen["path"] = data_folder()
    try:
        return WORLDS[kind](**chosen, **({"seed": seed} if "seed" in fields else {}))
    except TypeError as error:
        raise InputError(f"world {kind!r}: {error}") from None


def data_folder() -> Path:
    """The folder of the Open Bandit Dataset from the environment."""
    folder = os.environ.get(DATA_VARIABLE)
    if not folder:
        raise InputError(
            f"the Open Bandit Dataset is needed: give its folder with --data, or in the variable {DATA_VARIABLE}. "
            "It is published by ZOZO under CC BY 4.0 (https://research.zozo.com/data.html)."
        )
    return Path(folder)


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
