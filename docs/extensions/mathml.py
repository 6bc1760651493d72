"""Formulas as MathML, which browsers render by themselves: no script, no font, no network.

The converter is that of docutils, which Sphinx builds on.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

log = logging.getLogger(__name__)

SIZED = re.compile(r"\\([bB]igg?)(?=(\\[a-z]+|.))")
"""A bracket of a given size; docutils knows those that say on which side they stand."""
CLOSING = (")", "]", "\\rangle", "\\rfloor", "\\rceil")


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(converted(node, as_block=False))
    raise nodes.SkipNode


def block(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{converted(node, as_block=True)}</div>\n')
    raise nodes.SkipNode


def converted(node: nodes.math | nodes.math_block, *, as_block: bool) -> str:
    """A formula as MathML; one that cannot be converted is a warning, which fails the build."""
    try:
        return str(tex2mathml(spelled(node.astext()), as_block=as_block))
    except MathError as error:
        log.warning("the formula %s cannot be converted: %s", node.astext(), error, location=node)
        return ""


def spelled(formula: str) -> str:
    """The formula with the spellings that docutils knows."""
    sided = SIZED.sub(lambda found: f"\\{found[1]}{'r' if found[2] in CLOSING else 'l'}", formula)
    return re.sub(r"\\dots\b", r"\\ldots", sided)
