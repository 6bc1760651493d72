"""Signatures as a reader would write the call: defaults by name, and none for classes that are only read."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

FACTORY = "<factory>"
"""What stands in the signature of a dataclass for a default that is made for each object."""


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-signature", readable)
    app.connect("autodoc-process-docstring", keep_colons, priority=400)
    app.connect("doctree-read", unlink_words)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def readable(
    _app: Sphinx, _what: str, _name: str, each: Any, _options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """The signature to show. A class whose docstring has `Attributes` and no `Parameters` is made by the library."""
    sections = (each.__doc__ or "").splitlines()
    headings = {line.strip() for line in sections}
    if inspect.isclass(each) and "Attributes" in headings and "Parameters" not in headings:
        return "", None
    if dataclasses.is_dataclass(each) and signature:
        for default in (made(field) for field in dataclasses.fields(each) if FACTORY in signature and is_made(field)):
            signature = signature.replace(FACTORY, default, 1)
    return signature, returns


def keep_colons(_app: Sphinx, what: str, _name: str, _each: Any, _options: Any, lines: list[str]) -> None:
    """Napoleon, which comes next, takes what stands before a colon in a property's first line for its type."""
    if what in ("property", "attribute"):
        lines[:0] = ["..", ""]  # a comment


def unlink_words(_app: Sphinx, doctree: nodes.document) -> None:
    """A word in a type, such as `n_actions` in a shape, is no reference: only names of classes are linked."""
    for reference in list(doctree.findall(addnodes.pending_xref)):
        target = reference.get("reftarget", "")
        if reference.get("refdomain") == "py" and "." not in target and not target[:1].isupper():
            reference.replace_self(reference.children)


def is_made(field: dataclasses.Field[Any]) -> bool:
    return field.init and field.default_factory is not dataclasses.MISSING


def made(field: dataclasses.Field[Any]) -> str:
    """A default as code: `{}` for `dict`, `Ridge()` for `Ridge`."""
    factory: Any = field.default_factory
    if factory in (dict, list, tuple):
        return repr(factory())
    return "…" if factory.__name__ == "<lambda>" else f"{factory.__name__}()"
