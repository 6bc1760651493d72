"""Which interactions between the slots of a list the weights of a slot account for.

The reward of a slot may depend on the items of the other slots. A weight that compares the policies at some of these slots
alone is biased by what the others contribute. Contributions are grouped into five kinds: of single other slots, near above,
further above, near below and further below; and what several slots contribute together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from offpolicy.core.arrays import FloatArray

KINDS = ("near above", "further above", "near below", "further below", "several together")


@dataclass(frozen=True)
class Missed:
    """The share of each kind of interaction that weights leave out, from 0 to 1.

    Attributes
    ----------
    own : float
        The share of what the slot's own item contributes.
    """

    shares: tuple[float, ...]
    own: float = 0.0

    @classmethod
    def of(cls, kept: FloatArray, together: float) -> Missed:
        """From what is kept of each single other slot, and of several together.

        Parameters
        ----------
        kept : ndarray of shape (slots, slots)
            How much of the contribution of slot j to slot k weights keep, from 0 to 1.
        together : float
            How much they keep of what several slots contribute together.

        Returns
        -------
        Missed
            The shares that are left out.

        Examples
        --------
        >>> above = np.tri(3, k=-1)
        >>> Missed.of(above, 0.4).shares
        (0.0, 0.0, 1.0, 1.0, 0.6)
        """
        slot = np.arange(len(kept))
        up = slot[:, None] - slot
        groups = (up == 1, up > 1, up == -1, up < -1)
        shares = (float(1 - kept[group].mean()) if group.any() else 0.0 for group in groups)
        return cls((*shares, 1 - together if len(kept) > 1 else 0.0))

    def smoothed(self, own: float, others: float) -> Missed:
        """The same if weights keep only a part of the differences between items: of the own slot, and of the others.

        >>> Missed((0.0, 1.0, 0.5, 0.0, 0.0)).smoothed(1.0, 0.8).shares
        (0.2, 1.0, 0.6, 0.2, 0.36)
        """
        *single, together = (1 - share for share in self.shares)
        kept = (*(others * share for share in single), others**2 * together)
        return Missed(tuple(round(1 - share, 12) for share in kept), 1 - own)


def missed_of_window(slots: int, above: int, below: int) -> Missed:
    """What the weights of the slots from `above` slots above to `below` slots below leave out."""
    slot = np.arange(slots)
    up = slot[:, None] - slot
    inside = ((up <= above) & (up >= -below)).astype(np.float64)
    triples = inside[:, :, None] * inside[:, None, :]
    return Missed.of(inside, float(triples.mean()))
