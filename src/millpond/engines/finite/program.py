"""What workers execute for a query over finitely many rows that change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

import pyarrow as pa

ANSWER = "answer"
# Of a change: whether it takes a row back, and its place among the changes of its row in a micro-batch.
TAKEN_BACK, PLACE = "taken_back", "place"


@dataclass(frozen=True)
class KeptRows:
    """The rows of one subquery, with columns ``c0 …``.

    A change replaces the row with the same ``keys``.  Without keys, rows are only added and taken back.
    """

    name: str
    schema: pa.Schema
    keys: tuple[str, ...] | None

    @property
    def changes(self) -> pa.Schema:
        """The columns of changes."""
        return pa.schema([*self.schema, (TAKEN_BACK, pa.bool_()), (PLACE, pa.int64())])


@dataclass(frozen=True)
class FiniteProgram:
    """The kept rows, and the answer as DuckDB SQL over tables with their names.

    ``answer`` has the columns ``o0 …``.  Rows with the same ``keys`` replace each other; without keys, a row
    that is no longer part of the answer is taken back.
    """

    kept: tuple[KeptRows, ...]
    answer: str
    columns: pa.Schema
    keys: tuple[str, ...] | None

    @property
    def state_schemas(self) -> Mapping[str, pa.Schema]:
        """The tables of the state: the kept rows and the last answer."""
        return {**{each.name: each.schema for each in self.kept}, ANSWER: self.columns}

    @property
    def payload_schemas(self) -> Mapping[str, pa.Schema]:
        """What a task sends: the changes of each subquery."""
        return {each.name: each.changes for each in self.kept}

    @property
    def fingerprint(self) -> bytes:
        """Equal for programs that read each other's state."""
        schemas = {name: str(schema) for name, schema in self.state_schemas.items()}
        parts = (schemas, [each.keys for each in self.kept], self.answer, self.keys)
        return sha256(repr(parts).encode()).digest()[:16]
