"""Witnesses whose rows are samples that pass the query's conditions, and differ in a key.

Conditions and measures that are not understood need only one row that passes them and has a value; the rows
of the witness then differ in their key, and probes perhaps in their level.  Nothing is guaranteed here: the
whole query confirms each witness with DuckDB's real values.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import islice, pairwise, product
from typing import Any

from millpond.analysis.witness.base_rows import FIRST, SPAN, STEP
from millpond.analysis.witness.effort import evaluate_limited
from millpond.analysis.witness.model import StreamRow, Witness
from millpond.analysis.witness.recurring_values import list_template_assumptions
from millpond.analysis.witness.sample_choices import SampleChoices, find_sources
from millpond.analysis.witness.samples import Constant, Number, Sample, TimeText, TimeValue
from millpond.analysis.witness.templates import is_bounded_column
from millpond.analysis.witness.whole_queries import (
    is_confirmed_in_large,
    keeps_declarations,
    respects_checks,
    try_all,
)
from millpond.query.durations import parse_rate
from millpond.query.evaluate import Row
from millpond.query.expressions import TRUE, Aggregate, Literal
from millpond.query.model import Query, Table
from millpond.query.trace import Source, find_equal_columns, list_blocks, list_conditions, list_selects
from millpond.query.trees import is_aggregate, refs, walk
from millpond.query.window_functions import find_offset
from millpond.runtime.row_queries import UncomputableError

_SMALL = 3
_FIRST_BATCH = 8
_BATCH = 60
_MOST_TRIALS = 240
_MOST_BASES = 4
_MOST_CHOICES = 150
_MOST_KEYS = 6
_MOST_LARGE = 4
_MOST_COPIES = 1_001
_MANY_COPIES = 60
_MOST_VALUES = 11
_HIGH = 1_000_000

Rows = Mapping[str, Mapping[str, Sample]]


@dataclass(frozen=True)
class Levels:
    """The level of an optional row, and those of the rows of its probe; None: that of the sample."""

    optional: int | None
    probe: tuple[int | None, ...]


@dataclass(frozen=True)
class SampledTemplate:
    """A scheme for witnesses of any size.

    Every column has the value of its sample in ``rows``.  Optional rows are rows of ``stream``, each with a
    key of its own in the columns of ``keys``.  A probe is rows of ``prober`` with the key of its optional
    row, at most ``burst`` of them at the same time.  ``leveled`` are the columns that have the level of
    the row, ``unique`` ones have another value in each row of a probe.  The setup has a row of each other
    table.
    """

    tables: Mapping[str, Table]
    rows: Rows
    stream: str
    prober: str
    keys: frozenset[Source]
    leveled: frozenset[Source]
    levels: Levels
    unique: frozenset[Source] = frozenset()
    burst: int = _MOST_COPIES
    compare: str = "emitted"
    assumptions: tuple[str, ...] = ()

    def build(self, n: int) -> Witness:
        """The witness with ``n`` optional rows."""
        clock, step = FIRST, min(STEP, SPAN / (n + len(self.tables) + len(self.levels.probe) + 2))
        setup, universe, probes = [], [], []
        for name in sorted(self.tables.keys() - {self.stream, self.prober}):
            clock += step
            setup.append(StreamRow(name, self.make_row(name, 0, None, clock)))
        for key in range(1, n + 1):
            clock += step
            universe.append(
                StreamRow(self.stream, self.make_row(self.stream, key, self.levels.optional, clock))
            )
        probes = [tuple(self._make_probe(key, clock, step)) for key in range(1, n + 1)]
        return Witness(tuple(setup), tuple(universe), tuple(probes), self.compare)

    def _make_probe(self, key: int, clock: datetime, step: timedelta) -> Iterator[StreamRow]:
        made: dict[int | None, StreamRow] = {}
        for number, level in enumerate(self.levels.probe):
            if number % self.burst == 0:
                clock += step
                made = {}
            if level not in made or self.unique:
                row = self.make_row(self.prober, key, level, clock, number + 1)
                made[level] = StreamRow(self.prober, row)
            yield made[level]

    def observe_answers(self) -> SampledTemplate:
        """The same scheme, where the whole answer after a probe is observed."""
        return replace(self, compare="answer")

    def rebase(self, tables: Mapping[str, Table], base: Mapping[str, Row]) -> SampledTemplate:
        """The same scheme for a query that reads further tables, with a row of each."""
        more = {
            name: {column: Constant(value) for column, value in row.items()} for name, row in base.items()
        }
        return replace(self, tables=tables, rows={**more, **self.rows})

    def make_row(self, name: str, key: int, level: int | None, clock: datetime, number: int = 0) -> Row:
        """A row of a table with a key, a level, a time, and its number in a probe."""
        table, row = self.tables[name], {}
        for column in table.columns:
            source = name, column.name
            if column.name == table.time:
                row[column.name] = clock
                continue
            other = number if source in self.unique else 0
            own = self.find_level(name, column.name, level)
            row[column.name] = self.rows[name][column.name].make(key if source in self.keys else other, own)
        return row

    def find_level(self, name: str, column: str, level: int | None) -> int | None:
        """The level of a value in a row with a level; keys that are numbers or times have none."""
        source = name, column
        is_plain_key = source in self.keys and isinstance(
            self.rows[name][column], Number | TimeValue | TimeText
        )
        return level if source in self.leveled and not is_plain_key else None


def find_sampled_template(query: Query) -> SampledTemplate | None:
    """A template whose witnesses are confirmed on the whole query; None if none is found.

    Raises UncomputableError if DuckDB cannot compute the query, or not for samples.
    """
    return _SampleSearch(query).find()


class _SampleSearch:
    """Chooses keys, then rows that pass the conditions, then the levels of probes."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._tables = query.declared_tables
        self._choices = SampleChoices(query)
        self._equal = find_equal_columns(query)
        self._used = _find_used_sources(query)
        self._grouping = _find_grouping_sources(query)
        self._conditions = _find_compared_sources(query)
        self._different = _find_different_sources(query)
        self._levels = list(_list_levels(query))
        self._has_functions = any(True for _ in list_blocks(query))
        self._trials = _MOST_TRIALS
        self._large = _MOST_LARGE
        names = {column.name for table in self._tables.values() for column in table.derived}
        checks = [check for table in self._tables.values() for check in table.checks]
        if any(ref.column in names for check in checks for ref in refs(check)):
            raise UncomputableError("a CHECK on an expression")

    def find(self) -> SampledTemplate | None:
        for stream, prober, keys in islice(self._list_keys(), _MOST_KEYS):
            for base in self._find_bases(stream, prober, keys):
                found = self._find_from(base)
                if found is not None:
                    return found
        return None

    def _list_keys(self) -> Iterator[tuple[str, str, frozenset[Source]]]:
        """The streams of optional rows and of probes, and the columns that have the key of a row."""
        streams = [name for name, table in self._tables.items() if table.streaming]
        own_first = self._has_functions or any(map(is_aggregate, list_selects(self._query)))
        pairs = sorted(product(streams, streams), key=lambda pair: (pair[0] == pair[1]) != own_first)
        for stream, prober in pairs:
            table = self._tables[stream]
            columns = sorted(table.columns, key=lambda c: (stream, c.name) not in self._grouping)
            for column in columns:
                source = stream, column.name
                if column.name == table.time or source not in self._used or is_bounded_column(table, column):
                    continue
                same = {source}.union(*(each for each in self._equal if source in each))
                keys = frozenset(each for each in same if self._can_vary(*each))
                if prober in {name for name, _ in keys}:
                    yield stream, prober, keys

    def _can_vary(self, name: str, column: str) -> bool:
        """Whether a column can have the key of a row: relations do not grow, and times only rise."""
        return self._tables[name].streaming and column != self._tables[name].time

    def _find_bases(self, stream: str, prober: str, keys: frozenset[Source]) -> Iterator[SampledTemplate]:
        """Choices of samples for all columns, with which the query has an answer."""
        samples = {
            (name, column.name): self._choices.list_samples(table, column)
            for name, table in self._tables.items()
            for column in table.columns
            if column.name != table.time
        }
        samples |= {source: [each for each in samples[source] if each.varies] for source in keys}
        if not all(samples[source] for source in keys):
            return
        others = max((len(found) for source, found in samples.items() if source not in keys), default=1)
        own = max(len(samples[source]) for source in keys)
        rng = random.Random(0)
        picks = sorted(product(range(own), range(others)), key=sum)[:_MOST_CHOICES]
        chosen = [self._pick(samples, keys, *pick) for pick in picks]
        for number in range(_MOST_CHOICES if others > 1 else 0):
            chosen.append(self._pick(samples, keys, number % own, rng))
        plain = Levels(None, (None,))
        candidates = [
            SampledTemplate(
                self._tables, rows, stream, prober, keys, frozenset(), plain, burst=self._find_burst(prober)
            )
            for rows in chosen
        ]
        yield from self._choose_answered(candidates)

    def _find_burst(self, prober: str) -> int:
        """The number of rows of a stream that may come at the same time."""
        rate = parse_rate(self._tables[prober].properties.get("rate", ""))
        return 1 if self._has_functions else rate or _MOST_COPIES

    def _pick(
        self,
        samples: Mapping[Source, Sequence[Sample]],
        keys: frozenset[Source],
        own: int,
        other: int | random.Random,
    ) -> dict[str, dict[str, Sample]]:
        """One sample of each column: those of the keys have a number, the others one, too, or random ones."""
        rows: dict[str, dict[str, Sample]] = {name: {} for name in self._tables}
        for (name, column), found in samples.items():
            number = other if isinstance(other, int) else other.randrange(len(found))
            number = own if (name, column) in keys else number
            rows[name][column] = found[number % len(found)]
        return rows

    def _choose_answered(self, candidates: Sequence[SampledTemplate]) -> Iterator[SampledTemplate]:
        """The candidates whose rows give an answer, those with the most values first."""
        usable, worlds = [], []
        for each in candidates:
            witness = each.build(1)
            if respects_checks(self._tables, witness) and keeps_declarations(each):
                world: dict[str, list[Row]] = {}
                for row in (*witness.setup, *witness.universe, *witness.probes[0]):
                    world.setdefault(row.stream, []).append(row.row)
                usable.append(each)
                worlds.append(world)
        if not usable:
            return
        empty, *answers = evaluate_limited(_drop_filters(self._query), [{}, *worlds])
        scores = [(-_count_values(answer) if answer != empty else 1) for answer in answers]
        by_key: dict[str, tuple[int, SampledTemplate]] = {}
        for each, score in zip(usable, scores, strict=True):
            own = str([each.rows[name][column] for name, column in sorted(each.keys)])
            if own not in by_key or score < by_key[own][0]:
                by_key[own] = score, each
        best = sorted(by_key.values(), key=lambda pair: pair[0])
        yield from (each for score, each in best[:_MOST_BASES] if score <= 0 or self._has_functions)

    def _find_from(self, base: SampledTemplate) -> SampledTemplate | None:
        """A confirmed template with the samples of a base."""
        every = frozenset((name, c.name) for name, t in self._tables.items() for c in t.columns)
        uncompared = every - self._conditions | base.keys
        different = self._different - base.keys
        variants = [(uncompared - different, different), (every - different, different)]
        for leveled, unique in dict.fromkeys(variants):
            first = replace(base, leveled=leveled, unique=unique)
            templates = (replace(first, levels=levels) for levels in self._levels)
            size = _FIRST_BATCH
            while self._trials > 0 and (batch := list(islice(templates, size))):
                self._trials -= len(batch)
                size = _BATCH
                for template in self._try(self._try(batch, 1), _SMALL):
                    assumptions = list_template_assumptions(
                        self._query, partial(_list_rows, template), template.keys
                    )
                    if assumptions is None:
                        return None
                    found = self._confirm(template)
                    if found is not None:
                        return replace(found, assumptions=assumptions)
                    if self._large <= 0:
                        return None
        return None

    def _try(self, templates: Sequence[SampledTemplate], n: int) -> list[SampledTemplate]:
        """The templates whose probes show ``n`` rows."""
        trials = []
        for template in templates:
            witness = template.build(n)
            if respects_checks(self._tables, witness):
                trials.append((template, try_all(witness)))
        if not trials:
            return []
        answers = evaluate_limited(self._query, [world for _, trial in trials for world in trial.worlds])
        found, first = [], 0
        for template, trial in trials:
            if trial.is_confirmed(answers[first : first + len(trial.worlds)]):
                found.append(template)
            first += len(trial.worlds)
        return found

    def _confirm(self, template: SampledTemplate) -> SampledTemplate | None:
        """The template, if it is confirmed in large."""
        is_revised = any(is_aggregate(select) for select in list_selects(self._query))
        observed = template.observe_answers() if is_revised and len(template.levels.probe) > 1 else template
        self._large -= 1
        return observed if is_confirmed_in_large(self._query, observed) else None


