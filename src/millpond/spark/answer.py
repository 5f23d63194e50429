"""The DataFrame that an engine builds: results, rejected rows and reports, told apart by ``_kind``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, NullType, StringType, StructField, StructType

from millpond.errors import MillpondError, one_line
from millpond.frontend.select_items import unique_names
from millpond.query.expressions import Aggregate, Expr, Ref
from millpond.query.model import Query, Table
from millpond.query.trees import substitute, walk
from millpond.query.types import TIMESTAMP, find_type
from millpond.runtime.aggregates import call_sql
from millpond.runtime.row_kinds import KIND, NOTE, RowKind
from millpond.runtime.sql import Dialect, expression_sql
from millpond.spark.operators.lazy import LazyProcessor
from millpond.spark.operators.limit import LimitMapper, LimitProcessor
from millpond.spark.operators.output import TAIL_SCHEMA
from millpond.spark.operators.payloads import PAYLOAD_SCHEMA
from millpond.spark.operators.shard import ShardProcessor
from millpond.spark.sources.schema import spark_schema, spark_type

# The column metadata in which Spark keeps the delay of a watermark, in milliseconds.
WATERMARK_DELAY = "spark.watermarkDelayMs"
# The name of the metrics that Millpond's operators report in the progress of a query.
OBSERVED = "millpond"
REVISION, RETRACTED = "_revision", "_retracted"
# The column _note of a result: always NULL.
NO_NOTE = (
    "CAST(NULL AS STRUCT<entries: BIGINT, bytes: BIGINT, stream: STRING, reason: STRING, record: STRING>)"
)
_OPERATOR_NOTE = (
    f"CASE WHEN _kind <> {RowKind.RESULT} THEN named_struct('entries', _entries, 'bytes', _bytes, "
    "'stream', _stream, 'reason', _reason, 'record', _record) END"
)


@dataclass(frozen=True)
class AnswerFrame:
    """A streaming DataFrame: the result ``columns``, the kind of each row, and a note on rows of other kinds.

    ``stateful``: Millpond's own operator holds the state, and reports its size with every micro-batch.
    ``partitions`` is the number of state partitions to use; None leaves it to the session.  ``drops_late``:
    Spark's own operator drops late rows, unless the frame emits suspects (see ``late_rows``).
    """

    frame: DataFrame
    columns: tuple[str, ...]
    stateful: bool
    partitions: int | None
    drops_late: bool = False


def infer_result_schema(
    spark: SparkSession, query: Query, blocks: Mapping[str, StructType] | None = None
) -> StructType:
    """The names of the result columns, with the types that Spark's own analysis gives them.

    ``blocks`` are the schemas of the tables that are subqueries.
    """
    schemas = {name: spark_schema(table) for name, table in query.tables.items()} | dict(blocks or {})
    # A block has no text of its own, and other texts have the columns of the projection.  Spark allows one
    # window in a select, and gives it two fields; here it is two derived columns.
    is_rendered = not query.text or bool(blocks or query.projection)
    is_rendered = is_rendered or any(t.block is not None or _has_window(t) for t in query.tables.values())
    if is_rendered:
        schemas = {n: StructType([*s, *_derived_fields(query.tables[n])]) for n, s in schemas.items()}
    session = _open_empty_tables(spark, schemas)
    found = session.sql(_render_query(query) if is_rendered else query.text).schema
    fields = [
        StructField(name, _concrete_type(field.dataType))
        for name, field in zip(query.columns, found.fields, strict=True)
    ]
    return StructType(fields)


def _open_empty_tables(spark: SparkSession, schemas: Mapping[str, StructType]) -> SparkSession:
    """A session that has tables of the given schemas, without rows."""
    session = spark.newSession()
    for name, schema in schemas.items():
        session.createDataFrame([], schema).createOrReplaceTempView(Dialect.SPARK.name_of(name))
    return session


def finish_rows(spark: SparkSession, answer: AnswerFrame, query: Query) -> AnswerFrame:
    """The rows that are written, and their columns with the names and types that Spark gives them."""
    finished = project_rows(answer, query)
    if query.limit is not None:
        finished = _limit_rows(finished, query.limit)
    shown = [name for name in finished.columns if name not in (REVISION, RETRACTED)]
    wanted = _describe_output(spark, query)
    if wanted is None or len(wanted) != len(shown):
        return finished
    columns: dict[str, Column] = {name: quoted(name) for name in finished.frame.columns}
    given = {field.name: field.dataType for field in finished.frame.schema.fields}
    ordered = {key.column for key in query.order_by}
    wanted = [(n if n in ordered else w, t) for n, (w, t) in zip(shown, wanted, strict=True)]
    for name, (renamed, type_) in zip(shown, wanted, strict=True):
        column = columns[name] if given[name] == type_ else columns[name].cast(type_)
        columns[name] = column.alias(renamed)
    names = (*(name for name, _ in wanted), *finished.columns[len(shown) :])
    return replace(finished, frame=finished.frame.select(*columns.values()), columns=names)


def _describe_output(spark: SparkSession, query: Query) -> list[tuple[str, DataType]] | None:
    """The names and types of Spark's output columns; None if it does not read the text as it is."""
    schemas = {name: spark_schema(table) for name, table in query.declared_tables.items()}
    try:
        fields = _open_empty_tables(spark, schemas).sql(query.text).schema.fields
    except PySparkException:
        return None
    names = unique_names([field.name for field in fields])
    return [(name, _concrete_type(field.dataType)) for name, field in zip(names, fields, strict=True)]


