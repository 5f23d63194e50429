"""The native engine: window aggregation, sessions and deduplication over one stream by Spark's own operators.

Each group, and each row of DISTINCT, has an end (the column END): the timestamp from which on no row can
belong to it.  END is part of the key under which Spark keeps the group.  When the watermark reaches it, Spark
writes the group and removes it from the state.  A row is late if its group has been removed already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millpond.plan.computed_aggregates import explain_uncomputed
from millpond.query.buckets import find_bucket
from millpond.query.durations import parse_duration
from millpond.query.expressions import Aggregate, Expr, Ref
from millpond.query.model import Occurrence, Query, Select, Session, Table
from millpond.query.trees import find_aggregates, is_aggregate, item_refs, refs, substitute
from millpond.query.types import TIMESTAMP
from millpond.runtime.aggregates import call_sql
from millpond.runtime.row_kinds import KIND, NOTE, RowKind
from millpond.runtime.sql import Dialect, condition_sql, expression_sql
from millpond.spark.answer import NO_NOTE, WATERMARK_DELAY, AnswerFrame, infer_result_schema, quoted
from millpond.spark.job import Job, RejectedRows
from millpond.spark.late_rows import SUSPECT, describe_suspect
from millpond.spark.rejected import (
    ROW_OR_REJECTED,
    fail_if_rejected,
    or_rejected,
    reject_null_timestamps,
    rejected_note,
)
from millpond.spark.sources.derived import add_derived_columns
from millpond.spark.sources.opened import REASON, OpenSource
from millpond.spark.sources.schema import spark_schema
from millpond.spark.stream_static import prefix_columns, prefixed_name

# The timestamp of a row; the end of its group; whether the row only announces the end of the input.
TIME, END, IS_SENTINEL = "_time", "_end", "_is_sentinel"
_COPIES, _SESSION, _ALL = "_copies", "_session", "_all"
# The aggregates that the timed engine computes better: it counts values, where Spark has one row for all.
_COUNTED = ("MEDIAN", "PERCENTILE", "PERCENTILE_DISC")
_MILLISECOND = 1_000
# With this setting, Spark does not scan a source for a filter that is always false.
_PRUNES_STREAMS = "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan"


class NativeEngine:
    """Runs groups and sets over one stream that close in time, with state in Spark's own operators."""

    holds_rows_back = True

    def accepts(self, job: Job) -> bool:
        """Whether Spark's operators give the answer, within the proven bound.

        They also keep the groups of rows that the watermark has not passed.  So if the verdict promises a
        number of entries, the timed engine, which lets such rows wait, runs the groups if it computes their
        aggregates; Spark's sessions come after rows that wait.
        """
        if job.verdict.timed is None or job.updates or job.blocks:
            return False
        is_only = explain_uncomputed(job.verdict.timed) is not None
        closing = find_closing_select(job.query, any_aggregate=is_only)
        return closing is not None and (closing.has_sessions or is_only or job.verdict.state.entries is None)

    def build(self, job: Job) -> AnswerFrame:
        closing = find_closing_select(job.query, any_aggregate=True)
        assert closing is not None
        schema = infer_result_schema(job.spark, job.query)
        source = reject_null_timestamps(job.sources[closing.table.name], closing.table)
        good = fail_if_rejected(source) if job.rejected is RejectedRows.FAIL else source.good
        rows = _add_watermark(job, closing, good)
        if closing.select.session is not None:
            results = _merge_sessions(closing, closing.select.session, rows, schema)
        elif is_aggregate(closing.select):
            results = _aggregate_groups(closing, rows, schema)
        else:
            results = _drop_duplicates(closing, rows, schema)
        kind = F.lit(RowKind.RESULT).cast("tinyint").alias(KIND)
        frame = results.select(*map(quoted, schema.names), kind, F.expr(NO_NOTE).alias(NOTE))
        if job.rejected is not RejectedRows.DROP:
            suspects = _collect_suspects(closing, source, schema)
            if job.rejected is RejectedRows.FAIL:  # not scanned, but EMIT can continue its checkpoint
                job.spark.conf.set(_PRUNES_STREAMS, "true")
                suspects = suspects.where(F.lit(False))
            frame = frame.withColumn(SUSPECT, F.lit(None).cast(suspects.schema[SUSPECT].dataType))
            frame = frame.unionAll(suspects)
        return AnswerFrame(frame, tuple(schema.names), stateful=False, partitions=None, drops_late=True)


