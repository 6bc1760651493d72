"""List columns: lists in Parquet, or text in the cells of a CSV file."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from offpolicy.data.checks import decoded

OPEN = r"^\s*\["
SEPARATORS = ("|", ";", ",")
"""The first of these that a cell contains separates its parts, so that labels may contain the others."""
WRAPPED = re.compile(r"\bnp\.\w+\(('[^']*'|\"[^\"]*\"|[^)]*)\)")
"""How NumPy prints a number or a string within a list."""
WITHIN_BRACKETS = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s,|;\[\]]+)")


def plain_lists(column: pa.Array) -> pa.Array:
    """Lists of variable size, from lists of fixed size or from text.

    >>> plain_lists(pa.array(["a|b", "[0.5, 0.5]", "[np.str_('x, y'), 'z']"])).to_pylist()
    [['a', 'b'], ['0.5', '0.5'], ['x, y', 'z']]
    """
    column = decoded(column)
    if pt.is_fixed_size_list(column.type):
        return column.cast(pa.list_(column.type.value_type))
    if not (pt.is_string(column.type) or pt.is_large_string(column.type)):
        return column
    separator = _common_separator(column)
    if separator is None:
        cells = (None if cell is None else _cell(cell) for cell in column.to_pylist())
        return pa.array(cells, pa.list_(pa.string()))
    return pc.split_pattern_regex(pc.utf8_trim_whitespace(column), rf"\s*[{separator}]\s*")


def _common_separator(column: pa.Array) -> str | None:
    """The separator that all cells share; None if cells must be parsed one by one."""
    if pc.any(pc.match_substring_regex(column, OPEN)).as_py():
        return None
    has = [np.asarray(pc.match_substring(column, sign).fill_null(False)) for sign in SEPARATORS]
    first = next((k for k, cells in enumerate(has) if cells.any()), 0)
    other = any((cells & ~has[first]).any() for cells in has[first + 1 :])
    return None if other else SEPARATORS[first]


def _cell(text: str) -> list[str | None]:
    """The parts of one cell: JSON, a list as Python or NumPy prints it, or parts with a separator."""
    if not text.lstrip().startswith("["):
        separator = next((sign for sign in SEPARATORS if sign in text), SEPARATORS[0])
        return [part.strip() for part in text.split(separator)]
    text = WRAPPED.sub(r"\1", text)
    try:
        return [part if part is None or isinstance(part, str) else json.dumps(part) for part in json.loads(text)]
    except (ValueError, RecursionError):
        return ["".join(match.groups("")) for match in WITHIN_BRACKETS.finditer(text)]
