"""The parts that pages of the tour are made of."""

from __future__ import annotations

from rich.console import RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from millpond.analysis.verdict import Verdict

INDENT = 2
_STYLES = {"bounded": "bold green", "unbounded": "bold red", "undetermined": "bold yellow"}


def heading(number: int, title: str) -> RenderableType:
    """The heading of a part of the tour, across the page."""
    return Padding(Rule(Text(f"{number}  {title}", style="bold"), align="left", style="dim"), (1, 0))


def paragraph(text: str | Text) -> RenderableType:
    """Prose, with a blank line after it."""
    return Padding(text if isinstance(text, Text) else Text(text), (0, 0, 1, 0))


def code(text: str) -> RenderableType:
    """SQL text, indented."""
    return Padding(Text(text.strip(), style="cyan"), (0, 0, 1, INDENT))


def command(text: str) -> RenderableType:
    """A command as it is typed in a shell."""
    return Text.assemble(("$ ", "dim"), (text, "bold"))


def explained(verdict: Verdict, width: int) -> RenderableType:
    """The explanation of a verdict, with its outcome in colour."""
    text = Text(verdict.explain(width - INDENT))
    text.stylize(_STYLES[verdict.outcome], 0, len(verdict.outcome))
    return Padding(text, (0, 0, 1, INDENT))


def plain_table(*columns: str) -> Table:
    """A table without lines, with a dim heading."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def indented(page: RenderableType) -> RenderableType:
    """A page that is indented like SQL text."""
    return Padding(page, (0, 0, 1, INDENT))
