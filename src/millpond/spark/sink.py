"""Writes results to the output folder and rejected rows to its folder ``_rejected``, each exactly once.

Spark writes a micro-batch to ``_staging/``; then its files are renamed, one by one, to
``part-<batch>-<number>.<format>``, those with rejected rows in ``_rejected/``.  If a run crashes before Spark
has committed a batch, Spark repeats the batch, and the second attempt first deletes the files of the first.
So each batch is in the output once, whenever the crash happens.

Each batch is computed only once, because computing a stateful operator twice would advance its state twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from uuid import uuid4

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from millpond.engines.timed.rates import StreamRate
from millpond.errors import MillpondError
from millpond.query.model import SortKey
from millpond.runtime.row_kinds import KIND, LATE, NOTE, BatchMeasure, RowKind
from millpond.spark.files import Files
from millpond.spark.late_rows import (
    SUSPECT,
    read_watermark,
    reject_late_suspects,
)
from millpond.spark.options import OUTPUT_FORMATS
from millpond.spark.rejected import REJECTED_ROWS_FOUND
from millpond.spark.sources.expressions import column_named

REJECTED_FOLDER = "_rejected"
_STAGING = "_staging"
_KEEP_NULLS = {"ignoreNullFields": "false"}


@dataclass(frozen=True)
class WrittenBatch:
    """The counts of a batch; ``entries``, ``bytes`` and ``waiting`` are None if no state was reported.

    ``late`` rows are among the rejected ones.  ``measures`` are the reported measures by name, ``rates`` the
    rates of the watched streams, and ``cardinalities`` the numbers of values of the watched columns.
    """

    batch: int
    rows: int
    rejected: int
    entries: int | None
    bytes: int | None
    late: int = 0
    waiting: int | None = None
    measures: Mapping[str, int] = field(default_factory=dict)
    rates: Mapping[str, StreamRate] = field(default_factory=dict)
    cardinalities: Mapping[tuple[str, str], int] = field(default_factory=dict)


class StopRequested(Exception):
    """Raised to end a query between two batches."""


class Sink:
    """Writes the batches of one run to a folder; the function for ``foreachBatch``.

    ``written`` holds the finished batches by number; ``failure`` is what the last one raised.  After
    ``stop``, the next batch is not started: the run that continues from the checkpoint processes it.  If
    ``count_dropped`` says that Spark has dropped late rows, the batch fails with REJECTED_ROWS_FOUND.  The
    ``checkpoint`` of the query tells which suspects are late.  ``order_by`` is the order of a batch's rows.
    """

    def __init__(
        self,
        files: Files,
        output: str,
        format: str = "json",
        checkpoint: str = "",
        order_by: Sequence[SortKey] = (),
    ) -> None:
        if format not in OUTPUT_FORMATS:
            raise MillpondError(
                f"there is no format {format!r}", remedy=f"choose from {', '.join(OUTPUT_FORMATS)}"
            )
        self.written: dict[int, WrittenBatch] = {}
        self.failure: Exception | None = None
        self.count_dropped: Callable[[], int] | None = None
        self._files = files
        self._output = output
        self._checkpoint = checkpoint
        self._format = format
        self._order_by = order_by
        # Expressions over each batch.  Building one takes PySpark a call of the JVM for every part of it.
        self._counts = _count_rows()
        self._line: Column | None = None  # a row as JSON
        self._is_first_batch = True
        self._stopping = Event()
        self._rejected_of_relations = 0

    def write_rejected_relation(self, table: str, rows: Sequence[tuple[str, str]]) -> None:
        """Write the rejected rows of a relation (reason and record); they count with the next batch."""
        lines = [json.dumps({"stream": table, "reason": why, "record": record}) for why, record in rows]
        if lines:
            folder = f"{self._output}/{REJECTED_FOLDER}"
            self._files.make_folder(folder)
            self._files.create(f"{folder}/part-start-{table}.json", "".join(f"{line}\n" for line in lines))
        self._rejected_of_relations += len(lines)

    def stop(self) -> None:
        self._stopping.set()

    def __call__(self, frame: DataFrame, batch: int) -> None:
        if self._stopping.is_set():
            raise StopRequested
        try:
            self.written[batch] = self._write(frame, batch)
        except Exception as error:
            self.failure = error
            raise

    def _write(self, frame: DataFrame, batch: int) -> WrittenBatch:
        """Write the results to the output folder and the rejected rows to ``_rejected``."""
        # A unique name, because tasks of an earlier attempt may still be writing after a kill.
        staging = f"{self._output}/{_STAGING}/{batch:06d}-{uuid4().hex[:8]}"
        if SUSPECT in frame.columns:
            frame = reject_late_suspects(frame, read_watermark(self._files, self._checkpoint, batch - 1))
        if self._order_by:
            frame = frame.coalesce(1).sortWithinPartitions(*map(_sort_column, self._order_by))
        written = self._stage(frame, batch, staging)
        if self.count_dropped is not None and self.count_dropped():
            self._is_first_batch = True
            raise MillpondError(REJECTED_ROWS_FOUND)
        folders = {RowKind.RESULT: self._output, RowKind.REJECTED: f"{self._output}/{REJECTED_FOLDER}"}
        if self._is_first_batch:  # only the first batch of a run can have been attempted before
            for folder in folders.values():
                for name in self._files.list_names(folder, f"part-{batch:06d}-*"):
                    self._files.delete(f"{folder}/{name}")
        for kind, folder in folders.items():
            format = self._format if kind is RowKind.RESULT else "json"
            self._publish(f"{staging}/{KIND}={kind}", folder, batch, format)
        self._files.delete(f"{self._output}/{_STAGING}")
        self._is_first_batch = False
        written = replace(written, rejected=written.rejected + self._rejected_of_relations)
        self._rejected_of_relations = 0
        return written

    # --- staging: rows of each kind go to the folder _kind=<kind> ---

    def _stage(self, frame: DataFrame, batch: int, staging: str) -> WrittenBatch:
        """Write both kinds of rows to the staging folder, and count them."""
        observation = Observation(f"millpond-{batch}")
        if self._format == "json":
            self._stage_lines(frame.observe(observation, *self._counts), staging)
            return _read_counts(observation, batch)
        frame = frame.persist()
        try:
            counted = frame.observe(observation, *self._counts)
            observed = counted.where(F.col(KIND) == RowKind.RESULT).drop(NOTE)
            writer = observed.write.mode("overwrite").partitionBy(KIND).format(self._format)
            (writer.option("header", "true") if self._format == "csv" else writer).save(staging)
            written = _read_counts(observation, batch)
            if written.rejected:
                rejected = frame.where(F.col(KIND) == RowKind.REJECTED).select(_rejected_line("value"), KIND)
                rejected.write.mode("append").partitionBy(KIND).text(staging)
            return written
        finally:
            frame.unpersist()

    def _stage_lines(self, frame: DataFrame, staging: str) -> None:
        """Write results and rejected rows in one pass: in JSON, both are lines of text."""
        if self._line is None:
            results = [column_named(name) for name in frame.columns if name not in (KIND, NOTE)]
            line = F.when(F.col(KIND) == RowKind.RESULT, _json(results)).otherwise(_rejected_line("value"))
            self._line = line.alias("value")
        lines = frame.where(f"{KIND} IN ({RowKind.RESULT}, {RowKind.REJECTED})").select(self._line, KIND)
        lines.write.mode("overwrite").partitionBy(KIND).text(staging)

    def _publish(self, staged: str, folder: str, batch: int, format: str) -> None:
        """Move the staged files of one kind to their folder."""
        names = self._files.list_names(staged, "part-*")
        if names:
            self._files.make_folder(folder)
        for number, name in enumerate(names):
            self._files.rename(
                f"{staged}/{name}", f"{folder}/part-{batch:06d}-{number}{_suffix(name, format)}"
            )


def _sort_column(key: SortKey) -> Column:
    column = column_named(key.column)
    if key.descending:
        return column.desc_nulls_first() if key.nulls_first else column.desc_nulls_last()
    return column.asc_nulls_first() if key.nulls_first else column.asc_nulls_last()


def _suffix(staged: str, format: str) -> str:
    """The format, and the compression if it has its own suffix.

    >>> _suffix("part-0-c.c000.txt.gz", "json"), _suffix("part-0-c.c000.snappy.parquet", "parquet")
    ('.json.gz', '.parquet')
    """
    written = f".{format}" if f".{format}" in staged else ".txt"
    return f".{format}{staged.rpartition(written)[2]}"


def _json(columns: Sequence[Column]) -> Column:
    return F.to_json(F.struct(*columns), _KEEP_NULLS)


def _rejected_line(name: str) -> Column:
    """A rejected row as JSON: its stream, the reason, and the record."""
    fields = ("stream", "reason", "record")
    return _json([F.col(f"{NOTE}.{field}").alias(field) for field in fields]).alias(name)


def _count_rows() -> list[Column]:
    """The counts of a batch that are taken while its rows are written."""

    def of_kind(kind: int, value: Column) -> Column:
        return F.when(F.col(KIND) == kind, value)

    return [
        F.count(of_kind(RowKind.RESULT, F.lit(1))).alias("rows"),
        F.count(of_kind(RowKind.REJECTED, F.lit(1))).alias("rejected"),
        F.sum(of_kind(RowKind.STATE, F.col(f"{NOTE}.entries"))).alias("entries"),
        F.sum(of_kind(RowKind.STATE, F.col(f"{NOTE}.bytes"))).alias("bytes"),
        F.count_if(of_kind(RowKind.REJECTED, F.col(f"{NOTE}.reason").startswith(LATE))).alias("late"),
        F.sum(of_kind(RowKind.BUFFERED, F.col(f"{NOTE}.entries"))).alias("waiting"),
        F.max(of_kind(RowKind.RATES, F.col(f"{NOTE}.record"))).alias("rates"),
        F.max(of_kind(RowKind.CARDINALITIES, F.col(f"{NOTE}.record"))).alias("cardinalities"),
        *(
            F.sum(
                of_kind(RowKind.MEASURE, F.when(F.col(f"{NOTE}.reason") == name, F.col(f"{NOTE}.entries")))
            ).alias(name)
            for name in BatchMeasure
        ),
    ]


def _read_counts(observation: Observation, batch: int) -> WrittenBatch:
    counts = observation.get
    measures = {name: counts.pop(name) for name in BatchMeasure}
    rates = {name: StreamRate(**rate) for name, rate in json.loads(counts.pop("rates") or "{}").items()}
    values = {(s, c): count for s, c, count in json.loads(counts.pop("cardinalities") or "[]")}
    known: dict[str, int] = {name: value for name, value in measures.items() if value is not None}
    return WrittenBatch(batch, **counts, measures=known, rates=rates, cardinalities=values)
