"""A chain of operators: the rows that a block emits are the input stream of the block that reads it.

All operators of a chain run in one streaming query, one after the other in each micro-batch.  Beside its
rows, an operator reports the timestamp before which all of them are out, which is the watermark of the stream
for the next operator.  Rejected rows and reports pass through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millpond.query.model import Table
from millpond.runtime.row_kinds import KIND, NOTE, RowKind
from millpond.runtime.sql import Dialect
from millpond.spark.answer import AnswerFrame, project_rows
from millpond.spark.job import Job
from millpond.spark.sources.derived import derive_columns


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
    answer = project_rows(engine.build_block(job, table.time), job.query)
    columns = [
        F.col(Dialect.SPARK.name_of(name)).alias(column.name)
        for name, column in zip(answer.columns, table.columns, strict=True)
    ]
    schema = answer.frame.select(*columns).schema
    frame = answer.frame.select(*columns, KIND, NOTE)
    frame = derive_columns(frame, table, F.col(KIND) == RowKind.RESULT)
    return OpenBlock(frame, schema, answer.partitions)
