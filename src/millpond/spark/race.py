"""The race of ``millpond demo``: a bounded query by Millpond, and by Spark's own operators.

Both read the same files.  They take turns, one micro-batch each, so that each has the machine to itself.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millpond.analysis.verdict import Verdict
from millpond.errors import RunError
from millpond.spark.admission import admit
from millpond.spark.answer import OBSERVED, finish_rows
from millpond.spark.blocks import make_job
from millpond.spark.engines import choose_engine
from millpond.spark.failure import find_cause
from millpond.spark.job import Job
from millpond.spark.own_sql import open_views
from millpond.spark.session import open_session, set_partitions
from millpond.spark.sources.open import open_source
from millpond.spark.sql import emit_results

_POLL = 0.05  # seconds between two looks at a running query
_IDLE = "100"  # milliseconds between two looks of an idle query at its folders


@dataclass(frozen=True)
class RaceStep:
    """The files of one turn: rows read so far, entries or rows kept after them, and the seconds they took."""

    rows: int
    kept: int
    seconds: float


@dataclass
class Race:
    """The turns of both sides so far, and the rows that each has written."""

    ours: list[RaceStep] = field(default_factory=list)
    theirs: list[RaceStep] = field(default_factory=list)
    our_answer: Sequence[tuple[object, ...]] = ()
    their_answer: Sequence[tuple[object, ...]] = ()


def run_race(
    verdict: Verdict, own_text: str, folder: Path, batches: Iterable[Mapping[str, pa.Table]]
) -> Generator[Race]:
    """Run both on batches of rows by stream; yield the same race again after each turn.

    Spark runs ``own_text`` and drops duplicates.  Each stream is read as Parquet from the folder that its
    declaration names.  The caller may stop early.
    """
    race = Race()
    homes = (folder / "millpond", folder / "spark")
    for home in homes:
        for name in verdict.query.tables:
            (home / name).mkdir(parents=True)
    with open_session() as spark:
        spark.conf.set("spark.sql.streaming.pollingDelay", _IDLE)
        ours = _Contender(spark, _build_ours(spark, verdict, homes[0]), homes[0])
        theirs = _Contender(spark, _build_theirs(spark, verdict, own_text, homes[1]), homes[1])
        try:
            yield race
            for tables in batches:
                race.ours.append(ours.take(tables))
                yield race
                race.theirs.append(theirs.take(tables))
                race.our_answer, race.their_answer = ours.read_answer(), theirs.read_answer()
                yield race
        finally:
            ours.stop()
            theirs.stop()


class _Contender:
    """A running query that gets its input file by file."""

    def __init__(self, spark: SparkSession, frame: DataFrame, folder: Path) -> None:
        self._spark, self._folder = spark, folder
        self._rows = self._batches = self._files = 0
        self._table = f"answer_of_{folder.name}"
        writer = frame.writeStream.format("memory").queryName(self._table).outputMode("append")
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        self._query: StreamingQuery = writer.start()

    def take(self, tables: Mapping[str, pa.Table]) -> RaceStep:
        """Give the query new files, and wait until it has processed their rows."""
        self._add_files(tables)
        wanted, kept, seconds = self._rows + sum(table.num_rows for table in tables.values()), 0, 0.0
        while self._rows < wanted:
            time.sleep(_POLL)
            if (failure := self._query.exception()) is not None:
                raise RunError(find_cause(failure))
            # The files may be seen in two micro-batches: then both belong to this turn.
            for batch in self._query.recentProgress:
                if batch.batchId < self._batches or "addBatch" not in batch.durationMs:
                    continue
                self._batches = batch.batchId + 1
                self._rows += batch.numInputRows
                seconds += batch.durationMs["triggerExecution"] / 1000
                reported = batch.observedMetrics.get(OBSERVED)
                stored = sum(state.numRowsTotal for state in batch.stateOperators)
                kept = stored if reported is None else int(reported["state_entries"] or 0)
        return RaceStep(self._rows, kept, seconds)

    def _add_files(self, tables: Mapping[str, pa.Table]) -> None:
        """Add a complete file to each stream; Spark ignores files whose names begin with a dot."""
        self._files += 1
        hidden = {name: self._folder / name / f".{self._files:04}.parquet" for name in tables}
        for name, table in tables.items():
            pq.write_table(table, hidden[name])
        for file in hidden.values():
            file.rename(file.with_name(file.name[1:]))

    def read_answer(self) -> list[tuple[object, ...]]:
        return [tuple(row) for row in self._spark.table(self._table).collect()]

    def stop(self) -> None:
        self._query.stop()


def _build_ours(spark: SparkSession, verdict: Verdict, folder: Path) -> DataFrame:
    """The query as ``millpond run`` builds it."""
    job = Job(spark, verdict, admit(verdict, None, None), {})
    job = make_job(job, lambda table, part: open_source(spark, table, folder, False, part))
    answer = finish_rows(spark, choose_engine(job).build(job), verdict.query)
    set_partitions(spark, answer.partitions)
    return emit_results(job, answer)


def _build_theirs(spark: SparkSession, verdict: Verdict, text: str, folder: Path) -> DataFrame:
    """The text in Spark's own SQL, each row once, with a state partition for each core."""
    open_views(spark, verdict.query, folder)
    set_partitions(spark, None)
    return spark.sql(text).dropDuplicates()
