"""Compiles the plan of a query over application time into the SQL that workers execute."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from millpond.engines.timed.inputs import compile_input, find_used_columns
from millpond.engines.timed.match_programs import compile_match_set, list_state_schemas
from millpond.engines.timed.partial_match_sql import PartialMatchSql
from millpond.engines.timed.partner_tests import (
    CompiledTest,
    compile_filters,
    find_tested_columns,
    matched_rows_sql,
)
from millpond.engines.timed.partner_waits import CompiledWait, merge_partners_sql, partner_rows_sql
from millpond.engines.timed.program import (
    InputProgram,
    NeedProgram,
    TimeColumn,
    TimedProgram,
    WaitingProgram,
)
from millpond.engines.timed.result_sql import (
    CLOSES,
    build_counted_matches,
    closing_columns,
    extreme_value,
    find_counted_argument,
    group_columns,
    group_keys,
    match_expression,
)
from millpond.engines.timed.sharding import SHARDS, ShardColumns, find_shard_columns
from millpond.engines.timed.tables import InputTable, input_table, result_table
from millpond.engines.timed.value_sql import to_micros
from millpond.plan.closing import Closing, find_closings
from millpond.plan.needs import Need, SelectNeeds, TimedPlan, find_separate_needs
from millpond.plan.partial_matches import TimedNeed, find_tested_retention
from millpond.query.aggregate_functions import ORDERED, Memory, find_memory
from millpond.query.canonical import canonical_text
from millpond.query.durations import parse_duration, parse_rate
from millpond.query.expressions import Aggregate, Expr, Ref
from millpond.query.model import Query, Select, Table, Term
from millpond.query.parts import is_threshold
from millpond.query.time_order import TimeOrder, find_time_columns
from millpond.query.trees import find_aggregates, is_aggregate, refs
from millpond.runtime.aggregates import adds_squares, adds_values, groups_sql, has_monotone_having, value_sql
from millpond.runtime.arrow_ipc import schema_to_bytes
from millpond.runtime.sql import Dialect
from millpond.runtime.terms import TermSql, Version


def compile_timed(
    plan: TimedPlan, dialect: Dialect, zone: str = "UTC", updates: bool = False, divide: bool = False
) -> TimedProgram:
    """The program for a plan.

    ``dialect`` is that of the SQL that takes rows from the streams; all other SQL is DuckDB's.  ``zone`` is
    the time zone of the timestamps in the query.  A group that closes is written when it closes or, with
    ``updates``, whenever it changes.  With ``divide``, the state is divided into shards if the query allows
    it.  Relations have no rows until ``with_relations``.
    """
    shard_columns = find_shard_columns(plan) if divide else None
    compiler = _TimedCompiler(plan.query, dialect, zone, updates, shard_columns)
    selects = iter(plan.selects)
    for term in plan.query.terms:
        compiler.add_term(term, [next(selects) for _ in term.selects])
    tables = [t for t in plan.query.tables.values() if t.streaming and t.time]
    return compiler.build_program(tuple(_compile_time_column(plan, table, dialect, zone) for table in tables))


def _compile_time_column(plan: TimedPlan, table: Table, dialect: Dialect, zone: str) -> TimeColumn:
    assert table.time is not None
    ends: list[Fraction | None] = []
    for needs in plan.selects:
        for part in needs.every_part:
            order, columns = TimeOrder(part), find_time_columns(part.select)
            for o in part.select.occurrences:
                if o.table.name == table.name and o.table.streaming:
                    group = order.groups[order.group_numbers[o.alias]]
                    ends.append(part.closure.range(columns[o.alias]).high if order.is_finite(group) else None)
    known = [end for end in ends if end is not None]
    idle = parse_duration(table.properties.get("idle", ""))
    return TimeColumn(
        stream=table.name,
        column=table.time,
        micros=f"CAST({dialect.micros(dialect.name_of(table.time))} AS BIGINT)",
        delay=parse_duration(table.properties.get("watermark", "0 seconds")) or 0,
        idle=None if idle is None else idle / 1e6,
        ends=to_micros(max(known), zone) if known and len(known) == len(ends) else None,
        rate=parse_rate(table.properties.get("rate", "")),
    )


class _KeptResult(NamedTuple):
    """A result table, and SQL for what it contributes to an aggregate, or to the rows of a select."""

    table: str
    sql: Callable[[Version], str]


_ResultsByAggregate = dict[Aggregate | None, list[_KeptResult]]


class _Target(NamedTuple):
    """A select whose results are kept, when they close, and its result tables.

    ``is_held``: its groups are written when they close.
    """

    select: Select
    closing: Closing | None
    is_held: bool
    results: _ResultsByAggregate


class _TimedCompiler:
    """Collects the programs of the needs and terms of a query."""

    def __init__(
        self, query: Query, dialect: Dialect, zone: str, updates: bool, shard_columns: ShardColumns | None
    ) -> None:
        self.query = query
        self.shard_columns = shard_columns
        self.dialect = dialect
        self.zone = zone
        self.updates = updates
        self.needs: list[NeedProgram] = []
        self.terms: list[TermSql] = []
        self.columns = tuple(f"o{i}" for i in range(len(query.columns)))
        self.tests: list[CompiledTest] = []
        self.waits: list[CompiledWait] = []
        self._hold = 0  # of the needs that are added
        self._inputs = 0
        self._has_revisions = False

    def build_program(self, time_columns: tuple[TimeColumn, ...]) -> TimedProgram:
        schemas = tuple((name, schema_to_bytes(schema)) for name, schema in list_state_schemas(self.needs))
        return TimedProgram(
            needs=tuple(self.needs),
            terms=tuple(self.terms),
            schemas=schemas,
            time_columns=time_columns,
            plan_fingerprint=self._fingerprint(schemas),
            aggregate=self._has_revisions,
            retracts=any(term.retracts for term in self.terms),
            shards=1 if self.shard_columns is None else SHARDS,
        )

    def _fingerprint(self, schemas: Sequence[tuple[str, bytes]]) -> bytes:
        """A digest of everything that gives the state its meaning: the query, the SQL, the schemas."""
        digest = hashlib.sha256(canonical_text(self.query).encode())
        for need in self.needs:
            digest.update(repr((need.sets, need.result_rows, need.merge, need.is_held)).encode())
            digest.update(repr(need.waiting).encode() if need.waiting is not None else b"")
            digest.update(repr([(each.columns, *each.filters) for each in need.inputs]).encode())
        digest.update(repr(schemas).encode())
        return digest.digest()

    # --- terms -----------------------------------------------------------------------------------------

    def add_term(self, term: Term, selects: Sequence[SelectNeeds]) -> None:
        lag = max(each.lag for each in selects)
        for needs in selects:
            self._add_partner_tests(needs, lag)
        self._hold = lag
        grouped = [s for s in term.selects if is_aggregate(s)]
        if not grouped and not term.distinct:
            self._add_bag(selects[0])
            return
        closings = find_closings(term, selects)
        targets = [self._add_target(*pair) for pair in zip(selects, closings, strict=True)]
        self._has_revisions |= any(is_aggregate(each.select) and not each.is_held for each in targets)
        if len(self.query.selects) == len(grouped) == 1 and not term.distinct and not targets[0].is_held:
            self.terms.append(self._render_groups(targets[0]))
        elif not term.distinct and targets[0].is_held:
            closed = self._rows_sql(targets[0], Version.CLOSED)
            added = f"SELECT {', '.join(self.columns)}, 1 AS w FROM ({closed})"
            self.terms.append(TermSql(self._kept_results, self.columns, added=added))
        else:
            self.terms.append(self._render_rows(targets, term.distinct))

    def _render_groups(self, target: _Target) -> TermSql:
        """The groups of a select: a new row of a group replaces the old one."""
        select = target.select
        return TermSql(
            self._kept_results,
            self.columns,
            before=self._rows_sql(target, Version.BEFORE),
            after=self._rows_sql(target, Version.AFTER),
            keys=len(select.group_by or ()),
            grouped=True,
            retracts=not has_monotone_having(select),
            always=select.group_by is None,
        )

    def _render_rows(self, targets: Sequence[_Target], distinct: bool) -> TermSql:
        """The rows of several selects.  Groups that are held until they close never change after that."""
        columns = ", ".join(self.columns)
        before = [self._rows_sql(each, Version.BEFORE) for each in targets if not each.is_held]
        after = [self._rows_sql(each, Version.CLOSED if each.is_held else Version.AFTER) for each in targets]

        def union(texts: Sequence[str]) -> str:
            every = "SELECT DISTINCT" if distinct else "SELECT"
            rows = " UNION ALL ".join(f"(SELECT {columns} FROM ({text}))" for text in texts)
            return f"{every} {columns} FROM ({rows or self._no_rows_sql()})"

        changing = [each.select for each in targets if is_aggregate(each.select) and not each.is_held]
        return TermSql(
            self._kept_results,
            self.columns,
            before=union(before),
            after=union(after),
            retracts=bool(changing),
            always=any(select.group_by is None for select in changing),
        )

    @property
    def _kept_results(self) -> tuple[str, ...]:
        tests = {name for test in self.tests for name in test.tables} | {wait.table for wait in self.waits}
        return tuple(n.result for n in self.needs if n.merge is not None and n.result not in tests)

    def _add_bag(self, needs: SelectNeeds) -> None:
        """A select whose rows are emitted and not remembered."""
        names = []
        group = ", ".join(self.columns)
        for part, wanted in needs.parts:
            self._hold = needs.find_hold(part)
            for need in wanted:
                shown = {r for item in needs.select.items for r in refs(item.expression)}
                wait = self._add_wait(need)
                sql = self._match_sql(need, shown)
                items = ", ".join(self._select_list(sql, needs.select))
                new = sql.tables(sql.complete).new
                if wait is not None:
                    columns = [*self._select_list(sql, needs.select), "n AS w"]
                    begin, waiting = wait.compile_waiting(sql, columns, self.columns, ["w"])
                    names.append(self._add_need(sql, begin, None, waiting=waiting))
                    continue
                rows = f"SELECT {group}, sum(n) AS w FROM (SELECT {items}, n FROM {new}) GROUP BY {group}"
                names.append(self._add_need(sql, rows, None))
        if names:
            union = " UNION ALL ".join(f"SELECT * FROM {Version.ADDED.of(name)}" for name in names)
            added = f"SELECT {group}, sum(w) AS w FROM ({union}) GROUP BY {group}"
            self.terms.append(TermSql(tuple(names), self.columns, added=added))

    def _rows_sql(self, target: _Target, version: Version) -> str:
        """All rows of a select: its groups, or the set of its rows."""
        if is_aggregate(target.select):
            matches = [(a, [each.sql(version) for each in found]) for a, found in target.results.items()]
            return groups_sql(target.select, matches, self.columns)
        texts = [each.sql(version) for found in target.results.values() for each in found]
        return " UNION ".join(texts) or self._no_rows_sql()

    def _no_rows_sql(self) -> str:
        return f"SELECT {', '.join(f'NULL AS {c}' for c in self.columns)} WHERE FALSE"

    def _add_target(self, needs: SelectNeeds, closing: Closing | None) -> _Target:
        """Add the needs of a select.  Aggregates that count matches of the same part share a result table."""
        select = needs.select
        is_held = closing is not None and is_aggregate(select) and not self.updates
        target = _Target(select, closing, is_held, {})
        if not is_aggregate(select):
            sets = [self._add_set(need, target) for _, wanted in needs.parts for need in wanted]
            return target._replace(results={None: sets})
        aggregates: Sequence[Aggregate | None] = find_aggregates(select) or [None]
        results: _ResultsByAggregate = {a: [] for a in aggregates}
        for _, wanted in needs.parts:
            shared: dict[Expr | None, list[Need]] = {}
            for need in wanted:
                separate = find_separate_needs(need, wanted)
                if separate and need.counted:
                    results[need.aggregate].append(self._add_combined(need, separate, target))
                elif not separate and need.counted:
                    shared.setdefault(find_counted_argument(need.aggregate), []).append(need)
                elif not separate:
                    results[need.aggregate].append(self._add_existence(need, target))
            for median, together in shared.items():
                for aggregate, result in self._add_counted(together, target, median):
                    results[aggregate].append(result)
        return target._replace(results=results)

    # --- result tables ---------------------------------------------------------------------------------

    def _add_set(self, need: Need, target: _Target) -> _KeptResult:
        """The set of rows of a select without aggregates."""
        shown = {r for item in target.select.items for r in refs(item.expression)}
        sql = self._match_sql(need, shown, target.closing)
        items = ", ".join([*self._select_list(sql, target.select), *closing_columns(sql, target.closing)])
        rows = f"SELECT DISTINCT {items} FROM {sql.tables(sql.complete).new}"
        name = self._add_need(sql, rows, "SELECT DISTINCT * FROM rows", target)
        columns = ", ".join(self.columns)
        return _KeptResult(name, lambda version: f"SELECT {columns} FROM {version.of(name)}")

    def _select_list(self, sql: PartialMatchSql, select: Select) -> list[str]:
        return [
            f"{match_expression(sql, item.expression)} AS {name}"
            for item, name in zip(select.items, self.columns, strict=True)
        ]

    def _add_combined(self, counted: Need, others: Sequence[Need], target: _Target) -> _KeptResult:
        """The matches of a counted need, for every combination of groups that the other needs have found."""
        select = target.select
        ((_, result),) = self._add_counted([counted], target, find_counted_argument(counted.aggregate))
        found = [(need, self._add_existence(replace(need, aggregate=None), target).table) for need in others]
        columns = ", ".join([*(f"g{i}" for i in range(len(select.group_by or ()))), "v", "w", "t", "q"])

        def sql(version: Version) -> str:
            joined = f"({result.sql(version)})"
            for need, table in found:
                keys = ", ".join([*group_keys(select, need), f"1 AS there_{table}"])
                joined += f" CROSS JOIN (SELECT {keys} FROM {version.of(table)})"
            return f"SELECT {columns} FROM {joined}"

        return _KeptResult(result.table, sql)

    def _add_existence(self, need: Need, target: _Target) -> _KeptResult:
        """The groups with the values of an aggregate's argument; for MIN and MAX, with the best value.

        MIN_BY and MAX_BY have the value of another column with it; so only rows of one stream match.
        """
        select, aggregate = target.select, need.aggregate
        groups = set(select.group_by or ())
        argument = aggregate.argument if aggregate is not None else None
        keys = group_keys(select, need)
        is_ordered = aggregate is not None and aggregate.function in ORDERED
        by_requirement = argument is not None and any(map(is_threshold, need.scope)) and not is_ordered
        shown = groups if aggregate is None or by_requirement else groups | refs(aggregate)
        sql = self._match_sql(need, shown, target.closing)
        value = "NULL"
        if aggregate is not None and argument is not None:
            value = (
                extreme_value(sql, argument)
                if by_requirement
                else value_sql(aggregate, lambda each: match_expression(sql, each))
            )
        closing = closing_columns(sql, target.closing)
        columns = ", ".join([*group_columns(sql, select), f"{value} AS v", *closing])
        rows = f"SELECT DISTINCT {columns} FROM {sql.tables(sql.complete).new}"
        merge = "SELECT DISTINCT * FROM rows"
        if aggregate is not None and find_memory(aggregate) is Memory.EXTREME:
            best = f"{aggregate.function[:3].lower()}(v) AS v"
            group = " GROUP BY ALL" if keys else " HAVING count(*) > 0"
            merge = f"SELECT {', '.join([*keys, best, *([CLOSES] if closing else [])])} FROM rows{group}"
        name = self._add_need(sql, rows, merge, target)
        number = "CASE WHEN v IS NULL THEN 0 ELSE 1 END" if argument is not None else "1"
        total = "v AS t" if adds_values(aggregate) else "0 AS t"
        square = "CAST(v AS HUGEINT) * v AS q" if adds_squares(aggregate) else "0 AS q"
        selected = ", ".join([*keys, "v", f"CAST({number} AS HUGEINT) AS w", total, square])
        return _KeptResult(name, lambda version: f"SELECT {selected} FROM {version.of(name)}")

    def _add_counted(
        self, needs: Sequence[Need], target: _Target, median: Expr | None
    ) -> Iterator[tuple[Aggregate | None, _KeptResult]]:
        """The groups with the number of matches and the sums of measures, shared by several aggregates."""
        select = target.select
        measures = tuple(dict.fromkeys(m for need in needs for m in need.measures))
        keys = group_keys(select, needs[0])
        shown = set(select.group_by or ()) | (refs(median) if median is not None else set())
        wait = self._add_wait(needs[0])
        sql = self._match_sql(replace(needs[0], measures=measures), shown, target.closing)
        closing = closing_columns(sql, target.closing)
        value = [f"{match_expression(sql, median)} AS v"] if median is not None else []
        counts = sql.counts()
        sums = [f"sum({c}) AS {c}" for c in counts]
        names = [*keys, *(["v"] if value else []), *([CLOSES] if closing else [])]
        group = f" GROUP BY {', '.join(names)}" if names else " HAVING count(*) > 0"
        columns = [*group_columns(sql, select), *value, *closing, *counts]
        inner = f"SELECT {', '.join(columns)} FROM {sql.tables(sql.complete).new}"
        selected = ", ".join([*names, *sums])
        rows, merge = f"SELECT {selected} FROM ({inner}){group}", f"SELECT {selected} FROM rows{group}"
        waiting = None
        if wait is not None:
            rows, waiting = wait.compile_waiting(sql, columns, names, counts)
        name = self._add_need(sql, rows, merge, target, waiting)
        for need in needs:
            yield need.aggregate, _KeptResult(name, build_counted_matches(need, measures, keys, name))

    # --- needs -----------------------------------------------------------------------------------------

    def _match_sql(self, need: Need, shown: Iterable[Ref], closing: Closing | None = None) -> PartialMatchSql:
        """SQL for the partial matches of a need; ``shown`` are the columns that its result uses."""
        shown = [*shown, *([closing.column] if closing is not None else [])]
        shown += need.wait.refs if need.wait is not None else []
        used = {r for ref in shown for r in refs(need.part.rewrite(ref))}
        timed = TimedNeed(need, {ref for ref in used if ref.occurrence in need.scope})
        inputs = []
        for alias in timed.aliases:
            table = need.part.select.occurrence(alias).table
            tested = find_tested_columns(self.tests, table)
            columns = tuple(sorted({*find_used_columns(timed, alias), *tested}, key=str))
            inputs.append(input_table(self._inputs, alias, table.name, columns, table.streaming))
            self._inputs += 1
        return PartialMatchSql(timed, inputs, len(self.needs), self.zone)

    def _add_need(
        self,
        sql: PartialMatchSql,
        result_rows: str,
        merge: str | None,
        target: _Target | None = None,
        waiting: WaitingProgram | None = None,
    ) -> str:
        """Add the program of a need; returns the name of its result table."""
        name = result_table(sql.number)
        plans = sql.timed.sets
        joined = {id(a.old) for p in plans for a in p.arrivals if a.old is not None}
        self.needs.append(
            NeedProgram(
                inputs=tuple(self._compile_input(sql, each) for each in sql.inputs.values()),
                sets=tuple(compile_match_set(sql, p, id(p.match_set) in joined) for p in plans),
                result=name,
                result_rows=result_rows,
                merge=merge,
                closes=target is not None and target.closing is not None,
                is_held=target is not None and target.is_held,
                hold=self._hold,
                waiting=waiting,
            )
        )
        return name

    def _add_wait(self, need: Need) -> CompiledWait | None:
        """Add the need that finds the partners of matches that wait, if they do; needs can share it."""
        wait, hold = need.wait, self._hold
        if wait is None:
            return None
        known = [each for each in self.waits if each.wait is wait and each.hold == hold]
        if not known:
            self._hold = 0
            sql = self._match_sql(wait.need, [column for column, _ in wait.lags])
            rows, merge = partner_rows_sql(sql, wait, hold), merge_partners_sql(sql, wait)
            name = self._add_need(sql, rows, merge)
            self.needs[-1] = replace(self.needs[-1], closes=bool(wait.lags))
            self._hold = hold
            known = [CompiledWait(wait, sql, name, hold)]
            self.waits += known
        return known[0]

    def _compile_input(self, sql: PartialMatchSql, table: InputTable) -> InputProgram:
        source = sql.timed.part.select.occurrence(table.alias).table
        shard_column = (self.shard_columns or {}).get(table.stream) if table.streaming else None
        program = compile_input(sql.timed, table, self.dialect, shard_column)
        return replace(program, hold=self._hold, filters=compile_filters(self.tests, source, table))

    def _add_partner_tests(self, needs: SelectNeeds, lag: int) -> None:
        """Add the needs that find rows with a partner; ``lag`` is that of the needs that use them."""
        self._hold = 0
        for partners in needs.partners:
            after = lag + 1 + find_tested_retention(needs, partners)
            names = []
            for need in partners.needs:
                sql = self._match_sql(need, need.projected)
                rows = matched_rows_sql(sql, partners, after)
                names.append(self._add_need(sql, rows, "SELECT DISTINCT * FROM rows"))
                self.needs[-1] = replace(self.needs[-1], closes=True)
            self.tests.append(CompiledTest(partners, tuple(names), after))
