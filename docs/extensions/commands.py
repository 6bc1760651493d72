"""`{command} NAME`: the arguments and options of a command, as the command itself states them when the pages are built."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import typer
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from offpolicy.cli.app import app as offpolicy

SPECIAL = re.compile(r"([\\*|]|_(?!\w))")
"""What has a meaning in reStructuredText. Backquotes keep theirs: they enclose code."""


@dataclass(frozen=True)
class Command:
    """A subcommand with its parameters, from the definitions that also give `--help`."""

    name: str
    command: Any

    @property
    def usage(self) -> str:
        return f"offpolicy {self.name} {' '.join(self.command.collect_usage_pieces(typer.Context(self.command)))}"

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """Each as it is written, such as `--seed <int>`, with its help."""
        context = typer.Context(self.command)
        records = (parameter.get_help_record(context) for parameter in self.command.params)
        return [(re.sub(r"<list\[(\w+)\]>", r"<\1>", record[0]), record[1]) for record in records if record is not None]

    def lines(self) -> Iterator[str]:
        """As reStructuredText: an `option` each, which other pages and the search can point to."""
        yield from (
            escaped(self.command.help),
            "",
            "::",
            "",
            f"   {self.usage}",
            "",
            f".. program:: offpolicy {self.name}",
            "",
        )
        for written, text in self.parameters:
            yield from (f".. option:: {written.replace(' / ', ', ')}", "", f"   {escaped(text)}", "")


def escaped(text: str) -> str:
    return SPECIAL.sub(r"\\\1", text)


def commands() -> dict[str, Command]:
    group: Any = typer.main.get_command(offpolicy)
    return {name: Command(name, command) for name, command in group.commands.items()}


class CommandDirective(SphinxDirective):
    """Puts a command's help in its place."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        lines = ["```{eval-rst}", *commands()[self.arguments[0]].lines(), "```"]
        parent = nodes.container()
        self.state.nested_parse(StringList(lines, source="offpolicy --help"), self.content_offset, parent)
        return parent.children


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("command", CommandDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
