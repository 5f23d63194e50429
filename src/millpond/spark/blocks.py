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

from millpond.analysis.verdict import Verdict
from millpond.query.model import Query, Table, Windowed
from millpond.runtime.row_kinds import KIND, RowKind
from millpond.runtime.sql import Dialect
from millpond.spark.answer import AnswerFrame, project_rows
from millpond.spark.job import Job
from millpond.spark.sources.derived import derive_columns
from millpond.spark.sources.opened import OpenSource


class BlockEngine(Protocol):
    """An engine whose answer another operator can read."""

    def build_block(self, job: Job, time: str) -> AnswerFrame:
        """The answer to a block whose rows come in the order of its column ``time``."""


@dataclass(frozen=True)
class OpenBlock:
    """The rows of a block as its table has them, with their kind and note.

    ``schema`` has Spark's types of the table's columns, ``partitions`` is that of the answer.
    """

    frame: DataFrame
    schema: StructType
    partitions: int | None


def open_block(engine: BlockEngine, job: Job, table: Table) -> OpenBlock:
    """Open the table that a block computes: its columns, and those derived from them."""
    assert table.time is not None
    answer = name_columns(engine.build_block(job, table.time), job.query, table)
    columns = [F.col(Dialect.SPARK.name_of(name)) for name in answer.columns]
    frame = derive_columns(answer.frame, table, F.col(KIND) == RowKind.RESULT)
    return OpenBlock(frame, answer.frame.select(*columns).schema, answer.partitions)


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

    A table that several blocks read is opened for each of them; its rejected rows come once.
    """
    seen: set[str] = set()

    def open_once(table: Table, query: Query) -> OpenSource:
        source = open_table(table, query)
        is_known = table.name in seen
        seen.add(table.name)
        return OpenSource(source.good, False) if is_known else source

    def complete_block(verdict: Verdict) -> Job:
        """The job of a block; its columns are not always those of its text."""
        return complete(replace(verdict, query=replace(verdict.query, text="")))

    def complete(verdict: Verdict) -> Job:
        tables = [_find_read_table(table) for table in verdict.query.tables.values()]
        sources = {
            table.name: open_once(table, verdict.query)
            for table in tables
            if table.block is None and table.name not in job.lookups.tables
        }
        blocks = {name: complete_block(block) for name, block in verdict.blocks.items()}
        return replace(job, verdict=verdict, sources=sources, blocks=blocks)

    return complete(job.verdict)


def _find_read_table(table: Table) -> Table:
    """The table whose rows an engine reads: below window functions, their base."""
    while isinstance(table.block, Windowed):
        table = table.block.base
    return table
