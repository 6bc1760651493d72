"""Settings as text, the way a user would type them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np


def described(value: Any) -> str:
    """Describe settings as a user would type them, with only what differs from the defaults.

    >>> from offpolicy import DR, Ridge
    >>> described(DR()), described(DR(rewards=Ridge(penalty=1.0), name="light"))
    ('DR()', "DR(name='light', rewards=Ridge(penalty=1.0))")
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (f for f in dataclasses.fields(value) if f.init and f.repr and not f.name.startswith("_"))
        parts = [f"{f.name}={described(v)}" for f in fields if _differs(f, v := getattr(value, f.name), value)]
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, np.ndarray):
        return f"array of {' × '.join(f'{n:,}' for n in value.shape)}"
    if isinstance(value, (list, tuple)) and any(map(dataclasses.is_dataclass, value)):
        return f"[{', '.join(map(described, value))}]"
    describes_itself = getattr(value, "describes_itself", False)
    if callable(value) and not describes_itself:
        return str(getattr(value, "__qualname__", type(value).__name__))
    plain = isinstance(value, (str, int, float, bool, type(None), list, tuple, dict))
    return repr(value) if plain or describes_itself else type(value).__name__


def _differs(field: dataclasses.Field[Any], value: Any, owner: Any) -> bool:
    """Whether a setting differs from its default (the default name is that of the class)."""
    if field.name == "name" and value == type(owner).__name__:
        return False
    default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    try:
        return bool(default is dataclasses.MISSING or value != default)
    except (TypeError, ValueError):  # arrays and frames have no single truth value
        return True
