"""From rows in the order of time to what they add to the answer, a batch of any number of moments at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.engines.timed.fronts import ALWAYS, NEVER, History, history
from millpond.engines.timed.program import SetProgram, TimedProgram
from millpond.runtime.duckdb import DuckDb
from millpond.runtime.terms import TermSql

Tables = dict[str, pa.Table]


@dataclass(frozen=True)
class Advance:
    """What is kept after a batch, and the new rows of each need's result."""

    kept: Tables
    added: Tables

    def tables(self, program: TimedProgram, before: Mapping[str, pa.Table], term: TermSql) -> Tables:
        """What a term's changes are asked of: what is new, and what was and is kept of its results."""
        tables = {f"{name}_new": table for name, table in self.added.items() if name in term.tables}
        for name in term.tables:
            if name in program.kept:
                empty = program.kept[name].empty_table()
                tables[f"{name}_old"] = before.get(name, empty)
                tables[f"{name}_now"] = self.kept.get(name, empty)
        return tables


def advance(
    db: DuckDb,
    program: TimedProgram,
    kept: Mapping[str, pa.Table],
    feeds: Mapping[str, pa.Table],
    now: int,
) -> Advance:
    """Take in rows, all later than those before; ``now`` is the moment up to which time has moved."""
    after: Tables = {}
    added: Tables = {}
    for need in program.needs:
        tables = {
            feed.name: feed.relation
            if feed.relation is not None
            else feeds.get(feed.name, feed.schema.empty_table())
            for feed in need.feeds
        }
        with db.register(tables):
            for step in need.sets[:-1]:
                state = kept.get(f"{step.table}", program.kept[step.table].empty_table())
                _found(db, step)
                after |= _updated(db, step, state, now)
            _found(db, need.sets[-1])
            added[need.name] = db.query(need.result, {})
        if need.merge is not None:
            rows = pa.concat_tables(
                [kept[need.name], added[need.name].cast(program.kept[need.name])]
                if need.name in kept
                else [added[need.name].cast(program.kept[need.name])]
            )
            after[need.name] = db.query(need.merge, {"rows": rows}).cast(program.kept[need.name])
        db.drop_tables()
    return Advance({name: table for name, table in after.items() if table.num_rows}, added)


def _found(db: DuckDb, step: SetProgram) -> None:
    db.create_table(f"{step.table}_new", step.matches)


def _updated(db: DuckDb, step: SetProgram, state: pa.Table, now: int) -> Tables:
    """What is kept of a set after the batch; its past, for the sets that build on it."""
    columns = ", ".join([*step.key, *step.counts])
    with db.register({"state": state}):
        db.create_table(
            f"{step.table}_all",
            f"SELECT CAST({ALWAYS} AS BIGINT) AS t{_listed(columns)} FROM state "
            f"UNION ALL SELECT t{_listed(columns)} FROM {step.table}_new",
        )
    table = _counted(db, step) if step.counts else _fronts(db, step)
    expired = step.expires is not None and now > step.expires
    return {step.table: table} if step.stored and not expired else {}


def _listed(columns: str) -> str:
    return f", {columns}" if columns else ""


def _kid(columns: tuple[str, ...]) -> str:
    return f"dense_rank() OVER (ORDER BY {', '.join(columns)})" if columns else "1"


def _counted(db: DuckDb, step: SetProgram) -> pa.Table:
    everything = f"{step.table}_all"
    keys = _listed(", ".join(step.key))
    if step.asked:
        running = ", ".join(f"sum({c}) OVER (PARTITION BY kid ORDER BY t) AS {c}" for c in step.counts)
        numbered = f"SELECT {_kid(step.key)} AS kid, * FROM {everything}"
        db.create_table(f"{step.table}_past", f"SELECT kid, t{keys}, {running} FROM ({numbered})")
        db.create_table(f"{step.table}_keys", f"SELECT DISTINCT kid{keys} FROM {step.table}_past")
    sums = ", ".join(f"sum({c}) AS {c}" for c in step.counts)
    group = f" GROUP BY {', '.join(step.key)}" if step.key else " HAVING count(*) > 0"
    selected = ", ".join([*step.key, sums])
    return db.query(f"SELECT {selected} FROM {everything}{group}", {})


def _fronts(db: DuckDb, step: SetProgram) -> pa.Table:
    everything = f"{step.table}_all"
    ranks = [
        f"dense_rank() OVER (ORDER BY {name} {'ASC' if smaller else 'DESC'}) AS k{i}"
        for i, (name, smaller) in enumerate(step.demands)
    ]
    values = [f"dense_rank() OVER (ORDER BY {name}) AS v{i}" for i, name in enumerate(step.differing)]
    selected = ", ".join([f"{_kid(step.fixed)} AS kid", "*", *ranks, *values])
    db.create_table(f"{step.table}_sorted", f"SELECT {selected} FROM {everything} ORDER BY kid, t")
    numbers = ", ".join(
        ["kid", "t", *(f"k{i}" for i in range(len(ranks))), *(f"v{i}" for i in range(len(values)))]
    )
    found = db.query_integers(f"SELECT {numbers} FROM {step.table}_sorted")
    past = history(
        found["kid"], found["t"], _matrix(found, "k", len(ranks)), _matrix(found, "v", len(values))
    )
    entries = _entries(past)
    keys = _listed(", ".join(step.key))
    with db.register({"entries": entries}):
        numbered = f"SELECT row_number() OVER () - 1 AS number, * FROM {step.table}_sorted"
        db.create_table(
            f"{step.table}_history",
            f"SELECT s.kid AS front, e.place, e.since AS t, e.until{keys} "
            f"FROM entries e JOIN ({numbered}) s ON e.number = s.number",
        )
    if step.asked:
        _keep_past(db, step)
    columns = ", ".join(step.key) or "1 AS one"
    return db.query(f"SELECT {columns} FROM {step.table}_history WHERE until = {NEVER}", {})


def _matrix(found: Mapping[str, np.ndarray], letter: str, width: int) -> np.ndarray:
    columns = [found[f"{letter}{i}"] for i in range(width)]
    return np.stack(columns, axis=1) if columns else np.zeros((len(found["t"]), 0), np.int64)


def _entries(past: History) -> pa.Table:
    return pa.table({"number": past.rows, "since": past.since, "until": past.until, "place": past.places})


def _keep_past(db: DuckDb, step: SetProgram) -> None:
    """The entries of each place of a front, one after the other, with gaps where it was empty."""
    name = step.table
    keys = _listed(", ".join(step.key))
    nothing = "".join(f", NULL AS {c}" for c in step.key)
    kid = "dense_rank() OVER (ORDER BY front, place) AS kid"
    next_one = f"FROM {name}_history b WHERE a.front = b.front AND a.place = b.place AND a.until = b.t"
    gaps = (
        f"SELECT front, place, until AS t, FALSE AS live{nothing} FROM {name}_history a "
        f"WHERE until < {NEVER} AND NOT EXISTS ({next_one})"
    )
    lives = f"SELECT front, place, t, TRUE AS live{keys} FROM {name}_history"
    db.create_table(f"{name}_past", f"SELECT {kid}, * FROM ({lives} UNION ALL {gaps})")
    fixed = _listed(", ".join(step.fixed))
    db.create_table(f"{name}_keys", f"SELECT DISTINCT kid{fixed} FROM {name}_past WHERE live")
