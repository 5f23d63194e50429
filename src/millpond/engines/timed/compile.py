"""From the needs of a query in time to what is executed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import pyarrow as pa

from millpond.engines.timed.match_sql import Feed, Steps, from_number, instant
from millpond.engines.timed.program import Clock, FeedProgram, NeedProgram, SetProgram, TimedProgram
from millpond.plan.needs import Measure, Need, SelectNeeds, TimedPlan, find_separate_needs
from millpond.plan.partial_matches import PartialMatchPlan, PartialMatchSet, TimedNeed
from millpond.query.canonical import canonical_text
from millpond.query.durations import parse_duration
from millpond.query.model import Aggregate, Expr, Query, Ref, Select, Table, Term
from millpond.query.parts import Part, type_of
from millpond.query.time_order import TimeGroup, TimeOrder, find_time_column, find_time_columns
from millpond.query.trees import conjuncts, find_aggregates, is_aggregate, refs, substitute
from millpond.runtime.aggregates import groups_sql, has_monotone_having
from millpond.runtime.arrow_ipc import schema_to_bytes, table_to_bytes
from millpond.runtime.duckdb import DuckDb
from millpond.runtime.filters import column_sql, quoted_column, row_filter_sql
from millpond.runtime.sql import Dialect, expression_sql, widen
from millpond.runtime.terms import TermSql


def compile_timed(
    plan: TimedPlan,
    dialect: Dialect,
    relations: Mapping[str, pa.Table] | None = None,
    zone: str = "UTC",
) -> TimedProgram:
    """The program for a plan, its rows taken by SQL of a dialect.

    ``relations`` are the rows of each feed from a relation, gathered, once they are known.  ``zone`` is the
    time zone in which the timestamps of the query are written.
    """
    builder = _Builder(plan.query, dialect, relations or {}, zone)
    selects = iter(plan.selects)
    for term in plan.query.terms:
        builder.add(term, [next(selects) for _ in term.selects])
    tables = [t for t in plan.query.tables.values() if t.streaming and t.time]
    return builder.program(tuple(_clock(plan, table, dialect, zone) for table in tables))


def _clock(plan: TimedPlan, table: Table, dialect: Dialect, zone: str) -> Clock:
    assert table.time is not None
    ends: list[Fraction | None] = []
    for needs in plan.selects:
        for part, _ in needs.parts:
            order, clocks = TimeOrder(part), find_time_columns(part.select)
            for o in part.select.occurrences:
                if o.table.name == table.name:
                    group = order.groups[order.group_numbers[o.alias]]
                    ends.append(part.closure.range(clocks[o.alias]).high if order.is_finite(group) else None)
    known = [end for end in ends if end is not None]
    last = instant(max(known), zone) if known and len(known) == len(ends) else None
    moment = f"CAST({dialect.micros(dialect.name_of(table.time))} AS BIGINT)"
    delay = parse_duration(table.properties.get("watermark", "0 seconds")) or 0
    idle = parse_duration(table.properties.get("idle", ""))
    return Clock(table.name, table.time, moment, delay, None if idle is None else idle / 1e6, last)


# The result tables of a select by aggregate, each with SQL for its matches.
_Results = dict[Aggregate | None, list[tuple[str, str]]]


class _Builder:
    """Collects the needs and terms of a query."""

    def __init__(self, query: Query, dialect: Dialect, relations: Mapping[str, pa.Table], zone: str) -> None:
        self.zone = zone
        self.query = query
        self.dialect = dialect
        self.relations = relations
        self.needs: list[NeedProgram] = []
        self.terms: list[TermSql] = []
        self.columns = tuple(f"o{i}" for i in range(len(query.columns)))
        self.aggregate = any(is_aggregate(s) for s in query.selects)
        self._feeds = 0

    def program(self, clocks: tuple[Clock, ...]) -> TimedProgram:
        retracts = any(term.retracts for term in self.terms)
        program = TimedProgram(
            tuple(self.needs), tuple(self.terms), (), clocks, b"", self.aggregate, retracts
        )
        program = replace(program, schemas=_schemas(program))
        return replace(program, fingerprint=self._fingerprint(program))

    def _fingerprint(self, program: TimedProgram) -> bytes:
        """Everything that gives the kept bytes their meaning, and what is answered from them."""
        digest = hashlib.sha256(canonical_text(self.query).encode())
        for need in program.needs:
            digest.update(repr((need.sets, need.result, need.merge)).encode())
            digest.update(repr([(f.columns, f.rows) for f in need.feeds]).encode())
        digest.update(repr([(name, bytes_) for name, bytes_ in program.schemas]).encode())
        return digest.digest()[:16]

    # --- terms -----------------------------------------------------------------------------------------

    def add(self, term: Term, selects: Sequence[SelectNeeds]) -> None:
        grouped = [s for s in term.selects if is_aggregate(s)]
        if not grouped and not term.distinct:
            self._bag(selects[0])
            return
        made = [self._results(each) for each in selects]
        rows = {
            version: [self._rows(s.select, m, version) for s, m in zip(selects, made, strict=True)]
            for version in ("old", "now")
        }
        if len(self.query.selects) == len(grouped) == 1 and not term.distinct:
            select = grouped[0]
            self.terms.append(
                TermSql(
                    self._names,
                    self.columns,
                    before=rows["old"][0],
                    after=rows["now"][0],
                    keys=len(select.group_by or ()),
                    grouped=True,
                    retracts=not has_monotone_having(select),
                    always=select.group_by is None,
                )
            )
            return
        every = "SELECT DISTINCT" if term.distinct else "SELECT"
        columns = ", ".join(self.columns)
        unions = {
            version: " UNION ALL ".join(f"(SELECT {columns} FROM ({text}))" for text in texts)
            for version, texts in rows.items()
        }
        before, after = (f"{every} {columns} FROM ({unions[version]})" for version in ("old", "now"))
        always = any(s.group_by is None for s in grouped)
        self.terms.append(
            TermSql(
                self._names, self.columns, before=before, after=after, retracts=bool(grouped), always=always
            )
        )

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(n.name for n in self.needs if n.merge is not None)

    def _bag(self, needs: SelectNeeds) -> None:
        """Rows that are written and forgotten."""
        names = []
        for _, wanted in needs.parts:
            for need in wanted:
                shown = {r for item in needs.select.items for r in refs(item.expression)}
                steps = self._steps(need, shown)
                items = ", ".join(self._items(steps, needs.select))
                final = steps.table(steps.timed.sets[-1].match_set)
                group = ", ".join(self.columns)
                sql = (
                    f"SELECT {group}, sum(n) AS w FROM (SELECT {items}, n FROM {final}_new) GROUP BY {group}"
                )
                names.append(self._need(steps, sql, None))
        if names:
            columns = ", ".join(self.columns)
            union = " UNION ALL ".join(f"SELECT * FROM {name}_new" for name in names)
            added = f"SELECT {columns}, sum(w) AS w FROM ({union}) GROUP BY {columns}"
            self.terms.append(TermSql(tuple(names), self.columns, added=added))

    def _rows(self, select: Select, made: _Results, version: str) -> str:
        """All rows of a select, before or after a batch: its groups, or the set of its rows."""
        if not is_aggregate(select):
            texts = [f"SELECT * FROM {name}_{version}" for names in made.values() for name, _ in names]
            nothing = f"SELECT {', '.join(f'NULL AS {c}' for c in self.columns)} WHERE FALSE"
            return " UNION ".join(texts) or nothing
        matches = [(a, [sql.format(version=version) for _, sql in names]) for a, names in made.items()]
        return groups_sql(select, matches, self.columns)

    def _results(self, needs: SelectNeeds) -> _Results:
        """New result tables for a select; counts of a part are shared by its aggregates."""
        select = needs.select
        if not is_aggregate(select):
            return {None: [(self._set(need, select), "") for _, wanted in needs.parts for need in wanted]}
        aggregates: Sequence[Aggregate | None] = find_aggregates(select) or [None]
        made: _Results = {a: [] for a in aggregates}
        for _, wanted in needs.parts:
            shared: dict[Expr | None, list[Need]] = {}
            for need in wanted:
                beside = find_separate_needs(need, wanted)
                if beside:
                    made[need.aggregate] += [self._combined(need, beside, select)] if need.counted else []
                elif need.counted:
                    shared.setdefault(_median_of(need.aggregate), []).append(need)
                else:
                    made[need.aggregate].append(self._looked_for(need, select))
            for median, together in shared.items():
                for aggregate, sql in self._counted(together, select, median):
                    made[aggregate].append(sql)
        return made

    # --- results ---------------------------------------------------------------------------------------

    def _set(self, need: Need, select: Select) -> str:
        steps = self._steps(need, {r for item in select.items for r in refs(item.expression)})
        final = steps.table(steps.timed.sets[-1].match_set)
        items = ", ".join(self._items(steps, select))
        return self._need(steps, f"SELECT DISTINCT {items} FROM {final}_new", "SELECT DISTINCT * FROM rows")

    def _items(self, steps: Steps, select: Select) -> list[str]:
        return [
            f"{self._expression(steps, item.expression)} AS {name}"
            for item, name in zip(select.items, self.columns, strict=True)
        ]

    def _expression(self, steps: Steps, expr: Expr) -> str:
        def column(ref: Ref) -> str:
            return widen(f"p{steps.timed.result_columns.index(ref)}", type_of(steps.timed.part, ref))

        return expression_sql(steps.timed.part.rewrite(expr), column, Dialect.DUCKDB)

    def _groups(self, steps: Steps, select: Select) -> list[str]:
        need = steps.timed.need
        return [f"{self._expression(steps, ref)} AS {key}" for key, ref in _groups_of(select, need)]

    def _combined(self, counted: Need, beside: Sequence[Need], select: Select) -> tuple[str, str]:
        """The matches of a counted need for every combination of groups of others that are there."""
        ((_, (name, matches)),) = self._counted([counted], select, _median_of(counted.aggregate))
        joined = f"({matches})"
        for need in beside:
            other, _ = self._looked_for(replace(need, aggregate=None), select)
            keys = [*_keys(select, need), f"1 AS there_{other}"]
            joined += f" CROSS JOIN (SELECT {', '.join(keys)} FROM {other}_{{version}})"
        every = [f"g{i}" for i in range(len(select.group_by or ()))]
        return name, f"SELECT {', '.join([*every, 'v', 'w', 't'])} FROM {joined}"

    def _looked_for(self, need: Need, select: Select) -> tuple[str, str]:
        """Groups with the values of an argument, or with its best value."""
        aggregate = need.aggregate
        groups = set(select.group_by or ())
        argument = aggregate.argument if aggregate is not None else None
        keys = _keys(select, need)
        extreme = argument is not None and "?" in need.scope
        shown = groups if argument is None or extreme else groups | refs(argument)
        steps = self._steps(need, shown)
        final = steps.timed.sets[-1].match_set
        value = "NULL"
        if extreme:
            value = self._extreme(steps, final, argument)
        elif argument is not None:
            value = self._expression(steps, argument)
        columns = ", ".join([*self._groups(steps, select), f"{value} AS v"])
        result = f"SELECT DISTINCT {columns} FROM {steps.table(final)}_new"
        merge = "SELECT DISTINCT * FROM rows"
        if aggregate is not None and aggregate.function in ("MIN", "MAX"):
            best = f"{aggregate.function.lower()}(v) AS v"
            group = f" GROUP BY {', '.join(keys)}" if keys else " HAVING count(*) > 0"
            merge = f"SELECT {', '.join([*keys, best])} FROM rows{group}"
        name = self._need(steps, result, merge)
        weight = "CASE WHEN v IS NULL THEN 0 ELSE 1 END" if argument is not None else "1"
        weighed = f"CAST({weight} AS HUGEINT) AS w"
        adding = aggregate is not None and aggregate.function in ("SUM", "AVG")
        total = "v AS t" if adding else "0 AS t"
        return name, f"SELECT {', '.join([*keys, 'v', weighed, total])} FROM {name}_{{version}}"

    def _extreme(self, steps: Steps, final: PartialMatchSet, argument: Expr | None) -> str:
        """The argument out of what is demanded of the stream that asks for it."""
        (number,) = [
            i for i, d in enumerate(final.requirements) if any(z.occurrence == "?" for z, _ in d.partners)
        ]
        column = final.requirements[number].terms[0][0]
        derived = dict(steps.timed.part.derived)
        assert argument is not None
        back = from_number(f"c{number}", type_of(steps.timed.part, column))
        if column in derived:
            return back
        return expression_sql(substitute(argument, {column: Ref("", "v")}), lambda _: back, Dialect.DUCKDB)

    def _counted(
        self, needs: Sequence[Need], select: Select, median: Expr | None
    ) -> Iterable[tuple[Aggregate | None, tuple[str, str]]]:
        """Groups with the number of matches and the sums of measures, shared by several aggregates."""
        measures = tuple(dict.fromkeys(m for need in needs for m in need.measures))
        groups = set(select.group_by or ())
        keys = _keys(select, needs[0])
        shown = groups | (refs(median) if median is not None else set())
        steps = self._steps(replace(needs[0], measures=measures), shown)
        value = [f"{self._expression(steps, median)} AS v"] if median is not None else []
        counts = steps.counts()
        sums = [f"sum({c}) AS {c}" for c in counts]
        final = steps.table(steps.timed.sets[-1].match_set)
        columns = self._groups(steps, select) + value
        names = [*keys, *(["v"] if value else [])]
        group = f" GROUP BY {', '.join(names)}" if names else " HAVING count(*) > 0"
        inner = f"SELECT {', '.join([*columns, *counts])} FROM {final}_new"
        result = f"SELECT {', '.join([*names, *sums])} FROM ({inner}){group}"
        name = self._need(steps, result, f"SELECT {', '.join([*names, *sums])} FROM rows{group}")
        for need in needs:
            yield need.aggregate, (name, _measured(need, measures, keys, name))

    # --- needs -----------------------------------------------------------------------------------------

    def _steps(self, need: Need, shown: Iterable[Ref]) -> Steps:
        named = {r for ref in shown for r in refs(need.part.rewrite(ref))}
        kept = {ref for ref in named if ref.occurrence in need.scope}
        timed = TimedNeed(need, kept)
        feeds = []
        for alias in timed.aliases:
            table = need.part.select.occurrence(alias).table
            columns = tuple(sorted(_used(timed, alias), key=str))
            feeds.append(Feed(f"f{self._feeds}", alias, table.name, columns, table.streaming))
            self._feeds += 1
        return Steps(timed, feeds, f"n{len(self.needs)}", self.zone)

    def _need(self, steps: Steps, result: str, merge: str | None) -> str:
        name = f"{steps.prefix}r"
        feeds = tuple(self._feed(steps, feed) for feed in steps.feeds.values())
        plans = steps.timed.sets
        asked = {id(a.old) for p in plans for a in p.arrivals if a.old is not None}
        sets = tuple(_set_program(steps, p, id(p.match_set) in asked) for p in plans)
        self.needs.append(NeedProgram(feeds, sets, name, result, merge))
        return name

    def _feed(self, steps: Steps, feed: Feed) -> FeedProgram:
        part, dialect = steps.timed.part, self.dialect
        admits = row_filter_sql(part, feed.alias, dialect)
        clock = find_time_column(part.select, feed.alias)
        moment = dialect.micros(quoted_column(dialect)(clock)) if clock is not None else "0"
        taken = [("t", f"CAST({moment} AS BIGINT)")]
        taken += [(f"x{i}", column_sql(part, ref, dialect)) for i, ref in enumerate(feed.columns)]
        measures = []
        for i, measure in enumerate(steps.measures):
            if {r.occurrence for r in refs(measure.expression)} == {feed.alias}:
                taken.append((f"m{i}", expression_sql(measure.expression, quoted_column(dialect), dialect)))
                total = f"sum({feed.name}_m{i})" if measure.summed else "0"
                measures += [f"count({feed.name}_m{i}) AS f{i}", f"{total} AS s{i}"]
        columns = tuple((f"{feed.name}_{n}", f"CASE WHEN {admits} THEN {text} END") for n, text in taken)
        keys = ["t", *(f"x{i}" for i in range(len(feed.columns)))]
        named = ", ".join(f"{feed.name}_{k} AS {k}" for k in keys)
        weights = ["count(*) AS n", *measures] if steps.counted else []
        grouped = ", ".join(f"{feed.name}_{k}" for k in keys)
        rows_in = f"FROM batch WHERE {feed.name}_t IS NOT NULL"
        reduce = f"SELECT {', '.join([named, *weights])} {rows_in} GROUP BY {grouped}"
        table = part.select.occurrence(feed.alias).table
        schema = _feed_schema(self._typed(steps, feed, table), reduce)
        rows = self.relations.get(feed.name)
        data = table_to_bytes(rows.cast(schema)) if rows is not None else None
        if not table.streaming and rows is None:
            data = table_to_bytes(schema.empty_table())
        return FeedProgram(
            feed.name,
            feed.stream,
            clock is not None,
            tuple(ref.column for ref in feed.columns),
            columns,
            reduce,
            schema_to_bytes(schema),
            data,
        )

    def _typed(self, steps: Steps, feed: Feed, table: Table) -> str:
        """An empty batch, with the types of what is taken."""
        part, duck = steps.timed.part, Dialect.DUCKDB
        source = ", ".join(
            f"CAST(NULL AS {duck.type_of(c.type)}) AS {duck.name_of(c.name)}" for c in table.columns
        )
        taken = [f"CAST(NULL AS BIGINT) AS {feed.name}_t"]
        taken += [f"{column_sql(part, ref, duck)} AS {feed.name}_x{i}" for i, ref in enumerate(feed.columns)]
        taken += [
            f"{expression_sql(m.expression, quoted_column(duck), duck)} AS {feed.name}_m{i}"
            for i, m in enumerate(steps.measures)
            if {r.occurrence for r in refs(m.expression)} == {feed.alias}
        ]
        return f"SELECT {', '.join(taken)} FROM (SELECT {source}) WHERE FALSE"


def _groups_of(select: Select, need: Need) -> list[tuple[str, Ref]]:
    """The grouping columns that a need holds, by name."""
    return [
        (f"g{i}", ref)
        for i, ref in enumerate(select.group_by or ())
        if all(r.occurrence in need.scope for r in refs(need.part.rewrite(ref)))
    ]


def _keys(select: Select, need: Need) -> list[str]:
    return [key for key, _ in _groups_of(select, need)]


def _median_of(aggregate: Aggregate | None) -> Expr | None:
    """The argument whose values have to be told apart."""
    return aggregate.argument if aggregate is not None and aggregate.function == "MEDIAN" else None


def _measured(need: Need, measures: Sequence[Measure], keys: Sequence[str], name: str) -> str:
    """An aggregate's matches out of a table of counts that it may share."""
    if _median_of(need.aggregate) is not None:
        value, weight, total = "v", "CASE WHEN v IS NULL THEN 0 ELSE n END", "0"
    elif need.measures:
        (measure,) = need.measures
        number = measures.index(measure)
        value, weight, total = "NULL AS v", f"f{number}", f"s{number}"
    else:
        value, weight, total = "NULL AS v", "n", "0"
    columns = ", ".join([*keys, value, f"CAST({weight} AS HUGEINT) AS w", f"{total} AS t"])
    return f"SELECT {columns} FROM {name}_{{version}}"


