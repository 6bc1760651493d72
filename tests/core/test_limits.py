"""Limits that no linter has: small classes, and ratios that nobody asks what they are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import offpolicy
import offpolicy.estimators  # imports every ratio
from offpolicy.ratios.base import Ratio

SOURCE = Path(offpolicy.__file__).parent
MOST_PRIVATE_METHODS = 12


def classes_with_many_private_methods(tree: ast.AST) -> Iterator[str]:
    """Such a class hides a concept that wants a type of its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            names = [each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            private = [name for name in names if name.startswith("_") and not name.endswith("__")]
            if len(private) > MOST_PRIVATE_METHODS:
                yield f"{node.name} has {len(private)} private methods"


def subclasses(cls: type) -> set[str]:
    """The names of a class and of all below it that another module could import."""
    own = set() if cls.__name__.startswith("_") else {cls.__name__}
    return own.union(*map(subclasses, cls.__subclasses__()))


def questions_about_ratios(tree: ast.AST, ratios: set[str]) -> Iterator[str]:
    """Where code asks a ratio for its class, or compares it with a text, instead of calling what it offers."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name("isinstance" | "issubclass"), args=[_, asked]):
                if named(asked) & ratios:
                    yield f"line {node.lineno}: {ast.unparse(node)}"
            case ast.Compare(left, _, others):
                sides = [left, *others]
                texts = any(
                    isinstance(each, ast.Constant) and isinstance(each.value, str) for s in sides for each in ast.walk(s)
                )
                if texts and any(isinstance(side, ast.Attribute) and side.attr == "ratio" for side in sides):
                    yield f"line {node.lineno}: {ast.unparse(node)}"
            case ast.MatchClass(cls):
                if named(cls) & ratios:
                    yield f"line {node.lineno}: case {ast.unparse(node)}"


def named(node: ast.AST) -> set[str]:
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return names | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


MODULES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_class_has_many_private_methods(path: Path) -> None:
    assert not list(classes_with_many_private_methods(ast.parse(path.read_text())))


@pytest.mark.parametrize(
    "path", [p for p in MODULES if "ratios" not in p.parts], ids=lambda path: str(path.relative_to(SOURCE))
)
def test_nobody_asks_a_ratio_what_it_is(path: Path) -> None:
    assert not list(questions_about_ratios(ast.parse(path.read_text()), subclasses(Ratio)))


def test_the_limits_are_noticed() -> None:
    methods = "\n".join(f"    def _m{k}(self): ..." for k in range(MOST_PRIVATE_METHODS + 1))
    assert list(classes_with_many_private_methods(ast.parse(f"class A:\n{methods}\n")))
    assert not list(classes_with_many_private_methods(ast.parse(f"class A:\n{methods}\n".replace("_m0", "__m0__"))))
    ratios = subclasses(Ratio)
    assert {"Ratio", "ActionRatio", "EmbeddingRatio", "OutcomeRatio"} <= ratios
    for code in (
        "isinstance(weight.ratio, actions.ActionRatio)",
        "isinstance(x, (int, EmbeddingRatio))",
        "issubclass(kind, OutcomeRatio | Fit)",
        'weight.ratio == "action"',
        '"action" != self.ratio',
        'weight.ratio in ("action", "outcome")',
        "match x:\n    case OutcomeRatio():\n        pass",
    ):
        assert list(questions_about_ratios(ast.parse(code), ratios)), code
    for code in ("isinstance(x, Kernel)", "weight.ratio == other.ratio", 'weight.name == "action"'):
        assert not list(questions_about_ratios(ast.parse(code), ratios)), code