def _limit_rows(answer: AnswerFrame, limit: int) -> AnswerFrame:
    """The answer with at most so many results."""
    schema = answer.frame.select(*map(quoted, answer.columns)).schema
    duckdb_types(schema)  # nested values do not pass through the operator
    columns = [quoted(name).alias(f"o{i}") for i, name in enumerate(answer.columns)]
    taken = answer.frame.select(*columns, KIND, NOTE).mapInArrow(LimitMapper(limit).__call__, PAYLOAD_SCHEMA)
    frame = apply_processor(LimitProcessor(limit, len(schema)), [taken], schema, ())
    return replace(answer, frame=frame, stateful=True)


def quoted(name: str) -> Column:
    """The column of this very name."""
    return F.col(Dialect.SPARK.name_of(name))


def project_rows(answer: AnswerFrame, query: Query) -> AnswerFrame:
    """The answer with windows in one column, and with what the query computes from columns of its result."""
    answer = _pack_windows(answer, query)
    if not query.projection:
        return answer
    is_result = F.col(KIND) == RowKind.RESULT  # the columns of other rows are NULL
    if query.filter is not None:
        answer = _filter_rows(answer, F.when(is_result, F.expr(query.filter.sql)))
    columns = [F.when(is_result, F.expr(each.sql)).alias(each.name) for each in query.projection]
    added = [name for name in answer.columns if name in (REVISION, RETRACTED)]
    others = [name for name in answer.frame.columns if name not in answer.columns]
    names = (*(each.name for each in query.projection), *added)
    return replace(answer, frame=answer.frame.select(*columns, *added, *others), columns=names)


def _filter_rows(answer: AnswerFrame, condition: Column) -> AnswerFrame:
    """The answer with only those results that fulfil a condition.

    A group that is written whenever it changes may have been written before: it is retracted.
    """
    fails = (F.col(KIND) == RowKind.RESULT) & ~F.coalesce(condition, F.lit(False))
    if REVISION not in answer.columns:
        return replace(answer, frame=answer.frame.where(~fails))
    if RETRACTED in answer.columns:
        return replace(answer, frame=answer.frame.withColumn(RETRACTED, F.col(RETRACTED) | fails))
    frame = answer.frame.withColumn(RETRACTED, fails)
    return replace(answer, frame=frame, columns=(*answer.columns, RETRACTED))


def _pack_windows(answer: AnswerFrame, query: Query) -> AnswerFrame:
    """The answer with the start and the end of each window in one column."""
    if not query.windows:
        return answer
    starts = dict(query.windows)
    columns: list[Column] = []
    names: list[str] = []
    for index, name in enumerate(answer.columns):
        column = quoted(name)
        if index in starts:
            end = quoted(answer.columns[index + 1])
            column = F.when(column.isNotNull(), F.struct(column.alias("start"), end.alias("end")))
            columns.append(column.alias(starts[index]))
            names.append(starts[index])
        elif index - 1 not in starts:
            columns.append(column)
            names.append(name)
    others = [name for name in answer.frame.columns if name not in answer.columns]
    return replace(answer, frame=answer.frame.select(*columns, *others), columns=tuple(names))


