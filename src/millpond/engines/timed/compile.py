"""Compiles the plan of a query over application time into the SQL that workers execute."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import pyarrow as pa

from millpond.engines.timed.inputs import compile_input, find_used_columns
from millpond.engines.timed.partial_match_sql import PartialMatchSql
from millpond.engines.timed.program import NeedProgram, PartialMatchProgram, TimeColumn, TimedProgram
from millpond.engines.timed.tables import all_rows, input_table, recent_rows, result_table
from millpond.engines.timed.value_sql import from_number, to_micros
from millpond.plan.needs import Measure, Need, SelectNeeds, TimedPlan, find_separate_needs
from millpond.plan.partial_matches import PartialMatchPlan, TimedNeed
from millpond.query.canonical import canonical_text
from millpond.query.durations import parse_duration
from millpond.query.model import Aggregate, Expr, Query, Ref, Select, Table, Term
from millpond.query.parts import THRESHOLD, Part, type_of
from millpond.query.time_order import TimeGroup, TimeOrder, find_time_columns
from millpond.query.trees import find_aggregates, is_aggregate, refs, substitute
from millpond.runtime.aggregates import groups_sql, has_monotone_having
from millpond.runtime.arrow_ipc import schema_to_bytes
from millpond.runtime.duckdb import DuckDb
from millpond.runtime.sql import Dialect, expression_sql, widen
from millpond.runtime.terms import TermSql, Version


def compile_timed(plan: TimedPlan, dialect: Dialect, zone: str = "UTC") -> TimedProgram:
    """The program for a plan.

    ``dialect`` is that of the SQL that takes rows from the streams; all other SQL is DuckDB's.  ``zone`` is
    the time zone of the timestamps in the query.  Relations have no rows until ``with_relations``.
    """
    compiler = _TimedCompiler(plan.query, dialect, zone)
    selects = iter(plan.selects)
    for term in plan.query.terms:
        compiler.add_term(term, [next(selects) for _ in term.selects])
    tables = [t for t in plan.query.tables.values() if t.streaming and t.time]
    return compiler.build_program(tuple(_compile_time_column(plan, table, dialect, zone) for table in tables))


def _compile_time_column(plan: TimedPlan, table: Table, dialect: Dialect, zone: str) -> TimeColumn:
    assert table.time is not None
    ends: list[Fraction | None] = []
    for needs in plan.selects:
        for part, _ in needs.parts:
            order, columns = TimeOrder(part), find_time_columns(part.select)
            for o in part.select.occurrences:
                if o.table.name == table.name:
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
    )


class _KeptResult(NamedTuple):
    """A result table, and SQL for what it contributes to an aggregate, or to the rows of a select."""

    table: str
    sql: Callable[[Version], str]


_ResultsByAggregate = dict[Aggregate | None, list[_KeptResult]]


class _TimedCompiler:
    """Collects the programs of the needs and terms of a query."""

    def __init__(self, query: Query, dialect: Dialect, zone: str) -> None:
        self.query = query
        self.dialect = dialect
        self.zone = zone
        self.needs: list[NeedProgram] = []
        self.terms: list[TermSql] = []
        self.columns = tuple(f"o{i}" for i in range(len(query.columns)))
        self._inputs = 0

    def build_program(self, time_columns: tuple[TimeColumn, ...]) -> TimedProgram:
        schemas = tuple((name, schema_to_bytes(schema)) for name, schema in _state_schemas(self.needs))
        return TimedProgram(
            needs=tuple(self.needs),
            terms=tuple(self.terms),
            schemas=schemas,
            time_columns=time_columns,
            plan_fingerprint=self._fingerprint(schemas),
            aggregate=any(is_aggregate(s) for s in self.query.selects),
            retracts=any(term.retracts for term in self.terms),
        )

    def _fingerprint(self, schemas: Sequence[tuple[str, bytes]]) -> bytes:
        """A digest of everything that gives the state its meaning: the query, the SQL, the schemas."""
        digest = hashlib.sha256(canonical_text(self.query).encode())
        for need in self.needs:
            digest.update(repr((need.sets, need.result_rows, need.merge)).encode())
            digest.update(repr([each.columns for each in need.inputs]).encode())
        digest.update(repr(schemas).encode())
        return digest.digest()

    # --- terms -----------------------------------------------------------------------------------------

    def add_term(self, term: Term, selects: Sequence[SelectNeeds]) -> None:
        grouped = [s for s in term.selects if is_aggregate(s)]
        if not grouped and not term.distinct:
            self._add_bag(selects[0])
            return
        results = [self._compile_results(each) for each in selects]

        def rows(version: Version) -> list[str]:
            return [self._rows_sql(s.select, r, version) for s, r in zip(selects, results, strict=True)]

        if len(self.query.selects) == len(grouped) == 1 and not term.distinct:
            select = grouped[0]
            self.terms.append(
                TermSql(
                    self._kept_results,
                    self.columns,
                    before=rows(Version.BEFORE)[0],
                    after=rows(Version.AFTER)[0],
                    keys=len(select.group_by or ()),
                    grouped=True,
                    retracts=not has_monotone_having(select),
                    always=select.group_by is None,
                )
            )
            return
        every = "SELECT DISTINCT" if term.distinct else "SELECT"
        columns = ", ".join(self.columns)

        def union(version: Version) -> str:
            texts = (f"(SELECT {columns} FROM ({text}))" for text in rows(version))
            return f"{every} {columns} FROM ({' UNION ALL '.join(texts)})"

        self.terms.append(
            TermSql(
                self._kept_results,
                self.columns,
                before=union(Version.BEFORE),
                after=union(Version.AFTER),
                retracts=bool(grouped),
                always=any(s.group_by is None for s in grouped),
            )
        )

    @property
    def _kept_results(self) -> tuple[str, ...]:
        return tuple(need.result for need in self.needs if need.merge is not None)

    def _add_bag(self, needs: SelectNeeds) -> None:
        """A select whose rows are emitted and not remembered."""
        names = []
        group = ", ".join(self.columns)
        for _, wanted in needs.parts:
            for need in wanted:
                shown = {r for item in needs.select.items for r in refs(item.expression)}
                sql = self._match_sql(need, shown)
                items = ", ".join(self._select_list(sql, needs.select))
                new = sql.tables(sql.complete).new
                rows = f"SELECT {group}, sum(n) AS w FROM (SELECT {items}, n FROM {new}) GROUP BY {group}"
                names.append(self._add_need(sql, rows, None))
        if names:
            union = " UNION ALL ".join(f"SELECT * FROM {Version.ADDED.of(name)}" for name in names)
            added = f"SELECT {group}, sum(w) AS w FROM ({union}) GROUP BY {group}"
            self.terms.append(TermSql(tuple(names), self.columns, added=added))

    def _rows_sql(self, select: Select, results: _ResultsByAggregate, version: Version) -> str:
        """All rows of a select: its groups, or the set of its rows."""
        if is_aggregate(select):
            matches = [(a, [each.sql(version) for each in found]) for a, found in results.items()]
            return groups_sql(select, matches, self.columns)
        texts = [each.sql(version) for found in results.values() for each in found]
        nothing = f"SELECT {', '.join(f'NULL AS {c}' for c in self.columns)} WHERE FALSE"
        return " UNION ".join(texts) or nothing

    def _compile_results(self, needs: SelectNeeds) -> _ResultsByAggregate:
        """Add the needs of a select.  Aggregates that count matches of the same part share a result table."""
        select = needs.select
        if not is_aggregate(select):
            return {None: [self._add_set(need, select) for _, wanted in needs.parts for need in wanted]}
        aggregates: Sequence[Aggregate | None] = find_aggregates(select) or [None]
        results: _ResultsByAggregate = {a: [] for a in aggregates}
        for _, wanted in needs.parts:
            shared: dict[Expr | None, list[Need]] = {}
            for need in wanted:
                separate = find_separate_needs(need, wanted)
                if separate and need.counted:
                    results[need.aggregate].append(self._add_combined(need, separate, select))
                elif not separate and need.counted:
                    shared.setdefault(_median_argument(need.aggregate), []).append(need)
                elif not separate:
                    results[need.aggregate].append(self._add_existence(need, select))
            for median, together in shared.items():
                for aggregate, result in self._add_counted(together, select, median):
                    results[aggregate].append(result)
        return results

    # --- result tables ---------------------------------------------------------------------------------

    def _add_set(self, need: Need, select: Select) -> _KeptResult:
        """The set of rows of a select without aggregates."""
        sql = self._match_sql(need, {r for item in select.items for r in refs(item.expression)})
        items = ", ".join(self._select_list(sql, select))
        rows = f"SELECT DISTINCT {items} FROM {sql.tables(sql.complete).new}"
        name = self._add_need(sql, rows, "SELECT DISTINCT * FROM rows")
        return _KeptResult(name, lambda version: f"SELECT * FROM {version.of(name)}")

    def _select_list(self, sql: PartialMatchSql, select: Select) -> list[str]:
        return [
            f"{_match_expression(sql, item.expression)} AS {name}"
            for item, name in zip(select.items, self.columns, strict=True)
        ]

    def _add_combined(self, counted: Need, others: Sequence[Need], select: Select) -> _KeptResult:
        """The matches of a counted need, for every combination of groups that the other needs have found."""
        ((_, result),) = self._add_counted([counted], select, _median_argument(counted.aggregate))
        found = [(need, self._add_existence(replace(need, aggregate=None), select).table) for need in others]
        columns = ", ".join([*(f"g{i}" for i in range(len(select.group_by or ()))), "v", "w", "t"])

        def sql(version: Version) -> str:
            joined = f"({result.sql(version)})"
            for need, table in found:
                keys = ", ".join([*_group_keys(select, need), f"1 AS there_{table}"])
                joined += f" CROSS JOIN (SELECT {keys} FROM {version.of(table)})"
            return f"SELECT {columns} FROM {joined}"

        return _KeptResult(result.table, sql)

    def _add_existence(self, need: Need, select: Select) -> _KeptResult:
        """The groups with the values of an aggregate's argument; for MIN and MAX, with the best value."""
        aggregate = need.aggregate
        groups = set(select.group_by or ())
        argument = aggregate.argument if aggregate is not None else None
        keys = _group_keys(select, need)
        by_requirement = argument is not None and THRESHOLD in need.scope
        sql = self._match_sql(need, groups if argument is None or by_requirement else groups | refs(argument))
        value = "NULL"
        if argument is not None:
            value = _extreme_value(sql, argument) if by_requirement else _match_expression(sql, argument)
        columns = ", ".join([*_group_columns(sql, select), f"{value} AS v"])
        rows = f"SELECT DISTINCT {columns} FROM {sql.tables(sql.complete).new}"
        merge = "SELECT DISTINCT * FROM rows"
        if aggregate is not None and aggregate.function in ("MIN", "MAX"):
            best = f"{aggregate.function.lower()}(v) AS v"
            group = f" GROUP BY {', '.join(keys)}" if keys else " HAVING count(*) > 0"
            merge = f"SELECT {', '.join([*keys, best])} FROM rows{group}"
        name = self._add_need(sql, rows, merge)
        number = "CASE WHEN v IS NULL THEN 0 ELSE 1 END" if argument is not None else "1"
        adding = aggregate is not None and aggregate.function in ("SUM", "AVG")
        total = "v AS t" if adding else "0 AS t"
        selected = ", ".join([*keys, "v", f"CAST({number} AS HUGEINT) AS w", total])
        return _KeptResult(name, lambda version: f"SELECT {selected} FROM {version.of(name)}")

    def _add_counted(
        self, needs: Sequence[Need], select: Select, median: Expr | None
    ) -> Iterator[tuple[Aggregate | None, _KeptResult]]:
        """The groups with the number of matches and the sums of measures, shared by several aggregates."""
        measures = tuple(dict.fromkeys(m for need in needs for m in need.measures))
        keys = _group_keys(select, needs[0])
        shown = set(select.group_by or ()) | (refs(median) if median is not None else set())
        sql = self._match_sql(replace(needs[0], measures=measures), shown)
        value = [f"{_match_expression(sql, median)} AS v"] if median is not None else []
        counts = sql.counts()
        sums = [f"sum({c}) AS {c}" for c in counts]
        names = [*keys, *(["v"] if value else [])]
        group = f" GROUP BY {', '.join(names)}" if names else " HAVING count(*) > 0"
        columns = ", ".join([*_group_columns(sql, select), *value, *counts])
        inner = f"SELECT {columns} FROM {sql.tables(sql.complete).new}"
        selected = ", ".join([*names, *sums])
        name = self._add_need(
            sql, f"SELECT {selected} FROM ({inner}){group}", f"SELECT {selected} FROM rows{group}"
        )
        for need in needs:
            yield need.aggregate, _KeptResult(name, _build_counted_matches(need, measures, keys, name))

    # --- needs -----------------------------------------------------------------------------------------

    def _match_sql(self, need: Need, shown: Iterable[Ref]) -> PartialMatchSql:
        """SQL for the partial matches of a need; ``shown`` are the columns that its result uses."""
        used = {r for ref in shown for r in refs(need.part.rewrite(ref))}
        timed = TimedNeed(need, {ref for ref in used if ref.occurrence in need.scope})
        inputs = []
        for alias in timed.aliases:
            table = need.part.select.occurrence(alias).table
            columns = find_used_columns(timed, alias)
            inputs.append(input_table(self._inputs, alias, table.name, columns, table.streaming))
            self._inputs += 1
        return PartialMatchSql(timed, inputs, len(self.needs), self.zone)

    def _add_need(self, sql: PartialMatchSql, result_rows: str, merge: str | None) -> str:
        """Add the program of a need; returns the name of its result table."""
        name = result_table(sql.number)
        plans = sql.timed.sets
        joined = {id(a.old) for p in plans for a in p.arrivals if a.old is not None}
        self.needs.append(
            NeedProgram(
                inputs=tuple(compile_input(sql.timed, each, self.dialect) for each in sql.inputs.values()),
                sets=tuple(_compile_set(sql, p, id(p.match_set) in joined) for p in plans),
                result=name,
                result_rows=result_rows,
                merge=merge,
            )
        )
        return name


