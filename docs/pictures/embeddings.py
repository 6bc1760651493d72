"""The pictures of docs/embeddings.md: `python -m docs.pictures.embeddings` draws them, and prints the numbers behind them.

Everything is simulated and seeded, so that a second run draws the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from PIL import Image
from scipy.stats import norm

import offpolicy as op

mpl.use("Agg")
import matplotlib.pyplot as plt

Array = npt.NDArray[Any]

IMAGES = Path(__file__).parents[1] / "images"
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9")  # distinguishable for colour-blind readers
MARKERS = "osD^vP"
GREY = "#555555"
WIDTHS = (0.01, 0.03, 0.06, 0.1, 0.18, 0.32, 0.56, 1.0, 1.8, 3.0, 10.0)
STRENGTHS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True)
class Shop:
    """Sixty items of six kinds. An item earns level + slope · x, with nearly the same level and slope within a kind."""

    items: int = 60
    kinds: int = 6
    unevenness: float = 0.5
    """How much more often the old policy shows some items than others."""
    strength: float = 0.0
    """How much the old policy depends on the context."""

    @cached_property
    def kind(self) -> Array:
        return np.repeat(np.arange(self.kinds), self.items // self.kinds)

    @cached_property
    def truth(self) -> Array:
        """Slope and level of each item."""
        angle = 2 * np.pi * self.kind / self.kinds
        own = np.random.default_rng(1).normal(size=(self.items, 2)) * 0.08
        return np.column_stack([np.cos(angle), np.sin(angle)]) + own

    @cached_property
    def preferences(self) -> Array:
        """Arbitrary preferences for items: the old policy's, the new one's, and what the context adds to the old one's."""
        return np.random.default_rng(2).normal(size=(3, self.items))

    def mean_reward(self, x: Array) -> Array:
        rewards: Array = x * self.truth[:, 0] + self.truth[:, 1]
        return rewards

    def old(self, x: Array) -> Array:
        return softmax(self.unevenness * self.preferences[0] + self.strength * x * self.preferences[2])

    def new(self, x: Array) -> Array:
        return softmax(2 * self.mean_reward(x) + 2 * self.preferences[1])

    def log(self, rounds: int, seed: int) -> op.Log:
        """The catalog holds the true line of each item; estimators that learn from the identity do not use it."""
        rng = np.random.default_rng([3, seed])
        x = rng.normal(size=(rounds, 1))
        item = (self.old(x).cumsum(axis=1) > rng.random((rounds, 1))).argmax(axis=1)
        reward = np.take_along_axis(self.mean_reward(x), item[:, None], axis=1)[:, 0] + rng.normal(size=rounds)
        return op.Log(x, item, reward, logging=self.old, catalog=self.truth)

    @cached_property
    def value(self) -> float:
        """Of the new policy: a mean over the quantiles of x."""
        x = norm.ppf((np.arange(20_000) + 0.5) / 20_000)[:, None]
        return float((self.new(x) * self.mean_reward(x)).sum(axis=1).mean())


def softmax(scores: Array) -> Array:
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(p / p.sum(axis=1, keepdims=True))


def map_of_items(shop: Shop) -> None:
    """What is learned about each item from few rounds and from many."""
    figure, axes = plt.subplots(1, 3, figsize=(9.2, 3.3), layout="constrained", sharex=True, sharey=True)
    learned = {rounds: op.embed(shop.log(rounds, 0), inputs="identity") for rounds in (300, 3_000)}
    panels = {f"{r:,} rounds, {r // shop.items} per item": e.published for r, e in learned.items()}
    for ax, (title, table) in zip(axes, {**panels, "true values": shop.truth}.items(), strict=True):
        for k in range(shop.kinds):
            ax.scatter(*table[shop.kind == k].T, s=24, c=COLOURS[k], marker=MARKERS[k], alpha=0.85, linewidths=0)
        ax.set_title(title, fontsize=10)
        ax.set_xlabel("slope: effect of x")
        tidy(ax)
    axes[0].set_ylabel("level: reward at x = 0")
    save(figure, "embeddings-map.png")
    print("average number of the five nearest neighbours that are of the same kind:")
    for rounds, found in learned.items():
        print(f"  {rounds:6,} rounds: {5 * of_its_kind(shop, found.published):.1f}")


def of_its_kind(shop: Shop, table: Array) -> float:
    """The share of the five nearest neighbours of an item that are of its kind."""
    apart = np.linalg.norm(table[:, None] - table, axis=2)
    nearest = apart.argsort(axis=1)[:, 1:6]
    return float((shop.kind[nearest] == shop.kind[:, None]).mean())


def kernel(table: op.EmbeddingTable, width: float) -> Array:
    """k(f(a), f(b)) of all pairs of items."""
    e = table.scaled
    square = ((e[:, None] - e) ** 2).sum(axis=2)
    return np.asarray(np.exp(-square / (2 * width**2 * e.shape[1])))


