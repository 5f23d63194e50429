"""What a worker executes: the tables of a synopsis, and the SQL that answers from them, as plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.engines.exact.tables import SlotProgram, Synopsis
from millpond.runtime.duckdb import DuckDb
from millpond.runtime.terms import TermSql


@dataclass(frozen=True)
class Program:
    """A query's tables and terms.  ``fingerprint`` names the layout of its state.

    ``aggregate``: rows carry a revision.  ``retracts``: they may be taken back.
    """

    slots: tuple[SlotProgram, ...]
    terms: tuple[TermSql, ...]
    fingerprint: bytes
    aggregate: bool
    retracts: bool

    @property
    def chunked(self) -> bool:
        return any(term.chunked for term in self.terms)

    def of_stream(self, stream: str) -> tuple[SlotProgram, ...]:
        return tuple(slot for slot in self.slots if slot.stream == stream)

    def changes(
        self,
        db: DuckDb,
        term: TermSql,
        states: tuple[Synopsis, Synopsis, Synopsis],
        first: bool,
        types: Sequence[str] | None = None,
    ) -> pa.Table:
        """What a batch adds to a term's answer; ``states`` are the synopses before, of, and after it."""
        slots = [slot for slot in self.slots if slot.name in term.tables]
        tables = {
            f"{slot.name}_{version}": synopsis.table(slot)
            for slot in slots
            for version, synopsis in zip(("old", "new", "now"), states, strict=True)
        }
        if term.chunked and term.added is None:
            tables |= _touched(slots, tables)
        return db.query(term.changes_sql(types, first), tables)


def _touched(slots: Sequence[SlotProgram], tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The tables before and after a batch, only the rows that can match one of it."""
    places = {slot.name: slot.place for slot in slots if slot.place is not None}
    if len(places) < len(slots):
        return {}
    new = np.concatenate([places[slot.name].of(tables[f"{slot.name}_new"]) for slot in slots])
    return {
        name: table.filter(pa.array(np.isin(places[slot.name].of(table), new)))
        for slot in slots
        for name in (f"{slot.name}_old", f"{slot.name}_now")
        if (table := tables[name]).num_rows
    }
