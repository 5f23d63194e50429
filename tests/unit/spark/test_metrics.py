"""Totals and metrics, from the counts of the sink and the progress of Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from millpond.engines.timed.rates import StreamRate
from millpond.spark.metrics import Tally
from millpond.spark.progress import Phase
from millpond.spark.sink import WrittenBatch


def progress(rows: list[int], seconds: float, operators: list[tuple[str, int, int]] = []) -> Any:  # noqa: B006
    """The progress that Spark reports for a batch."""
    names = ("operatorName", "numRowsTotal", "memoryUsedBytes")
    return SimpleNamespace(
        timestamp="2024-01-01T00:00:00.000Z",
        batchDuration=round(seconds * 1000),
        numInputRows=sum(rows),
        sources=[SimpleNamespace(numInputRows=each) for each in rows],
        stateOperators=[SimpleNamespace(**dict(zip(names, each, strict=True))) for each in operators],
    )


@pytest.mark.parametrize(
    ("rows", "scans", "expected"),
    [
        ([10], [1], 10),
        ([10, 7], [1, 1], 17),
        ([20, 7], [2, 1], 17),
        ([20, 7], [2], 27),  # not the sources that were counted: what Spark says
    ],
)
def test_a_row_counts_once_however_often_its_source_is_scanned(
    rows: list[int], scans: list[int], expected: int
) -> None:
    batch = Tally(None, scans, 0.0).add(WrittenBatch(0, 0, 0, None, None), progress(rows, 1.0), 1.0)
    assert batch.input_rows == expected


OURS = ("transformWithStateInPandasExec", 1, 9_999)
SPARKS = ("dedupe", 5, 500)


@pytest.mark.parametrize(
    ("reports", "operators", "entries", "size"),
    [
        ([(3, 30)], [OURS], 3, 30),
        ([(3, 30), (None, None)], [OURS], 3, 30),  # nothing new: as it was
        ([(3, 30), (4, 40)], [OURS], 4, 40),
        ([(None, None)], [SPARKS], 5, 500),
        ([(None, None)], [SPARKS, SPARKS], 10, 1000),
        ([(3, 30)], [OURS, SPARKS], 8, 530),
        ([(None, None)], [], 0, 0),
    ],
)
def test_the_state_is_what_was_reported_plus_what_spark_holds(
    reports: list[tuple[int | None, int | None]],
    operators: list[tuple[str, int, int]],
    entries: int,
    size: int,
) -> None:
    tally = Tally(48, [1], 0.0)
    for number, report in enumerate(reports):
        batch = tally.add(WrittenBatch(number, 0, 0, *report), progress([1], 1.0, operators), 1.0)
    assert (batch.state_entries, batch.state_bytes, batch.state_bound) == (entries, size, 48)


def test_the_rates_of_streams_and_the_rows_beyond_them() -> None:
    tally = Tally(100, [1], 0.0, {"orders": 10}, {"orders": 3600.0, "clicks": 60.0})
    rates = {"orders": StreamRate(50, 0, 9, 12, 2), "clicks": StreamRate(30, 0, 9, 5)}
    for number, found in enumerate((rates, {})):  # a batch without rows reports nothing new
        batch = tally.add(WrittenBatch(number, 0, 0, 9, 90, rates=found), progress([1], 1.0), 1.0)
        assert batch.excess_rows == (2 if found else 0)
        assert batch.rates["orders"] == {"average": 5.0, "peak": 12, "declared": 10}
        assert batch.rates["clicks"] == {"average": 3.0, "peak": 5, "declared": None}
    orders, clicks = tally.snapshot(Phase.RUNNING, 2.0).rates
    assert (orders.is_exceeded, clicks.is_exceeded) == (True, False)
    assert (orders.window, clicks.window) == (3600.0, 60.0)


def test_totals_and_rate() -> None:
    tally = Tally(None, [1], 100.0)
    for number, (rows, seconds) in enumerate([(1_000_000, 0.1), *[(100, 2.0)] * 5]):
        batch = tally.add(WrittenBatch(number, 2, 1, None, None), progress([rows], seconds), 110.0)
    assert (batch.seconds, batch.rows_per_second) == (2.0, 50.0)
    found = tally.snapshot(Phase.RUNNING, 111.0)
    assert (found.batches, found.input_rows, found.output_rows, found.rejected_rows) == (6, 1_000_500, 12, 6)
    assert found.rows_per_second == 50.0  # of the last five
    assert (found.batch_seconds, found.seconds) == (2.0, 11.0)


@pytest.mark.parametrize(
    ("phase", "now", "expected", "rate"),
    [
        (Phase.WAITING, 10.5, Phase.RUNNING, 100.0),  # a pause between two batches is no waiting
        (Phase.WAITING, 15.0, Phase.WAITING, 0.0),
        (Phase.RUNNING, 15.0, Phase.RUNNING, 100.0),
        (Phase.STOPPING, 15.0, Phase.STOPPING, 100.0),
    ],
)
def test_a_run_without_batches_counts_as_waiting_after_two_seconds(
    phase: Phase, now: float, expected: Phase, rate: float
) -> None:
    tally = Tally(None, [1], 0.0)
    tally.add(WrittenBatch(0, 0, 0, None, None), progress([100], 1.0), 10.0)
    found = tally.snapshot(phase, now)
    assert (found.phase, found.rows_per_second) == (expected, rate)
