"""Action spaces as text: `labels`, `box:5:60`, `box:0,0:100,1` for vectors, `box:5:60:19.99` with points, and `slate:8`."""

from __future__ import annotations

from offpolicy.core.errors import InputError
from offpolicy.data.box import Box
from offpolicy.data.slate import Slate
from offpolicy.data.spaces import ActionSpace

BOX, SLATE = "box", "slate"


def action_space(text: str) -> ActionSpace | str:
    """An action space from text; "labels" stays as it is.

    >>> action_space("box:5:60:19.99,24.99"), action_space("box:0,-1:10,1").nature
    (Box(low=5.0, high=60.0, points=(19.99, 24.99)), 'vectors of 2 numbers from (0, -1) to (10, 1)')
    >>> action_space("slate:8")
    Slate(slots=8, items=None)
    """
    kind, *parts = text.split(":")
    if kind == SLATE:
        return _slate(text, parts)
    if kind != BOX:
        return text
    try:
        bounds = [tuple(float(number) for number in part.split(",")) for part in parts]
    except ValueError:
        bounds = []
    if not 2 <= len(bounds) <= 3:
        raise InputError(
            f"actions: {text!r}; give box:LOW:HIGH, such as box:5:60, or box:0,0:100,1 with one number per dimension; "
            "box:5:60:19.99,24.99 if some values are logged with a probability."
        )
    low, high = (bound[0] if len(bound) == 1 else bound for bound in bounds[:2])
    return Box(low, high, points=bounds[2] if len(bounds) > 2 else ())


def _slate(text: str, parts: list[str]) -> Slate:
    """`op.Slate` from the number of slots; and, if items are codes, their number."""
    try:
        numbers = [int(part) for part in parts]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= 2:
        raise InputError(
            f"actions: {text!r}; give slate:SLOTS, such as slate:8 for lists of up to 8 items, or slate:8:100 if items are "
            "the codes 0 to 99."
        )
    return Slate(*numbers)
