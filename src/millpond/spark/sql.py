"""``millpond.sql``: a query over the session's views as an ordinary streaming DataFrame."""

from __future__ import annotations

from dataclasses import replace

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StructType

from millpond.analysis.decide import decide
from millpond.engines.lookup.database import read_columns
from millpond.engines.lookup.declaration import FORMAT, read_declaration
from millpond.errors import MillpondError, NotBoundedError, SqlNameError, is_whole, require, reword
from millpond.frontend.parse import find_table_names, parse_query
from millpond.policies.registry import PolicyChoice
from millpond.query.model import Column as TableColumn
from millpond.query.model import Query, SourceSpec, Table
from millpond.query.types import TIMESTAMP, SqlType, find_type, nested
from millpond.runtime.row_kinds import KIND, NOTE, BatchMeasure, RowKind
from millpond.runtime.sql import Dialect
from millpond.spark.admission import admit
from millpond.spark.answer import OBSERVED, WATERMARK_DELAY, AnswerFrame, finish_rows, quoted
from millpond.spark.blocks import make_job
from millpond.spark.caller_session import (
    check_session,
    check_workers,
    choose_worker_python,
    configure_state,
)
from millpond.spark.engines import choose_engine
from millpond.spark.job import Job
from millpond.spark.sources.derived import add_derived_columns
from millpond.spark.sources.derived_types import settle_types
from millpond.spark.sources.opened import OpenSource

# Measures that are reported there, and their names there.
_OBSERVED_MEASURES = {
    BatchMeasure.SHED: "shed_rows",
    BatchMeasure.MISSED: "missed_rows",
    BatchMeasure.ALL_MISSED: "missed_total",
}
# How the options of the command line are given in Python.
_PYTHON_WORDS = {
    "--memory N": "memory=N",
    "--memory": "memory=N",
    "--policy": "policy",
    "--updates": "updates=True",
}
# Registered lookup relations, by session and name in lower case.
_lookups: dict[tuple[str, str], Table] = {}


def answer_query(
    spark: SparkSession,
    query: str,
    memory: int | None = None,
    policy: str | PolicyChoice | None = None,
    updates: bool = False,
) -> DataFrame:
    """The answer to a query over the session's temporary views, as an append-only streaming DataFrame.

    Streaming views are streams.  Every row is emitted once (an aggregate query emits a row for each change of
    a group, with a growing ``_revision``), so a sink in append mode holds the exact answer after each batch.
    A group that closes, such as one of a time window, is emitted once, when it closes; with ``updates``, it
    is emitted whenever it changes.

    A query that is not bounded needs a budget: it keeps at most ``memory`` tuples, those with the highest
    scores under ``policy``.  Its rows are correct, but some may be missing.
    """
    require(isinstance(query, str), "query", "SQL text", query)
    require(memory is None or is_whole(memory), "memory", "a whole number", memory)
    require(
        policy is None or isinstance(policy, str | PolicyChoice), "policy", "the name of a policy", policy
    )
    require(isinstance(updates, bool), "updates", "True or False", updates)
    try:
        budget = int(memory) if memory is not None else None
        return _answer(check_session(spark), query, budget, policy, updates)
    except MillpondError as error:
        reworded = reword(error, _PYTHON_WORDS)
        if isinstance(reworded, NotBoundedError):
            reworded.add_note(reworded.explanation)
        raise reworded from None


def _answer(
    spark: SparkSession, query: str, memory: int | None, policy: str | PolicyChoice | None, updates: bool
) -> DataFrame:
    choose_worker_python(spark)
    views = _find_views(spark, query)
    tables = {
        name: view if isinstance(view, Table) else _describe_view(name, view) for name, view in views.items()
    }
    parsed = parse_query(query, tables, spark.conf.get("spark.sql.session.timeZone") or "UTC")
    parsed = settle_types(spark, parsed)
    verdict = decide(parsed)
    allowance = admit(verdict, memory, policy)

    def open_view(table: Table, query: Query) -> OpenSource:
        view = views[table.name]
        assert not isinstance(view, Table), "lookup relations are not opened"
        return add_derived_columns(OpenSource(view, False), table, query)

    job = make_job(Job(spark, verdict, allowance, {}, updates=updates), open_view)
    return emit_results(job, finish_rows(spark, choose_engine(job).build(job), parsed))


