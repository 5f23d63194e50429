"""What a worker executes for a query over application time: SQL text and schemas, nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from millpond.engines.timed.tables import MatchTables
from millpond.runtime.arrow_ipc import schema_from_bytes, table_from_bytes, table_to_bytes
from millpond.runtime.terms import TermSql


@dataclass(frozen=True)
class PartnerFilter:
    """Keeps the rows that have a partner (``present``), or those that have none.

    ``tables`` hold the rows that have one; ``condition`` compares such a row ``m`` with a row ``e``.
    """

    tables: tuple[str, ...]
    condition: str
    present: bool

    @property
    def sql(self) -> str:
        """The ``rows`` that are kept."""
        tests = [f"EXISTS (SELECT 1 FROM {name} m WHERE {self.condition})" for name in self.tables]
        matched = f"({' OR '.join(tests)})" if tests else "FALSE"
        return f"SELECT * FROM rows e WHERE {'' if self.present else 'NOT '}{matched}"


@dataclass(frozen=True)
class WaitingProgram:
    """Matches that wait in ``table`` until they have a partner in the table ``partners``.

    ``condition`` compares a partner ``m`` with a match ``e``.  ``released`` is SQL for what ``rows`` of
    matches that have one add to the result.  Matches with an equal ``key`` are added up by their ``counts``.
    If the key has the timestamp ``s`` of a match, it no longer matters after ``slack`` microseconds.
    """

    table: str
    partners: str
    condition: str
    released: str
    key: tuple[str, ...]
    counts: tuple[str, ...]
    slack: int | None = None


@dataclass(frozen=True)
class InputProgram:
    """How the rows of one occurrence get into their input table.

    ``names`` are the columns that are read, as the stream names them; None for derived columns.  ``columns``
    are SQL expressions over a row, by name; the first is the timestamp, or NULL for rows that cannot match.
    ``is_repeated``: a row is repeated for each sliding window that it lies in.  ``reduce`` is SQL that makes
    the input table from a ``batch`` of these columns, with the shard of a row if there are several.
    ``has_time``: the stream has application time.  ``rows`` are those of a relation, as Arrow IPC; None for a
    stream.  ``is_constant``: they are known, and not read from a table.  With windows, rows are kept for
    ``retention`` microseconds.  Rows stay in the reorder buffer for ``hold`` microseconds after the watermark
    has passed them, and then pass ``filters``.
    """

    name: str
    stream: str
    has_time: bool
    names: tuple[str | None, ...]
    columns: tuple[tuple[str, str], ...]
    reduce: str
    schema_bytes: bytes
    rows: bytes | None = None
    retention: int | None = None
    is_repeated: bool = False
    is_constant: bool = False
    hold: int = 0
    filters: tuple[PartnerFilter, ...] = ()

    @property
    def is_relation(self) -> bool:
        return self.rows is not None

    @property
    def is_read(self) -> bool:
        """Whether its rows are read from a relation."""
        return self.is_relation and not self.is_constant

    @cached_property
    def schema(self) -> pa.Schema:
        return schema_from_bytes(self.schema_bytes)

    @cached_property
    def relation(self) -> pa.Table | None:
        return None if self.rows is None else table_from_bytes(self.rows)


@dataclass(frozen=True)
class PartialMatchProgram:
    """The partial matches of one set of streams.

    ``matches`` is SQL that finds new ones.  ``sliced_matches`` finds the same by slices of time, each
    ``slice_width`` microseconds long (None without windows).

    With ``counts``, matches with an equal ``key`` are counted.  Without, Pareto fronts are kept, one for each
    combination of the ``fixed`` columns of the key.  On a front, ``requirements`` are compared (True: the
    smaller is the weaker one), and ``differing`` are values that rows still to come must differ from.

    ``is_stored``: the matches are kept in the state store.  ``is_joined``: arriving rows are joined with
    them.  After the timestamp ``expires`` nothing can complete them.  With windows, the timestamps of the
    matches of the last ``lookback`` microseconds are kept.
    """

    tables: MatchTables
    matches: str
    sliced_matches: str
    slice_width: int | None
    key: tuple[str, ...]
    fixed: tuple[str, ...]
    requirements: tuple[tuple[str, bool], ...]
    differing: tuple[str, ...]
    counts: tuple[str, ...]
    is_stored: bool
    is_joined: bool
    expires: int | None
    lookback: int = 0

    @property
    def state_columns(self) -> tuple[str, ...]:
        """The columns that are kept."""
        return (*(("t",) if self.lookback else ()), *self.key, *self.counts)


@dataclass(frozen=True)
class NeedProgram:
    """The partial matches of a need, from small to large sets; the last set holds the complete matches.

    ``result_rows`` is SQL for what the new complete matches add to the table ``result``.  If that table is
    kept, ``merge`` is SQL that merges ``rows`` of it.  If it ``closes``, its rows have the watermark at which
    they close, and are kept until then.  ``is_held``: the groups are written when they close.  The need
    follows the watermark at a distance of ``hold`` microseconds.  If matches wait for partners,
    ``result_rows`` are those that begin to wait.
    """

    inputs: tuple[InputProgram, ...]
    sets: tuple[PartialMatchProgram, ...]
    result: str
    result_rows: str
    merge: str | None
    closes: bool = False
    is_held: bool = False
    hold: int = 0
    waiting: WaitingProgram | None = None


@dataclass(frozen=True)
class TimeColumn:
    """The application-time column of a stream.

    ``micros`` is SQL for the timestamp of a row.  Rows may arrive ``delay`` microseconds out of order.  A
    stream that sends nothing for ``idle`` seconds no longer holds the watermark back (None: it always does).
    Rows after the timestamp ``ends`` cannot match.  ``rate`` is the declared rate in rows per second.
    """

    stream: str
    column: str
    micros: str
    delay: int
    idle: float | None
    ends: int | None
    rate: int | None = None


@dataclass(frozen=True)
class TimedProgram:
    """A compiled query over application time.

    ``schemas`` are those of the tables in the state store, by name.  ``plan_fingerprint`` identifies the
    query and its SQL, without the rows of relations.  ``shards`` is the number of shards of the state.
    """

    needs: tuple[NeedProgram, ...]
    terms: tuple[TermSql, ...]
    schemas: tuple[tuple[str, bytes], ...]
    time_columns: tuple[TimeColumn, ...]
    plan_fingerprint: bytes
    aggregate: bool
    retracts: bool
    shards: int = 1

    @cached_property
    def fingerprint(self) -> bytes:
        """Identifies the meaning of the state: the plan, and the rows of the relations."""
        digest = hashlib.sha256(self.plan_fingerprint)
        for each in self.inputs:
            if each.rows is not None:
                digest.update(each.rows)
        return digest.digest()[:16]

    @cached_property
    def state_schemas(self) -> dict[str, pa.Schema]:
        return {name: schema_from_bytes(data) for name, data in self.schemas}

    @property
    def closes(self) -> bool:
        """Whether some results close."""
        return any(need.closes for need in self.needs)

    @property
    def hold(self) -> int:
        """By how many microseconds the last results follow the watermark."""
        return max((need.hold for need in self.needs), default=0)

    @property
    def inputs(self) -> tuple[InputProgram, ...]:
        return tuple(each for need in self.needs for each in need.inputs)

    def inputs_of(self, stream: str) -> tuple[InputProgram, ...]:
        """The inputs that read a stream; none for a relation."""
        return tuple(each for each in self.inputs if each.stream == stream and not each.is_relation)

    def with_relations(self, rows: Mapping[str, pa.Table]) -> TimedProgram:
        """The program with the rows of its relations, which are given by the names of their inputs."""

        def fill(each: InputProgram) -> InputProgram:
            if not each.is_read:
                return each
            return replace(each, rows=table_to_bytes(rows[each.name].cast(each.schema)))

        needs = (replace(need, inputs=tuple(map(fill, need.inputs))) for need in self.needs)
        return replace(self, needs=tuple(needs))
