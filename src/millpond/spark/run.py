"""Runs a query of a file on Spark, until the input ends or the user stops it.

verdict → admission → Spark session → sources → engine → sink.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType

from millpond.analysis.decide import decide
from millpond.analysis.verdict import Verdict
from millpond.engines.lookup.declaration import find_lookup_tables
from millpond.errors import MillpondError, RunError, one_line
from millpond.query.durations import parse_rate
from millpond.query.model import Query
from millpond.spark.admission import Allowance, admit
from millpond.spark.answer import AnswerFrame, finish_rows
from millpond.spark.blocks import make_job
from millpond.spark.checkpoint import Folders, Resumption
from millpond.spark.connectors import find_packages
from millpond.spark.end_of_input import EndOfInput
from millpond.spark.failure import find_cause
from millpond.spark.files import Files
from millpond.spark.job import Engine, Job, RejectedRows
from millpond.spark.jvm import begin_launch
from millpond.spark.late_rows import count_dropped_groups
from millpond.spark.metrics import MetricsFile, Tally, count_scans, open_metrics
from millpond.spark.options import RunOptions
from millpond.spark.preflight import check_before_start
from millpond.spark.progress import Notice, Phase, Snapshot
from millpond.spark.rejected import REJECTED_ROWS_FOUND, collect_rejected
from millpond.spark.session import check_master, open_session, set_partitions
from millpond.spark.sink import Sink
from millpond.spark.sources.derived_types import settle_types
from millpond.spark.sources.open import open_source
from millpond.spark.stop import Stop, run_interruptibly

_POLL = 0.2  # seconds between two looks at a running query
_SAVING = 10.0  # seconds between two notes of the size of the state
_SPARK_ERRORS = (Py4JError, PySparkException, OSError)


def run(
    verdict: Verdict,
    folder: Path,
    options: RunOptions,
    report: Callable[[Snapshot], None] = lambda snapshot: None,
    notify: Callable[[Notice], None] = lambda notice: None,
) -> Snapshot:
    """Run a query; return its final totals, with the phase DONE or STOPPED.

    Relative paths in the declarations are relative to ``folder``.  ``report`` is called a few times a second,
    ``notify`` with what the user should know.  Raises RunError if the run fails, another MillpondError if it
    cannot start, and KeyboardInterrupt if the user does not wait for the current batch.
    """
    began = time.monotonic()
    if options.policy is not None and options.memory is None and not find_lookup_tables(verdict.query):
        raise MillpondError("--policy has no effect without a budget", remedy="give --memory N, too")
    allowance = admit(verdict, options.memory, options.policy, folder)
    bound = verdict.state.entries if allowance.budget is None else allowance.budget.memory
    if options.master is not None:
        check_master(options.master)
    for hint in check_before_start(verdict.query, folder, options):
        notify(Notice(hint, is_warning=True))

    packages = find_packages(verdict.query.declared_tables.values())

    def work(stop: Stop) -> Snapshot:
        report(Snapshot(Phase.STARTING, state_bound=bound, seconds=time.monotonic() - began))
        try:
            importlib.import_module("millpond.spark.engines")  # takes a while, in which Spark's JVM starts
            with open_session(options.master, packages) as spark:
                report(Snapshot(Phase.PLANNING, state_bound=bound, seconds=time.monotonic() - began))
                settled, allowed = _settle_types(spark, verdict, allowance, folder, options)
                prepared = _prepare(spark, settled, allowed, folder, options, verdict.query)
                tally = Tally(bound, prepared.count_scans(), began, *_find_promises(settled))
                if prepared.resumption is not None:
                    notify(Notice(str(prepared.resumption)))
                    tally.kept = prepared.resumption.kept
                watcher = _Watcher(prepared, tally, log, stop)
                ended = watcher.run_to_end(options.once, report)
                end = prepared.end_of_input
                if options.once and ended.phase is Phase.DONE and end is not None:
                    end.announce()
                    ended = watcher.run_to_end(options.once, report)
                    if ended.phase is Phase.DONE:
                        end.mark_closed()
                return ended
        except _SPARK_ERRORS as error:
            raise RunError(find_cause(error)) from None

    with open_metrics(options.metrics) as log:
        begin_launch(options.master, packages)
        return run_interruptibly(work)


def _find_promises(
    verdict: Verdict,
) -> tuple[dict[str, int], dict[str, float], dict[tuple[str, str], int]]:
    """The declared rates of streams, in rows per second, the seconds for which rows are kept, and the
    declared cardinalities of columns."""
    declared = {n: parse_rate(t.properties.get("rate", "")) for n, t in verdict.query.declared_tables.items()}
    windows = {window["stream"]: window["seconds"] for window in verdict.state.windows}
    tables = verdict.query.declared_tables.values()
    cardinalities = {(t.name, column): count for t in tables for column, count in t.cardinalities.items()}
    return {name: rate for name, rate in declared.items() if rate is not None}, windows, cardinalities


# --- starting ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PreparedRun:
    """A query that is ready to start."""

    job: Job
    engine: Engine
    answer: AnswerFrame
    sink: Sink
    folders: Folders
    files: Files
    checkpoint: str
    end_of_input: EndOfInput | None
    resumption: Resumption | None

    def count_scans(self) -> list[int]:
        """How often each source is scanned; the end-of-input stream counts as 0."""
        scans = count_scans(self.answer.frame, self.job.end_of_input)
        if self.must_fail_on_rejected:  # the scan for suspects is never executed
            scans = [min(each, 1) for each in scans]
        return scans

    @property
    def must_fail_on_rejected(self) -> bool:
        return self.answer.drops_late and self.job.rejected is RejectedRows.FAIL

    def emit_rejected(self) -> PreparedRun:
        """The same query, which emits rejected rows instead of failing on them."""
        job = self.job.with_rejected(RejectedRows.EMIT)
        return replace(self, job=job, answer=finish_rows(job.spark, self.engine.build(job), job.query))

    def start(self, once: bool) -> StreamingQuery:
        self.sink.failure = None
        count_dropped = partial(count_dropped_groups, self.job.spark)
        self.sink.count_dropped = count_dropped if self.must_fail_on_rejected else None
        writer = self.answer.frame.writeStream.foreachBatch(self.sink).outputMode("append")
        writer = writer.option("checkpointLocation", self.checkpoint)
        return (
            writer.trigger(availableNow=True) if once else writer.trigger(processingTime="0 seconds")
        ).start()


def _settle_types(
    spark: SparkSession, verdict: Verdict, allowance: Allowance, folder: Path, options: RunOptions
) -> tuple[Verdict, Allowance]:
    """The verdict on the query with Spark's own types of its expressions, and the memory it may use."""
    query = settle_types(spark, verdict.query)
    if query is verdict.query:
        return verdict, allowance
    settled = decide(query)
    return settled, admit(settled, options.memory, options.policy, folder)


