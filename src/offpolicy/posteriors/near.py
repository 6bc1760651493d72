"""The actions nearest to each action: where there are very many, the others hardly speak for a round."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from offpolicy.batch import FloatArray
from offpolicy.threads import cores


def nearest(points: FloatArray, precision: FloatArray, asked: npt.NDArray[np.bool_], count: int) -> npt.NDArray[np.int32]:
    """Actions × count: the codes of the nearest actions by (z − z')ᵀ·precision·(z − z'), the action itself among them.

    Exact, by a k-d tree: at 100,000 actions in 11 dimensions it took a fifteenth of the time of all distances in blocks. An
    approximate index was three to six times faster still, but one neighbour that it misses breaks the bound on what is left
    out. Actions that are not `asked` about have no neighbour but themselves.
    """
    values, vectors = np.linalg.eigh(precision)
    kept = values > values.max(initial=0.0) * 1e-12
    z = points @ (vectors[:, kept] * np.sqrt(values[kept]))
    out = np.repeat(np.arange(len(points), dtype=np.int32)[:, None], count, axis=1)
    rows = np.flatnonzero(asked)
    found = cKDTree(z).query(z[rows], count, workers=cores())[1].reshape(len(rows), count)
    itself = (found == rows[:, None]).any(axis=1)
    found[~itself, -1] = rows[~itself]  # among many at the same place it may be missing
    out[rows] = found
    return out
