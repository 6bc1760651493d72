"""Watch a new policy for thirty days: when is it clear that it is better, and what would peeking have concluded?

    python examples/thirty_days.py [looks.png]

Each day's log is simulated, so that the true values are known. The monitor keeps sums, not rounds, and could stop at any
day: its bounds hold at every look at once. `offpolicy watch` does the same from the command line.
"""

from __future__ import annotations

import sys

import offpolicy as op
from offpolicy.worlds import Linear


def main(picture: str | None = None) -> None:
    world = Linear(n_actions=10, clicks=True, overlap=0.6, seed=3)
    policies = {
        "bold": world.target,
        "uniform": op.Uniform(),
    }
    watch = op.Monitor(policies, reward_range=(0, 1))
    for day in range(30):
        watch.update(world.sample(150, seed=day))
        for name, decision in watch.decisions.items():
            if decision.logs == watch.logs:
                print(f"day {watch.logs}: {name} is {decision.conclusion}")

    last = watch.looks[-1]
    for name, own in last.policies.items():
        lift = world.value(policies[name]) - world.value(world.logging)
        print(
            f"{name} minus the log after {last.rounds:,} rounds: {own.difference:+.4f}, "
            f"at every look {own.difference_low:+.4f} to {own.difference_high:+.4f}; true: {lift:+.4f}"
        )
    if picture is not None:
        watch.plot().figure.savefig(picture, dpi=150, bbox_inches="tight")


if __name__ == "__main__":
    main(*sys.argv[1:2])