def _prepare(
    spark: SparkSession,
    verdict: Verdict,
    allowance: Allowance,
    folder: Path,
    options: RunOptions,
    unsettled: Query,
) -> PreparedRun:
    """Do everything up to the start.  The folders are checked first and claimed last.

    ``unsettled`` is the query before Spark settled its types.
    """
    from millpond.spark.engines import choose_engine, holds_rows_back

    files, query = Files(spark), verdict.query
    output = files.resolve(options.output)
    checkpoint = files.resolve(options.checkpoint) if options.checkpoint else f"{output}/_checkpoint"
    sink = Sink(files, output, options.format, checkpoint, query.order_by)
    folders = Folders(files, checkpoint, output)
    continued = folders.check(query, options.updates, options.format)
    job = Job(spark, verdict, allowance, {}, updates=options.updates, rejected=RejectedRows.FAIL)
    job = make_job(job, lambda table, part: open_source(spark, table, folder, options.strict, part))
    engine = choose_engine(job)
    end = EndOfInput(files, checkpoint, query) if holds_rows_back(engine, job) else None
    if end is not None:
        job = job.with_end_of_input(end.open(spark))
    answer = finish_rows(spark, engine.build(job), query)
    if options.format == "csv":
        _refuse_nested(answer)
    partitions = answer.partitions or spark.sparkContext.defaultParallelism
    if continued is not None:  # Spark cannot repartition the state
        partitions = continued.partitions
    set_partitions(spark, partitions)
    folders.claim(files, query, partitions, continued, options.updates, unsettled)
    if continued is None:
        for name, source in job.every_source.items():
            if not query.declared_tables[name].streaming and source.rejects:
                sink.write_rejected_relation(name, collect_rejected(source))
    resumption = folders.find_resumption() if continued is not None else None
    return PreparedRun(job, engine, answer, sink, folders, files, checkpoint, end, resumption)


