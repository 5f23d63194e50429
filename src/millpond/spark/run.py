"""A query as a job, from the file to the last row written.

file → verdict → session → sources → frame → sink, until the input ends or the user ends it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from millpond.analysis.decide import check
from millpond.analysis.verdict import Verdict
from millpond.engines.lookup.database import DatabaseTable
from millpond.engines.lookup.declaration import find_lookup_tables
from millpond.errors import MillpondError, RunError
from millpond.frontend.parse import read_text
from millpond.spark.budget import Budget
from millpond.spark.checkpoint import Folders
from millpond.spark.failure import cause_of
from millpond.spark.files import Files
from millpond.spark.lookup import located_relations
from millpond.spark.metrics import MetricsFile, Tally, metrics_file, scans_of
from millpond.spark.refusal import refuse_unless_runnable
from millpond.spark.session import open_session, set_partitions
from millpond.spark.sink import Sink
from millpond.spark.status import Phase, Snapshot
from millpond.spark.stop import Stop, interruptible

_ENDINGS = "endings"
_POLL = 0.2  # seconds between two looks at a running query
_SPARK_ERRORS = (Py4JError, PySparkException, OSError)


def run(
    file: str,
    output: str,
    *,
    once: bool = False,
    format: str = "json",
    metrics: str | None = None,
    checkpoint: str | None = None,
    master: str | None = None,
    strict: bool = False,
    query: int | None = None,
    memory: int | None = None,
    policy: str | None = None,
    report: Callable[[Snapshot], None] = lambda snapshot: None,
) -> Snapshot:
    """Run a query of a file (``query`` counts from 1); what comes back is how it ended, done or stopped.

    A query that is not bounded runs with at most ``memory`` tuples kept by a ``policy``.

    Raises RunError if the run fails, another MillpondError if it cannot begin, and KeyboardInterrupt if the
    user does not wait for the current batch.  ``memory`` and ``policy`` say how many rows of a relation in a
    database are kept, and which, where its declaration does not.  ``report`` is called a few times a second.
    """
    began = time.monotonic()
    verdict = _verdict(file, query)
    folder = Path(file).resolve().parent
    if policy is not None and memory is None and not find_lookup_tables(verdict.query):
        raise MillpondError("a policy chooses what a budget keeps", remedy="give --memory N too")
    refuse_unless_runnable(verdict, memory, folder)
    located = located_relations(verdict.query, memory, policy, folder)
    budget = None if located else Budget.of(verdict, memory, policy)
    bound = verdict.state.entries if budget is None else budget.memory

    def work(stop: Stop) -> Snapshot:
        report(Snapshot(Phase.STARTING, state_bound=bound))
        try:
            with open_session(master) as spark:
                job = _prepared(spark, verdict, budget, located, folder, output, checkpoint, format, strict)
                tally = Tally(bound, job.scans(), began)
                watch = _Watch(job, tally, log, stop)
                ended = watch.until_it_ends(once, report)
                if once and ended.phase is Phase.DONE and job.announce_end():
                    ended = watch.until_it_ends(once, report)
                return ended
        except _SPARK_ERRORS as error:
            raise RunError(cause_of(error)) from None

    with metrics_file(metrics) as log:
        return interruptible(work)


def _verdict(file: str, number: int | None) -> Verdict:
    """The verdict on the query asked for."""
    found = check(read_text(file))
    verdicts = found if isinstance(found, list) else [found]
    if number is None and len(verdicts) > 1:
        message = f"the file holds {len(verdicts)} queries, and a run takes one"
        raise MillpondError(message, remedy="choose it with --query K")
    if number is not None and not 1 <= number <= len(verdicts):
        remedy = f"give a number from 1 to {len(verdicts)}" if len(verdicts) > 1 else "leave --query out"
        raise MillpondError(f"there is no query {number}", remedy=remedy)
    return verdicts[(number or 1) - 1]


# --- starting ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Job:
    """What is ready to start."""

    frame: DataFrame
    sink: Sink
    checkpoint: str
    files: Files
    endings: str | None  # the folder where the end of the input is announced

    def scans(self) -> list[int]:
        """How often each source is read; the announcement of the end, which comes last, is no input."""
        scans = scans_of(self.frame)
        return scans if self.endings is None else [*scans[:-1], 0]

    def announce_end(self) -> bool:
        """Let what waits for later rows go on with the next start; False where nothing can wait."""
        if self.endings is None:
            return False
        self.files.create(f"{self.endings}/{time.time_ns()}", "end\n")
        return True

    def start(self, once: bool) -> StreamingQuery:
        writer = self.frame.writeStream.foreachBatch(self.sink).outputMode("append")
        writer = writer.option("checkpointLocation", self.checkpoint)
        return (
            writer.trigger(availableNow=True) if once else writer.trigger(processingTime="0 seconds")
        ).start()


def _prepared(
    spark: SparkSession,
    verdict: Verdict,
    budget: Budget | None,
    located: Mapping[str, DatabaseTable],
    folder: Path,
    output: str,
    checkpoint: str | None,
    format: str,
    strict: bool,
) -> _Job:
    """Everything up to the start.  The folders are looked at first and claimed last."""
    from millpond.spark.enriched import build_enriched, is_enriched, unreadable_rows
    from millpond.spark.lookup import build_lookup
    from millpond.spark.shedding import build_shedding
    from millpond.spark.source import open_source
    from millpond.spark.stream import build
    from millpond.spark.timed import build_timed

    files, query = Files(spark), verdict.query
    output = files.absolute(output)
    checkpoint = files.absolute(checkpoint) if checkpoint else f"{output}/_checkpoint"
    sink = Sink(files, output, format)
    folders = Folders(files, checkpoint, output)
    continued = folders.check(query)
    sources = {
        name: open_source(spark, table, folder, strict)
        for name, table in query.tables.items()
        if name not in located
    }
    endings = None
    if budget is not None:
        built = build_shedding(spark, query, budget.memory, budget.choice, sources)
    elif located:
        built = build_lookup(spark, query, sources, located)
    elif verdict.timed is not None and is_enriched(query):
        built = build_enriched(spark, query, sources)
    elif verdict.timed is not None:
        endings = f"{checkpoint}/{_ENDINGS}"
        files.make_folder(endings)
        ending = spark.readStream.text(endings)
        built = build_timed(spark, query, verdict.timed, sources, ending)
    else:
        assert verdict.plan is not None  # as every bounded query has one
        built = build(spark, query, verdict.plan, sources)
    partitions = built.partitions or spark.sparkContext.defaultParallelism
    if continued is not None:  # Spark cannot divide the state anew
        partitions = continued.partitions
    set_partitions(spark, partitions)
    folders.claim(query, partitions, continued)
    if continued is None:
        for name, source in sources.items():
            if not query.tables[name].streaming and source.rejects:
                sink.reject(name, unreadable_rows(source))
    return _Job(built.frame, sink, checkpoint, files, endings)


# --- watching ----------------------------------------------------------------------------------------


class _Watch:
    """Follows a query from its start to its end, and notes each batch that Spark has committed."""

    def __init__(self, job: _Job, tally: Tally, log: MetricsFile | None, stop: Stop) -> None:
        self._job = job
        self._tally = tally
        self._log = log
        self._stop = stop

    def until_it_ends(self, once: bool, report: Callable[[Snapshot], None]) -> Snapshot:
        self._stop.patient = True
        query = self._job.start(once)
        try:
            while not query.awaitTermination(_POLL):  # type: ignore[arg-type]  # parts of a second are fine
                if self._stop.urgent:
                    query.stop()
                    continue
                phase = self._phase(query)  # first, so that a query that waits has no batch left to note
                self._note_batches(query)
                report(self._tally.snapshot(phase, time.monotonic()))
                if self._stop.requested:
                    self._end(query)
        except _SPARK_ERRORS as error:
            if not self._stop.requested:
                raise RunError(cause_of(self._job.sink.failure or error)) from None
        self._note_batches(query)
        phase = Phase.STOPPED if self._stop.requested else Phase.DONE
        return self._tally.snapshot(phase, time.monotonic())

    def _phase(self, query: StreamingQuery) -> Phase:
        if self._stop.requested:
            return Phase.STOPPING
        status = query.status
        looking = status["message"].startswith(("Waiting for", "Getting offsets"))
        return Phase.WAITING if looking and not status["isDataAvailable"] else Phase.RUNNING

    def _end(self, query: StreamingQuery) -> None:
        """Let the current batch end, and no other begin."""
        self._job.sink.stop()
        if not query.status["isTriggerActive"]:
            query.stop()

    def _note_batches(self, query: StreamingQuery) -> None:
        """Batches that are written and committed.  One that is not committed will run again."""
        waiting = self._job.sink.written
        last = query.lastProgress if waiting else None
        if last is None or last.batchId < min(list(waiting)):
            return
        # Spark speaks of a batch before it begins, too; then there is no duration of its execution.
        for progress in query.recentProgress:
            written = waiting.pop(progress.batchId, None) if "addBatch" in progress.durationMs else None
            if written is not None:
                batch = self._tally.add(written, progress, time.monotonic())
                if self._log is not None:
                    self._log.write(batch)