# --- results as SQL ------------------------------------------------------------------------------------


def _match_expression(sql: PartialMatchSql, expr: Expr) -> str:
    """An expression over the result columns of complete matches."""

    def column(ref: Ref) -> str:
        return widen(f"p{sql.timed.result_columns.index(ref)}", type_of(sql.timed.part, ref))

    return expression_sql(sql.timed.part.rewrite(expr), column, Dialect.DUCKDB)


def _extreme_value(sql: PartialMatchSql, argument: Expr) -> str:
    """The argument of MIN or MAX, from the requirement of complete matches on the virtual stream."""
    requirements = sql.complete.requirements
    (number,) = [
        i for i, r in enumerate(requirements) if any(z.occurrence == THRESHOLD for z, _ in r.partners)
    ]
    column = requirements[number].terms[0][0]
    value = from_number(f"c{number}", type_of(sql.timed.part, column))
    if column in dict(sql.timed.part.derived):
        return value
    return expression_sql(substitute(argument, {column: Ref("", "v")}), lambda _: value, Dialect.DUCKDB)


def _groups_of(select: Select, need: Need) -> list[tuple[str, Ref]]:
    """The grouping columns that a need has, by name."""
    return [
        (f"g{i}", ref)
        for i, ref in enumerate(select.group_by or ())
        if all(r.occurrence in need.scope for r in refs(need.part.rewrite(ref)))
    ]