def _refuse_nested(answer: AnswerFrame) -> None:
    """Refuse result columns for which CSV has no format."""
    for name in answer.columns:
        type_ = answer.frame.schema[name].dataType
        if isinstance(type_, ArrayType | MapType | StructType | BinaryType):
            shown = f"{one_line(name)}, which is {one_line(type_.simpleString().upper(), 100)}"
            remedy = "select its fields or elements, or choose another format"
            raise MillpondError(f"CSV has no format for the column {shown}", remedy=remedy)


# --- watching ----------------------------------------------------------------------------------------


class _RejectedRowsFoundError(Exception):
    """The query has to be repeated, with emitting its rejected rows."""


class _Watcher:
    """Follows a query from its start to its end, and records each batch that Spark has committed."""

    def __init__(self, prepared: PreparedRun, tally: Tally, log: MetricsFile | None, stop: Stop) -> None:
        self._prepared = prepared
        self._tally = tally
        self._log = log
        self._stop = stop
        self._saved_at = -_SAVING

    def run_to_end(self, once: bool, report: Callable[[Snapshot], None]) -> Snapshot:
        """Run the query; if it fails because of rejected rows, repeat the batch and emit them."""
        try:
            return self._run(once, report)
        except _RejectedRowsFoundError:
            self._prepared = self._prepared.emit_rejected()
            self._tally.scans = self._prepared.count_scans()
            return self._run(once, report)

    def _run(self, once: bool, report: Callable[[Snapshot], None]) -> Snapshot:
        self._stop.patient = True
        query = self._prepared.start(once)
        self._tally.start(time.monotonic())
        try:
            while not query.awaitTermination(_POLL):  # type: ignore[arg-type]  # fractions of a second are fine
                if self._stop.urgent:
                    query.stop()
                    continue
                phase = self._phase(
                    query
                )  # first: if the query is waiting, all its batches are recorded below
                self._record_batches(query)
                waiting_for = _describe_wait(query.status["message"], self._prepared.answer.stateful)
                report(self._tally.snapshot(phase, time.monotonic(), waiting_for))
                if self._stop.requested:
                    self._stop_after_batch(query)
            if (failure := query.exception()) is not None:  # it failed while its end was awaited
                raise failure
        except _SPARK_ERRORS as error:
            if not self._stop.requested:
                self._record_batches(query)
                cause = find_cause(self._prepared.sink.failure or error)
                if cause == REJECTED_ROWS_FOUND and self._prepared.job.rejected is RejectedRows.FAIL:
                    raise _RejectedRowsFoundError from None
                raise RunError(cause) from None
        self._record_batches(query)
        self._save_state()
        phase = Phase.STOPPED if self._stop.requested else Phase.DONE
        return self._tally.snapshot(phase, time.monotonic())

    def _phase(self, query: StreamingQuery) -> Phase:
        if self._stop.requested:
            return Phase.STOPPING
        status = query.status
        is_polling = status["message"].startswith(("Waiting for", "Getting offsets"))
        return Phase.WAITING if is_polling and not status["isDataAvailable"] else Phase.RUNNING

    def _stop_after_batch(self, query: StreamingQuery) -> None:
        """Let the current batch finish, and start no other."""
        self._prepared.sink.stop()
        if not query.status["isTriggerActive"]:
            query.stop()

    def _record_batches(self, query: StreamingQuery) -> None:
        """Record the batches that are written and committed.  One that is not committed will run again."""
        unrecorded = self._prepared.sink.written
        last = query.lastProgress if unrecorded else None
        if last is None or last.batchId < min(list(unrecorded)):
            return
        # Spark also reports progress before a batch starts; then there is no duration of its execution.
        for progress in query.recentProgress:
            written = unrecorded.pop(progress.batchId, None) if "addBatch" in progress.durationMs else None
            if written is not None:
                if self._prepared.end_of_input is not None:
                    self._prepared.end_of_input.follow(progress)
                batch = self._tally.add(written, progress, time.monotonic())
                if self._log is not None:
                    self._log.write(batch)
        if time.monotonic() - self._saved_at >= _SAVING:
            self._save_state()

    def _save_state(self) -> None:
        """Save the size of the state, which a run that continues reports."""
        if self._tally.kept is not None:
            self._prepared.folders.save_state(self._prepared.files, self._tally.kept)
            self._saved_at = time.monotonic()


def _describe_wait(message: str, has_state: bool) -> str:
    """What the first batch waits for, from Spark's description of what it does."""
    if message.startswith("Initializing"):
        return "opening the sources"
    if message.startswith(("Getting offsets", "Waiting for")):
        return "looking for input"
    return "waiting for Python workers" if has_state else "waiting for rows"
