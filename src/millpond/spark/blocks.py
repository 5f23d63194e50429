"""A chain of operators: the rows that a block emits are the input stream of the block that reads it.

All operators of a chain run in one streaming query, one after the other in each micro-batch.  Beside its
rows, an operator reports the timestamp before which all of them are out, which is the watermark of the stream
for the next operator.  Rejected rows and reports pass through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millpond.analysis.decide import plan_in_order
from millpond.analysis.verdict import Verdict
from millpond.query.model import Query, Subquery, Table, Windowed
from millpond.runtime.row_kinds import KIND, RowKind
from millpond.runtime.sql import Dialect
from millpond.spark.answer import AnswerFrame, project_rows
from millpond.spark.job import Job
from millpond.spark.relation_blocks import read_relation_block
from millpond.spark.sources.derived import derive_columns
from millpond.spark.sources.opened import OpenSource
from millpond.spark.stream_static import StreamStaticEngine


class BlockEngine(Protocol):
    """An engine whose answer another operator can read."""

    def build_block(self, job: Job, time: str | None) -> AnswerFrame:
        """The answer to a block whose rows come in the order of its column ``time``, if it has one."""


@dataclass(frozen=True)
class OpenBlock:
    """The rows of a block as its table has them, with their kind and note.

    ``schema`` has Spark's types of the table's columns, ``partitions`` is that of the answer.
    """

    frame: DataFrame
    schema: StructType
    partitions: int | None


def open_block(job: Job, table: Table, in_order: bool = True) -> OpenBlock:
    """Open the table that a block computes: its columns, and those derived from them.

    If its rows are read ``in_order``, the block reports how far they are.  In any order, rows that are
    answered one by one need not wait for their turn: none of them is late.
    """
    engine = StreamStaticEngine()
    if not in_order and engine.accepts(job):
        answer = engine.build(job)
    else:
        if table.time is not None:
            job = replace(job, verdict=plan_in_order(job.verdict))
        answer = _choose_engine(job).build_block(job, table.time if in_order else None)
    answer = name_columns(answer, job.query, table)
    columns = [F.col(Dialect.SPARK.name_of(name)) for name in answer.columns]
    frame = derive_columns(answer.frame, table, F.col(KIND) == RowKind.RESULT)
    return OpenBlock(frame, answer.frame.select(*columns).schema, answer.partitions)


def _choose_engine(job: Job) -> BlockEngine:
    """The engine of a block."""
    from millpond.spark.over import OverEngine  # here, as they import this module
    from millpond.spark.timed import TimedEngine

    return TimedEngine() if job.verdict.over is None else OverEngine()


def name_columns(answer: AnswerFrame, query: Query, table: Table) -> AnswerFrame:
    """The answer to a block's query with the columns of its table, which are some of those of the query."""
    if query.projection:
        answer = project_rows(answer, query)
    columns = [F.col(Dialect.SPARK.name_of(column.name)) for column in table.columns]
    others = [name for name in answer.frame.columns if name not in answer.columns]
    names = tuple(column.name for column in table.columns)
    return replace(answer, frame=answer.frame.select(*columns, *others), columns=names)


# --- jobs --------------------------------------------------------------------------------------------------

OpenTable = Callable[[Table, Query], OpenSource]


def make_job(job: Job, open_table: OpenTable) -> Job:
    """The job with its tables open, and the jobs of its blocks.

    A table that several blocks read is opened for each of them; its rejected rows come once.  A subquery that
    reads relations only is a relation.
    """
    seen: set[str] = set()

    def open_once(table: Table, query: Query) -> OpenSource:
        source = open_table(table, query)
        is_known = table.name in seen
        seen.add(table.name)
        return OpenSource(source.good, False) if is_known else source

    def complete_block(verdict: Verdict) -> Job:
        """The job of a block, which emits final rows; its columns are not always those of its text."""
        return replace(complete(replace(verdict, query=replace(verdict.query, text=""))), updates=False)

    def complete(verdict: Verdict) -> Job:
        relations: dict[str, OpenSource] = {}

        def open_relation(table: Table, query: Query) -> DataFrame:
            relations.setdefault(table.name, source := open_once(table, query))
            return source.good

        sources: dict[str, OpenSource] = {}
        for table in map(_find_read_table, verdict.query.tables.values()):
            if table.block is None and table.name not in job.lookups.tables:
                sources[table.name] = open_once(table, verdict.query)
            elif isinstance(table.block, Subquery) and not table.streaming:
                sources[table.name] = OpenSource(read_relation_block(table, open_relation), False)
        blocks = {name: complete_block(block) for name, block in verdict.blocks.items()}
        return replace(job, verdict=verdict, sources=sources, blocks=blocks, inner_relations=relations)

    return complete(job.verdict)


def _find_read_table(table: Table) -> Table:
    """The table whose rows an engine reads: below window functions, their base."""
    while isinstance(table.block, Windowed):
        table = table.block.base
    return table
