"""Executes a micro-batch: applies the changes of subqueries to their rows, and finds what changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from millpond.engines.finite.program import ANSWER, PLACE, TAKEN_BACK, FiniteProgram, KeptRows
from millpond.runtime.duckdb import DuckDb


@dataclass(frozen=True)
class FiniteChange:
    """The state after a micro-batch, the rows that it adds to the answer, and those that it takes back."""

    state: dict[str, pa.Table]
    added: pa.Table
    removed: pa.Table


def apply_changes(
    db: DuckDb, program: FiniteProgram, state: Mapping[str, pa.Table], changes: Mapping[str, pa.Table]
) -> FiniteChange:
    """Process the changes of a micro-batch; rows that are not kept yet are none."""
    after: dict[str, pa.Table] = {}
    for each in program.kept:
        old = state.get(each.name, each.schema.empty_table())
        new = changes.get(each.name, each.changes.empty_table())
        after[each.name] = db.query(_update_sql(each), {"old": old, "new": new}).cast(each.schema)
    before = state.get(ANSWER, program.columns.empty_table())
    answer = db.query(program.answer, after).cast(program.columns)
    pair = {"old": before, "new": answer}
    added = db.query("SELECT * FROM new EXCEPT ALL SELECT * FROM old", pair)
    gone = "SELECT * FROM old EXCEPT ALL SELECT * FROM new"
    if program.keys is not None:
        same = " AND ".join(f"new.{key} IS NOT DISTINCT FROM gone.{key}" for key in program.keys) or "TRUE"
        gone = f"SELECT * FROM ({gone}) AS gone WHERE NOT EXISTS (SELECT 1 FROM new WHERE {same})"
    return FiniteChange({**after, ANSWER: answer}, added, db.query(gone, pair))


def _update_sql(kept: KeptRows) -> str:
    """The rows after changes ``new`` to the rows ``old``."""
    columns = ", ".join(kept.schema.names)
    added = f"SELECT {columns} FROM new WHERE NOT {TAKEN_BACK}"
    if kept.keys is None:
        removed = f"SELECT {columns} FROM new WHERE {TAKEN_BACK}"
        return f"(SELECT {columns} FROM old UNION ALL {added}) EXCEPT ALL {removed}"
    same = " AND ".join(f"new.{key} IS NOT DISTINCT FROM old.{key}" for key in kept.keys) or "TRUE"
    unchanged = f"SELECT {columns} FROM old WHERE NOT EXISTS (SELECT 1 FROM new WHERE {same})"
    keys = f"PARTITION BY {', '.join(kept.keys)} " if kept.keys else ""
    last = f"SELECT * FROM new QUALIFY row_number() OVER ({keys}ORDER BY {PLACE} DESC) = 1"
    return f"{unchanged} UNION ALL SELECT {columns} FROM ({last}) WHERE NOT {TAKEN_BACK}"
