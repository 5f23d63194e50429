"""A query under a budget as a streaming DataFrame: streams meet relations, and are dealt out to shards."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.engines.budgeted.compile import compile_budgeted
from millpond.engines.budgeted.plan import Leaf, plan_budgeted
from millpond.engines.budgeted.program import BudgetedProgram
from millpond.policies.registry import PolicyChoice
from millpond.query.model import Occurrence, Query
from millpond.runtime.sql import Dialect
from millpond.spark.enriched import prefixed
from millpond.spark.operator import PARTIAL_SCHEMA
from millpond.spark.shedding_operator import ORDER, PLACE, Deal, Shedder
from millpond.spark.source import REASON, RECORD, Source
from millpond.spark.stream import Built, Sources, duckdb_types, extra_columns, kept_by, result_schema


def build_shedding(
    spark: SparkSession, query: Query, memory: int, choice: PolicyChoice, sources: Mapping[str, Source]
) -> Built:
    """The query over its sources, with at most ``memory`` tuples kept."""
    plan = plan_budgeted(query)
    schema = result_schema(spark, query)
    types = duckdb_types(schema)
    program = compile_budgeted(plan, memory, Dialect.SPARK, types)
    opened = Sources({name: source for name, source in sources.items() if query.tables[name].streaming})
    relations = {
        name: source.good.persist() for name, source in sources.items() if not query.tables[name].streaming
    }
    leaves = [leaf for select in plan.selects for leaf in select.leaves]
    dealt = [_dealt(program, number, leaf, opened, relations) for number, leaf in enumerate(leaves)]
    extra = extra_columns(program.aggregate, program.retracts)
    keeper = Shedder(program, choice, len(schema), types)
    frame = kept_by(keeper, dealt, schema, extra)
    partitions = 1 if program.shards == 1 else None
    return Built(frame, (*schema.names, *extra), stateful=True, partitions=partitions)


def _dealt(
    program: BudgetedProgram,
    number: int,
    leaf: Leaf,
    sources: Sources,
    relations: Mapping[str, DataFrame],
) -> DataFrame:
    """The rows of a leaf, on their way to the shards; rejected ones go with them, past the relations."""
    source, owed = sources.take(leaf.stream.table.name)
    text = program.leaves[number]
    frame = _ordered(source, leaf.stream)
    if not owed:
        good = frame.where(f"{REASON} IS NULL") if source.rejects else frame
        return _taken(_with_relations(good, leaf, relations), program, number, text.where)
    if not leaf.relations:
        return _taken(frame, program, number, f"{REASON} IS NOT NULL OR {text.where}", rejects=True)
    good = _with_relations(frame.where(f"{REASON} IS NULL"), leaf, relations)
    bad = frame.where(f"{REASON} IS NOT NULL")
    for relation in leaf.relations:  # so that it has the same columns
        nothing = relations[relation.table.name].limit(0)
        bad = bad.join(prefixed(nothing, relation), F.lit(True), "left")
    return _taken(good, program, number, text.where).unionAll(
        _taken(bad, program, number, "TRUE", rejects=True)
    )


def _ordered(source: Source, stream: Occurrence) -> DataFrame:
    """The stream under the names of its occurrence, each row with its place: its time, or the task's number.

    Within a task, rows come in the order in which they were written.
    """
    time = stream.table.time
    place = (
        F.spark_partition_id().cast("bigint")
        if time is None
        else F.coalesce(F.unix_micros(F.col(Dialect.SPARK.name_of(time))), F.lit(0))
    )
    rejected = [F.col(REASON), F.col(RECORD)] if source.rejects else []
    return prefixed(source.frame, stream, place.alias(ORDER), *rejected)


def _with_relations(frame: DataFrame, leaf: Leaf, relations: Mapping[str, DataFrame]) -> DataFrame:
    return reduce(DataFrame.crossJoin, (prefixed(relations[o.table.name], o) for o in leaf.relations), frame)


def _taken(
    frame: DataFrame, program: BudgetedProgram, number: int, where: str, rejects: bool = False
) -> DataFrame:
    """What is needed of the rows that matter, dealt out."""
    leaf = program.leaves[number]
    rejected = (REASON, RECORD) if rejects else ()
    columns = [F.expr(text).alias(name) for name, text in leaf.columns]
    shard = F.expr(leaf.shard).cast("int").alias(PLACE)
    taken = frame.where(F.expr(where)).select(*columns, ORDER, shard, *rejected)
    return taken.mapInArrow(Deal(program, number, *rejected).__call__, PARTIAL_SCHEMA)
