"""The query to repair: its text, the outline of it, and the declared streams that it reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from millpond.analysis.verdict import Verdict
from millpond.frontend.outline import SelectOutline, SourceOutline, TableOutline, outline_text
from millpond.query.model import Column, Query, Script, Table
from millpond.query.types import Domain


@dataclass(frozen=True)
class Subject:
    """What changes are made of.

    ``selects`` are those of the query and of the views of the text.  ``tables`` are the declared streams that
    the query reads; ``declarations`` are their CREATE statements, for those that stand in the text.
    """

    script: Script
    query: Query
    verdict: Verdict
    selects: tuple[SelectOutline, ...]
    tables: Mapping[str, Table]
    declarations: Mapping[str, TableOutline]

    @property
    def text(self) -> str:
        return self.script.text

    def find_stream(self, source: SourceOutline) -> Table | None:
        """The declared stream that an entry of FROM names."""
        return None if source.table is None else self.tables.get(source.table.lower())

    def list_reads(self) -> Iterator[tuple[SelectOutline, SourceOutline, Table]]:
        """Every entry of FROM that is a declared stream."""
        for select in self.selects:
            for source in select.sources:
                table = self.find_stream(source)
                if table is not None:
                    yield select, source, table

    def list_columns(self) -> Iterator[tuple[Table, Column]]:
        """The columns that could take infinitely many values, those that the reasons mention first."""
        mentioned = find_mentioned(self.verdict)
        found = [(table, column) for table in self.tables.values() for column in table.columns]
        known = [(t, c) for t, c in found if c.name != t.time and c.type.domain is not Domain.BOUNDED]
        known = [(t, c) for t, c in known if c.cardinality is None]
        order = {name: number for number, name in enumerate(mentioned)}
        yield from sorted(known, key=lambda each: order.get(each[1].name.lower(), len(order)))

    def mentions(self, column: str) -> bool:
        """Whether the reasons of the verdict name a column."""
        return column.lower() in find_mentioned(self.verdict)


def read_subject(verdict: Verdict) -> Subject | None:
    """The query of a verdict as a subject; None if its text is not known."""
    script = verdict.query.script
    if script is None:
        return None
    outline = outline_text(script.text)
    tables = {t.name.lower(): t for t in verdict.query.declared_tables.values() if t.streaming}
    declared = {each.name.lower(): each for each in outline.tables if each.name.lower() in tables}
    selects = (*outline.queries[script.number], *outline.views)
    return Subject(script, verdict.query, verdict, selects, tables, declared)


def find_mentioned(verdict: Verdict) -> list[str]:
    """The words of the columns that the reasons of a verdict name, in lower case."""
    verdicts = [verdict, *verdict.blocks.values()]
    reasons = [each.cause or each for v in verdicts for each in v.reasons]
    texts = [text for reason in reasons for text in (*reason.columns, reason.predicate or "")]
    words = (word for text in texts for word in re.findall(r"\w+", text.lower()))
    return list(dict.fromkeys(words))
