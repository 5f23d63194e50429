"""Finds where a query says what makes it unbounded: the predicates and columns of the reasons."""

from __future__ import annotations

import re
from collections.abc import Iterator

from millpond.analysis.verdict import Verdict
from millpond.errors import Position
from millpond.query.expressions import Comparison
from millpond.query.trace import list_conditions
from millpond.query.trees import walk
from millpond.report.graph import contains_predicate
from millpond.report.highlight import Mark


def find_guilty(verdict: Verdict) -> list[Mark]:
    """The pieces of the query's text that its reasons are about; none if they are not found there."""
    text = verdict.query_text
    predicates = list(dict.fromkeys(r.predicate for r in verdict.reasons if r.predicate))
    found: list[Mark] = []
    for predicate in predicates:
        places = list(_find_comparisons(verdict, predicate)) or list(_find_text(text, predicate))
        found += [Mark(start, end, css="guilty") for start, end in places]
    for reason in (r for r in verdict.reasons if not r.predicate):
        places = [place for column in reason.columns for place in _find_column(text, column)]
        found += [Mark(start, end, css="guilty") for start, end in places]
    return list(dict.fromkeys(found))


def _find_comparisons(verdict: Verdict, predicate: str) -> Iterator[tuple[int, int]]:
    """The comparisons of a predicate, by the positions that the front end has given them."""
    query, text = verdict.query, verdict.query_text
    for _, condition in list_conditions(query):
        for node in walk(condition):
            if not isinstance(node, Comparison) or node.position is None or query.position is None:
                continue
            if not contains_predicate(predicate, node.text):
                continue
            start = _find_offset(text, query.position, node.position)
            if start is not None and text.startswith(node.text, start):
                yield start, start + len(node.text)


def _find_offset(text: str, begin: Position, place: Position) -> int | None:
    """The offset in a text that begins at a position of a larger one."""
    lines = text.splitlines(keepends=True)
    line = place.line - begin.line
    if not 0 <= line < len(lines):
        return None
    column = place.column - (begin.column if line == 0 else 1)
    return sum(map(len, lines[:line])) + column if column >= 0 else None


def _find_text(text: str, piece: str) -> Iterator[tuple[int, int]]:
    """Where a piece of SQL is in a text, whatever the spaces and line breaks in it."""
    words = r"\s+".join(re.escape(word) for word in piece.split())
    for found in re.finditer(rf"(?<![\w.`]){words}(?![\w`])", text):
        yield found.span()


def _find_column(text: str, column: str) -> Iterator[tuple[int, int]]:
    """Where a column is in the SELECT list or behind it: with its alias if that is written, else without."""
    for name in dict.fromkeys((column, column.rpartition(".")[2])):
        spans = list(_find_text(text, name))
        if spans:
            yield spans[0]
            return