# --- which queries ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClosingSelect:
    """A select over one stream whose results close; ``end`` is the column with the end of a row's group.

    If ``end`` is the time column, a group ends right after that timestamp; the rows of a session are groups
    of this kind until they become part of the session.
    """

    select: Select
    end: Ref

    @property
    def occurrence(self) -> Occurrence:
        return self.select.occurrences[0]

    @property
    def table(self) -> Table:
        return self.occurrence.table

    @property
    def time(self) -> Ref:
        assert self.table.time is not None
        return Ref(self.occurrence.alias, self.table.time)

    @property
    def delay(self) -> int:
        """The delay of the watermark, in milliseconds, as Spark counts it."""
        declared = parse_duration(self.table.properties.get("watermark", "")) or 0
        return -(-declared // _MILLISECOND)

    @property
    def end_micros(self) -> str:
        """The value of END for a row, in microseconds, as SQL over the columns of the table."""
        return f"unix_micros({Dialect.SPARK.name_of(self.end.column)}) + {int(self.end == self.time)}"

    @property
    def columns(self) -> tuple[Ref, ...]:
        """The columns that the results are computed from."""
        select = self.select
        used = refs(select.where) | item_refs(select.items) | refs(select.having) | {*(select.group_by or ())}
        return tuple(sorted(used - self._session_columns, key=str))

    @property
    def _session_columns(self) -> set[Ref]:
        session = self.select.session
        return set() if session is None else {session.start, session.end}

    @property
    def has_sessions(self) -> bool:
        return self.select.session is not None

    def from_end(self, ref: Ref) -> str | None:
        """A column that follows from END, as SQL: the start of a window, or the time column itself."""
        if ref == self.end:
            return f"timestamp_micros(unix_micros({END}) - {int(ref == self.time)})"
        column = self.select.occurrence(ref.occurrence).table.column(ref.column)
        function = column.derivation.time if column.derivation is not None else None
        if function is None or function.end != self.end.column or column.type is not TIMESTAMP:
            return None
        if column.derivation is None or column.derivation.ends is not None:
            return None
        return f"timestamp_micros(unix_micros({END}) - {function.reach})"


def find_closing_select(query: Query, any_aggregate: bool = False) -> ClosingSelect | None:
    """The select of a query that the native engine runs; None if it does not run the query.

    Unless ``any_aggregate``, the timed engine is preferred for aggregates that keep the values of a group.
    """
    if len(query.selects) != 1:
        return None
    (term,), (select,) = query.terms, query.selects
    if len(select.occurrences) != 1 or select.exists or _has_repeated_rows(select):
        return None
    (occurrence,) = select.occurrences
    table = occurrence.table
    if not table.streaming or table.time is None or term.distinct == is_aggregate(select):
        return None
    if select.session is not None:
        return ClosingSelect(select, select.session.time)
    if not any_aggregate and not all(_is_native(each) for each in find_aggregates(select)):
        return None
    shown = [item.expression for item in select.items if isinstance(item.expression, Ref)]
    bucket = find_bucket(select, occurrence.alias, shown if term.distinct else select.group_by or ())
    return None if bucket is None else ClosingSelect(select, bucket.end)


def _has_repeated_rows(select: Select) -> bool:
    """Whether a row lies in several windows, some of which may have closed and others not."""
    columns = (column for occurrence in select.occurrences for column in occurrence.table.derived)
    return any(column.derivation is not None and column.derivation.repeated for column in columns)


def _is_native(aggregate: Aggregate) -> bool:
    return aggregate.function not in _COUNTED and not aggregate.distinct


# --- rows ------------------------------------------------------------------------------------------------


def _add_watermark(job: Job, closing: ClosingSelect, good: DataFrame) -> DataFrame:
    """The rows that pass WHERE, under a watermark that all rows of the stream advance."""
    time = F.col(Dialect.SPARK.name_of(closing.time.column)).alias(TIME)
    end = F.expr(closing.end_micros).alias(END)
    rows = prefix_columns(good, closing.occurrence, time, end, F.lit(False).alias(IS_SENTINEL))
    columns = [F.col(prefixed_name(ref)) for ref in closing.columns]
    rows = rows.select(*columns, TIME, END, IS_SENTINEL)
    if job.end_of_input is not None:
        rows = rows.unionByName(_make_sentinels(job.end_of_input, closing), allowMissingColumns=True)
    if WATERMARK_DELAY not in rows.schema[TIME].metadata:
        rows = rows.withWatermark(TIME, f"{closing.delay} milliseconds")
    where = condition_sql(closing.select.where, prefixed_name, Dialect.SPARK)
    # Spark moves a filter that does not mention the timestamp below the watermark, where it would drop
    # sentinels.  The columns mention it, too: Spark makes a filter of these rows of one on columns of groups.
    rows = rows.where(f"CASE WHEN {TIME} IS NOT NULL THEN NOT {IS_SENTINEL} AND ({where}) END")
    names = rows.select(*columns).columns
    timed = [F.when(F.col(TIME).isNotNull(), c).alias(n) for c, n in zip(columns, names, strict=True)]
    delay = {WATERMARK_DELAY: closing.delay}
    return rows.select(*timed, F.expr(f"timestamp_micros({END})").alias(END, metadata=delay))


def _make_sentinels(end_of_input: DataFrame, closing: ClosingSelect) -> DataFrame:
    """A row for each end of the input, whose timestamp moves the watermark to the end of the last group.

    ``end_of_input`` holds the latest timestamp of the stream, in microseconds.
    """
    latest = F.expr("timestamp_micros(try_cast(value AS BIGINT))")
    nothing = spark_schema(closing.table).fields
    values = [latest if f.name == closing.table.time else F.lit(None).cast(f.dataType) for f in nothing]
    rows = end_of_input.select(*(v.alias(f.name) for v, f in zip(values, nothing, strict=True)))
    rows = add_derived_columns(OpenSource(rows, False), closing.table).frame
    gap = 0 if closing.select.session is None else closing.select.session.gap
    end = f"CAST(ceil(({closing.end_micros} + {gap}) / {_MILLISECOND}) AS BIGINT) + {closing.delay}"
    time = F.expr(f"timestamp_millis({end})")
    # Spark moves its own filter of rows without an END below the watermark, so a sentinel needs one.
    return rows.select(time.alias(TIME), F.lit(0).cast("bigint").alias(END), F.lit(True).alias(IS_SENTINEL))


def _collect_suspects(closing: ClosingSelect, source: OpenSource, schema: StructType) -> DataFrame:
    """All rows that pass WHERE, of which the sink keeps the late ones, and the malformed rows."""
    table = closing.table
    declared = [F.col(Dialect.SPARK.name_of(column.name)).alias(column.name) for column in table.columns]
    suspect = describe_suspect(
        table.name, closing.end_micros, Dialect.SPARK.name_of(closing.time.column), declared
    )
    kind, note = F.expr(ROW_OR_REJECTED).alias(KIND), F.expr(rejected_note(table.name)).alias(NOTE)
    suspect = F.when(F.col(REASON).isNull(), suspect).alias(SUSPECT)
    rows = prefix_columns(source.frame, closing.occurrence, suspect, kind, note, F.col(REASON))
    where = or_rejected(condition_sql(closing.select.where, prefixed_name, Dialect.SPARK))
    nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in schema.fields]
    return rows.where(where).select(*nothing, KIND, NOTE, SUSPECT)


