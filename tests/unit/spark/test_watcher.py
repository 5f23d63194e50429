"""The watcher of a query: what it makes of the way in which the query ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from millpond.errors import MillpondError, RunError
from millpond.spark.job import RejectedRows
from millpond.spark.metrics import Tally
from millpond.spark.progress import Phase
from millpond.spark.rejected import REJECTED_ROWS_FOUND
from millpond.spark.run import _Watcher
from millpond.spark.stop import Stop


class EndedQuery:
    """A query that has ended when it is first looked at; Spark's own wait does not say why."""

    lastProgress = None

    def __init__(self, failure: Exception | None) -> None:
        self._failure = failure

    def awaitTermination(self, timeout: float) -> bool:
        return True

    def exception(self) -> Exception | None:
        return self._failure


class Prepared:
    """A prepared query, which fails in its first batch the first time that it is started."""

    def __init__(self, failure: Exception | None, rejected: RejectedRows = RejectedRows.FAIL) -> None:
        self.failure = failure
        self.job = SimpleNamespace(rejected=rejected)
        self.sink: Any = SimpleNamespace(written={}, failure=failure)

    def start(self, once: bool) -> EndedQuery:
        return EndedQuery(None if self.failure is None else StreamingQueryException("a batch failed"))

    def emit_rejected(self) -> Prepared:
        return Prepared(None, RejectedRows.EMIT)

    def count_scans(self) -> list[int]:
        return [1]


def watch(prepared: Any) -> _Watcher:
    return _Watcher(prepared, Tally(None, [1], 0.0), None, Stop())


def test_a_failure_is_reported_that_the_wait_for_the_end_has_not_raised() -> None:
    """Spark looks for a failure, then whether the query has ended; it can miss one in between."""
    with pytest.raises(RunError, match="the disk is full"):
        watch(Prepared(MillpondError("the disk is full"))).run_to_end(True, lambda _: None)


def test_rejected_rows_are_found_that_the_wait_for_the_end_has_not_raised() -> None:
    watcher = watch(Prepared(MillpondError(REJECTED_ROWS_FOUND)))
    assert watcher.run_to_end(True, lambda _: None).phase is Phase.DONE
    assert watcher._prepared.job.rejected is RejectedRows.EMIT
