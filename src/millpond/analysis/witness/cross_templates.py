"""Witnesses of whole queries whose probes are rows of another stream than the optional rows, or of the same.

An optional row has its own value in the key columns; its probe is a row of any stream with the same value in
columns of its own.  So a probe may change a group that is joined with the optional rows, or look for a value
that an optional row gave it.  Candidates are tried in small, all at once, and confirmed in large.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice, permutations, product

from millpond.analysis.witness.base_rows import FIRST, SPAN, STEP, find_base_rows, shift_value
from millpond.analysis.witness.effort import evaluate_limited
from millpond.analysis.witness.model import StreamRow, Witness
from millpond.analysis.witness.whole_queries import (
    CONFIRMED,
    is_confirmed_in_large,
    is_retracting_whole,
    keeps_declarations,
    respects_checks,
    try_all,
)
from millpond.query.evaluate import Row
from millpond.query.model import Column, Query, Table
from millpond.query.trace import Source, find_compared_columns, find_equal_columns
from millpond.query.types import Domain, Family
from millpond.runtime.row_queries import UncomputableError

_SMALL = 2
_MOST_BASES = 2
_MOST_TEMPLATES = 600
_BATCH = 100
_MOST_COMPARED = 100
_MOST_TRIED = 8
_MOST_RETRACTING = 8
# How a probe differs from the optional row in the columns that are no keys.
_RISES = (0, 1, -1)


@dataclass(frozen=True)
class CrossTemplate:
    """A scheme for witnesses of any size.

    ``base`` is a row of each table for which the query has an answer.  Optional rows are rows of ``stream``,
    each with its own value of the ``keys``, which rise or fall by ``slope``, and of the ``unique`` columns.
    A probe is a row of ``prober`` with the keys of its optional row, which may be by ``offset`` higher in
    comparisons of two columns, and numbers that are by ``rise`` higher;
    the first probe is one row, the second two, and so on if they are ``counted``.  The setup has a row of
    each ``present`` table, or one for each key if it is ``keyed``.  With ``copies``, the setup has a row a
    second before each optional row, and a probe is two rows, so that groups have more than one row.
    """

    base: Mapping[str, Row]
    tables: Mapping[str, Table]
    stream: str
    prober: str
    keys: frozenset[Source]
    unique: frozenset[str]
    rise: int
    present: frozenset[str]
    keyed: bool
    slope: int = 1
    offset: int = 0
    counted: bool = False
    copies: int = 1
    compare: str = "emitted"
    assumptions: tuple[str, ...] = ()

    def build(self, n: int) -> Witness:
        """The witness with ``n`` optional rows."""
        rows = (n + 2) * (len(self.tables) + 1) + (n if self.counted else 1)
        step, clock = _find_step(rows), FIRST
        setup, universe = [], []
        for name in sorted(self.present):
            for key in range(1, n + 1) if self.keyed else range(1):
                clock += step
                setup.append(StreamRow(name, self._make(name, key, 0, 0, clock)))
        for key in range(1, n + 1):
            clock += step
            if self.copies > 1:
                setup.append(StreamRow(self.stream, self._make(self.stream, key, 0, 100 + key, clock)))
                clock += timedelta(seconds=1)
            universe.append(StreamRow(self.stream, self._make(self.stream, key, 0, 100 + key, clock)))
        probes = []
        for key in range(1, n + 1):
            now, probe = clock, []
            for number in range(key if self.counted else self.copies):
                now += timedelta(seconds=1) if self.copies > 1 and number else step
                probe.append(StreamRow(self.prober, self._make(self.prober, key, self.rise, 10_000, now)))
            probes.append(tuple(probe))
        return Witness(tuple(setup), tuple(universe), tuple(probes), self.compare)

    def observe_answers(self) -> CrossTemplate:
        """The same scheme, where the whole answer after a probe is observed."""
        return replace(self, compare="answer")

    def rebase(self, tables: Mapping[str, Table], base: Mapping[str, Row]) -> CrossTemplate:
        """The same scheme for a query that reads further tables, with a row of each."""
        present = self.present | (tables.keys() - self.tables.keys())
        return replace(self, tables=tables, base={**base, **self.base}, present=present)

    def _make(self, name: str, key: int, rise: int, number: int, clock: datetime) -> Row:
        table, row = self.tables[name], dict(self.base[name])
        for column in table.columns:
            if column.name == table.time:
                row[column.name] = clock
            elif (name, column.name) in self.keys:
                offset = self.offset if name == self.prober else 0
                row[column.name] = shift_value(column, row[column.name], self.slope * key + offset)
            elif name == self.stream and column.name in self.unique and number:
                row[column.name] = shift_value(column, row[column.name], number)
            elif rise and column.type.family is Family.NUMBER:
                row[column.name] = shift_value(column, row[column.name], rise)
        return row


def _find_step(rows: int) -> timedelta:
    """The time between two rows, in whole days; shorter in a witness that is very large."""
    return max(min(STEP, SPAN / rows) // timedelta(days=1), 1) * timedelta(days=1)


def find_cross_template(query: Query) -> CrossTemplate | None:
    """A template whose witnesses are confirmed on the whole query; None if none is found."""
    tables = query.declared_tables
    try:
        for base in find_base_rows(query, tables, find_equal_columns(query))[:_MOST_BASES]:
            proposed = islice(_propose(query, tables, base), _MOST_TEMPLATES)
            compared = islice(_propose_compared(query, tables, base), _MOST_COMPARED)
            found = _find_from(query, proposed) or _find_from(query, compared)
            if found is not None:
                return found
    except UncomputableError:
        return None
    return None


def _find_from(query: Query, proposed: Iterator[CrossTemplate]) -> CrossTemplate | None:
    """The first of some templates that is confirmed, or else a variant of one that takes rows back."""
    attempts = _MOST_TRIED
    retracting: list[CrossTemplate] = []
    while batch := list(islice(proposed, _BATCH)):
        found, taken_back = _try(query, batch)
        for template in found[:attempts]:
            if is_confirmed_in_large(query, template):
                return template
        attempts -= len(found[:attempts])
        retracting += taken_back
    for template in retracting[:_MOST_RETRACTING]:
        if not is_retracting_whole(query, template.build(CONFIRMED[-1])):
            continue
        found, _ = _try(query, [replace(template, rise=rise, compare="answer") for rise in _RISES])
        for maintained in found:
            if is_confirmed_in_large(query, maintained):
                return maintained
    return None


def _try(query: Query, templates: Sequence[CrossTemplate]) -> tuple[list[CrossTemplate], list[CrossTemplate]]:
    """The templates that are confirmed in small, and those whose probes take rows of the answer back.

    If rows are taken back, the answer is a table to be maintained: a probe that leaves it shows its rows.
    """
    trials = []
    for template in templates:
        witness = template.build(_SMALL)
        if keeps_declarations(template) and respects_checks(template.tables, witness):
            trials.append((template, try_all(witness)))
    if not trials:
        return [], []
    answers = evaluate_limited(query, [world for _, trial in trials for world in trial.worlds])
    found, retracting, first = [], [], 0
    for template, trial in trials:
        own = answers[first : first + len(trial.worlds)]
        first += len(trial.worlds)
        if trial.is_confirmed(own):
            found.append(template)
        elif template.compare == "emitted" and trial.is_retracting(own):
            retracting.append(template)
    return found, retracting


def _propose(query: Query, tables: Mapping[str, Table], base: Mapping[str, Row]) -> Iterator[CrossTemplate]:
    streams = [name for name, table in tables.items() if table.streaming]
    relations = frozenset(tables) - set(streams)
    equal, compared = find_equal_columns(query), find_compared_columns(query)
    yield from _propose_uncompared(tables, base, compared)
    for stream, prober in product(streams, streams):
        for keys, start in _list_keys(tables, equal, base, stream, prober):
            free = frozenset(c.name for c in _list_free(tables[stream]) if (stream, c.name) not in keys)
            first = CrossTemplate(start, tables, stream, prober, keys, free, 0, relations, False)
            others = relations | (set(streams) - {stream})
            for present, rise in product(dict.fromkeys((relations, others)), _RISES):
                plain = replace(first, present=present, rise=rise)
                yield from _vary(plain) if keys else (plain,) if free else ()
            if keys and stream != prober:
                yield replace(first, unique=frozenset(), counted=True)
            if keys:
                yield from (replace(first, unique=frozenset(), copies=2, slope=slope) for slope in (1, -1))


def _propose_uncompared(
    tables: Mapping[str, Table], base: Mapping[str, Row], compared: set[Source]
) -> Iterator[CrossTemplate]:
    """Optional rows that differ in the columns that no condition compares, and probes that join them all."""
    streams = [name for name, table in tables.items() if table.streaming]
    for stream, prober in product(streams, streams):
        free = [c.name for c in _list_free(tables[stream]) if (stream, c.name) not in compared]
        if stream != prober and free:
            keys = frozenset({(stream, name) for name in free})
            present = frozenset(tables) - {stream, prober}
            yield CrossTemplate(base, tables, stream, prober, keys, frozenset(), 0, present, False)


def _propose_compared(
    query: Query, tables: Mapping[str, Table], base: Mapping[str, Row]
) -> Iterator[CrossTemplate]:
    """Templates for aggregates that compare columns of two streams: ``SUM(abs(a.x - b.y))``."""
    streams = [name for name, table in tables.items() if table.streaming]
    relations = frozenset(tables) - set(streams)
    for stream, prober in permutations(streams, 2):
        for keys, start in _list_keys(tables, find_equal_columns(query), base, stream, prober):
            if {name for name, _ in keys} >= {stream, prober}:
                first = CrossTemplate(start, tables, stream, prober, keys, frozenset(), 0, relations, False)
                yield from (replace(first, offset=offset) for offset in (1, -1))


def _vary(template: CrossTemplate) -> Iterator[CrossTemplate]:
    """Variants of a template with keys."""
    for slope, keyed in product((1, -1), (False, True)):
        for unique in dict.fromkeys((frozenset[str](), template.unique)):
            yield replace(template, slope=slope, keyed=keyed, unique=unique)


def _list_keys(
    tables: Mapping[str, Table],
    equal: Sequence[set[Source]],
    base: Mapping[str, Row],
    stream: str,
    prober: str,
) -> Iterator[tuple[frozenset[Source], Mapping[str, Row]]]:
    """Columns that rise together from one optional row to the next, with the rows from which they start.

    None at all, columns that the query equates, and any two, which start with the value of the prober.
    """
    yield frozenset(), base
    for column in _list_free(tables[stream]):
        own = (stream, column.name)
        together = frozenset({own}.union(*(each for each in equal if own in each)))
        yield together, base
        if stream == prober:
            continue
        for other in _list_free(tables[prober]):
            if other.type.family is column.type.family:
                value = base[prober][other.name]
                start = {**base, stream: {**base[stream], column.name: value}}
                yield together | {(prober, other.name)}, start


def _list_free(table: Table) -> list[Column]:
    """The columns that can take many values."""
    families = (Family.NUMBER, Family.STRING, Family.DATE)
    columns = (c for c in table.columns if c.name != table.time and c.cardinality is None)
    return [c for c in columns if c.type.family in families and c.type.domain is not Domain.BOUNDED]
