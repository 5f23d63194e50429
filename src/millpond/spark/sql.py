"""``millpond.sql``: a query over the session's views as an ordinary streaming DataFrame."""

from __future__ import annotations

from dataclasses import replace

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.analysis.decide import decide
from millpond.engines.lookup.database import read_columns
from millpond.engines.lookup.declaration import FORMAT, read_declaration
from millpond.errors import NameError_
from millpond.frontend.parse import find_table_names, parse_query
from millpond.policies.registry import PolicyChoice
from millpond.query.model import Column as TableColumn
from millpond.query.model import Source as Origin
from millpond.query.model import Table
from millpond.query.types import TIMESTAMP, type_named
from millpond.runtime.row_kinds import KIND, NOTE, BatchMeasure, RowKind
from millpond.spark.budget import Budget
from millpond.spark.enriched import build_enriched, is_enriched
from millpond.spark.lookup import build_lookup, located_relations
from millpond.spark.refusal import refuse_unless_runnable
from millpond.spark.shedding import build_shedding
from millpond.spark.source import Source
from millpond.spark.stream import build
from millpond.spark.timed import build_timed

# The name under which a query's progress reports the size of its state.
OBSERVED = "millpond"
# Measures of a batch that are reported there, by the names they have there.
_MEASURED = {
    BatchMeasure.SHED: "shed_rows",
    BatchMeasure.MISSED: "missed_rows",
    BatchMeasure.MISSED_VARIANCE: "missed_variance",
}
# Where Spark notes the delay of a column's watermark, in milliseconds.
_WATERMARK = "spark.watermarkDelayMs"
# Relations in databases, by session and name in lower case.
_lookups: dict[tuple[str, str], Table] = {}


def sql(
    spark: SparkSession, query: str, memory: int | None = None, policy: str | PolicyChoice | None = None
) -> DataFrame:
    """The answer of a query over the session's temporary views, as it grows.

    Streams are the streaming views.  Every row is emitted once (of a group, a row at each change with a
    growing ``_revision``), so that any sink in append mode holds the exact answer at every moment.

    A query that is not bounded needs a budget: with ``memory`` it keeps at most so many tuples, those that
    the ``policy`` expects to be of most use.  Its rows are true ones, but some may be missed.
    """
    views = _views(spark, query)
    tables = {name: view if isinstance(view, Table) else _table(name, view) for name, view in views.items()}
    parsed = parse_query(query, tables)
    verdict = decide(parsed)
    refuse_unless_runnable(verdict, memory)
    located = located_relations(parsed, memory, policy if isinstance(policy, str) else None)
    budget = None if located else Budget.of(verdict, memory, policy)
    sources = {
        name: Source(view, False) for name in parsed.tables if not isinstance(view := views[name], Table)
    }
    if budget is not None:
        built = build_shedding(spark, parsed, budget.memory, budget.choice, sources)
    elif located:
        built = build_lookup(spark, parsed, sources, located)
    elif verdict.timed is not None and is_enriched(parsed):
        built = build_enriched(spark, parsed, sources)
    elif verdict.timed is not None:
        built = build_timed(spark, parsed, verdict.timed, sources)
    else:
        assert verdict.plan is not None  # as every bounded query has one
        built = build(spark, parsed, verdict.plan, sources)
    frame = built.frame
    if built.stateful:
        note = F.when(F.col(KIND) == RowKind.STATE, F.col(NOTE))
        frame = frame.observe(
            OBSERVED,
            F.sum(note["entries"]).alias("state_entries"),
            F.sum(note["bytes"]).alias("state_bytes"),
            F.count_if(F.col(KIND) == RowKind.RESULT).alias("output_rows"),
            F.count_if(F.col(KIND) == RowKind.REJECTED).alias("rejected_rows"),
            F.sum(F.when(F.col(KIND) == RowKind.BUFFERED, F.col(NOTE)["entries"])).alias("waiting_rows"),
            *(_measured(name).alias(column) for name, column in _MEASURED.items()),
        )
    if located:
        frame = frame.observe(
            OBSERVED,
            _measured(BatchMeasure.LOOKUPS).alias("lookups"),
            _measured(BatchMeasure.HITS).alias("lookup_hits"),
            F.count_if(F.col(KIND) == RowKind.RESULT).alias("output_rows"),
        )
    return frame.where(F.col(KIND) == RowKind.RESULT).select(*built.columns)


def _measured(name: str) -> Column:
    is_measure = (F.col(KIND) == RowKind.MEASURE) & (F.col(NOTE)["reason"] == name)
    return F.sum(F.when(is_measure, F.col(NOTE)["entries"]))


def lookup(
    spark: SparkSession,
    name: str,
    url: str,
    dbtable: str,
    memory: int | None = None,
    policy: str | None = None,
    ttl: str | None = None,
    timeout: str | None = None,
    retries: int | None = None,
) -> None:
    """Let queries of this session look rows up in a table of a database, under a name."""
    given = {"url": url, "dbtable": dbtable, "memory": memory, "policy": policy, "ttl": ttl}
    given |= {"timeout": timeout, "retries": retries}
    options = {key: str(value) for key, value in given.items() if value is not None}
    bare = Table(name, (), False, source=Origin(FORMAT, options))
    relation = read_declaration(bare, memory or 1)
    table = replace(
        bare, columns=read_columns(relation), source=Origin(FORMAT, options | {"url": relation.url})
    )
    _lookups[_session(spark), name.lower()] = table


def _session(spark: SparkSession) -> str:
    return str(spark._jsparkSession.sessionUUID())


def _views(spark: SparkSession, query: str) -> dict[str, DataFrame | Table]:
    """The views that the query names, as it spells them first; of a relation in a database, its table."""
    found: dict[str, DataFrame | Table] = {}
    session = _session(spark)
    for name, qualified in find_table_names(query):
        if name.lower() in {known.lower() for known in found}:
            continue
        if (known := _lookups.get((session, name.lower()))) is not None and qualified is None:
            if spark.catalog.tableExists(f"`{name}`"):
                message = f"{name} is both a view and a relation to look up"
                raise NameError_(message, remedy="drop the view, or give one of them another name")
            found[name] = replace(known, name=name)
            continue
        try:
            found[name] = spark.table(qualified or f"`{name}`")
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
        kind = type_named(field.dataType.simpleString())
        if kind is not None:
            columns.append(TableColumn(field.name, kind, field.nullable))
        if _WATERMARK in field.metadata:
            delays[field.name] = int(field.metadata[_WATERMARK])
    times = [c.name for c in columns if c.type is TIMESTAMP]
    time = next(iter(delays), times[0] if len(times) == 1 else None) if frame.isStreaming else None
    properties = {"watermark": f"{delays[time]} milliseconds"} if time in delays else {}
    return Table(name, tuple(columns), frame.isStreaming, (), Origin("view", {}), properties, time)