# --- Spark's operators -----------------------------------------------------------------------------------


def _aggregate_groups(closing: ClosingSelect, rows: DataFrame, schema: StructType) -> DataFrame:
    """The groups, each when the watermark reaches its end."""
    select = closing.select
    computed = {ref: text for ref in select.group_by or () if (text := closing.from_end(ref)) is not None}
    keys = [F.col(prefixed_name(ref)) for ref in select.group_by or () if ref not in computed]
    grouped = rows.groupBy(END, *keys)
    return _finish_groups(select, grouped, computed, schema)


def _merge_sessions(
    closing: ClosingSelect, session: Session, rows: DataFrame, schema: StructType
) -> DataFrame:
    """The sessions, each when the watermark is later than its end.

    Spark's own session operator would accept a late row whose session has already been written, and begin
    another session with it.  So the rows first wait, as groups of equal rows, until the watermark passes
    them.  END is a microsecond later than the timestamp, and so are the edges of Spark's sessions: Spark
    merges a session with a row at its very end, which may still arrive when the watermark is there.
    """
    select = closing.select
    columns = [F.col(prefixed_name(ref)) for ref in closing.columns]
    waiting = rows.groupBy(END, *columns).agg(F.count(F.lit(1)).alias(_COPIES))
    each = F.explode(F.expr(f"array_repeat(true, CAST({_COPIES} AS INT))")).alias(_COPIES)
    # Spark's sessions need a key besides the session: a constant, but not to the optimizer.
    ordered = waiting.select(END, *columns, (F.col(_COPIES) < 0).alias(_ALL), each)
    window = F.session_window(END, f"{session.gap} microseconds").alias(_SESSION)
    keys = [F.col(prefixed_name(ref)) for ref in select.group_by or ()]
    grouped = ordered.groupBy(window, *keys, _ALL)
    edges = {session.start: f"{_SESSION}.start", session.end: f"{_SESSION}.end"}
    computed = {ref: f"timestamp_micros(unix_micros({edge}) - 1)" for ref, edge in edges.items()}
    return _finish_groups(select, grouped, computed, schema)


