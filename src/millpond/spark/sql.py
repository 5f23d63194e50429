"""``millpond.sql``: a query over the session's views as an ordinary streaming DataFrame."""

from __future__ import annotations

import sqlglot
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType

from millpond.analysis.check import decide
from millpond.analysis.verdict import BOUNDED
from millpond.errors import NameError_
from millpond.query import domains
from millpond.query.domains import SqlType
from millpond.query.model import Column as TableColumn
from millpond.query.model import Source as Origin
from millpond.query.model import Table
from millpond.query.parse import parse_query
from millpond.shedding.worth import Choice
from millpond.spark.enriched import build_enriched, is_enriched
from millpond.spark.kinds import (
    KIND,
    MEASURE,
    MISSED,
    MISSED_VARIANCE,
    NOTE,
    REJECTED,
    ROW,
    SHED,
    STATE,
    WAIT,
)
from millpond.spark.refusal import refuse_unless_runnable
from millpond.spark.shedding import build_shedding
from millpond.spark.source import Source
from millpond.spark.stream import build
from millpond.spark.timed import build_timed

# The name under which a query's progress reports the size of its state.
OBSERVED = "millpond"
# Measures of a batch that are reported there, by the names they have there.
_MEASURED = {SHED: "shed_rows", MISSED: "missed_rows", MISSED_VARIANCE: "missed_variance"}
# Where Spark notes the delay of a column's watermark, in milliseconds.
_WATERMARK = "spark.watermarkDelayMs"
_TYPES: dict[str, SqlType] = {
    "boolean": domains.BOOLEAN,
    "tinyint": domains.TINYINT,
    "smallint": domains.SMALLINT,
    "int": domains.INT,
    "bigint": domains.BIGINT,
    "float": domains.FLOAT,
    "double": domains.DOUBLE,
    "string": domains.STRING,
    "date": domains.DATE,
    "timestamp": domains.TIMESTAMP,
}


def sql(
    spark: SparkSession, query: str, memory: int | None = None, policy: str | Choice = "auto"
) -> DataFrame:
    """The answer of a query over the session's temporary views, as it grows.

    Streams are the streaming views.  Every row is emitted once (of a group, a row at each change with a
    growing ``_revision``), so that any sink in append mode holds the exact answer at every moment.

    A query that is not bounded needs a budget: with ``memory`` it keeps at most so many tuples, those that
    the ``policy`` expects to be of most use.  Its rows are true ones, but some may be missed.
    """
    choice = policy if isinstance(policy, Choice) else Choice(policy)
    views = _views(spark, query)
    tables = {name: _table(name, frame) for name, frame in views.items()}
    parsed = parse_query(query, tables)
    verdict = decide(parsed)
    refuse_unless_runnable(verdict, memory)
    sources = {name: Source(views[name], False) for name in parsed.tables}
    if verdict.outcome != BOUNDED:
        assert memory is not None
        built = build_shedding(spark, parsed, memory, choice, sources)
    elif verdict.timed is not None and is_enriched(parsed):
        built = build_enriched(spark, parsed, sources)
    elif verdict.timed is not None:
        built = build_timed(spark, parsed, verdict.timed, sources)
    else:
        assert verdict.plan is not None  # as every bounded query has one
        built = build(spark, parsed, verdict.plan, sources)
    frame = built.frame
    if built.stateful:
        note = F.when(F.col(KIND) == STATE, F.col(NOTE))
        frame = frame.observe(
            OBSERVED,
            F.sum(note["entries"]).alias("state_entries"),
            F.sum(note["bytes"]).alias("state_bytes"),
            F.count_if(F.col(KIND) == ROW).alias("output_rows"),
            F.count_if(F.col(KIND) == REJECTED).alias("rejected_rows"),
            F.sum(F.when(F.col(KIND) == WAIT, F.col(NOTE)["entries"])).alias("waiting_rows"),
            *(_measured(name).alias(column) for name, column in _MEASURED.items()),
        )
    return frame.where(F.col(KIND) == ROW).select(*built.columns)


def _measured(name: str) -> Column:
    is_measure = (F.col(KIND) == MEASURE) & (F.col(NOTE)["reason"] == name)
    return F.sum(F.when(is_measure, F.col(NOTE)["entries"]))


def _views(spark: SparkSession, query: str) -> dict[str, DataFrame]:
    """The views that the query names, as it spells them first."""
    try:
        tree = sqlglot.parse_one(query, dialect="spark")
    except sqlglot.errors.SqlglotError:
        return {}  # our own parser says what is wrong
    found: dict[str, DataFrame] = {}
    for table in tree.find_all(sqlglot.exp.Table):
        name = table.name
        if name.lower() in {known.lower() for known in found}:
            continue
        try:
            found[name] = spark.table(table.sql(dialect="spark") if table.db else f"`{name}`")
        except AnalysisException:
            raise NameError_(
                f"the session has no view named {name}", remedy="register it with createOrReplaceTempView"
            ) from None
    return found


def _table(name: str, frame: DataFrame) -> Table:
    """A view as a table of the language; columns of types outside it cannot be named in the query."""
    columns: list[TableColumn] = []
    delays: dict[str, int] = {}
    for field in frame.schema.fields:
        kind = _sql_type(field.dataType)
        if kind is not None:
            columns.append(TableColumn(field.name, kind, field.nullable))
        if _WATERMARK in field.metadata:
            delays[field.name] = int(field.metadata[_WATERMARK])
    times = [c.name for c in columns if c.type is domains.TIMESTAMP]
    time = next(iter(delays), times[0] if len(times) == 1 else None) if frame.isStreaming else None
    properties = {"watermark": f"{delays[time]} milliseconds"} if time in delays else {}
    return Table(name, tuple(columns), frame.isStreaming, (), Origin("view", {}), properties, time)


def _sql_type(type_: DataType) -> SqlType | None:
    if isinstance(type_, DecimalType):
        return domains.decimal(type_.precision, type_.scale)
    return _TYPES.get(type_.simpleString())