def _group_keys(select: Select, need: Need) -> list[str]:
    return [key for key, _ in _groups_of(select, need)]


def _group_columns(sql: PartialMatchSql, select: Select) -> list[str]:
    groups = _groups_of(select, sql.timed.need)
    return [f"{_match_expression(sql, ref)} AS {key}" for key, ref in groups]


def _median_argument(aggregate: Aggregate | None) -> Expr | None:
    """The argument of MEDIAN, whose values must all be counted."""
    return aggregate.argument if aggregate is not None and aggregate.function == "MEDIAN" else None


def _build_counted_matches(
    need: Need, measures: Sequence[Measure], keys: Sequence[str], table: str
) -> Callable[[Version], str]:
    """An aggregate's matches, from a result table with counts that it may share with others."""
    if _median_argument(need.aggregate) is not None:
        value, number, total = "v", "CASE WHEN v IS NULL THEN 0 ELSE n END", "0"
    elif need.measures:
        (measure,) = need.measures
        position = measures.index(measure)
        value, number, total = "NULL AS v", f"f{position}", f"s{position}"
    else:
        value, number, total = "NULL AS v", "n", "0"
    columns = ", ".join([*keys, value, f"CAST({number} AS HUGEINT) AS w", f"{total} AS t"])
    return lambda version: f"SELECT {columns} FROM {version.of(table)}"


