"""Executes a micro-batch: finds new matches of released rows, and updates the partial matches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.engines.timed.pareto_fronts import ALWAYS, NEVER, Ints, build_front_history
from millpond.engines.timed.partner_tests import filter_by_partners
from millpond.engines.timed.partner_waits import release_waiting
from millpond.engines.timed.program import NeedProgram, PartialMatchProgram, TimedProgram
from millpond.engines.timed.reorder_buffer import BEGINNING
from millpond.engines.timed.result_sql import CLOSES
from millpond.engines.timed.tables import all_rows, recent_rows
from millpond.runtime.duckdb import DuckDb
from millpond.runtime.terms import TermSql, Version

Tables = dict[str, pa.Table]
# How many slices of time new rows must span for a join by slices.
SLICES = 4


@dataclass(frozen=True)
class BatchChange:
    """What a micro-batch changes.

    ``before`` and ``state`` hold the partial matches and results before and after it, ``added`` the new
    result rows.  ``closed`` are the results that it closes, by table; they are no longer kept.
    """

    before: Mapping[str, pa.Table]
    state: Tables
    added: Tables
    closed: Tables

    def term_tables(self, program: TimedProgram, term: TermSql) -> Tables:
        """The tables that a term's SQL reads."""
        tables = {}
        for name in term.tables:
            if name in self.added:
                tables[Version.ADDED.of(name)] = self.added[name]
            if name in program.state_schemas:
                empty = program.state_schemas[name].empty_table()
                tables[Version.BEFORE.of(name)] = self.before.get(name, empty)
                kept, closed = self.state.get(name, empty), self.closed.get(name, empty)
                tables[Version.AFTER.of(name)] = pa.concat_tables([kept, closed])
                tables[Version.CLOSED.of(name)] = closed
        return tables


def advance(
    db: DuckDb,
    program: TimedProgram,
    state: Mapping[str, pa.Table],
    inputs: Mapping[str, pa.Table],
    recent: Mapping[str, pa.Table],
    now: int,
) -> BatchChange:
    """Process released rows; all of them are later than the rows of earlier micro-batches.

    ``state`` holds the partial matches and results, ``inputs`` the rows by input table, ``recent`` earlier
    rows that they can match within a window (older ones do no harm); tables without rows may be absent.
    All timestamps before ``now`` are complete.
    """
    after: Tables = {}
    added: Tables = {}
    closed: Tables = {}
    watermark = now
    for need in program.needs:
        span = _find_time_span(need, inputs)
        now = max(watermark - need.hold, BEGINNING)
        tables = _input_tables(need, inputs, recent)
        with db.register(filter_by_partners(db, need, tables, after, closed)):
            *partial, complete = need.sets
            for step in partial:
                empty = program.state_schemas[step.tables.state].empty_table()
                db.create_table(step.tables.new, _choose_sql(step, span))
                table = _update_matches(db, step, state.get(step.tables.state, empty), now)
                expired = step.expires is not None and now > step.expires
                if step.is_stored and not expired:
                    after[step.tables.state] = table
            db.create_table(complete.tables.new, _choose_sql(complete, span))
            added[need.result] = db.query(need.result_rows, {})
        if need.waiting is not None:
            table = need.waiting.table
            schema = program.state_schemas[table]
            rows = [added[need.result].cast(schema)]
            if table in state:
                rows.insert(0, state[table])
            partners = [tables[need.waiting.partners] for tables in (after, closed)]
            added[need.result], waiting = release_waiting(
                db, need.waiting, pa.concat_tables(rows), pa.concat_tables(partners), now
            )
            after[table] = waiting.cast(schema)
        if need.merge is not None:
            schema = program.state_schemas[need.result]
            rows = [added[need.result].cast(schema)]
            if need.result in state:
                rows.insert(0, state[need.result])
            merged = db.query(need.merge, {"rows": pa.concat_tables(rows)}).cast(schema)
            after[need.result], closed[need.result] = _split_closed(need, merged, now)
        db.drop_tables()
    kept = {name: table for name, table in after.items() if table.num_rows}
    return BatchChange(state, kept, added, closed)


