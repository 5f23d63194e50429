"""What a worker executes for a query in time: feeds, sets of waiting matches, results, as plain text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from millpond.runtime.arrow_ipc import schema_from_bytes, table_from_bytes
from millpond.runtime.terms import TermSql


@dataclass(frozen=True)
class FeedProgram:
    """The rows that matter of one occurrence.

    ``names`` are its columns in the stream, ``columns`` what to take of a row, by name and SQL text: the
    first is NULL for rows that do not matter, and else the moment.  ``reduce`` gathers them from ``batch``.
    ``rows`` are those of a relation, as Arrow IPC.
    """

    name: str
    stream: str
    clocked: bool
    names: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    reduce: str
    schema_bytes: bytes
    rows: bytes | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        return schema_from_bytes(self.schema_bytes)

    @cached_property
    def relation(self) -> pa.Table | None:
        return None if self.rows is None else table_from_bytes(self.rows)


@dataclass(frozen=True)
class SetProgram:
    """One set of streams whose partial matches wait.

    ``matches`` finds new ones.  Of its ``key`` the columns ``fixed`` tell fronts apart, ``demands`` are
    compared (True: smaller is less), ``differing`` must differ.  ``counts`` are added up; without any, fronts
    are kept.  After the moment ``expires`` nothing can complete its matches.
    """

    table: str
    matches: str
    key: tuple[str, ...]
    fixed: tuple[str, ...]
    demands: tuple[tuple[str, bool], ...]
    differing: tuple[str, ...]
    counts: tuple[str, ...]
    stored: bool
    asked: bool
    expires: int | None


@dataclass(frozen=True)
class NeedProgram:
    """The sets of a need, the last being that of all its streams, and what its matches add to a result.

    ``result`` is SQL over the new matches.  Where the result is kept, ``merge`` is SQL over ``rows`` of it.
    """

    feeds: tuple[FeedProgram, ...]
    sets: tuple[SetProgram, ...]
    name: str
    result: str
    merge: str | None


@dataclass(frozen=True)
class Clock:
    """The time of a stream.

    ``moment`` is SQL for that of a row.  A row may come ``delay`` microseconds after later ones.  The other
    streams wait ``idle`` seconds for one that sends nothing, or as long as it takes.  After ``ends``
    its rows do not matter.
    """

    stream: str
    column: str
    moment: str
    delay: int
    idle: float | None
    ends: int | None


@dataclass(frozen=True)
class TimedProgram:
    """A query in time.

    ``schemas`` are those of the kept tables, by name; ``clocks`` those of the streams that have a time.
    """

    needs: tuple[NeedProgram, ...]
    terms: tuple[TermSql, ...]
    schemas: tuple[tuple[str, bytes], ...]
    clocks: tuple[Clock, ...]
    fingerprint: bytes
    aggregate: bool
    retracts: bool

    @cached_property
    def kept(self) -> dict[str, pa.Schema]:
        return {name: schema_from_bytes(data) for name, data in self.schemas}

    @property
    def feeds(self) -> tuple[FeedProgram, ...]:
        return tuple(feed for need in self.needs for feed in need.feeds)

    def of_stream(self, stream: str) -> tuple[FeedProgram, ...]:
        return tuple(f for f in self.feeds if f.stream == stream and f.rows is None)

    @cached_property
    def streams(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(feed.stream for feed in self.feeds if feed.rows is None))