def weights_of_a_round(shop: Shop) -> None:
    """The weight of a round by the item that was logged in it, from no pooling to complete pooling."""
    table = op.embed(shop.log(3_000, 0), inputs="identity")
    x = np.array([[0.5]])
    new, old = shop.new(x)[0], shop.old(x)[0]
    steps = {"width 0: π/π0": new / old}
    for width in (0.1, 0.3, 1.0):
        near = kernel(table, width)
        steps[f"width {width}"] = near @ new / (near @ old)
    steps["width ∞: all equal"] = np.ones(shop.items)
    figure, axes = plt.subplots(1, len(steps), figsize=(9.2, 3.0), layout="constrained", sharey=True)
    for ax, (title, weight) in zip(axes, steps.items(), strict=True):
        ax.axhline(1, color=GREY, linewidth=0.8, linestyle=":")
        for k in range(shop.kinds):
            at = np.flatnonzero(shop.kind == k)
            ax.scatter(at, weight[at], s=18, c=COLOURS[k], marker=MARKERS[k], linewidths=0)
        ax.set_title(title, fontsize=10)
        ax.set_yscale("log")
        ax.set_xticks([])
        tidy(ax)
    axes[0].set_ylabel("weight of the round")
    figure.supxlabel("logged item, grouped by kind", fontsize=10)
    save(figure, "embeddings-weights.png")
    print("the weights of a round with x = 0.5: standard deviation under π0, and the largest")
    for title, weight in steps.items():
        print(f"  {title:20} {np.sqrt(old @ (weight - old @ weight) ** 2):6.2f} {weight.max():7.2f}")


@dataclass(frozen=True)
class Errors:
    """Estimate minus truth for each estimator and log, and the widths that "slope" chose."""

    of: dict[str, Array]
    chosen: Array

    def square(self, name: str) -> float:
        return float((self.of[name] ** 2).mean())


def errors_by_width(shop: Shop, rounds: int, logs: int) -> Errors:
    learned = [op.LearnedMIPS("identity", posterior=op.Gaussian(w), name=f"{w}") for w in WIDTHS]
    known = [op.MIPS(op.Gaussian(w), name=f"true {w}") for w in WIDTHS]
    chooser = op.LearnedMIPS("identity", posterior=op.Gaussian("slope"), name="slope")
    results = [
        op.evaluate(shop.log(rounds, 100 + seed), shop.new, [op.SNIPS(), *learned, *known, chooser]) for seed in range(logs)
    ]
    names = results[0].estimators
    errors = {name: np.array([r[name].value for r in results]) - shop.value for name in names}
    return Errors(errors, np.array([r["slope"].diagnostics["bandwidth"] for r in results]))


def against_width(logs: int = 100) -> None:
    """Bias², variance and mean squared error of Learned MIPS over logs, by the width of its kernel, in three shops."""
    cases = {
        "17 rounds per item": (Shop(), 1_000),
        "50 rounds per item": (Shop(), 3_000),
        "50 rounds per item, uneven": (Shop(unevenness=1.5), 3_000),
    }
    figure, axes = plt.subplots(
        2, 3, figsize=(9.2, 4.9), layout="constrained", sharex=True, sharey="row", height_ratios=(3.6, 1)
    )
    print(f"bias, standard deviation, root mean squared error over {logs} logs; true: with the true embedding")
    for column, (title, (shop, rounds)) in zip(axes.T, cases.items(), strict=True):
        errors = errors_by_width(shop, rounds, logs)
        draw_errors(column[0], errors)
        widths, counts = np.unique(errors.chosen, return_counts=True)
        column[1].bar(widths, counts / logs, width=widths * 0.3, color=COLOURS[2])
        column[0].set_title(title, fontsize=10)
        tidy(column[1])
        column[1].set_xlabel("kernel width")
        print(f" {title}; the truth is {shop.value:.3f}")
        for name, e in errors.of.items():
            print(f"  {name:10} {e.mean():7.3f} {e.std():6.3f} {np.sqrt((e**2).mean()):6.3f}")
        print("  slope chose", ", ".join(f"{w:g}: {c}" for w, c in zip(widths, counts, strict=True)))
    axes[0, 0].set_ylabel("mean squared error")
    axes[1, 0].set_ylabel("chosen by\n“slope”")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    save(figure, "embeddings-width.png")