def _list_rows(template: SampledTemplate, stream: str, n: int) -> list[Row]:
    """Rows of a stream that differ only in their key."""
    level, samples = template.levels.optional, template.rows[stream]
    row = template.make_row(stream, 0, level, FIRST)
    own = [column for name, column in template.keys if name == stream]
    levels = {column: template.find_level(stream, column, level) for column in own}
    return [
        {**row, **{column: samples[column].make(key, levels[column]) for column in own}}
        for key in range(1, n + 1)
    ]


def _count_values(answer: Any) -> int:
    return sum(value is not None for row in answer for value in row)


def _drop_filters(query: Query) -> Query:
    """The query without the conditions on its results, which single rows may not fulfil."""
    terms = tuple(
        replace(term, selects=tuple(replace(select, having=TRUE) for select in term.selects))
        for term in query.terms
    )
    return replace(query, terms=terms, filter=None, projection=())


def _find_used_sources(query: Query) -> set[Source]:
    """The declared columns that a query uses anywhere, also inside expressions."""
    found: set[Source] = set()
    for select in list_selects(query):
        places = [select.where, select.having, *(join.on for join in select.joins)]
        places += [each.condition for each in select.exists]
        used = {ref for place in places for ref in refs(place)} | set(select.group_by or ())
        used |= {ref for item in select.items for ref in refs(item.expression)}
        for ref in used:
            found |= find_sources(select.occurrence(ref.occurrence).table, ref.column)
    for block in list_blocks(query):
        for function in block.functions:
            for name in (*function.partition_by, *(key.column for key in function.order_by)):
                found |= find_sources(block.base, name)
    return found


