"""What a worker executes: the tables of a synopsis, and the SQL that answers from them, as plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.synopsis.tables import Engine, SlotProgram, Synopsis


@dataclass(frozen=True)
class TermProgram:
    """How one term of a query answers from the tables of its slots.

    ``added`` is what a batch adds to a bag of rows, with ``w``, how often each.  Otherwise ``before`` and
    ``after`` are the whole answer, the first ``keys`` columns naming the group (``g0 …``) of a row.
    ``retracts``: rows may leave the answer.  ``always``: there is an answer before there is any input.
    """

    slots: tuple[str, ...]
    columns: tuple[str, ...]
    added: str | None = None
    before: str = ""
    after: str = ""
    keys: int = 0
    grouped: bool = False
    retracts: bool = False
    always: bool = False
    chunked: bool = False

    def changes_sql(self, types: Sequence[str] | None, first: bool) -> str:
        """The rows that a batch adds, with ``w`` and ``retracted``; ``types`` are those of the columns.

        ``first``: nothing was emitted yet.
        """
        spelled = (
            [f"CAST({c} AS {t})" for c, t in zip(self.columns, types, strict=True)] if types else self.columns
        )
        columns = ", ".join(f"{text} AS {name}" for text, name in zip(spelled, self.columns, strict=True))
        if self.added is not None:
            return f"SELECT {columns}, CAST(w AS BIGINT) AS w, FALSE AS retracted FROM ({self.added})"
        every = "" if self.grouped or not self.retracts else " ALL"
        gone_before = " WHERE FALSE" if first and self.always else ""
        tables = f"WITH present AS ({self.after}), past AS (SELECT * FROM ({self.before}){gone_before})"
        came = f"SELECT * FROM present EXCEPT{every} SELECT * FROM past"
        text = f"{tables} SELECT {columns}, CAST(1 AS BIGINT) AS w, FALSE AS retracted FROM ({came})"
        if not self.retracts:
            return text
        if self.grouped:
            same = [f"present.g{i} IS NOT DISTINCT FROM past.g{i}" for i in range(self.keys)]
            gone = f"SELECT * FROM past WHERE NOT EXISTS (FROM present WHERE {' AND '.join(same) or 'TRUE'})"
        else:
            gone = "SELECT * FROM past EXCEPT ALL SELECT * FROM present"
        return f"{text} UNION ALL SELECT {columns}, CAST(1 AS BIGINT) AS w, TRUE AS retracted FROM ({gone})"


@dataclass(frozen=True)
class Program:
    """A query's tables and terms.  ``fingerprint`` names the layout of its state.

    ``aggregate``: rows carry a revision.  ``retracts``: they may be taken back.
    """

    slots: tuple[SlotProgram, ...]
    terms: tuple[TermProgram, ...]
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
        engine: Engine,
        term: TermProgram,
        states: tuple[Synopsis, Synopsis, Synopsis],
        first: bool,
        types: Sequence[str] | None = None,
    ) -> pa.Table:
        """What a batch adds to a term's answer; ``states`` are the synopses before, of, and after it."""
        slots = [slot for slot in self.slots if slot.name in term.slots]
        tables = {
            f"{slot.name}_{version}": synopsis.table(slot)
            for slot in slots
            for version, synopsis in zip(("old", "new", "now"), states, strict=True)
        }
        if term.chunked and term.added is None:
            tables |= _touched(slots, tables)
        return engine.query(term.changes_sql(types, first), tables)


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