def _used(timed: TimedNeed, alias: str) -> set[Ref]:
    """The columns of an occurrence that others are compared with, or the result needs."""
    part, closure = timed.part, timed.closure
    clocks = set(find_time_columns(part.select).values())
    used = {ref for ref in timed.result_columns if ref.occurrence == alias}
    for conjunct in conjuncts(part.condition):
        mentioned = refs(conjunct)
        if len({r.occurrence for r in mentioned}) > 1 and not mentioned <= clocks:
            used |= {r for r in mentioned if r.occurrence == alias}
    for n in closure.nodes:
        if n.ref.occurrence == alias and timed.is_value(n.ref):
            others = [m.ref for m in closure.nodes if m.ref.occurrence != alias and timed.is_value(m.ref)]
            if any(timed.bound(n.ref, o) or timed.bound(o, n.ref) for o in others):
                used.add(n.ref)
    return used


def _set_program(steps: Steps, plan: PartialMatchPlan, asked: bool) -> SetProgram:
    waiting = plan.match_set
    compared = [(f"c{i}", d.low) for i, d in enumerate(waiting.requirements) if not d.exact]
    return SetProgram(
        steps.table(waiting),
        steps.matches(waiting, plan.arrivals),
        tuple(steps.key(waiting)),
        tuple([*steps.shown(waiting), *steps.exact(waiting)]),
        tuple(compared),
        tuple(steps.differing(waiting)),
        tuple(steps.counts()),
        waiting.groups != (steps.timed.order.relations,),
        asked,
        _expires(steps.timed.part, steps.timed.order, waiting.groups, steps.zone),
    )


