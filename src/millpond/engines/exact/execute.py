"""Answers the terms of a query from synopses: what a micro-batch adds to the answer or removes from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from millpond.engines.exact.program import ExactProgram, SlotProgram
from millpond.engines.exact.synopsis import Synopsis
from millpond.runtime.duckdb import DuckDb
from millpond.runtime.terms import TermSql, Version


class SynopsisVersions(NamedTuple):
    """The synopsis before a micro-batch, that of its rows alone, and the synopsis after it."""

    before: Synopsis
    added: Synopsis
    after: Synopsis


def find_changes(
    db: DuckDb,
    program: ExactProgram,
    term: TermSql,
    versions: SynopsisVersions,
    first: bool,
    types: Sequence[str] | None = None,
) -> pa.Table:
    """The changes of a term's answer (see ``TermSql.changes_sql``)."""
    slots = [slot for slot in program.slots if slot.name in term.tables]
    tables = {
        version.of(slot.name): synopsis.table(slot)
        for slot in slots
        for version, synopsis in zip((Version.BEFORE, Version.ADDED, Version.AFTER), versions, strict=True)
    }
    if term.chunked and term.added is None:
        tables |= _filter_by_position(slots, tables)
    return db.query(term.changes_sql(types, first), tables)


def _filter_by_position(slots: Sequence[SlotProgram], tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The tables before and after a micro-batch, without rows that cannot match any row of it."""
    positions = {slot.name: slot.key_position for slot in slots if slot.key_position is not None}
    if len(positions) < len(slots):
        return {}
    added = np.concatenate([positions[s.name].positions(tables[Version.ADDED.of(s.name)]) for s in slots])
    return {
        name: table.filter(pa.array(np.isin(positions[slot.name].positions(table), added)))
        for slot in slots
        for name in (Version.BEFORE.of(slot.name), Version.AFTER.of(slot.name))
        if (table := tables[name]).num_rows
    }
