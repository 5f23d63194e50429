"""Late rows of queries that run on Spark's own operators, which drop them without a trace.

A row is late if the watermark has reached its end before the micro-batch: the watermark of the batch before,
which Spark writes to the checkpoint.  So the engine emits every row as a *suspect*, with its end, and the
sink keeps the suspects that are late.  As that costs a second scan of the source, a run begins without
suspects, and repeats the first batch in which Spark has dropped a row.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millpond.runtime.row_kinds import KIND, LATE, NOTE, RowKind
from millpond.spark.files import Files

# The column of a suspect: its stream, its end in microseconds, and its values.
SUSPECT = "_suspect"
_DROPPED = "numRowsDroppedByWatermark"
_QUERY_ID = "sql.streaming.queryId"


def describe_suspect(stream: str, end: str, time: str, values: list[Column]) -> Column:
    """The column SUSPECT: ``end`` is the row's end in microseconds and ``time`` its timestamp, as SQL."""
    return F.struct(
        F.lit(stream).alias("stream"),
        F.expr(end).alias("end"),
        F.expr(time).alias("time"),
        F.struct(*values).alias("row"),
    )


def reject_late_suspects(frame: DataFrame, watermark: int) -> DataFrame:
    """The frame; suspects that end at or before the watermark (in microseconds) become rejected rows."""
    suspect = F.col(SUSPECT)
    shown = F.date_format(
        F.to_utc_timestamp(suspect["time"], F.current_timezone()), "yyyy-MM-dd HH:mm:ss.SSSSSS"
    )
    reason = F.concat(F.lit(f"{LATE} the watermark had already passed "), shown, F.lit(" UTC"))
    note = F.struct(
        F.lit(None).cast("bigint").alias("entries"),
        F.lit(None).cast("bigint").alias("bytes"),
        suspect["stream"].alias("stream"),
        reason.alias("reason"),
        F.to_json(suspect["row"], {"ignoreNullFields": "false"}).alias("record"),
    )
    is_suspect = suspect.isNotNull()
    kind = F.when(is_suspect, F.lit(RowKind.REJECTED).cast("tinyint")).otherwise(F.col(KIND))
    return (
        frame.where(~is_suspect | (suspect["end"] <= watermark))
        .withColumns({KIND: kind, NOTE: F.when(is_suspect, note).otherwise(F.col(NOTE))})
        .drop(SUSPECT)
    )


def read_watermark(files: Files, checkpoint: str, batch: int) -> int:
    """The watermark of a batch, in microseconds; before the first batch, Spark's is the beginning of 1970."""
    text = files.read(f"{checkpoint}/offsets/{batch}")
    return 0 if text is None else int(json.loads(text.splitlines()[1])["batchWatermarkMs"]) * 1_000


def count_dropped_groups(spark: SparkSession) -> int:
    """How many late groups Spark has dropped in the batch that the calling ``foreachBatch`` has computed.

    ``spark`` is the session that started the query.
    """
    query: Any = spark.streams.get(spark.sparkContext.getLocalProperty(_QUERY_ID) or "")
    return _sum_metric(query._jsq.streamingQuery().lastExecution().executedPlan())


def _sum_metric(plan: Any) -> int:
    metrics, children = plan.metrics(), plan.children()
    own = int(metrics.apply(_DROPPED).value()) if metrics.contains(_DROPPED) else 0
    return own + sum(_sum_metric(children.apply(i)) for i in range(children.size()))