def _finish_groups(
    select: Select, grouped: GroupedData, computed: Mapping[Ref, str], schema: StructType
) -> DataFrame:
    """The select list of the groups that HAVING accepts; ``computed`` are columns as SQL over the keys."""
    found = find_aggregates(select)
    aggregates: dict[Expr, Ref] = {each: Ref("", f"_a{i}") for i, each in enumerate(found)}
    values = [F.expr(_aggregate_sql(each)).alias(f"_a{i}") for i, each in enumerate(found)]

    def spell_ref(ref: Ref) -> str:
        return computed.get(ref) or (prefixed_name(ref) if ref.occurrence else ref.column)

    groups = grouped.agg(*(values or [F.count(F.lit(1)).alias(_COPIES)]))
    having = condition_sql(substitute(select.having, aggregates), spell_ref, Dialect.SPARK)
    texts = [
        expression_sql(substitute(item.expression, aggregates), spell_ref, Dialect.SPARK)
        for item in select.items
    ]
    return groups.where(having).select(*_cast_items(texts, schema))


def _drop_duplicates(closing: ClosingSelect, rows: DataFrame, schema: StructType) -> DataFrame:
    """The distinct rows, each when it first arrives; it is forgotten when the watermark reaches its end."""
    items = [item.expression for item in closing.select.items]
    computed = [closing.from_end(item) if isinstance(item, Ref) else None for item in items]
    names = [f"_i{i}" for i in range(len(items))]
    kept = [
        F.expr(expression_sql(item, prefixed_name, Dialect.SPARK)).alias(name)
        for item, text, name in zip(items, computed, names, strict=True)
        if text is None
    ]
    distinct = rows.select(END, *kept).dropDuplicates()
    texts = [text or name for text, name in zip(computed, names, strict=True)]
    return distinct.select(*_cast_items(texts, schema))


def _cast_items(texts: Sequence[str], schema: StructType) -> list[Column]:
    return [F.expr(t).cast(f.dataType).alias(f.name) for t, f in zip(texts, schema.fields, strict=True)]


def _aggregate_sql(aggregate: Aggregate) -> str:
    """An aggregate in a form that Spark accepts in a stream."""
    if aggregate.argument is None:
        return "count(1)"
    if not aggregate.distinct:
        return call_sql(aggregate, prefixed_name)
    columns = [expression_sql(each, prefixed_name, Dialect.SPARK) for each in aggregate.arguments]
    given = " AND ".join(f"{each} IS NOT NULL" for each in columns)
    fields = ", ".join(f"'v{i}', {each}" for i, each in enumerate(columns))
    values = f"collect_set(CASE WHEN {given} THEN named_struct({fields}) END)"
    if aggregate.function == "COUNT":
        return f"size({values})"
    # Adding 0 gives the sums the type that SUM has.
    zero = f"sum({columns[0]} - {columns[0]})"
    total = f"aggregate({values}, {zero}, (total, each) -> total + each.v0)"
    return total if aggregate.function == "SUM" else f"CAST({total} AS DOUBLE) / size({values})"