def _expires(part: Part, order: TimeOrder, groups: Sequence[TimeGroup], zone: str) -> int | None:
    """The moment after which a stream that a set waits for has ended."""
    clocks = find_time_columns(part.select)
    ends: list[Fraction] = []
    for group in order.groups:
        if group in groups or group == order.relations or not order.is_finite(group):
            continue
        high = part.closure.range(clocks[group[0]]).high
        ends += [high] if high is not None else []
    return instant(min(ends), zone) if ends else None


def _feed_schema(empty: str, reduce: str) -> pa.Schema:
    db = DuckDb()
    return db.query(reduce, {"batch": db.query(empty, {})}).schema


def _schemas(program: TimedProgram) -> tuple[tuple[str, bytes], ...]:
    """The types of the kept tables: those of empty ones."""
    db = DuckDb()
    schemas: dict[str, pa.Schema] = {}
    for need in program.needs:
        tables = {feed.name: feed.schema.empty_table() for feed in need.feeds}
        with db.register(tables):
            for step in need.sets:
                db.create_table(f"{step.table}_new", step.matches)
                columns = ", ".join([*step.key, *step.counts])
                schema = db.query(f"SELECT {columns or '1 AS one'} FROM {step.table}_new", {}).schema
                schemas[step.table] = schema
                _empty_past(db, step)
            if need.merge is not None:
                added = db.query(need.result, {})
                schemas[need.name] = db.query(need.merge, {"rows": added}).schema
        db.drop_tables()
    return tuple((name, schema_to_bytes(schema)) for name, schema in schemas.items())


def _empty_past(db: DuckDb, step: SetProgram) -> None:
    """Stand-ins for the past of a set, so that the sets that build on it have types."""
    keys = ", ".join(["1 AS kid", "t", *step.key, *step.counts, "TRUE AS live"])
    db.create_table(f"{step.table}_past", f"SELECT {keys} FROM {step.table}_new")
    db.create_table(f"{step.table}_keys", f"SELECT * FROM {step.table}_past")
