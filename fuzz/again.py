"""`python -m fuzz.again PART 'CASE'`: repeat one case, with its traceback if there is one."""

from __future__ import annotations

import datetime
import sys
from decimal import Decimal
from math import inf, nan
from typing import Any

import numpy as np

from fuzz import arrays, commands, lists, others, policies, readers, tables
from fuzz.judging import Verdict


def again(text: str) -> Verdict:
    """Judge a printed case again."""
    known: dict[str, Any] = {"nan": nan, "inf": inf, "np": np, "datetime": datetime, "Decimal": Decimal}
    for part in (arrays, tables, policies, commands, others, readers, lists):
        known |= vars(part)
    verdict: Verdict = eval(text, known).judge()  # a case of ours, from our own output
    return verdict


if __name__ == "__main__":
    verdict = again(sys.argv[2])
    print(f"{verdict.outcome.value}: {verdict.why}")
