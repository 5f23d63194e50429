"""The metrics of each micro-batch, as a line of JSON, and the totals of a run."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import ceil, floor
from typing import Any, TextIO

from pyspark.sql import DataFrame
from pyspark.sql.streaming.listener import StreamingQueryProgress

from millpond.engines.budgeted.missed_results import find_limits
from millpond.engines.timed.rates import StreamRate
from millpond.errors import MillpondError, describe_os_error
from millpond.runtime.row_kinds import BatchMeasure
from millpond.spark.checkpoint import KeptState
from millpond.spark.progress import CardinalityReport, MissedReport, Phase, RateReport, Snapshot
from millpond.spark.sink import WrittenBatch

_OUR_OPERATOR = "transformWithState"
_SESSIONS = "sessionWindow"
_RECENT = 5  # batches over which the rate is averaged
_IDLE = 2.0  # seconds without a batch after which a run counts as waiting


@dataclass(frozen=True)
class BatchMetrics:
    """A line of the metrics file; ``state_bound`` is the proven bound on ``state_entries``.

    ``waiting_rows`` are in the reorder buffer, because the watermark has not passed their timestamps.
    ``missed_rows`` estimates the results that shed tuples would have given in this batch, ``missed_total`` in
    all batches.  The latter lies between ``missed_low`` and ``missed_high`` with a confidence of 95 %, and
    ``missed_error`` is the larger distance of these limits; all three are None for joins of three and more
    streams.  ``excess_rows`` are beyond the declared rate of their stream.  ``rates`` has the rate of each
    watched stream in rows per second: ``average``, ``peak`` (of the fullest second) and ``declared``.
    ``cardinalities`` has the ``values`` and the ``declared`` number of them for each column with a declared
    cardinality.
    """

    batch: int
    timestamp: str
    input_rows: int
    output_rows: int
    malformed_rows: int
    late_rows: int
    shed_rows: int
    state_entries: int
    state_bytes: int
    state_bound: int | None
    waiting_rows: int
    missed_rows: int
    missed_total: int
    missed_low: int | None
    missed_high: int | None
    missed_error: int | None
    lookups: int
    lookup_hits: int
    excess_rows: int
    rates: dict[str, dict[str, float | None]]
    cardinalities: dict[str, dict[str, int]]
    seconds: float
    rows_per_second: float


class Tally:
    """Turns batches into metrics, and adds up the totals of a run that began at the time ``began``.

    ``scans`` says how often the query scans each of its sources,
    ``declared`` are the declared rates of streams, ``windows`` the seconds for which their rows are kept, and
    ``promised`` the declared cardinalities of columns.  ``kept`` is the state after the last batch, which an
    earlier run may have processed.
    """

    def __init__(
        self,
        bound: int | None,
        scans: Sequence[int],
        began: float,
        declared: Mapping[str, int] | None = None,
        windows: Mapping[str, float] | None = None,
        promised: Mapping[tuple[str, str], int] | None = None,
    ) -> None:
        self.kept: KeptState | None = None
        self._bound = bound
        self._promised = promised or {}
        self._cardinalities: tuple[CardinalityReport, ...] = ()
        self._declared, self._windows = declared or {}, windows or {}
        self._rates: tuple[RateReport, ...] = ()
        self.scans = scans
        self._began = self._ended = began
        self._reported = (0, 0)
        self._waiting = 0
        self._recent: deque[BatchMetrics] = deque(maxlen=_RECENT)
        self._totals = {"batches": 0, "input_rows": 0, "output_rows": 0, "rejected_rows": 0}
        self._measures: dict[str, int] = dict.fromkeys(BatchMeasure, 0)
        self._missed = MissedReport()

    def start(self, now: float) -> None:
        """Spark starts the query: only from now on it can wait for rows."""
        self._ended = now

    def add(self, written: WrittenBatch, progress: StreamingQueryProgress, now: float) -> BatchMetrics:
        """Add a batch, from the counts of the sink and the progress that Spark reports.

        The state is what Millpond's operator reported last, plus what Spark's own operators hold.
        """
        if written.entries is not None:
            self._reported = (written.entries, written.bytes or 0)
        if written.waiting is not None:
            self._waiting = written.waiting
        own = [each for each in progress.stateOperators if not each.operatorName.startswith(_OUR_OPERATOR)]
        sessions = [each for each in own if each.operatorName.startswith(_SESSIONS)]
        if sessions:  # the other operator holds the rows that the watermark has not passed
            self._waiting = sum(each.numRowsTotal for each in own) - sum(s.numRowsTotal for s in sessions)
            own = sessions
        for name, value in written.measures.items():
            self._measures[name] += value
        self._missed = _read_missed(written.measures, self._missed)
        measured: dict[str, int] = dict.fromkeys(BatchMeasure, 0) | dict(written.measures)
        if written.rates:
            self._rates = tuple(self._report_rate(*each) for each in written.rates.items())
        if written.cardinalities:
            self._cardinalities = tuple(
                CardinalityReport(*column, count, self._promised[column])
                for column, count in written.cardinalities.items()
                if column in self._promised
            )
        rows, seconds = _input_rows(progress, self.scans), progress.batchDuration / 1000
        batch = BatchMetrics(
            batch=written.batch,
            timestamp=progress.timestamp,
            input_rows=rows,
            output_rows=written.rows,
            malformed_rows=written.rejected - written.late,
            late_rows=written.late,
            shed_rows=measured[BatchMeasure.SHED],
            state_entries=self._reported[0] + sum(each.numRowsTotal for each in own),
            state_bytes=self._reported[1] + sum(each.memoryUsedBytes for each in own),
            state_bound=self._bound,
            waiting_rows=self._waiting,
            missed_rows=measured[BatchMeasure.MISSED],
            missed_total=self._missed.missed,
            missed_low=self._missed.low,
            missed_high=self._missed.high,
            missed_error=self._missed.error,
            lookups=measured[BatchMeasure.LOOKUPS],
            lookup_hits=measured[BatchMeasure.HITS],
            excess_rows=sum(rate.excess for rate in written.rates.values()),
            rates={
                rate.stream: {"average": round(rate.average, 3), "peak": rate.peak, "declared": rate.declared}
                for rate in self._rates
            },
            cardinalities={
                f"{each.stream}.{each.column}": {"values": each.values, "declared": each.declared}
                for each in self._cardinalities
            },
            seconds=seconds,
            rows_per_second=round(rows / seconds, 1) if seconds else 0.0,
        )
        self._recent.append(batch)
        self.kept = KeptState(batch.batch, batch.state_entries, batch.state_bytes, batch.waiting_rows)
        self._ended = now
        self._totals["batches"] += 1
        self._totals["input_rows"] += rows
        self._totals["output_rows"] += written.rows
        self._totals["rejected_rows"] += written.rejected
        return batch

    def _report_rate(self, stream: str, rate: StreamRate) -> RateReport:
        return RateReport(
            stream, rate.average, rate.peak, self._declared.get(stream), self._windows.get(stream)
        )

    def snapshot(self, phase: Phase, now: float, waiting_for: str = "") -> Snapshot:
        last = self._recent[-1] if self._recent else None
        seconds = sum(each.seconds for each in self._recent)
        rate = sum(each.input_rows for each in self._recent) / seconds if seconds else 0.0
        if phase is Phase.WAITING and now - self._ended < _IDLE:
            phase = Phase.RUNNING
        if phase is Phase.RUNNING and last is None:
            phase = Phase.FIRST_BATCH
        return Snapshot(
            phase,
            waiting_for if phase is Phase.FIRST_BATCH else "",
            **self._totals,
            state_entries=self.kept.entries if self.kept else 0,
            state_bound=self._bound,
            waiting_rows=self.kept.waiting if self.kept else 0,
            shed_rows=self._measures[BatchMeasure.SHED],
            missed=self._missed,
            lookups=self._measures[BatchMeasure.LOOKUPS],
            lookup_hits=self._measures[BatchMeasure.HITS],
            rows_per_second=0.0 if phase is Phase.WAITING else rate,
            batch_seconds=last.seconds if last else None,
            seconds=now - self._began,
            rates=self._rates,
            cardinalities=self._cardinalities,
        )


def _read_missed(measures: Mapping[str, int], before: MissedReport) -> MissedReport:
    """The missed results over all batches; as before if no shard has reported in this batch."""
    if BatchMeasure.ALL_MISSED not in measures:
        return before
    found, missed = measures[BatchMeasure.ALL_FOUND], measures[BatchMeasure.ALL_MISSED]
    if BatchMeasure.MISSED_BELOW not in measures:
        return MissedReport(found, max(0, missed))
    below, above = measures[BatchMeasure.MISSED_BELOW], measures[BatchMeasure.MISSED_ABOVE]
    low, high = find_limits(missed, below, above)
    return MissedReport(found, max(0, missed), floor(low), ceil(high))


def _input_rows(progress: StreamingQueryProgress, scans: Sequence[int]) -> int:
    """The rows that arrived.  Spark counts a row once per scan; a source with 0 scans is not counted."""
    if len(scans) != len(progress.sources):
        return progress.numInputRows
    counted = [(each, times) for each, times in zip(progress.sources, scans, strict=True) if times]
    return sum(each.numInputRows // times for each, times in counted)


def count_scans(frame: DataFrame, uncounted: DataFrame | None = None) -> list[int]:
    """How often the plan of a frame scans each of its sources, in the order in which Spark lists them.

    The source of the frame ``uncounted`` has 0 scans.
    """
    found: list[tuple[Any, int]] = []
    for leaf in _list_streams(frame):
        for number, (known, times) in enumerate(found):
            if known.equals(leaf):
                found[number] = (known, times + 1)
                break
        else:
            found.append((leaf, 1))
    others = [] if uncounted is None else _list_streams(uncounted)
    return [0 if any(leaf.equals(other) for other in others) else times for leaf, times in found]


def _list_streams(frame: DataFrame) -> list[Any]:
    """The streaming sources in the plan of a frame, as often as it scans them."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    leaves = plan.collectLeaves()
    return [leaf for leaf in map(leaves.apply, range(leaves.size())) if leaf.isStreaming()]


class MetricsFile:
    """One JSON object per line, flushed after each batch; an existing file is appended to."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, batch: BatchMetrics) -> None:
        self._stream.write(json.dumps(asdict(batch)) + "\n")
        self._stream.flush()


@contextmanager
def open_metrics(path: str | None) -> Iterator[MetricsFile | None]:
    """Open the metrics file; None without a path."""
    if path is None:
        yield None
        return
    try:
        torn = _ends_within_a_line(path)
        stream = open(path, "a", encoding="utf-8")  # noqa: SIM115 (closed below)
    except OSError as error:
        message = f"the metrics file {path} cannot be written: {describe_os_error(error)}"
        remedy = "create its folder, or correct the path" if isinstance(error, FileNotFoundError) else None
        raise MillpondError(message, remedy=remedy) from None
    with stream:
        if torn:
            stream.write("\n")
        yield MetricsFile(stream)


def _ends_within_a_line(path: str) -> bool:
    """Whether an earlier run was killed while it wrote a line."""
    try:
        with open(path, "rb") as stream:
            if stream.seek(0, 2) == 0:
                return False
            stream.seek(-1, 2)
            return stream.read(1) != b"\n"
    except FileNotFoundError:
        return False