def draw_errors(ax: Any, errors: Errors) -> None:
    by_width = [errors.of[f"{w}"] for w in WIDTHS]
    parts = (
        ("bias²", "s--", COLOURS[4], [e.mean() ** 2 for e in by_width]),
        ("variance", "^--", COLOURS[0], [e.var() for e in by_width]),
        ("mean squared error", "o-", "black", [(e**2).mean() for e in by_width]),
        ("… with the true embedding", "-", COLOURS[1], [errors.square(f"true {w}") for w in WIDTHS]),
    )
    for label, style, colour, values in parts:
        ax.plot(WIDTHS, values, style, color=colour, label=label, markersize=4, linewidth=1.4)
    ax.axhline(errors.square("SNIPS"), color=GREY, linewidth=1.2, linestyle=":", label="SNIPS, the limit at width 0")
    ax.axhline(
        errors.square("LoggedMean"), color=GREY, linewidth=1.2, linestyle="-.", label="LoggedMean, the limit at width ∞"
    )
    ax.axhline(errors.square("slope"), color=COLOURS[2], linewidth=1.6, label="width chosen by “slope”")
    ax.set(xscale="log", yscale="log", ylim=(3e-4, 3))
    tidy(ax)


def posterior_form(shop: Shop, log: op.Log, width: float) -> float:
    """The same kernel by Bayes, with one p(a|e) for all contexts: Σ_a p(a|e) π(a|x)/π0(a|x), self-normalised."""
    table, rounds = op.embed(log, inputs="identity"), log.head(len(log))
    p = kernel(table, width) * table.counts
    p /= p.sum(axis=1, keepdims=True)
    weight = (p[rounds.action] * shop.new(rounds.context) / shop.old(rounds.context)).sum(axis=1)
    return float((weight * rounds.reward[:, 0]).sum() / weight.sum())


def against_context(rounds: int = 3_000, logs: int = 40, width: float = 0.18) -> None:
    """The two forms of the weight, as the old policy depends more and more on the context."""
    forms = (
        ("posterior form, Logistic() as published", "s-", COLOURS[4]),
        ("posterior form, kernel", "^-", COLOURS[1]),
        ("ratio form, the same kernel: Gaussian(0.18)", "o-", COLOURS[0]),
    )
    posteriors: dict[str, op.Posterior] = {"logistic": op.Logistic(), "kernel": op.Gaussian(width)}
    estimators = [op.LearnedMIPS("identity", posterior=p, name=name) for name, p in posteriors.items()]
    means, spreads = [], []
    print(f"mean and standard deviation over {logs} logs of {rounds:,} rounds; the truth is {Shop().value:.3f}")
    for strength in STRENGTHS:
        shop = Shop(strength=strength)
        values = []
        for seed in range(logs):
            log = shop.log(rounds, 500 + seed)
            result = op.evaluate(log, shop.new, estimators)
            values.append((result["logistic"].value, posterior_form(shop, log, width), result["kernel"].value))
        means.append(np.mean(values, axis=0))
        spreads.append(np.std(values, axis=0))
        shown = ", ".join(f"{m:.2f} ± {s:.2f}" for m, s in zip(means[-1], spreads[-1], strict=True))
        print(f"  strength {strength:g}: logistic, posterior, ratio: {shown}")
    figure, ax = plt.subplots(figsize=(7.2, 3.6), layout="constrained")
    for k, (label, style, colour) in enumerate(forms):
        at = np.array(STRENGTHS) + 0.008 * (k - 1)
        ax.errorbar(at, np.array(means)[:, k], np.array(spreads)[:, k], fmt=style, color=colour, label=label, markersize=5,
                    capsize=3, linewidth=1.3)  # fmt: skip
    ax.axhline(Shop().value, color="black", linestyle="--", linewidth=1, label="true value")
    ax.set_xlabel("dependence of the old policy on the context")
    ax.set_ylabel("estimate (mean ± SD over logs)")
    ax.set(yscale="log", yticks=(1, 2, 3, 4, 5, 6), yticklabels="123456", ylim=(0.75, 8))
    ax.minorticks_off()
    ax.legend(frameon=False, fontsize=9, loc="upper left")
    tidy(ax)
    save(figure, "embeddings-context.png")


def tidy(ax: Any) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25)


def save(figure: Any, name: str) -> None:
    """As a PNG of few colours, so that the file stays small."""
    drawn = BytesIO()
    figure.savefig(drawn, dpi=110)
    plt.close(figure)
    IMAGES.mkdir(exist_ok=True)
    Image.open(drawn).convert("RGB").quantize(64).save(IMAGES / name, optimize=True)


PICTURES: dict[str, Callable[[], None]] = {
    "map": lambda: map_of_items(Shop()),
    "weights": lambda: weights_of_a_round(Shop()),
    "width": against_width,
    "context": against_context,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="*", help=f"which pictures to draw, of {', '.join(PICTURES)} (all)")
    plt.rcParams.update({"font.size": 10, "axes.axisbelow": True})
    for name in parser.parse_args().only or PICTURES:
        PICTURES[name]()


if __name__ == "__main__":
    main()
