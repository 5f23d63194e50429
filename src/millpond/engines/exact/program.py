"""What a worker executes for an exact query: the slots of its synopses and SQL text, nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from millpond.runtime.arrow_ipc import schema_from_bytes
from millpond.runtime.terms import TermSql


@dataclass(frozen=True)
class KeyPosition:
    """How the position of a row in the chunked column, counted from 0, follows from its packed key.

    ``weight`` and ``radix`` are those of the column's class code in the key ``key_column``.
    """

    key_column: str
    weight: int
    radix: int
    start: int

    def positions(self, table: pa.Table) -> NDArray[np.int64]:
        key = table.column(self.key_column).to_numpy().astype(np.int64, copy=False)
        return np.asarray(key // self.weight % self.radix + self.start)


@dataclass(frozen=True)
class SlotProgram:
    """One table of the synopsis.

    ``reduce`` is SQL that makes the table from a ``batch`` of ingested rows; ``merge`` is SQL that merges
    ``rows`` of several tables.  ``is_presence``: the slot only records which classes occurred.  If the slot
    is divided into chunks, ``chunk`` is the column with the number of a row's chunk, and ``key_position``
    computes the position in the chunked column, if it follows from the key.
    """

    name: str
    stream: str
    chunk: str | None
    key_position: KeyPosition | None
    is_presence: bool
    reduce: str
    merge: str
    schema_bytes: bytes

    @cached_property
    def schema(self) -> pa.Schema:
        return schema_from_bytes(self.schema_bytes)

    @cached_property
    def stored_schema(self) -> pa.Schema:
        """Without the number of the chunk, which is the key in the state store."""
        return pa.schema([f for f in self.schema if f.name != self.chunk])

    @property
    def key(self) -> list[str]:
        """The columns with the packed keys."""
        return [name for name in self.stored_schema.names if name.startswith(f"{self.name}_k")]

    @property
    def is_count(self) -> bool:
        """Whether a row is a single key and a count, nothing else."""
        return bool(self.stored_schema.names[1:] == ["n"])

    def empty(self) -> pa.Table:
        return self.schema.empty_table()


@dataclass(frozen=True)
class ExactProgram:
    """The slots and terms of a query.

    ``fingerprint`` identifies the meaning of its state.  ``aggregate``: rows of the answer have a revision.
    ``retracts``: they may be retracted.
    """

    slots: tuple[SlotProgram, ...]
    terms: tuple[TermSql, ...]
    fingerprint: bytes
    aggregate: bool
    retracts: bool

    @property
    def chunked(self) -> bool:
        return any(term.chunked for term in self.terms)

    def slots_of(self, stream: str) -> tuple[SlotProgram, ...]:
        return tuple(slot for slot in self.slots if slot.stream == stream)
