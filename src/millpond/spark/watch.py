"""``millpond.watch``: warns when the state that Spark keeps for a running query keeps growing."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StateOperatorProgress,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from millpond.analysis.verdict import BOUNDED, UNBOUNDED, Verdict
from millpond.spark.growth import Growth, StateHistory, StateSample
from millpond.spark.plans.check import check_frame

_logger = logging.getLogger("millpond")
_WAIT = 10.0  # seconds for the last events when a watch is stopped


@dataclass(frozen=True)
class StateWarning:
    """A query whose state passes its bound or keeps growing, as of a micro-batch.

    ``rows`` and ``bytes`` are what Spark reports for all operators.  ``verdict`` is that of the query's plan,
    None if the plan could not be read.
    """

    query_id: str
    run_id: str
    name: str | None
    batch: int
    rows: int
    bytes: int
    message: str
    verdict: Verdict | None = field(default=None, repr=False)


@dataclass
class _WatchedRun:
    """A run of a query: what was reported, and what is known of its plan."""

    history: StateHistory = field(default_factory=StateHistory)
    verdict: Verdict | None = None
    has_warned: bool = False


class StateWatch:
    """Watches all queries of a session, those that run already and those that start later, until ``stop``.

    Each run of a query is warned of once.  The plan of a query is checked when it starts, before its first
    batch; everything else is done in a thread of its own, so that it does not delay the events of Spark.
    """

    def __init__(self, spark: SparkSession, callback: Callable[[StateWarning], object] | None = None) -> None:
        self._spark = spark
        self._callback = callback
        self._runs: dict[str, _WatchedRun] = {}
        self._events: SimpleQueue[StreamingQueryProgress | str | None] = SimpleQueue()
        self._listener = _Listener(self)
        self._thread = Thread(target=self._work, name="millpond-watch", daemon=True)
        self._thread.start()
        spark.streams.addListener(self._listener)

    def stop(self) -> None:
        """Stop watching; events that have arrived are still looked at."""
        with suppress(Py4JError, PySparkException):  # the session may have ended
            self._spark.streams.removeListener(self._listener)
        self._events.put(None)
        self._thread.join(_WAIT)

    def meet(self, query_id: str, run_id: str) -> None:
        """Check the plan of a query that starts."""
        self._runs[run_id] = _WatchedRun(verdict=self._check(query_id))

    def note(self, event: StreamingQueryProgress | str) -> None:
        """Take note of a report, or of the end of a run."""
        self._events.put(event)

    def _work(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                if isinstance(event, str):
                    self._runs.pop(event, None)
                else:
                    self._look_at(event)
            except Exception:  # a watch must not end because of one event
                _logger.exception("a progress report of Spark could not be looked at")

    def _look_at(self, progress: StreamingQueryProgress) -> None:
        run_id = str(progress.runId)
        if run_id not in self._runs:
            self._runs[run_id] = self._meet_running(progress)
        run = self._runs[run_id]
        if run.has_warned or not run.history.add(read_sample(progress)):
            return
        growth = self._judge(run)
        if growth is not None:
            run.has_warned = True
            self._warn(progress, run, growth)

    def _meet_running(self, progress: StreamingQueryProgress) -> _WatchedRun:
        """A run that started before the watch, with the batches that it had before."""
        run = _WatchedRun(verdict=self._check(str(progress.id)))
        with suppress(Py4JError, PySparkException):
            query = self._spark.streams.get(str(progress.id))
            for earlier in query.recentProgress if query is not None else ():
                if earlier.batchId < progress.batchId:
                    run.history.add(read_sample(earlier))
        return run

    def _check(self, query_id: str) -> Verdict | None:
        """The verdict on the plan of a running query; None if the plan cannot be read."""
        try:
            query: Any = self._spark.streams.get(query_id)
            execution = query._jsq.streamingQuery()
            plan, mode = execution.analyzedPlan(), str(execution.outputMode()).lower()
            sql: Any = self._spark._jvm.org.apache.spark.sql  # type: ignore[union-attr]
            rows = sql.classic.Dataset.ofRows(self._spark._jsparkSession, plan)
            return check_frame(DataFrame(rows, self._spark), mode)
        except Exception:  # a query is watched without its plan, by its numbers alone
            _logger.debug("the plan of query %s cannot be read", query_id, exc_info=True)
            return None

    def _judge(self, run: _WatchedRun) -> Growth | None:
        verdict = run.verdict
        bound = verdict.state.entries if verdict is not None and verdict.outcome == BOUNDED else None
        return run.history.find_growth(verdict.spark_state if verdict is not None else None, bound)

    def _warn(self, progress: StreamingQueryProgress, run: _WatchedRun, growth: Growth) -> None:
        warning = StateWarning(
            str(progress.id),
            str(progress.runId),
            progress.name,
            progress.batchId,
            growth.last.total,
            sum(each.memoryUsedBytes for each in progress.stateOperators),
            _describe(progress, run.verdict, growth),
            run.verdict,
        )
        _logger.warning("%s", warning.message)
        if self._callback is not None:
            try:
                self._callback(warning)
            except Exception:
                _logger.exception("the callback of millpond.watch failed")


class _Listener(StreamingQueryListener):
    """Hands the events of Spark to a watch."""

    def __init__(self, watch: StateWatch) -> None:
        self._watch = watch

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self._watch.meet(str(event.id), str(event.runId))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self._watch.note(event.progress)

    def onQueryIdle(self, event: QueryIdleEvent) -> None: ...

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._watch.note(str(event.runId))


def read_sample(progress: StreamingQueryProgress) -> StateSample:
    """The state that Spark reports after a micro-batch."""
    return StateSample(
        progress.batchId,
        tuple(each.numRowsTotal for each in progress.stateOperators),
        tuple(map(_read_size, progress.stateOperators)),
        progress.eventTime.get("watermark"),
    )


def _read_size(operator: StateOperatorProgress) -> float:
    """The bytes of the state, or of an average row that the batch wrote; 0 if that is not known.

    ``memoryUsedBytes`` does not tell: it has old versions of the state, or RocksDB's buffers.
    """
    metrics = operator.customMetrics
    if "stateOnCurrentVersionSizeBytes" in metrics:
        return float(metrics["stateOnCurrentVersionSizeBytes"])
    puts = int(metrics.get("rocksdbPutCount", 0))
    return int(metrics.get("rocksdbTotalBytesWritten", 0)) / puts if puts else 0.0


def _describe(progress: StreamingQueryProgress, verdict: Verdict | None, growth: Growth) -> str:
    """The warning: what was seen, why it is so, and what to do about it."""
    parts = [f"query {progress.name or progress.id}, batch {growth.last.batch}: {growth.finding}"]
    first, last = growth.first, growth.last
    if first.batch != last.batch and first.total != last.total:
        parts[0] += f" ({first.total:,} rows after batch {first.batch}, {last.total:,} now)"
    if verdict is not None:
        parts += verdict.spark_reasons
        if verdict.outcome == BOUNDED:
            parts.append("the query needs bounded memory: run it with millpond.sql")
        elif verdict.outcome == UNBOUNDED:
            parts.append("the query needs unbounded memory, whatever runs it")
    return "; ".join(parts)
