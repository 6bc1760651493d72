"""List columns: as they are in Parquet, or as text in the cells of a CSV file, which knows no lists."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from offpolicy.actions import decoded

OPEN = r"^\s*\["
SEPARATORS = ("|", ";", ",")
"""The first of these that some cell has is the one between the parts, so that labels may hold the others."""
WRAPPED = re.compile(r"\bnp\.\w+\(('[^']*'|\"[^\"]*\"|[^)]*)\)")
"""NumPy's way to print a number or a text within a list."""
WITHIN_BRACKETS = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s,|;\[\]]+)")


def plain_lists(column: pa.Array) -> pa.Array:
    """Lists of any size, from lists of a fixed one or from text.

    >>> plain_lists(pa.array(["a|b", "[0.5, 0.5]", "[np.str_('x, y'), 'z']"])).to_pylist()
    [['a', 'b'], ['0.5', '0.5'], ['x, y', 'z']]
    """
    column = decoded(column)
    if pt.is_fixed_size_list(column.type):
        return column.cast(pa.list_(column.type.value_type))
    if not (pt.is_string(column.type) or pt.is_large_string(column.type)):
        return column
    separator = next((s for s in SEPARATORS if pc.any(pc.match_substring(column, s)).as_py()), SEPARATORS[0])
    if pc.any(pc.match_substring_regex(column, OPEN)).as_py():
        cells = (None if cell is None else _cell(cell, separator) for cell in column.to_pylist())
        return pa.array(cells, pa.list_(pa.string()))
    return pc.split_pattern_regex(pc.utf8_trim_whitespace(column), rf"\s*[{separator}]\s*")


def _cell(text: str, separator: str) -> list[str]:
    """The parts of one cell: JSON, or lists as Python and NumPy print them, or parts with a separator between them."""
    if not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(separator)]
    text = WRAPPED.sub(r"\1", text)
    try:
        return [part if isinstance(part, str) else json.dumps(part) for part in json.loads(text)]
    except (ValueError, RecursionError):
        return ["".join(match.groups("")) for match in WITHIN_BRACKETS.finditer(text)]
