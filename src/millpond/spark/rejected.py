"""Rejected rows: how they get from the sources to the folder ``_rejected``.

1. A source marks a malformed row with a reason (``sources.checks``).
2. One scan of each source carries its rejected rows (``SharedSources``), past the filters of the query.
3. They become rows of kind REJECTED in the answer: beside Spark's own operators by the expressions below, in
   Python workers by ``operators.payloads.split_rejected``.  The timed processor adds late rows.
4. ``sink.Sink`` writes all rows of this kind to ``_rejected``.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millpond.query.model import Table
from millpond.runtime.row_kinds import KIND, NOTE, RowKind
from millpond.runtime.sql import Dialect
from millpond.spark.sources.opened import REASON, RECORD, OpenSource

# The kind of a row that is a result unless it is rejected.
ROW_OR_REJECTED = (
    f"CAST(CASE WHEN {REASON} IS NULL THEN {RowKind.RESULT} ELSE {RowKind.REJECTED} END AS TINYINT)"
)


# What a query fails with that must not have rejected rows.
REJECTED_ROWS_FOUND = "rejected rows were found"


class SharedSources:
    """The sources of a query that may read each of them several times; rejected rows come only once."""

    def __init__(self, sources: Mapping[str, OpenSource]) -> None:
        self._sources = dict(sources)

    def take(self, name: str) -> OpenSource:
        """The source to read: with its rejected rows the first time, with the good rows only after that."""
        source = self._sources[name]
        self._sources[name] = OpenSource(source.good, False)
        return source


def fail_if_rejected(source: OpenSource) -> DataFrame:
    """The rows of a source; the query fails with REJECTED_ROWS_FOUND if one of them is rejected."""
    fails = F.raise_error(F.lit(REJECTED_ROWS_FOUND)).cast("boolean")
    return source.frame.where(F.when(F.col(REASON).isNull(), True).otherwise(fails))


def or_rejected(condition: str) -> str:
    """A condition (as SQL) that rejected rows pass, too."""
    return f"{REASON} IS NOT NULL OR {condition}"


def null_if_rejected(value: str) -> str:
    """A value (as SQL), which is not computed for rejected rows."""
    return f"CASE WHEN {REASON} IS NULL THEN {value} END"


def rejected_note(stream: str) -> str:
    """The note of a rejected row (as SQL); NULL for the other rows."""
    return (
        f"CASE WHEN {REASON} IS NOT NULL THEN "
        "named_struct('entries', CAST(NULL AS BIGINT), 'bytes', CAST(NULL AS BIGINT), "
        f"'stream', {Dialect.SPARK.string(stream)}, 'reason', {REASON}, 'record', {RECORD}) END"
    )


def reject_null_timestamps(source: OpenSource, table: Table) -> OpenSource:
    """Mark the rows without a timestamp as rejected, because they have no place in the order of time."""
    assert table.time is not None
    is_null = F.col(Dialect.SPARK.name_of(table.time)).isNull()
    row = F.to_json(F.struct(*(F.col(Dialect.SPARK.name_of(c.name)) for c in table.columns)))
    reason = F.when(is_null, f"{table.time} is NULL, but every row needs a timestamp")
    record = F.when(is_null, row)
    if source.rejects:
        reason, record = F.coalesce(F.col(REASON), reason), F.coalesce(F.col(RECORD), record)
    return OpenSource(source.frame.withColumns({REASON: reason, RECORD: record}), True)


def rejected_frame(source: OpenSource, stream: str, schema: StructType) -> DataFrame:
    """The rejected rows of a stream, with the columns of the answer."""
    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields]
    kind = F.lit(RowKind.REJECTED).cast("tinyint").alias(KIND)
    return source.frame.where(f"{REASON} IS NOT NULL").select(
        *nothing, kind, F.expr(rejected_note(stream)).alias(NOTE)
    )


def collect_rejected(source: OpenSource) -> list[tuple[str, str]]:
    """The reason and the record of each rejected row of a relation."""
    bad = source.frame.where(F.col(REASON).isNotNull()).select(REASON, RECORD).collect()
    return [(str(row[0]), str(row[1])) for row in bad]