def _find_time_span(need: NeedProgram, inputs: Mapping[str, pa.Table]) -> int:
    """The time between the first and the last of the new rows, in microseconds."""
    found = [inputs[each.name].column("t") for each in need.inputs if each.name in inputs and each.has_time]
    ends = [pc.min_max(times).as_py() for times in found if len(times)]
    return max((end["max"] for end in ends), default=0) - min((end["min"] for end in ends), default=0)


def _choose_sql(step: PartialMatchProgram, span: int) -> str:
    """The SQL for new matches of rows that span a stretch of time.

    Without slices, DuckDB compares all pairs of rows for which the other conditions hold.
    """
    is_sliced = step.slice_width is not None and span >= SLICES * step.slice_width
    return step.sliced_matches if is_sliced else step.matches


def find_last_closing(program: TimedProgram, state: Mapping[str, pa.Table]) -> int | None:
    """The watermark at which the last of the groups that are held closes; None if there are none."""
    times = [
        pc.max(state[need.result].column(CLOSES)).as_py() + need.hold
        for need in program.needs
        if need.is_held and need.result in state
    ]
    return max(times, default=None)


def _split_closed(need: NeedProgram, results: pa.Table, now: int) -> tuple[pa.Table, pa.Table]:
    """The results that rows from ``now`` on can change, and those that are closed."""
    if not need.closes:
        return results, results.slice(0, 0)
    is_closed = pc.less_equal(results.column(CLOSES), now)
    return results.filter(pc.invert(is_closed)), results.filter(is_closed)


def _input_tables(
    need: NeedProgram, inputs: Mapping[str, pa.Table], recent: Mapping[str, pa.Table]
) -> Tables:
    """The rows of each input: new ones and, with windows, those of earlier micro-batches."""
    tables = {}
    for each in need.inputs:
        relation, nothing = each.relation, each.schema.empty_table()
        new = relation if relation is not None else inputs.get(each.name, nothing)
        tables[each.name] = new
        if each.retention is not None:
            old = recent.get(each.name, nothing)
            tables[recent_rows(each.name)] = old
            tables[all_rows(each.name)] = pa.concat_tables([old, new])
    return tables


def _update_matches(db: DuckDb, step: PartialMatchProgram, state: pa.Table, now: int) -> pa.Table:
    """The partial matches to keep; creates the tables that larger sets join."""
    columns = _after_comma([*step.key, *step.counts])
    time = "t" if step.lookback else f"CAST({ALWAYS} AS BIGINT) AS t"
    with db.register({"state": state}):
        db.create_table(
            step.tables.all,
            f"SELECT {time}{columns} FROM state UNION ALL SELECT t{columns} FROM {step.tables.new}",
        )
    cutoff = now - step.lookback if step.lookback else None
    return _update_counts(db, step, cutoff) if step.counts else _update_fronts(db, step, cutoff)


def _render_kept_time(cutoff: int | None) -> list[str]:
    """The timestamp to keep with a match: its own, or ALWAYS if before the cutoff; none without a cutoff."""
    if cutoff is None:
        return []
    return [f"CASE WHEN t < {cutoff} THEN CAST({ALWAYS} AS BIGINT) ELSE t END"]


def _after_comma(columns: list[str] | tuple[str, ...]) -> str:
    return "".join(f", {column}" for column in columns)


def _group_number(columns: tuple[str, ...]) -> str:
    return f"dense_rank() OVER (ORDER BY {', '.join(columns)})" if columns else "1"


# --- counted matches -----------------------------------------------------------------------------------


