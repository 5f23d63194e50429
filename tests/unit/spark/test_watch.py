"""A watch turns the reports of Spark into warnings, without delaying Spark."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent, StreamingQueryProgress

from millpond.spark.watch import StateWarning, StateWatch, read_sample


class Streams:
    """Stands in for the queries of a session: it hands events to a listener and knows no plans."""

    def __init__(self) -> None:
        self.listener: Any = None

    def addListener(self, listener: Any) -> None:
        self.listener = listener

    def removeListener(self, listener: Any) -> None:
        assert listener is self.listener

    def get(self, id: str) -> None:
        return None


def make_progress(
    batch: int, rows: int, run: int = 1, metrics: dict[str, int] | None = None
) -> StreamingQueryProgress:
    operator = {
        **dict.fromkeys(("numRowsUpdated", "allUpdatesTimeMs", "numRowsRemoved", "allRemovalsTimeMs"), 0),
        **dict.fromkeys(("commitTimeMs", "numRowsDroppedByWatermark", "numShufflePartitions"), 0),
        **{"operatorName": "stateStoreSave", "numRowsTotal": rows, "memoryUsedBytes": 100 * rows},
        **{"numStateStoreInstances": 1, "customMetrics": metrics or {}},
    }
    sink = {"description": "noop", "numOutputRows": 0, "metrics": {}}
    report = {"id": str(UUID(int=0)), "runId": str(UUID(int=run)), "name": "orders", "timestamp": "now"}
    numbers = {"batchId": batch, "batchDuration": 1, "numInputRows": 1, "inputRowsPerSecond": 1.0}
    return StreamingQueryProgress.fromJson(
        report
        | numbers
        | {"processedRowsPerSecond": 1.0, "durationMs": {}, "eventTime": {}, "observedMetrics": {}}
        | {"stateOperators": [operator], "sources": [], "sink": sink}
    )


def watch_rows(rows: list[int], callback: Any = None) -> list[StateWarning]:
    """The warnings of a watch that sees a query with so many rows of state after each batch."""
    warnings: list[StateWarning] = []
    streams = Streams()
    session: Any = SimpleNamespace(streams=streams)
    watch = StateWatch(session, callback or warnings.append)
    for batch, count in enumerate(rows):
        streams.listener.onQueryProgress(QueryProgressEvent(make_progress(batch, count)))
    streams.listener.onQueryTerminated(QueryTerminatedEvent(UUID(int=0), UUID(int=1), None, None))
    watch.stop()
    return warnings


def test_a_growing_query_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "millpond"):
        (warning,) = watch_rows([10 * batch for batch in range(1, 40)])
    assert (warning.name, warning.batch, warning.rows, warning.bytes) == ("orders", 15, 160, 16_000)
    assert warning.message == (
        "query orders, batch 15: the state keeps growing (80 rows after batch 7, 160 now)"
    )
    assert caplog.messages == [warning.message]


def test_a_flat_query_is_not_warned_of() -> None:
    assert watch_rows([10] * 40) == []


def test_a_callback_that_fails_does_not_end_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    def fail(warning: StateWarning) -> None:
        raise ValueError("no network")

    watch_rows([10 * batch for batch in range(1, 40)], fail)
    assert "the callback of millpond.watch failed" in caplog.messages


def test_the_size_of_state_is_read_for_both_state_stores() -> None:
    in_memory = make_progress(0, 1, metrics={"stateOnCurrentVersionSizeBytes": 300})
    in_rocksdb = make_progress(0, 1, metrics={"rocksdbPutCount": 2, "rocksdbTotalBytesWritten": 300})
    assert [read_sample(each).sizes for each in (in_memory, in_rocksdb)] == [(300.0,), (150.0,)]
