"""Compare two candidate policies on one log: which is better, by how much, and how certain is the answer?

    python examples/compare_policies.py [report.html]

The log is simulated, so the true values can be printed at the end. To use your own log, replace `world.sample` with
`op.read_log` and the policies with yours; the rest stays the same.
"""

from __future__ import annotations

import sys
from typing import Any

import offpolicy as op
from offpolicy.worlds import Linear


def main(report: str | None = None) -> None:
    world = Linear(n_actions=40, clicks=True, overlap=0.8, seed=5)
    log = world.sample(30_000, seed=1)

    # The old policy produced the log. `bold` follows the scores closely; `careful` does so in only half of the rounds.
    policies = {"bold": world.target, "careful": op.Mixture([world.target, world.logging], [0.5, 0.5])}
    result = op.evaluate(log, policies, [op.Auto(), op.SNIPS(), op.DR()])
    print(result, "\n")

    for name in policies:
        lift = result.lift(name)
        print(f"{name} minus the log: {lift.value:+.4f}, {shown(lift.confidence_interval())}")

    better = result.difference("bold", "careful")
    unpaired = (result["bold", "Auto"].std_error ** 2 + result["careful", "Auto"].std_error ** 2) ** 0.5
    print(f"\nbold minus careful: {better.value:+.4f}, {shown(better.confidence_interval())}, z = {better.z:.1f}")
    print(f"Its standard error is {better.std_error:.4f}; without pairing it would be {unpaired:.4f}.")

    truth = {name: world.value(policy) for name, policy in policies.items()}
    print(f"True values: bold {truth['bold']:.4f}, careful {truth['careful']:.4f}, difference", end=" ")
    print(f"{truth['bold'] - truth['careful']:+.4f}.")
    if report is not None:
        result.write_html(report)
        print(f"The report is in {report}.")


def shown(interval: Any) -> str:
    return f"95% interval {interval.low:+.4f} to {interval.high:+.4f}"


if __name__ == "__main__":
    main(*sys.argv[1:2])
