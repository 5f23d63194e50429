"""Witnesses of whole queries, blocks included, from templates that DuckDB confirms end to end.

A template says how the optional rows differ (each has its own value of a key, or they share a partition),
what the rows of a probe look like (the key of an optional row, with a lower, equal or higher value), and how
many rows come before.  Templates are tried in batches, in small; the first that is confirmed is the source of
witnesses of any size.  Rows are so far apart in time that no window of the query holds two of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice, product, zip_longest
from typing import Any

from millpond.analysis.rank_filters import find_rank_limit
from millpond.analysis.witness.base_rows import (
    FIRST,
    SPAN,
    STEP,
    find_base_rows,
    find_changed_rows,
    shift_value,
)
from millpond.analysis.witness.effort import evaluate_limited
from millpond.analysis.witness.model import StreamRow, Witness, WitnessTemplate
from millpond.analysis.witness.whole_queries import (
    CONFIRMED,
    Trial,
    is_confirmed_in_large,
    is_confirmed_whole,
    is_retracting_whole,
    keeps_declarations,
    respects_checks,
    try_all,
)
from millpond.errors import WitnessSizeError
from millpond.query.evaluate import Row
from millpond.query.expressions import Ref
from millpond.query.model import Column, Item, Occurrence, Query, Select, Table, WindowFunction
from millpond.query.normalize import TooManyParts
from millpond.query.parts import split_into_parts
from millpond.query.trace import (
    Source,
    find_equal_columns,
    find_used_columns,
    list_blocks,
    list_conditions,
    list_selects,
    trace_column,
    trace_ref,
)
from millpond.query.trees import is_aggregate, refs
from millpond.query.types import Domain
from millpond.query.window_functions import FunctionKind, find_kind, find_offset
from millpond.runtime.row_queries import UncomputableError

_SMALL = 3  # optional rows of the witnesses that are tried first
_BATCH = 150
_FEW = 8
_MOST_RETRACTING = 40
_MOST_ATTEMPTS = 40
_MOST_TEMPLATES = 600
_MOST_ROWS = 1_000


@dataclass(frozen=True)
class Template:
    """A scheme for witnesses of any size.

    ``base`` is a row of each table for which the query has an answer.  Optional rows are rows of ``stream``.
    Each has its own value of the ``keys``, which equates columns of several tables; without keys they share
    all partitions.  ``unique`` columns have another value in every row, ``levels`` are columns that rise by
    ``slope`` from one optional row to the next, or NULL in optional rows (``nulls``).  A probe has ``count``
    rows with the key of its optional row, or a ``fresh`` one, whose level is by ``rise`` higher; it has that
    many for each optional row if it is ``long``.  The setup has ``before`` rows for each key.  Rows of probes
    have the values of ``later`` in place of the base's.
    """

    base: Mapping[str, Row]
    tables: Mapping[str, Table]
    stream: str
    keys: frozenset[Source]
    unique: frozenset[str]
    levels: frozenset[str]
    slope: int
    rise: int
    count: int
    before: int = 0
    fresh: bool = False
    long: bool = False
    nulls: bool = False
    compare: str = "emitted"
    assumptions: tuple[str, ...] = ()
    later: tuple[tuple[str, Any], ...] = ()

    def build(self, n: int) -> Witness:
        """The witness with ``n`` optional rows."""
        clock, step = FIRST, self._find_step(n)
        setup = []
        for name, table in self.tables.items():
            is_keyed = any(owner == name for owner, _ in self.keys)
            for key in range(n + 2) if is_keyed else range(1):
                if name != self.stream:
                    clock += step
                    setup.append(StreamRow(name, self._make(table, key, 0, 0, clock)))
        for number, key in product(range(self.before), range(1, n + 1)):
            clock += step
            setup.append(self._row(key, -number, 500 + n * number + key, clock))
        universe = []
        for i in range(1, n + 1):
            clock += step
            level = None if self.nulls else self.slope * i
            universe.append(self._row(i, level, 100 + i, clock))
        probes = [tuple(self._make_probe(k, n, clock, step)) for k in range(1, n + 1)]
        return Witness(tuple(setup), tuple(universe), tuple(probes), self.compare)

    def observe_answers(self) -> Template:
        """The same scheme, where the whole answer after a probe is observed."""
        return replace(self, compare="answer")

    def rebase(self, tables: Mapping[str, Table], base: Mapping[str, Row]) -> Template:
        """The same scheme for a query that reads further tables, with a row of each."""
        return replace(self, tables=tables, base={**base, **self.base})

    def _make_probe(self, k: int, n: int, clock: datetime, step: timedelta) -> Iterator[StreamRow]:
        key = n + 1 if self.fresh else k
        level = self.slope * k + self.rise * (n + 2)
        for number in range(self._count_probe(n)):
            clock += step
            row = self._row(key, level + number * self.rise, 10_000 + number, clock)
            yield replace(row, row={**row.row, **dict(self.later)}) if self.later else row

    def _find_step(self, n: int) -> timedelta:
        """The time between two rows; shorter in a witness that would otherwise not fit into the calendar."""
        rows = (n + 2) * (len(self.tables) + self.before) + self._count_probe(n)
        return min(STEP, SPAN / rows)

    def _count_probe(self, n: int) -> int:
        return self.count * (n if self.long else 1)

    def _row(self, key: int, level: int | None, number: int, clock: datetime) -> StreamRow:
        return StreamRow(self.stream, self._make(self.tables[self.stream], key, level, number, clock))

    def _make(self, table: Table, key: int, level: int | None, number: int, clock: datetime) -> Row:
        row = dict(self.base[table.name])
        for column in table.columns:
            name = column.name
            if name == table.time:
                row[name] = clock
            elif (table.name, name) in self.keys:
                row[name] = shift_value(column, row[name], key)
            elif table.name == self.stream and name in self.levels:
                row[name] = None if level is None else shift_value(column, row[name], level)
            elif table.name == self.stream and name in self.unique:
                row[name] = shift_value(column, row[name], number)
        return row


def find_template(query: Query) -> Template | None:
    """A template whose witnesses are confirmed on the whole query; None if none is found."""
    try:
        return _Search(query).find()
    except UncomputableError:
        return None


def build_from_template(query: Query, template: WitnessTemplate, n: int) -> Witness:
    """The witness with ``n`` optional rows; raises WitnessSizeError if it is not confirmed."""
    if n < 1:
        raise WitnessSizeError("a witness needs at least one row", remedy="ask for n = 1 or more")
    witness = template.build(n)
    if not respects_checks(template.tables, witness) or not is_confirmed_whole(query, witness):
        raise WitnessSizeError(f"no witness of {n} rows was found", remedy="ask for another number of rows")
    return witness


def is_bounded_column(table: Table, column: Column) -> bool:
    """Whether a column has finitely many values, by its type, by a CHECK or as declared."""
    if column.type.domain is Domain.BOUNDED or column.cardinality is not None:
        return True
    ref = Ref(table.name, column.name)
    try:
        parts = split_into_parts(Select((Occurrence(table.name, table),), (Item(ref, column.name),)), False)
    except TooManyParts:
        return False
    return all(ref in part.nulls or part.closure.is_bounded(ref) for part in parts)


# --- searching -----------------------------------------------------------------------------------------


class _Search:
    """Proposes templates for a query and tries them in batches."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.attempts = 0  # templates that were confirmed in small
        self.tables = query.declared_tables
        self.equal = find_equal_columns(query)
        self.functions = [f for block in list_blocks(query) for f in block.functions]
        self.used = self._find_used_columns()

    def find(self) -> Template | None:
        for base in find_base_rows(self.query, self.tables, self.equal):
            retracting: list[Template] = []
            proposed = islice(self._propose(base), _MOST_TEMPLATES)
            while batch := list(islice(proposed, _BATCH)):
                tried = self._try(batch, 1)
                found = self._confirm([template for template, is_confirmed in tried if is_confirmed])
                if found is not None:
                    return found
                retracting += [template for template, is_confirmed in tried if not is_confirmed]
                if self.attempts > _MOST_ATTEMPTS:
                    return None
            for variants in self._vary_retracting(retracting):
                found = self._confirm(variants)
                if found is not None:
                    return found
        return self._find_changed() if self.functions else None

    def _find_changed(self) -> Template | None:
        """A template whose probes differ from optional rows in what window functions compute with."""
        nulls = any(function.ignore_nulls for function in self.functions)
        for name, table in self.tables.items():
            levels = self._find_levels(name)
            if not table.streaming or not levels:
                continue
            keys = [keys for keys in self._list_keys(name) if levels.isdisjoint(c for _, c in keys)]
            for rows, later in find_changed_rows(self.query, self.tables, name, sorted(levels), nulls):
                unique = frozenset[str]()
                templates = [
                    Template(
                        rows, self.tables, name, each, unique, unique, 0, 0, 1, later=tuple(later.items())
                    )
                    for each in keys
                ]
                found = self._confirm([t for t, is_confirmed in self._try(templates, 1) if is_confirmed])
                if found is not None:
                    return found
        return None

    def _confirm(self, promising: Sequence[Template]) -> Template | None:
        """The first of some templates that is confirmed, in small and then in large."""
        for first in range(0, len(promising), _FEW):
            for template, is_confirmed in self._try(promising[first : first + _FEW], _SMALL):
                if not is_confirmed:
                    continue
                self.attempts += 1
                if self.attempts > _MOST_ATTEMPTS:
                    return None
                if is_confirmed_in_large(self.query, template):
                    return template
        return None

    def _vary_retracting(self, retracting: Sequence[Template]) -> Iterator[list[Template]]:
        """Variants of templates whose probes take back the row that they are about.

        The answer is then a table to be maintained, which any probe shows that leaves that row in it.
        """
        taken_back = [template for template, _ in self._try(retracting[:_MOST_RETRACTING], _SMALL)]
        for template in taken_back[:_FEW]:
            witness = template.build(CONFIRMED[-1])
            if respects_checks(self.tables, witness) and is_retracting_whole(self.query, witness):
                shown = replace(template, fresh=True, compare="answer")
                yield [replace(shown, rise=rise) for rise in (1, -1, 0)]

    def _try(self, batch: Sequence[Template], n: int) -> list[tuple[Template, bool]]:
        """The templates whose probes show ``n`` rows, and whether they show them by rows that they add."""
        trials: list[tuple[Template, Trial]] = []
        for template in batch:
            witness = template.build(n)
            if keeps_declarations(template) and respects_checks(self.tables, witness):
                trials.append((template, try_all(witness)))
        answers = evaluate_limited(self.query, [world for _, trial in trials for world in trial.worlds])
        found, first = [], 0
        for template, trial in trials:
            own = answers[first : first + len(trial.worlds)]
            first += len(trial.worlds)
            if trial.is_confirmed(own):
                found.append((template, True))
            elif trial.is_retracting(own):
                found.append((template, False))
        return found

    def _propose(self, base: Mapping[str, Row]) -> Iterator[Template]:
        """Templates with optional rows of each stream, in turn."""
        streams = [name for name, table in self.tables.items() if table.streaming]
        for templates in zip_longest(*(self._propose_rows_of(name, base) for name in streams)):
            yield from (template for template in templates if template is not None)

    def _propose_rows_of(self, name: str, base: Mapping[str, Row]) -> Iterator[Template]:
        counts, befores = self._count_rows()
        free = self._list_free(name)
        levels = self._find_levels(name)
        named = self._find_named_columns(name)
        for keys in [*self._list_keys(name), frozenset[Source]()]:
            own = {column for owner, column in keys if owner == name}
            others = frozenset(c.name for c in free) - own
            uniques = [others - levels - named, frozenset[str](), others - levels]
            # Rows of the setup cost most: there are some for each optional row.
            sizes = sorted(product(counts, befores), key=lambda size: size[0] + CONFIRMED[-1] * size[1])
            for (count, before), unique in product(sizes, dict.fromkeys(uniques)):
                for slope, rise in product((0, 1, -1), (1, -1, 0)):
                    template = Template(
                        base, self.tables, name, keys, unique, levels - own, slope, rise, count, before
                    )
                    yield template
                    yield from self._vary(template)

    def _list_free(self, name: str) -> list[Column]:
        """The columns of a stream that can take any number of values; those that the query uses, if any."""
        table = self.tables[name]
        free = [c for c in table.columns if c.name != table.time and not is_bounded_column(table, c)]
        return [c for c in free if (name, c.name) in self.used] or free

    def _list_keys(self, name: str) -> list[frozenset[Source]]:
        """Sets of equal columns of streams that can be the key of optional rows, partition columns first."""
        partition = self._trace(c for f in self.functions for c in f.partition_by)
        sets = [self._widen((name, column.name)) for column in self._list_free(name)]
        sets.sort(key=lambda keys: keys.isdisjoint(partition))
        return [keys for keys in sets if all(self.tables[owner].streaming for owner, _ in keys)]

    def _vary(self, template: Template) -> Iterator[Template]:
        """Variants for functions that depend on many rows, and for those that skip NULL."""
        names = {function.function for function in self.functions}
        if names & {"NTILE", "MEDIAN"} and template.count == 1:
            yield replace(template, count=8, long=True)
        if any(function.ignore_nulls for function in self.functions):
            yield replace(template, nulls=True)

    def _count_rows(self) -> tuple[list[int], list[int]]:
        """The numbers of rows in a probe, and in the setup, that ranks and offsets suggest."""
        numbers = {1, 2}
        for select in list_selects(self.query):
            for function in self.functions:
                numbers |= {limit for limit in self._find_limits(select, function)}
        for function in self.functions:
            if find_kind(function) is FunctionKind.OFFSET or function.function == "NTH_VALUE":
                numbers.add(find_offset(function))
            if function.frame is not None:
                edges = (function.frame.start, function.frame.end)
                numbers |= {abs(edge) for edge in edges if edge and abs(edge) < _MOST_ROWS}
        counts = sorted(n for n in numbers if 1 <= n <= _MOST_ROWS)
        return counts, [0, *(n - 1 for n in counts if n > 1)]

    def _find_limits(self, select: Any, function: WindowFunction) -> Iterator[int]:
        for occurrence in select.every_occurrence:
            limit = find_rank_limit(select.where, Ref(occurrence.alias, function.name))
            if limit is not None:
                yield limit

    def _find_levels(self, stream: str) -> frozenset[str]:
        """The columns by which window functions order, or that they compute with."""
        names = [key.column for f in self.functions for key in f.order_by]
        names += [each for f in self.functions for each in f.arguments if isinstance(each, str)]
        time = self.tables[stream].time
        found = {column for owner, column in self._trace(names) if owner == stream} - {time}
        for select in list_selects(self.query):
            for item in select.items:
                for ref in refs(item.expression) if not isinstance(item.expression, Ref) else ():
                    source = trace_ref(select, ref)
                    if source is not None and source[0] == stream and is_aggregate(select):
                        found.add(source[1])
        return frozenset(found - {time})

    def _find_used_columns(self) -> set[Source]:
        """The columns of declared tables that the query uses, as far as they can be traced."""
        names = [c for f in self.functions for c in (*f.partition_by, *(key.column for key in f.order_by))]
        used = self._trace([*names, *(a for f in self.functions for a in f.arguments if isinstance(a, str))])
        for select in list_selects(self.query):
            for occurrence in select.occurrences:
                for name in find_used_columns(select, occurrence.alias):
                    source = trace_column(occurrence.table, name)
                    used |= {source} if source is not None else set()
        return used

    def _find_named_columns(self, stream: str) -> frozenset[str]:
        """The columns that conditions, partitions and groups mention."""
        found = self._trace(c for f in self.functions for c in f.partition_by)
        for select, condition in list_conditions(self.query):
            if select is not None:
                found |= {s for ref in refs(condition) if (s := trace_ref(select, ref)) is not None}
                found |= {s for ref in select.group_by or () if (s := trace_ref(select, ref)) is not None}
        for block in list_blocks(self.query):
            for ref in refs(block.where):
                source = trace_column(block.base, ref.column)
                found |= {source} if source is not None else set()
        return frozenset(column for owner, column in found if owner == stream)

    def _trace(self, names: Iterable[str]) -> set[Source]:
        wanted, found = set(names), set[Source]()
        for block in list_blocks(self.query):
            for name in wanted & {column.name for column in block.base.all_columns}:
                source = trace_column(block.base, name)
                if source is not None:
                    found.add(source)
        return found

    def _widen(self, source: Source) -> frozenset[Source]:
        return frozenset({source}.union(*(each for each in self.equal if source in each)))
