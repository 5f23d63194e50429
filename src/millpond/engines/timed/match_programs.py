"""Compiles the partial matches of a need, and finds the schemas of the tables that are kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import pyarrow as pa

from millpond.engines.timed.partial_match_sql import PartialMatchSql
from millpond.engines.timed.program import NeedProgram, PartialMatchProgram
from millpond.engines.timed.tables import all_rows, recent_rows
from millpond.engines.timed.value_sql import to_micros
from millpond.plan.partial_matches import PartialMatchPlan
from millpond.query.parts import Part
from millpond.query.time_order import TimeGroup, TimeOrder, find_time_columns
from millpond.runtime.duckdb import DuckDb, get_process_duckdb


def compile_match_set(sql: PartialMatchSql, plan: PartialMatchPlan, is_joined: bool) -> PartialMatchProgram:
    """The program of one set of partial matches; ``is_joined``: arriving rows are joined with them."""
    match_set, order = plan.match_set, sql.timed.order
    return PartialMatchProgram(
        tables=sql.tables(match_set),
        matches=sql.new_matches(match_set, plan.arrivals),
        sliced_matches=sql.new_matches(match_set, plan.arrivals, sliced=True),
        slice_width=sql.slice_width(plan.arrivals),
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


def list_state_schemas(needs: Sequence[NeedProgram]) -> Iterator[tuple[str, pa.Schema]]:
    """The schemas of the tables in the state store: the programs are executed on empty inputs."""
    db = get_process_duckdb()
    for need in needs:
        tables = {}
        for each in need.inputs:
            tables[each.name] = each.schema.empty_table()
            if each.retention is not None:
                tables |= {name: tables[each.name] for name in (recent_rows(each.name), all_rows(each.name))}
        with db.register(tables):
            for step in need.sets:
                db.create_table(step.tables.new, step.matches)
                columns = ", ".join(step.state_columns) or "1 AS one"
                yield step.tables.state, db.query(f"SELECT {columns} FROM {step.tables.new}", {}).schema
                _create_empty_timeline(db, step)
            added = db.query(need.result_rows, {})
            if need.waiting is not None:
                yield need.waiting.table, added.schema
                added = db.query(need.waiting.released, {"rows": added})
            if need.merge is not None:
                yield need.result, db.query(need.merge, {"rows": added}).schema
        db.drop_tables()


def _create_empty_timeline(db: DuckDb, step: PartialMatchProgram) -> None:
    """The tables that the SQL of larger sets joins, without rows."""
    columns = ", ".join(["1 AS series", "t", *step.key, *step.counts, "TRUE AS live"])
    db.create_table(step.tables.timeline, f"SELECT {columns} FROM {step.tables.new}")
    db.create_table(step.tables.series, f"SELECT * FROM {step.tables.timeline}")
