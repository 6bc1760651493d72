"""Real clicks: estimate what Thompson sampling would earn from the log of a policy that shows items at random.

    python examples/open_bandit.py [folder of the Open Bandit Dataset]

Both policies ran side by side in a shop, so the log of Thompson sampling shows whether the estimate is right (Saito et al.
2021). 80 items in 3 positions make 240 actions; the page determines the position in the same way for both policies.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv

import offpolicy as op
from offpolicy.worlds import OpenBandit

USER = [f"user_feature_{k}" for k in range(4)]


def rounds(folder: Path, policy: str) -> pa.Table:
    """The log of a policy, with item and position combined into one action."""
    table = csv.read_csv(folder / policy / "all" / "all.csv")
    action = 3 * table["item_id"].to_numpy() + table["position"].to_numpy() - 1
    return table.select(["click", "position", *USER]).append_column("action", pa.array(action))


def main(folder: Path) -> None:
    world = OpenBandit(folder)  # computes Thompson sampling's probabilities from its priors
    log = op.read_log(
        rounds(folder, "random"),
        context=USER,
        action="action",
        reward="click",
        logging=world.logging,
        n_actions=world.n_actions,
        reward_range=(0.0, 1.0),
    )
    kernel = op.LearnedMIPS(posterior=op.Gaussian("slope"))
    result = op.evaluate(log, {"Thompson sampling": world.target}, [op.Auto(), op.SNIPS(), op.DR(), kernel])
    print(result, "\n")

    earned, error = world.value_with_error(world.target)
    print(f"Thompson sampling's own log: {earned:.5f} ± {error:.5f} clicks per round.")
    for estimate in result:
        apart = (estimate.value - earned) / (estimate.std_error**2 + error**2) ** 0.5
        print(f"{estimate.estimator:11} {estimate.value:.5f} ± {estimate.std_error:.5f}, {apart:+.1f} standard errors away")
    for policy in ("random", "bts"):
        click = rounds(folder, policy)["click"].to_numpy()
        print(f"The log of {policy}: {len(click):,} rounds, {click.sum():,} clicks.")
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
