"""Exactly-once files that anything can read.

A micro-batch is written to ``_staging/`` by Spark and then renamed, file by file, to
``part-<batch>-<number>.<format>``; rejected rows go the same way to ``_rejected/``.  Until Spark has noted
the batch as done it runs it again after a crash, and the second attempt first removes what the first one
left: whatever the moment of the crash, each batch is there once.

Every batch is computed once, since a stateful operator that is computed twice advances its state twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from uuid import uuid4

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from millpond.errors import MillpondError
from millpond.runtime.row_kinds import KIND, LATE, NOTE, BatchMeasure, RowKind
from millpond.spark.files import Files

FORMATS = ("json", "parquet", "csv", "orc")
_STAGING, _REJECTED_FOLDER = "_staging", "_rejected"
_KEEP_NULLS = {"ignoreNullFields": "false"}


@dataclass(frozen=True)
class Written:
    """What a batch held; ``entries``, ``bytes`` and ``waiting`` are None where no state was reported.

    ``late`` rows are among the rejected ones.  ``measures`` are those that were reported, by name.
    """

    batch: int
    rows: int
    rejected: int
    entries: int | None
    bytes: int | None
    late: int = 0
    waiting: int | None = None
    measures: Mapping[str, int] = field(default_factory=dict)


class StopRequested(Exception):
    """Ends a query between two batches."""


class Sink:
    """Writes the batches of one run to a folder; to be given to ``foreachBatch``.

    ``written`` are the batches done, by number; ``failure`` is what the last one raised.  After ``stop``
    the next batch is not begun: it is left, with its input, to the run that continues.
    """

    def __init__(self, files: Files, output: str, format: str = "json") -> None:
        if format not in FORMATS:
            raise MillpondError(f"there is no format {format!r}", remedy=f"choose from {', '.join(FORMATS)}")
        self.written: dict[int, Written] = {}
        self.failure: Exception | None = None
        self._files = files
        self._output = output
        self._format = format
        self._fresh = True
        self._stopping = Event()
        self._unreadable = 0

    def reject(self, table: str, rows: Sequence[tuple[str, str]]) -> None:
        """Rows of a relation that cannot be read, each with the reason; they count with the next batch."""
        lines = [json.dumps({"stream": table, "reason": why, "record": record}) for why, record in rows]
        if lines:
            folder = f"{self._output}/{_REJECTED_FOLDER}"
            self._files.make_folder(folder)
            self._files.create(f"{folder}/part-start-{table}.json", "".join(f"{line}\n" for line in lines))
        self._unreadable += len(lines)

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

    def _write(self, frame: DataFrame, batch: int) -> Written:
        # A name of its own: after a kill, tasks of the earlier attempt may live on for a moment.
        staging = f"{self._output}/{_STAGING}/{batch:06d}-{uuid4().hex[:8]}"
        written = self._stage(frame, batch, staging)
        folders = {RowKind.RESULT: self._output, RowKind.REJECTED: f"{self._output}/{_REJECTED_FOLDER}"}
        if self._fresh:  # only the first batch of a run can have been tried before
            for folder in folders.values():
                for name in self._files.names(folder, f"part-{batch:06d}-*"):
                    self._files.delete(f"{folder}/{name}")
        for kind, folder in folders.items():
            self._publish(
                f"{staging}/{KIND}={kind}", folder, batch, self._format if kind == RowKind.RESULT else "json"
            )
        self._files.delete(f"{self._output}/{_STAGING}")
        self._fresh = False
        written = replace(written, rejected=written.rejected + self._unreadable)
        self._unreadable = 0
        return written

    # --- staging: rows of a kind go to the folder _kind=<kind> ---

    def _stage(self, frame: DataFrame, batch: int, staging: str) -> Written:
        observation = Observation(f"millpond-{batch}")
        if self._format == "json":
            self._stage_lines(_observed(frame, observation), staging)
            return _counted(observation, batch)
        frame = frame.persist()
        try:
            observed = _observed(frame, observation).where(F.col(KIND) == RowKind.RESULT).drop(NOTE)
            writer = observed.write.mode("overwrite").partitionBy(KIND).format(self._format)
            (writer.option("header", "true") if self._format == "csv" else writer).save(staging)
            written = _counted(observation, batch)
            if written.rejected:
                rejected = frame.where(F.col(KIND) == RowKind.REJECTED).select(_rejection("value"), KIND)
                rejected.write.mode("append").partitionBy(KIND).text(staging)
            return written
        finally:
            frame.unpersist()

    def _stage_lines(self, frame: DataFrame, staging: str) -> None:
        """Results and rejected rows in one pass, which JSON allows: a line is a line."""
        results = [_named(name) for name in frame.columns if name not in (KIND, NOTE)]
        line = F.when(F.col(KIND) == RowKind.RESULT, _json(results)).otherwise(_rejection("value"))
        lines = frame.where(F.col(KIND).isin(RowKind.RESULT, RowKind.REJECTED)).select(
            line.alias("value"), KIND
        )
        lines.write.mode("overwrite").partitionBy(KIND).text(staging)

    def _publish(self, staged: str, folder: str, batch: int, format: str) -> None:
        names = self._files.names(staged, "part-*")
        if names:
            self._files.make_folder(folder)
        for number, name in enumerate(names):
            self._files.rename(
                f"{staged}/{name}", f"{folder}/part-{batch:06d}-{number}{_suffix(name, format)}"
            )


def _suffix(staged: str, format: str) -> str:
    """The format, and a compression that is not part of it.

    >>> _suffix("part-0-c.c000.txt.gz", "json"), _suffix("part-0-c.c000.snappy.parquet", "parquet")
    ('.json.gz', '.parquet')
    """
    written = f".{format}" if f".{format}" in staged else ".txt"
    return f".{format}{staged.rpartition(written)[2]}"


def _named(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _json(columns: Sequence[Column]) -> Column:
    return F.to_json(F.struct(*columns), _KEEP_NULLS)


def _rejection(name: str) -> Column:
    fields = ("stream", "reason", "record")
    return _json([F.col(f"{NOTE}.{field}").alias(field) for field in fields]).alias(name)


def _observed(frame: DataFrame, observation: Observation) -> DataFrame:
    """The frame, counted while it is written."""

    def of(kind: int, value: Column) -> Column:
        return F.when(F.col(KIND) == kind, value)

    return frame.observe(
        observation,
        F.count(of(RowKind.RESULT, F.lit(1))).alias("rows"),
        F.count(of(RowKind.REJECTED, F.lit(1))).alias("rejected"),
        F.sum(of(RowKind.STATE, F.col(f"{NOTE}.entries"))).alias("entries"),
        F.sum(of(RowKind.STATE, F.col(f"{NOTE}.bytes"))).alias("bytes"),
        F.count_if(of(RowKind.REJECTED, F.col(f"{NOTE}.reason").startswith(LATE))).alias("late"),
        F.sum(of(RowKind.BUFFERED, F.col(f"{NOTE}.entries"))).alias("waiting"),
        *(
            F.sum(
                of(RowKind.MEASURE, F.when(F.col(f"{NOTE}.reason") == name, F.col(f"{NOTE}.entries")))
            ).alias(name)
            for name in BatchMeasure
        ),
    )


def _counted(observation: Observation, batch: int) -> Written:
    counted = observation.get
    measures = {name: counted.pop(name) for name in BatchMeasure}
    return Written(batch, **counted, measures={n: v for n, v in measures.items() if v is not None})
