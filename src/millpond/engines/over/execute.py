"""Executes a micro-batch: releases rows in the order of time, and computes their window functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.engines.over.program import CLOCK, HELD, ROWS, OverProgram
from millpond.runtime.duckdb import DuckDb

# The watermark before any row.
BEGINNING = -(1 << 62)

Tables = dict[str, pa.Table]


@dataclass(frozen=True)
class OverChange:
    """What a micro-batch changes: the state, rows that are emitted, rows that are taken back, late rows.

    The ``watermark`` is that after it.
    """

    state: Tables
    emitted: pa.Table
    retracted: pa.Table
    late: pa.Table
    watermark: int


@dataclass(frozen=True)
class _Clock:
    latest: int
    watermark: int
    next: int

    def to_table(self) -> pa.Table:
        return pa.table({"latest": [self.latest], "watermark": [self.watermark], "next": [self.next]})


def advance(
    db: DuckDb,
    program: OverProgram,
    state: Mapping[str, pa.Table],
    arrived: pa.Table,
    latest: int | None,
    ended: bool,
) -> OverChange:
    """Process rows that arrived, the ``latest`` timestamp of their stream, and maybe the end of the input."""
    clock = _read_clock(state)
    numbers = pa.array(np.arange(arrived.num_rows) + clock.next, pa.int64())
    arrived = arrived.set_column(0, "seq", numbers).cast(program.rows)
    held = state.get(HELD, program.rows.empty_table())
    reached = max(clock.latest, latest if latest is not None else clock.latest)
    times = arrived.column("t").to_numpy()
    late = arrived.filter(pa.array(times < clock.watermark))
    held = pa.concat_tables([held, arrived.filter(pa.array(times >= clock.watermark))])
    watermark = max(clock.watermark, reached - program.delay if reached > BEGINNING else BEGINNING)
    if ended and held.num_rows and program.time is not None:
        watermark = max(watermark, pc.max(held.column("t")).as_py() + 1)
    due = pa.array((held.column("t").to_numpy() < watermark) | (program.time is None))
    released = held.filter(due)
    after = _Clock(reached, watermark, clock.next + arrived.num_rows)
    if program.rank is not None:
        change = _advance_rank(db, program, state, released)
    else:
        change = _advance_functions(db, program, state, released, watermark, ended)
    tables, emitted, retracted = change
    if program.end is not None and ended:
        after = _Clock(after.latest, max(watermark, _find_last_end(db, program, tables)), after.next)
    tables |= {HELD: held.filter(pc.invert(due)), CLOCK: after.to_table()}
    return OverChange(tables, emitted, retracted, late, after.watermark)


def count_entries(state: Mapping[str, pa.Table]) -> int:
    """The number of kept rows and summaries; rows that wait for the watermark do not count."""
    return sum(table.num_rows for name, table in state.items() if name not in (CLOCK, HELD))


def _read_clock(state: Mapping[str, pa.Table]) -> _Clock:
    if CLOCK not in state:
        return _Clock(BEGINNING, BEGINNING, 0)
    (row,) = state[CLOCK].to_pylist()
    return _Clock(row["latest"], row["watermark"], row["next"])


def _find_last_end(db: DuckDb, program: OverProgram, tables: Mapping[str, pa.Table]) -> int:
    found = db.query(f"SELECT max({program.end}) AS e FROM kept", {"kept": tables[ROWS]})
    last = found.column("e")[0].as_py()
    return BEGINNING if last is None else int(last)


def _advance_functions(
    db: DuckDb,
    program: OverProgram,
    state: Mapping[str, pa.Table],
    released: pa.Table,
    watermark: int,
    ended: bool,
) -> tuple[Tables, pa.Table, pa.Table]:
    tables: Tables = {}
    joins = ""
    values: dict[int, str] = {}
    registered: Tables = {"released": released}
    for each in program.summaries:
        summary = state.get(each.table, each.schema.empty_table())
        registered[each.table] = summary
        tables[each.table] = db.query(each.update, {"s": summary, "x": released}).cast(each.schema)
        joins += f" LEFT JOIN {each.table} ON {each.match}"
        values[each.number] = each.value
    kept = state.get(ROWS, program.kept_schema.empty_table())
    shown = [f"released.{name}" for name in program.rows.names]
    flags = []
    for i in range(program.count):
        shown.append(f"{values[i]} AS v{i}" if i in values else f"NULL AS v{i}")
        flags.append(f"{'TRUE' if i in values else 'FALSE'} AS f{i}")
    fresh = db.query(f"SELECT {', '.join([*shown, *flags])}, FALSE AS e FROM released{joins}", registered)
    every = pa.concat_tables([kept, fresh.cast(program.kept_schema)])
    done = db.query(_context_sql(program, ended), {"a": every, "now": pa.table({"watermark": [watermark]})})
    final = " AND ".join(["TRUE", *(f"f{i}" for i in range(program.count))])
    needed = " OR ".join(["FALSE", *(f"n{each.number}" for each in program.contexts)])
    emitted = db.query(
        f"SELECT {', '.join(program.outputs)} FROM b WHERE NOT e AND {final} ORDER BY t, seq", {"b": done}
    )
    names = [name for name in program.kept_schema.names if name != "e"]
    rest = f"SELECT {', '.join(names)}, (e OR ({final})) AS e FROM b WHERE NOT ({final}) OR {needed}"
    tables[ROWS] = db.query(rest, {"b": done}).cast(program.kept_schema)
    return tables, emitted, emitted.slice(0, 0)


def _context_sql(program: OverProgram, ended: bool) -> str:
    """All rows with the values that are final now, and whether later rows need them."""
    contexts = {each.number: each for each in program.contexts}
    shown = [*program.rows.names, "e"]
    for i in range(program.count):
        each = contexts.get(i)
        if each is None:
            shown += [f"v{i}", f"f{i}"]
            continue
        shown.append(f"CASE WHEN f{i} THEN v{i} ELSE {each.value} END AS v{i}")
        shown.append(f"(f{i} OR {'TRUE' if ended else each.is_final}) AS f{i}")
        shown.append(f"({each.is_needed}) AS n{i}")
    return f"SELECT {', '.join(shown)} FROM a, now"


def _advance_rank(
    db: DuckDb, program: OverProgram, state: Mapping[str, pa.Table], released: pa.Table
) -> tuple[Tables, pa.Table, pa.Table]:
    assert program.rank is not None
    before = state.get(ROWS, program.kept_schema.empty_table())
    every = pa.concat_tables([before.select(program.rows.names), released])
    after = db.query(program.rank.first, {"a": every}).cast(program.kept_schema)
    shown = ", ".join(program.outputs)
    pair = {"old": before, "new": after}
    emitted = db.query(f"SELECT {shown} FROM new EXCEPT ALL SELECT {shown} FROM old", pair)
    retracted = db.query(f"SELECT {shown} FROM old EXCEPT ALL SELECT {shown} FROM new", pair)
    return {ROWS: after}, emitted, retracted