def _find_grouping_sources(query: Query) -> set[Source]:
    """The declared columns by which a query makes groups or partitions, also inside expressions."""
    found: set[Source] = set()
    for select in list_selects(query):
        for ref in select.group_by or ():
            found |= find_sources(select.occurrence(ref.occurrence).table, ref.column)
    for block in list_blocks(query):
        for function in block.functions:
            for name in function.partition_by:
                found |= find_sources(block.base, name)
    return found


def _find_compared_sources(query: Query) -> set[Source]:
    """The declared columns that conditions on rows mention, also inside expressions."""
    found: set[Source] = set()
    for select, condition in list_conditions(query):
        if select is not None and condition is not select.having:
            for ref in refs(condition):
                found |= find_sources(select.occurrence(ref.occurrence).table, ref.column)
    return found


def _find_different_sources(query: Query) -> frozenset[Source]:
    """The declared columns of which HAVING counts different values."""
    found: set[Source] = set()
    for select in list_selects(query):
        for node in walk(select.having):
            if isinstance(node, Aggregate) and node.distinct:
                for ref in refs(node):
                    found |= find_sources(select.occurrence(ref.occurrence).table, ref.column)
    return frozenset(found)


# --- levels --------------------------------------------------------------------------------------------


def _list_levels(query: Query) -> Iterator[Levels]:
    """Levels of optional rows and of probes, the simplest first."""
    yield Levels(None, (None,))
    selects = list(list_selects(query))
    functions = [function for block in list_blocks(query) for function in block.functions]
    if not functions and not any(map(is_aggregate, selects)):
        return
    yield from (Levels(5, (1,)), Levels(1, (5,)))
    if functions:
        yield from _list_series({abs(find_offset(f)) for f in functions if f.function in ("LAG", "LEAD")})
    constants = sorted(_list_constants(query))
    copies = sorted({1, 2, *(c + d for c in constants for d in (-1, 0, 1))})
    copies = [count for count in copies if 1 <= count <= _MOST_COPIES]
    between = [(a + b) // 2 for a, b in pairwise(constants)]
    near = [*between, *constants, *(c + 1 for c in constants), *(c - 1 for c in constants)]
    values = list(dict.fromkeys([_HIGH, 0, *near, -_HIGH]))[:_MOST_VALUES]
    for count in copies:
        yield Levels(None, (None,) * count)
        yield Levels(_HIGH, (_HIGH,) * count)
        yield Levels(-_HIGH, (-_HIGH,) * count)
    pairs = [pair for pair in product(values, values) if pair[0] != pair[1]]
    for count in (count for count in copies if count <= _MANY_COPIES):
        yield from (Levels(optional, (probe,) * count) for optional, probe in pairs)


def _list_series(offsets: set[int]) -> Iterator[Levels]:
    """Levels that fall, that rise, and of which the last is far from the others."""
    lengths = sorted({2, 3, *(offset + 1 for offset in offsets if 0 < offset < _MANY_COPIES)})
    for length, slope in product(lengths, (-1, 1)):
        yield Levels(100, tuple(100 + slope * 10 * i for i in range(1, length + 1)))
    yield Levels(0, (1, 1_000))
    yield Levels(0, (1, -1_000))
    yield Levels(0, (*(0 for _ in range(9)), _HIGH))
    yield Levels(None, (_HIGH,))
    yield Levels(None, (-_HIGH,))


def _list_constants(query: Query) -> set[int]:
    """The numbers in the conditions on results: of HAVING, and of selects over blocks."""
    places = [each for _, each in list_conditions(query)] if any(True for _ in list_blocks(query)) else []
    places += [select.having for select in list_selects(query)]
    literals = (node.value for place in places for node in walk(place) if isinstance(node, Literal))
    numbers = (each for each in literals if isinstance(each, int | float | Decimal))
    return {int(number) for number in numbers if not isinstance(number, bool)}
