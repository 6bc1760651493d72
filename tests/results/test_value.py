"""A result is a value: it can be pickled and copied, and then shows the same bytes without the log."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from matplotlib.figure import Figure

import offpolicy as op
from offpolicy.report.page import html
from offpolicy.worlds import Linear
from tests.logs import Small


def shown(result: op.Evaluation) -> list[object]:
    """Every form of a result, pictures by what they draw."""
    figure = Figure()
    result.plot.estimates(figure.subplots())
    drawn = [line.get_xydata().tolist() for line in figure.axes[0].get_lines()]
    frame = result.to_frame().to_csv()
    return [
        str(result),
        result.to_markdown(),
        html.page(result.to_dict(shown=2_000)),
        result.to_dict(shown=300),
        drawn,
        frame,
    ]


def test_a_pickled_result_shows_the_same_bytes_without_the_files(tmp_path: Path) -> None:
    world = Linear(n_actions=6, clicks=True, seed=1)
    rounds = world.sample(900, seed=2).head(900)
    path = tmp_path / "log.parquet"
    columns = {f"x{j}": rounds.context[:, j] for j in range(rounds.context.shape[1])}
    part = np.where(rounds.context[:, 0] > 0, "a", "b")
    pq.write_table(
        pa.table({**columns, "a": rounds.action, "r": rounds.reward[:, 0], "p": rounds.propensity, "by": part}), path
    )
    log = op.read_log(path, context=[*columns], action="a", reward="r", propensity="p", by="by", n_actions=6)
    policies = {"new": world.target, "even": op.Uniform()}
    result = op.evaluate(log, policies, [op.SNIPS(), op.DR(), op.Auto()], progress=False)
    again, copied = pickle.loads(pickle.dumps(result)), copy.deepcopy(result)
    path.unlink()
    assert shown(again) == shown(copied) == shown(result.detach()) == shown(result)
    assert again.with_interval("bootstrap").to_dict() == result.with_interval("bootstrap").to_dict()
    assert again.difference("new", "even").confidence_interval(0.9, "bootstrap") == result.difference(
        "new", "even"
    ).confidence_interval(0.9, "bootstrap")
    alone = pickle.loads(pickle.dumps(result["new", "DR"]))
    assert alone.to_dict() == result["new", "DR"].to_dict()
    assert alone.confidence_interval(0.8, "bootstrap") == result["new", "DR"].confidence_interval(0.8, "bootstrap")


def test_a_copy_keeps_the_log_and_a_detached_result_frees_it(small: Small) -> None:
    log = small.log()
    result = op.evaluate(log, small.target, [op.SNIPS()], progress=False)
    assert copy.deepcopy(result).sensitivity(1.5) == result.sensitivity(1.5)
    kept, alone = weakref.ref(log.source), result.detach()
    del log, result
    gc.collect()
    assert kept() is None
    assert "SNIPS" in str(alone)


@pytest.mark.parametrize(("estimators", "most"), [([op.SNIPS(), op.DR()], 100_000), (None, 300_000)])
def test_a_pickled_result_is_small(estimators: list[op.Estimator] | None, most: int) -> None:
    world = Linear(n_actions=10, seed=3)
    result = op.evaluate(world.sample(1_000, seed=1), world.target, estimators, progress=False)
    str(result)
    result["SNIPS"].confidence_interval(method="bootstrap")  # what was computed on the way is not pickled
    assert len(pickle.dumps(result)) < most


def test_values_alone_are_the_same_values(small: Small) -> None:
    """Blends and families compare errors to find their values; the others need none.

    Without errors, sums are in fewer groups of units, and so are added in another order.
    """
    log = small.log(action_features=small.features)
    estimators = [op.SNIPS(), op.DM(), op.DR(), op.ClippedIPS("auto"), op.MIPS(), op.LearnedMIPS(), op.MR(), op.Auto()]
    pooled = [op.LearnedMIPS(inputs, posterior=op.Gaussian(1.0), name=inputs) for inputs in ("identity", "features", "both")]
    for some in (estimators, estimators[:3], [*pooled[:2], op.OffCEM(), op.DR(cross_fit=3)], pooled[2:]):
        whole = op.evaluate(log, small.target, some, progress=False)
        alone = op.evaluate(log, small.target, some, progress=False, errors=False)
        assert alone.values() == pytest.approx(whole.values(), rel=1e-12)
        assert np.isnan([e.std_error for e in alone]).all()
        assert {reason.code for e in alone for reason in e.reasons} == {"errors skipped"}
        assert "errors=False" in str(alone)
        with pytest.raises(KeyError, match="no estimator 'nothing'"):
            alone["nothing"]