# --- partial matches -----------------------------------------------------------------------------------


def _compile_set(sql: PartialMatchSql, plan: PartialMatchPlan, is_joined: bool) -> PartialMatchProgram:
    match_set, order = plan.match_set, sql.timed.order
    return PartialMatchProgram(
        tables=sql.tables(match_set),
        matches=sql.new_matches(match_set, plan.arrivals),
        key=tuple(sql.key(match_set)),
        fixed=(*sql.result_columns(match_set), *sql.exact_requirements(match_set)),
        requirements=tuple((f"c{i}", r.low) for i, r in enumerate(match_set.requirements) if not r.exact),
        differing=tuple(sql.differing(match_set)),
        counts=tuple(sql.counts()),
        is_stored=match_set.groups != (order.relations,),
        is_joined=is_joined,
        expires=_find_expiry(sql.timed.part, order, match_set.groups, sql.zone),
        lookback=sql.timed.lookback,
    )


def _find_expiry(part: Part, order: TimeOrder, groups: Sequence[TimeGroup], zone: str) -> int | None:
    """The timestamp after which the set's matches cannot be completed: a stream they wait for has ended."""
    time_columns = find_time_columns(part.select)
    ends: list[Fraction] = []
    for group in order.groups:
        if group in groups or group == order.relations or not order.is_finite(group):
            continue
        high = part.closure.range(time_columns[group[0]]).high
        ends += [high] if high is not None else []
    return to_micros(min(ends), zone) if ends else None


