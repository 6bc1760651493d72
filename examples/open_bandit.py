"""Real clicks: estimate what Thompson sampling would earn from the log of a policy that shows items at random.

    python examples/open_bandit.py [folder of the Open Bandit Dataset]

Both policies ran side by side in a shop, so the log of Thompson sampling shows whether the estimate is right (Saito et al.
2021). 80 items in 3 positions make 240 actions; the page determines the position in the same way for both policies.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import offpolicy as op
from offpolicy.worlds import OpenBandit


def main(folder: Path) -> None:
    world = OpenBandit(folder, thompson="logged")  # the target: how often Thompson sampling showed each item
    kernel = op.LearnedMIPS(inputs="identity", posterior=op.Gaussian("slope"))
    result = op.evaluate(world.log(), {"Thompson sampling": world.target}, [op.Auto(), op.SNIPS(), op.DR(), kernel])
    print(result, "\n")

    earned, error = world.value_with_error(world.target)
    print(f"Thompson sampling's own log: {earned:.5f} ± {error:.5f} clicks per round. {world.value_note}")
    for estimate in result:
        apart = (estimate.value - earned) / (estimate.std_error**2 + error**2) ** 0.5
        print(f"{estimate.estimator:11} {estimate.value:.5f} ± {estimate.std_error:.5f}, {apart:+.1f} standard errors away")
    for policy in ("random", "bts"):
        log = OpenBandit(folder, behaviour=policy, thompson="logged").log()
        clicks = sum(batch.reward.sum() for batch in log.batches())
        print(f"The log of {policy}: {len(log):,} rounds, {clicks:,.0f} clicks.")
    print("A few tens of clicks, as in the published sample, cannot distinguish the two policies; the full data set can.")


if __name__ == "__main__":
    given = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("OPEN_BANDIT_DATASET")
    if not given:
        sys.exit(
            "Pass the folder of the Open Bandit Dataset as an argument, or set OPEN_BANDIT_DATASET (see examples/README.md)."
        )
    try:
        main(Path(given))
    except op.InputError as error:
        sys.exit(str(error))