def emit_results(job: Job, answer: AnswerFrame) -> DataFrame:
    """The rows of the answer alone; what else it holds is reported in the progress of the query."""
    spark, frame = job.spark, answer.frame
    if answer.stateful or job.lookups.tables:
        check_workers(spark)
    if answer.stateful:
        configure_state(spark)
        note = F.when(F.col(KIND) == RowKind.STATE, F.col(NOTE))
        frame = frame.observe(
            OBSERVED,
            F.sum(note["entries"]).alias("state_entries"),
            F.sum(note["bytes"]).alias("state_bytes"),
            F.count_if(F.col(KIND) == RowKind.RESULT).alias("output_rows"),
            F.count_if(F.col(KIND) == RowKind.REJECTED).alias("rejected_rows"),
            F.sum(F.when(F.col(KIND) == RowKind.BUFFERED, F.col(NOTE)["entries"])).alias("waiting_rows"),
            *(_sum_measure(name).alias(column) for name, column in _OBSERVED_MEASURES.items()),
            *(limit.alias(name) for name, limit in _missed_limits().items()),
        )
    if job.lookups.tables:
        frame = frame.observe(
            OBSERVED,
            _sum_measure(BatchMeasure.LOOKUPS).alias("lookups"),
            _sum_measure(BatchMeasure.HITS).alias("lookup_hits"),
            F.count_if(F.col(KIND) == RowKind.RESULT).alias("output_rows"),
        )
    return frame.where(F.col(KIND) == RowKind.RESULT).select(*map(quoted, answer.columns))


def _sum_measure(name: str) -> Column:
    is_measure = (F.col(KIND) == RowKind.MEASURE) & (F.col(NOTE)["reason"] == name)
    return F.sum(F.when(is_measure, F.col(NOTE)["entries"]))


def _missed_limits() -> dict[str, Column]:
    """The 95 % interval of the results missed so far, and the larger distance of its limits."""
    missed = _sum_measure(BatchMeasure.ALL_MISSED)
    below, above = (
        F.sqrt(_sum_measure(name)) for name in (BatchMeasure.MISSED_BELOW, BatchMeasure.MISSED_ABOVE)
    )
    low, high = F.greatest(F.floor(missed - below), F.lit(0)), F.greatest(F.ceil(missed + above), F.lit(0))
    error = F.greatest(missed - low, high - missed)
    return {"missed_low": low, "missed_high": high, "missed_error": error}


def register_lookup(
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
    """Register a table of a database as a lookup relation of this session."""
    spark = check_session(spark)
    texts = {"name": name, "url": url, "dbtable": dbtable, "policy": policy, "ttl": ttl, "timeout": timeout}
    for key, text in texts.items():
        is_optional = key in ("policy", "ttl", "timeout")
        require(isinstance(text, str) or (is_optional and text is None), key, "a text", text)
    for key, number in {"memory": memory, "retries": retries}.items():
        require(number is None or is_whole(number), key, "a whole number", number)
    given = {"url": url, "dbtable": dbtable, "memory": memory, "policy": policy, "ttl": ttl}
    given |= {"timeout": timeout, "retries": retries}
    options = {key: str(value) for key, value in given.items() if value is not None}
    bare = Table(name, (), False, source=SourceSpec(FORMAT, options))
    relation = read_declaration(bare, memory or 1)
    table = replace(
        bare, columns=read_columns(relation), source=SourceSpec(FORMAT, options | {"url": relation.url})
    )
    _lookups[_session_id(spark), name.lower()] = table


def _session_id(spark: SparkSession) -> str:
    return str(spark._jsparkSession.sessionUUID())


def _find_views(spark: SparkSession, query: str) -> dict[str, DataFrame | Table]:
    """The views that the query names, in its own spelling; for a lookup relation, its table."""
    found: dict[str, DataFrame | Table] = {}
    session = _session_id(spark)
    for name, qualified in find_table_names(query):
        if name.lower() in {known.lower() for known in found}:
            continue
        if (known := _lookups.get((session, name.lower()))) is not None and qualified is None:
            if spark.catalog.tableExists(Dialect.SPARK.name_of(name)):
                message = f"{name} is both a view and a lookup relation"
                raise SqlNameError(message, remedy="drop the view, or give one of them another name")
            found[name] = replace(known, name=name)
            continue
        try:
            found[name] = spark.table(qualified or Dialect.SPARK.name_of(name))
        except AnalysisException:
            raise SqlNameError(
                f"the session has no view named {name}", remedy="register it with createOrReplaceTempView"
            ) from None
    return found


def _find_type(type_: DataType) -> SqlType | None:
    if isinstance(type_, ArrayType | MapType | StructType | BinaryType):
        return nested(type_.simpleString())
    return find_type(type_.simpleString())


def _describe_view(name: str, frame: DataFrame) -> Table:
    """A view as a table; columns of types that the language does not have cannot be used in the query."""
    columns: list[TableColumn] = []
    delays: dict[str, int] = {}
    for field in frame.schema.fields:
        kind = _find_type(field.dataType)
        if kind is not None:
            columns.append(TableColumn(field.name, kind, field.nullable))
        if WATERMARK_DELAY in field.metadata:
            delays[field.name] = int(field.metadata[WATERMARK_DELAY])
    times = [c.name for c in columns if c.type is TIMESTAMP]
    time = next(iter(delays), times[0] if len(times) == 1 else None) if frame.isStreaming else None
    properties = {"watermark": f"{delays[time]} milliseconds"} if time in delays else {}
    return Table(name, tuple(columns), frame.isStreaming, (), SourceSpec("view", {}), properties, time)
