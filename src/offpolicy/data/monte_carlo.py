"""`MonteCarlo`: propensities that were estimated by drawing from the logging policy, from the counts that were logged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from offpolicy.core.arrays import FloatArray
from offpolicy.core.errors import InputError, unknown_name

Sampling = Literal["separate", "included", "chosen", "inverse"]
SAMPLINGS: tuple[Sampling, ...] = get_args(Sampling)
DRAWN = "A count of wins is a whole number from 0 to the number of draws, and there is at least one draw."
WON = {
    "separate": "",
    "included": 'With sampling="included" the action taken is one of the draws, so that it wins at least once.',
    "chosen": 'With sampling="chosen" the action was chosen among the draws, so that it wins at least once.',
    "inverse": 'With sampling="inverse" draws end with a win, so that there is at least one.',
}


@dataclass(frozen=True, eq=False)
class MonteCarlo:
    """Propensities from draws: the logging policy was sampled `draws` times, and the action taken won `wins` times.

    The weight of a round is proportional to 1/p, and 1/(k/m) is not an unbiased estimate of 1/p for k wins in m draws. Which
    estimate is depends on how the action was chosen. Pass it as `propensity=` to `op.read_log`, with the names of columns,
    or to `op.Log`, with arrays.

    Parameters
    ----------
    wins : str or array
        How often the action of the round won.
    draws : str or array
        How many draws there were.
    sampling : {"separate", "included", "chosen", "inverse"}, default "separate"
        "separate": the action was chosen apart from the m draws; 1/p is estimated by (m + 1)/(k + 1). "included": the action
        taken is one of the m draws; 1/p is estimated by m/k. Both are too small by a share of about exp(−m·p). "chosen": the
        action was chosen with probability k/m, which is then its propensity, without error. "inverse": drawn until the k-th
        win, which was the m-th draw; m/k is unbiased, and multiplies the mean square of the weights by 1 + (1 − p)/k.

    Examples
    --------
    >>> import offpolicy as op
    >>> counts = op.MonteCarlo(wins=[3, 0], draws=[7, 7])
    >>> op.Log(None, action=[1, 0], reward=[1, 0], propensity=counts).head().propensity.tolist()
    [0.5, 0.125]
    """

    wins: Any
    draws: Any
    sampling: Sampling = "separate"

    def __post_init__(self) -> None:
        if self.sampling not in SAMPLINGS:
            raise unknown_name("sampling of MonteCarlo", str(self.sampling), SAMPLINGS)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the two columns."""
        if not (isinstance(self.wins, str) and isinstance(self.draws, str)):
            raise InputError("MonteCarlo: name the columns of `wins` and `draws`; arrays are for op.Log.")
        return self.wins, self.draws

    @property
    def least(self) -> int:
        """The smallest number of wins that is possible."""
        return 0 if self.sampling == "separate" else 1

    @property
    def biased(self) -> bool:
        """Whether 1/p is too small on average where draws are few."""
        return self.sampling in ("separate", "included")


def impossible(counts: MonteCarlo, wins: FloatArray, draws: FloatArray) -> npt.NDArray[np.bool_]:
    """Which pairs are no counts."""
    whole = (wins == np.floor(wins)) & (draws == np.floor(draws))
    possible: npt.NDArray[np.bool_] = whole & (wins >= counts.least) & (wins <= draws) & (draws >= 1) & np.isfinite(draws)
    return ~possible


def refusal(counts: MonteCarlo, wins: FloatArray, draws: FloatArray) -> tuple[str, str]:
    """The text of an error about pairs that are no counts: what was seen in the first, and what to do."""
    first = f"{wins[0]:g} wins in {draws[0]:g} draws" if len(wins) else "no counts"
    return f"have impossible counts (the first: {first})", f"{DRAWN} {WON[counts.sampling]}".strip()


def estimated(counts: MonteCarlo, wins: FloatArray, draws: FloatArray) -> FloatArray:
    """The propensity whose inverse is the estimate of 1/p."""
    p: FloatArray = (wins + 1) / (draws + 1) if counts.sampling == "separate" else wins / draws
    return p


def noise(counts: MonteCarlo, wins: FloatArray, propensity: FloatArray) -> FloatArray:
    """About the relative variance of the estimate of 1/p: (1 − p)/k."""
    if counts.sampling == "chosen":
        return np.zeros(len(wins))
    return (1 - propensity) / np.maximum(wins, 1.0)
