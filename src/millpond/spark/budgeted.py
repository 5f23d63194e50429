"""The budgeted engine: a query that is not bounded keeps at most N tuples, partitioned by shard."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millpond.engines.budgeted.compile import compile_budgeted
from millpond.engines.budgeted.plan import Leaf, plan_budgeted
from millpond.engines.budgeted.program import BudgetedProgram
from millpond.query.model import Occurrence
from millpond.runtime.sql import Dialect
from millpond.spark.answer import (
    AnswerFrame,
    apply_processor,
    changelog_columns,
    duckdb_types,
    infer_result_schema,
)
from millpond.spark.job import Job
from millpond.spark.operators.budgeted import ORDER, SHARD, LeafMapper, SheddingProcessor
from millpond.spark.operators.payloads import PAYLOAD_SCHEMA
from millpond.spark.rejected import SharedSources, or_rejected
from millpond.spark.sources.opened import REASON, RECORD, OpenSource
from millpond.spark.stream_static import cache_relations, prefix_columns


class BudgetedEngine:
    """Runs queries that are not bounded on a budget: their results are correct, but some may be missing."""

    holds_rows_back = False

    def accepts(self, job: Job) -> bool:
        return job.budget is not None

    def build(self, job: Job) -> AnswerFrame:
        assert job.budget is not None
        plan = plan_budgeted(job.query)
        schema = infer_result_schema(job.spark, job.query)
        types = duckdb_types(schema)
        program = compile_budgeted(plan, job.budget.memory, Dialect.SPARK, types)
        sources = SharedSources(job.sources)
        relations = cache_relations(job.query, job.sources)
        leaves = [leaf for select in plan.selects for leaf in select.leaves]
        payloads = [
            _partition_leaf(program, number, leaf, sources.take(leaf.stream.table.name), relations)
            for number, leaf in enumerate(leaves)
        ]
        extra = changelog_columns(program.aggregate, program.retracts)
        processor = SheddingProcessor(program, job.budget.policy, len(schema), types)
        frame = apply_processor(processor, payloads, schema, extra)
        partitions = 1 if program.shards == 1 else None
        return AnswerFrame(frame, (*schema.names, *extra), stateful=True, partitions=partitions)


def _partition_leaf(
    program: BudgetedProgram, number: int, leaf: Leaf, source: OpenSource, relations: Mapping[str, DataFrame]
) -> DataFrame:
    """The rows of a leaf, joined with its relations and packed for the shards, and the rejected rows."""
    where = program.leaves[number].where
    frame = _number_rows(source, leaf.stream)
    if not source.rejects:
        return _pack_rows(_cross_join(frame, leaf, relations), program, number, where)
    if not leaf.relations:
        return _pack_rows(frame, program, number, or_rejected(where), rejects=True)
    good = _cross_join(frame.where(f"{REASON} IS NULL"), leaf, relations)
    bad = frame.where(f"{REASON} IS NOT NULL")
    for relation in leaf.relations:  # adds the columns of the relation, so that both have the same columns
        nothing = relations[relation.table.name].limit(0)
        bad = bad.join(prefix_columns(nothing, relation), F.lit(True), "left")
    return _pack_rows(good, program, number, where).unionAll(
        _pack_rows(bad, program, number, "TRUE", rejects=True)
    )


def _number_rows(source: OpenSource, stream: Occurrence) -> DataFrame:
    """The stream with prefixed columns, each row with its place: its timestamp, or the number of its task.

    Within a task, rows keep the order in which they were written.
    """
    time = stream.table.time
    place = (
        F.spark_partition_id().cast("bigint")
        if time is None
        else F.coalesce(F.unix_micros(F.col(Dialect.SPARK.name_of(time))), F.lit(0))
    )
    rejected = [F.col(REASON), F.col(RECORD)] if source.rejects else []
    return prefix_columns(source.frame, stream, place.alias(ORDER), *rejected)


def _cross_join(frame: DataFrame, leaf: Leaf, relations: Mapping[str, DataFrame]) -> DataFrame:
    prefixed = (prefix_columns(relations[o.table.name], o) for o in leaf.relations)
    return reduce(DataFrame.crossJoin, prefixed, frame)


def _pack_rows(
    frame: DataFrame, program: BudgetedProgram, number: int, where: str, rejects: bool = False
) -> DataFrame:
    """Filter the rows of a leaf, and pack the columns that the program uses by shard."""
    leaf = program.leaves[number]
    rejected = (REASON, RECORD) if rejects else ()
    columns = [F.expr(text).alias(name) for name, text in leaf.columns]
    shard = F.expr(leaf.shard).cast("int").alias(SHARD)
    taken = frame.where(F.expr(where)).select(*columns, ORDER, shard, *rejected)
    return taken.mapInArrow(LeafMapper(program, number).__call__, PAYLOAD_SCHEMA)