# --- schemas -------------------------------------------------------------------------------------------


def _state_schemas(needs: Sequence[NeedProgram]) -> Iterator[tuple[str, pa.Schema]]:
    """The schemas of the tables in the state store: the programs are executed on empty inputs."""
    db = DuckDb()
    for need in needs:
        tables = {}
        for each in need.inputs:
            tables[each.name] = each.schema.empty_table()
            if each.retention is not None:
                yield each.name, each.schema
                tables |= {name: tables[each.name] for name in (recent_rows(each.name), all_rows(each.name))}
        with db.register(tables):
            for step in need.sets:
                db.create_table(step.tables.new, step.matches)
                columns = ", ".join(step.state_columns) or "1 AS one"
                yield step.tables.state, db.query(f"SELECT {columns} FROM {step.tables.new}", {}).schema
                _create_empty_timeline(db, step)
            if need.merge is not None:
                added = db.query(need.result_rows, {})
                yield need.result, db.query(need.merge, {"rows": added}).schema
        db.drop_tables()


def _create_empty_timeline(db: DuckDb, step: PartialMatchProgram) -> None:
    """The tables that the SQL of larger sets joins, without rows."""
    columns = ", ".join(["1 AS series", "t", *step.key, *step.counts, "TRUE AS live"])
    db.create_table(step.tables.timeline, f"SELECT {columns} FROM {step.tables.new}")
    db.create_table(step.tables.series, f"SELECT * FROM {step.tables.timeline}")
