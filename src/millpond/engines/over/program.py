"""What workers execute for window functions: SQL text and schemas."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import pyarrow as pa

ROWS, HELD, CLOCK = "rows", "held", "clock"
_CLOCK_SCHEMA = pa.schema([("latest", pa.int64()), ("watermark", pa.int64()), ("next", pa.int64())])


@dataclass(frozen=True)
class SummaryProgram:
    """A function from the beginning of its partition on, of which a summary is kept.

    ``value`` is the value of a new row, given the summary ``s`` before it; ``match`` joins the two.
    ``update`` is the summary after the new rows.
    """

    number: int
    value: str
    match: str
    update: str
    schema: pa.Schema

    @property
    def table(self) -> str:
        """The table with the summary of each partition."""
        return f"summary{self.number}"


@dataclass(frozen=True)
class ContextProgram:
    """A function that is computed from the rows around a row.

    ``is_final`` says whether no later row changes the value, ``is_needed`` whether a later row needs this
    one.
    """

    number: int
    value: str
    is_final: str
    is_needed: str


@dataclass(frozen=True)
class RankProgram:
    """The first rows of each partition in an order by values: ``first`` are those of all ``a`` rows."""

    first: str


@dataclass(frozen=True)
class OverProgram:
    """How window functions of one stream are computed.

    Rows have columns ``c0 …``, a timestamp ``t`` in microseconds and a number ``seq`` in the order of
    arrival; functions have values ``v0 …``, and ``f0 …`` says which of them are final.  ``outputs`` are the
    columns that are emitted.  A stream without time has no ``time`` column.  With a ``rank``, rows that leave
    the first ones are taken back.
    """

    stream: str
    time: str | None
    delay: int
    names: tuple[str, ...]
    rows: pa.Schema
    values: pa.Schema
    summaries: tuple[SummaryProgram, ...]
    contexts: tuple[ContextProgram, ...]
    outputs: tuple[str, ...]
    end: str | None
    shards: int
    shard_by: tuple[str, ...]
    rank: RankProgram | None = None

    @property
    def count(self) -> int:
        """The number of functions."""
        return len(self.values)

    @property
    def kept_schema(self) -> pa.Schema:
        """The columns of kept rows: ``e`` says which of them have been emitted."""
        flags = [pa.field(f"f{i}", pa.bool_()) for i in range(self.count)]
        return pa.schema([*self.rows, *self.values, *flags, pa.field("e", pa.bool_())])

    @property
    def state_schemas(self) -> dict[str, pa.Schema]:
        """The tables of the state."""
        summaries = {each.table: each.schema for each in self.summaries}
        return {CLOCK: _CLOCK_SCHEMA, HELD: self.rows, ROWS: self.kept_schema, **summaries}

    @property
    def payload_schemas(self) -> dict[str, pa.Schema]:
        """What a task sends to a shard: rows, the latest timestamp, and whether the input has ended."""
        progress = pa.schema([("latest", pa.int64()), ("ended", pa.bool_())])
        return {ROWS: self.rows, CLOCK: progress}

    @property
    def fingerprint(self) -> bytes:
        """Equal for programs that read each other's state."""
        schemas = {name: str(schema) for name, schema in self.state_schemas.items()}
        layout = (self.stream, self.time, self.names, schemas, self.shards, self.shard_by)
        parts = (layout, self.rank, tuple(each.update for each in self.summaries), self.contexts)
        return sha256(repr(parts).encode()).digest()[:16]
