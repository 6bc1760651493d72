"""Cells that corrupt a column, texts that corrupt a name, and a valid log to corrupt."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from random import Random
from typing import Any

from hypothesis import strategies as st

HUGE = (1e308, -1e308, 1e200, -1e200, 1e31, 2**63, 2**64, 2**70, -(2**70))
TINY = (5e-324, 1e-310, 1e-200, -1e-200)
ODD_CELLS: tuple[Any, ...] = (
    math.nan, math.inf, -math.inf, *HUGE, *TINY, 0, 0.0, -0.0, -0.5, -1, 1.5, 2, 1e8, None, "", "x", "0.5", " 0.5 ", "nan",
    "1,5", True, False, b"x", b"\xff", [1.0], [], {}, Decimal("0.25"), Decimal("NaN"), complex(1, 1),
    datetime.date(2024, 2, 29), datetime.datetime(1, 1, 1), datetime.timedelta(days=1),
)  # fmt: skip
"""Possible contents of a cell of an array or a table."""

ODD_TEXTS = (
    "", " ", "\t", "a b", " a", "a ", "É", "e\u0301", "日本", "🎉", "\u202eabc", "\u200b", "a,b", 'a"b', "a'b", "a|b", "a;b", "a\nb", "a\r\nb",
    "\ufeff", "\x00", "\x1b[31m", "<b>", "{}", "%s", "$x$", "\\", "/", "..", "*", "?", "[", "null", "NULL", "NaN", "nan", "NA",
    "None", "true", "False", "0", "1", "-1", "007", "1e5", "0x10", "inf", "=", ":", "-", "--", "#", "a" * 300, "ſ", "İ",
)  # fmt: skip
"""Labels, column names and CSV cells that are easily mistaken for something else."""

ODD_NUMBERS = (
    "nan", "inf", "-inf", "0", "-1", "1", "2", "0.5", "1.0", "1e400", "-0.0", "1e-320", "9223372036854775808", "1" * 30, "1_000",
    "0x10", "١", "½", "", " ", "x", "True", "None", "0,5", "1e", "--", "2.5",
)  # fmt: skip
"""What might be typed where a number belongs."""

texts = st.one_of(st.sampled_from(ODD_TEXTS), st.text(max_size=4))


@st.composite
def columns(draw: st.DrawFn, labels: st.SearchStrategy[list[Any]] | None = None) -> dict[str, list[Any]]:
    """A valid log: action, reward, p (its propensity), q (its probability under the new policy), x, and sometimes a weight.

    Values have a few digits, so that files hold them exactly.
    """
    several = draw(st.just([0, 1, 2]) if labels is None else labels)
    random = Random(draw(st.integers(0, 2**32)))  # one draw: valid values need no search
    n = random.randint(2, 6)
    code = [0, len(several) - 1, *(random.randrange(len(several)) for _ in range(n - 2))]
    kind = random.randrange(3)
    made: dict[str, list[Any]] = {
        "action": [several[k] for k in code],
        "reward": [(random.randrange(2) * 1.0, random.randint(-4000, 4000) / 8, 1e8 + random.random())[kind] for _ in code],
        "p": [random.randint(1, 16) / 16 for _ in code],
        "q": [random.randint(0, 16) / 16 for _ in code],
        "x": [k / 4 for k in range(n)],
    }
    if random.randrange(4) == 0:
        made["weight"] = [1.0, *(float(random.randrange(9)) for _ in range(n - 1))]
    return made


def hurts(draw: st.DrawFn) -> int:
    """How often to corrupt it: the result may still be valid."""
    return draw(st.sampled_from([0, 1, 1, 2, 0, 1, 3]))