def _update_counts(db: DuckDb, step: PartialMatchProgram, cutoff: int | None) -> pa.Table:
    """Equal matches are one row; their number over time is a series."""
    tables = step.tables
    if step.is_joined:
        keys = _after_comma(step.key)
        running = ", ".join(f"sum({c}) OVER (PARTITION BY series ORDER BY t) AS {c}" for c in step.counts)
        numbered = f"SELECT {_group_number(step.key)} AS series, * FROM {tables.all}"
        db.create_table(tables.timeline, f"SELECT series, t{keys}, {running} FROM ({numbered})")
        db.create_table(tables.series, f"SELECT DISTINCT series{keys} FROM {tables.timeline}")
    sums = ", ".join(f"sum({c}) AS {c}" for c in step.counts)
    times = _render_kept_time(cutoff)
    grouped = ", ".join([*times, *step.key])
    group = f" GROUP BY {grouped}" if grouped else " HAVING count(*) > 0"
    selected = ", ".join([*(f"{time} AS t" for time in times), *step.key, sums])
    return db.query(f"SELECT {selected} FROM {tables.all}{group}", {})


# --- Pareto fronts -------------------------------------------------------------------------------------


def _update_fronts(db: DuckDb, step: PartialMatchProgram, cutoff: int | None) -> pa.Table:
    """The matches on the fronts at the end of the micro-batch, or at any time since the cutoff."""
    tables = step.tables
    _create_history(db, step)
    if step.is_joined:
        _create_timeline(db, step)
    columns = ", ".join([*(f"{time} AS t" for time in _render_kept_time(cutoff)), *step.key]) or "1 AS one"
    remaining = f"until = {NEVER}" if cutoff is None else f"until >= {cutoff}"
    return db.query(f"SELECT {columns} FROM {tables.history} WHERE {remaining}", {})


def _create_history(db: DuckDb, step: PartialMatchProgram) -> None:
    """Which matches were on the fronts when.  Requirements and values are compared by their ranks."""
    tables = step.tables
    ranks = {
        f"k{i}": f"dense_rank() OVER (ORDER BY {name} {'ASC' if smaller else 'DESC'})"
        for i, (name, smaller) in enumerate(step.requirements)
    }
    values = {f"v{i}": f"dense_rank() OVER (ORDER BY {name})" for i, name in enumerate(step.differing)}
    selected = [f"{_group_number(step.fixed)} AS front", "*"]
    selected += [f"{text} AS {name}" for name, text in (ranks | values).items()]
    db.create_table(tables.sorted, f"SELECT {', '.join(selected)} FROM {tables.all} ORDER BY front, t")
    numbers = ", ".join(["front", "t", *ranks, *values])
    found = db.query_integers(f"SELECT {numbers} FROM {tables.sorted}")
    size = len(found["t"])
    past = build_front_history(
        found["front"],
        found["t"],
        _matrix([found[name] for name in ranks], size),
        _matrix([found[name] for name in values], size),
    )
    entries = pa.table({"number": past.rows, "since": past.since, "until": past.until, "place": past.places})
    with db.register({"entries": entries}):
        numbered = f"SELECT row_number() OVER () - 1 AS number, * FROM {tables.sorted}"
        db.create_table(
            tables.history,
            f"SELECT s.front, e.place, e.since AS t, e.until{_after_comma(step.key)} "
            f"FROM entries e JOIN ({numbered}) s ON e.number = s.number",
        )


def _matrix(columns: list[Ints], size: int) -> Ints:
    return np.stack(columns, axis=1) if columns else np.zeros((size, 0), np.int64)


def _create_timeline(db: DuckDb, step: PartialMatchProgram) -> None:
    """A place on a front is a series: the matches that held it one after the other, with gaps between."""
    tables = step.tables
    next_one = f"FROM {tables.history} b WHERE a.front = b.front AND a.place = b.place AND a.until = b.t"
    gaps = (
        f"SELECT front, place, until AS t, FALSE AS live{''.join(f', NULL AS {c}' for c in step.key)} "
        f"FROM {tables.history} a WHERE until < {NEVER} AND NOT EXISTS ({next_one})"
    )
    lives = f"SELECT front, place, t, TRUE AS live{_after_comma(step.key)} FROM {tables.history}"
    series = "dense_rank() OVER (ORDER BY front, place) AS series"
    db.create_table(tables.timeline, f"SELECT {series}, * FROM ({lives} UNION ALL {gaps})")
    fixed = _after_comma(step.fixed)
    db.create_table(tables.series, f"SELECT DISTINCT series{fixed} FROM {tables.timeline} WHERE live")