def _has_window(table: Table) -> bool:
    times = [c.derivation for c in table.derived if c.derivation is not None and c.type is TIMESTAMP]
    is_of_time = any(
        d.gap is not None or (d.time is not None and isinstance(d.time.unit, int)) for d in times
    )
    return is_of_time or any(c.derivation is not None and c.derivation.width for c in table.derived)


def _derived_fields(table: Table) -> list[StructField]:
    return [StructField(column.name, spark_type(column.type)) for column in table.derived]


def _render_query(query: Query) -> str:
    """A query with result columns of the same types, over tables with derived columns."""
    texts = []
    for select in query.selects:
        items = ", ".join(_render_item(item.expression) for item in select.items)
        tables = ", ".join(
            f"{Dialect.SPARK.name_of(o.table.name)} {Dialect.SPARK.name_of(o.alias)}"
            for o in select.occurrences
        )
        edges = () if select.session is None else (select.session.start, select.session.end)
        group = ", ".join(map(_spell_ref, (*(select.group_by or ()), *edges)))
        texts.append(f"SELECT {items} FROM {tables}{f' GROUP BY {group}' if group else ''}")
    return " UNION ALL ".join(texts)


def _render_item(expression: Expr) -> str:
    """An expression over aggregates and columns as Spark SQL."""
    calls: dict[Expr, Ref] = {}
    for node in walk(expression):
        if isinstance(node, Aggregate):
            calls[node] = Ref("", call_sql(node, _spell_ref))
    return expression_sql(substitute(expression, calls), _spell_ref, Dialect.SPARK)


def _spell_ref(ref: Ref) -> str:
    """A column in quotes; a reference without an occurrence is SQL already."""
    if not ref.occurrence:
        return ref.column
    return f"{Dialect.SPARK.name_of(ref.occurrence)}.{Dialect.SPARK.name_of(ref.column)}"


def _concrete_type(type_: DataType) -> DataType:
    """A type that results can be cast to: that of NULL is STRING, and an array may contain NULL."""
    if isinstance(type_, ArrayType):
        return ArrayType(type_.elementType)
    return StringType() if isinstance(type_, NullType) else type_


def changelog_columns(aggregate: bool, retracts: bool) -> tuple[str, ...]:
    """The columns that the rows of groups have besides those of the query."""
    if not aggregate:
        return ()
    return (REVISION, RETRACTED) if retracts else (REVISION,)


def duckdb_types(schema: StructType) -> list[str]:
    """The DuckDB types of the result columns."""
    return [_duckdb_type(field.dataType) for field in schema.fields]


def _duckdb_type(type_: DataType) -> str:
    """The DuckDB type of a result column; Spark takes timestamps with their time zone."""
    known = find_type(type_.simpleString())
    if known is None:
        shown = one_line(type_.simpleString().upper(), 100)
        message = f"a result is {shown}, which no state holds; the query is checked, not run"
        raise MillpondError(message, remedy="select fields or elements of it")
    return "TIMESTAMPTZ" if known is TIMESTAMP else known.names.duckdb


def apply_processor(
    processor: ShardProcessor, payloads: Sequence[DataFrame], schema: StructType, extra: Sequence[str]
) -> DataFrame:
    """Send the payloads to the shards, and name the columns of what the processor emits."""
    output = ", ".join(f"o{i} {field.dataType.simpleString()}" for i, field in enumerate(schema.fields))
    emitted = (
        reduce(DataFrame.unionAll, payloads)
        .groupBy("shard")
        .transformWithStateInPandas(
            LazyProcessor(processor), f"{output}, {TAIL_SCHEMA}", outputMode="append", timeMode="none"
        )
    )
    # Rows of a bag occur several times, also beside the groups of a UNION ALL.
    emitted = emitted.withColumn("_each", F.explode(F.expr("array_repeat(true, _weight)")))
    results = [F.col(f"o{i}").alias(field.name) for i, field in enumerate(schema.fields)]
    return emitted.select(*results, *extra, KIND, F.expr(_OPERATOR_NOTE).alias(NOTE))
