"""The reorder buffer: holds rows until the watermark passes them, and releases them in time order.

The rows are in the state store (``row_chunks``), where they stay after their release while later rows can
match them within a window.

The watermark of a stream is its latest timestamp minus the delay that the stream declares; the watermark of
the query is the lowest of them.  A row before the watermark is late.  A stream that sends nothing holds the
watermark back, unless its rows can no longer match, or it has been idle for longer than it declares.
At the end of the input every row is released.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from millpond.engines.timed.pareto_fronts import ALWAYS, NEVER
from millpond.engines.timed.program import InputProgram, TimedProgram
from millpond.engines.timed.row_chunks import RowChunks

# The name under which progress announces the end of all input.
END = ""
# The watermark before any row.
BEGINNING = int(ALWAYS) + 2


class StreamProgress(NamedTuple):
    """The latest timestamp of a stream, and the wall-clock time (in seconds) at which it last advanced."""

    latest: int
    advanced: float


@dataclass(frozen=True)
class Clock:
    """The progress of each stream, and the watermark: all rows before it have been released."""

    progress: Mapping[str, StreamProgress] = field(default_factory=dict)
    watermark: int = BEGINNING


@dataclass(frozen=True)
class Release:
    """What a micro-batch releases, by input table.

    ``clock`` is that after the micro-batch.  ``recent`` are rows released earlier that can match the
    ``released`` ones within a window, for the inputs that keep such rows.  ``has_ended``: no input follows.
    """

    clock: Clock
    released: dict[str, pa.Table]
    recent: dict[str, pa.Table]
    late: dict[str, pa.Table]
    has_ended: bool = False


def release_rows(
    program: TimedProgram,
    clock: Clock,
    kept: RowChunks,
    rows: Mapping[str, pa.Table],
    progress: Mapping[str, int],
    now: float,
    started: float = 0.0,
) -> Release:
    """Add rows and the latest timestamps of streams; release the rows that the new watermark passes.

    ``kept`` are the rows that are held, and released ones that later rows can match within a window.  It is
    changed: rows enter and, when they are no longer needed, leave it.  ``now`` is the wall-clock time in
    seconds; the run has ``started`` at an earlier one.
    """
    after = advance_clock(program, clock, progress, now, started)
    release = Release(after, {}, {}, {}, has_ended=END in progress)
    for each in program.inputs:
        if not each.is_relation:
            _release_input(
                each, clock.watermark, release, kept, rows.get(each.name, each.schema.empty_table())
            )
    return release


def _release_input(
    each: InputProgram, before: int, release: Release, kept: RowChunks, arrived: pa.Table
) -> None:
    """Release the rows of one input; ``before`` is the last watermark."""
    name = each.name
    start, end = (max(mark - each.hold, BEGINNING) for mark in (before, release.clock.watermark))
    if each.retention is not None:
        release.recent[name] = kept.select(name, high=start) if each.has_time else kept.select(name)
    if each.has_time:
        late = _filter_rows(arrived, high=before)
        arrived = _filter_rows(arrived, low=before)
        passed = _filter_rows(arrived, high=end)
        released = pa.concat_tables([kept.select(name, start, end), passed])
        release.late.update({name: late} if late.num_rows else {})
    else:
        released = arrived = _set_timestamp(arrived, start - 1)
    release.released.update({name: released} if released.num_rows else {})
    needed = end - (each.retention or 0)
    kept.add(name, _filter_rows(arrived, low=needed))
    kept.drop_before(name, needed)


def _filter_rows(rows: pa.Table, low: int = ALWAYS, high: int = NEVER) -> pa.Table:
    """The rows with timestamps from ``low`` to before ``high``."""
    times = rows.column("t").to_numpy()
    chosen = (times >= max(low, ALWAYS)) & (times < high)
    return rows if chosen.all() else rows.filter(pa.array(chosen))


def advance_clock(
    program: TimedProgram, clock: Clock, progress: Mapping[str, int], now: float, started: float = 0.0
) -> Clock:
    """The clock after a micro-batch with the latest timestamps of streams, at a wall-clock time."""
    advanced = dict(clock.progress)
    for stream, latest in progress.items():
        known = advanced.get(stream)
        if known is None or latest > known.latest:
            advanced[stream] = StreamProgress(latest, now)
    watermark = max(clock.watermark, _compute_watermark(program, advanced, now, started))
    advanced.pop(END, None)  # a later run may continue the input
    return Clock(advanced, watermark)


def _compute_watermark(
    program: TimedProgram, progress: Mapping[str, StreamProgress], now: float, started: float
) -> int:
    """The timestamp before which no stream is expected to send rows.

    The time during which the query did not run does not make a stream idle.
    """
    if END in progress:
        seen = [known.latest for stream, known in progress.items() if stream != END]
        return max(seen, default=BEGINNING) + 1 + program.hold
    watermarks = []
    for column in program.time_columns:
        known = progress.get(column.stream)
        if known is None:
            return BEGINNING
        own = known.latest - column.delay
        is_idle = column.idle is not None and now - max(known.advanced, started) > column.idle
        has_ended = column.ends is not None and own > column.ends
        if not is_idle and not has_ended:
            watermarks.append(own)
    return min(watermarks, default=max((known.latest for known in progress.values()), default=BEGINNING))


def _set_timestamp(table: pa.Table, time: int) -> pa.Table:
    """The rows of a stream without application time, all at one timestamp."""
    position = table.schema.get_field_index("t")
    times = pa.array(np.full(table.num_rows, time))
    return table.set_column(position, table.schema.field("t"), times)


@dataclass(frozen=True)
class LateRow:
    """The timestamp of a late row, and its values of the columns that the query uses."""

    time: int
    values: dict[str, object]


def list_late_rows(inputs: Iterable[InputProgram], late: Mapping[str, pa.Table]) -> list[LateRow]:
    """The late rows of a stream; equal rows are repeated.

    Several inputs may read a stream, and a row is in those in which it can match.  For each timestamp, the
    input with the most late rows is listed; of several, one that reads the most columns.
    """
    found: dict[int, list[LateRow]] = {}
    for each in sorted(inputs, key=lambda each: -sum(name is not None for name in each.names)):
        if each.name not in late:
            continue
        own: dict[int, list[LateRow]] = {}
        for row, count in _count_late_rows(each, late[each.name]):
            own.setdefault(row.time, []).extend([row] * count)
        found |= {time: rows for time, rows in own.items() if len(rows) > len(found.get(time, ()))}
    return [row for rows in found.values() for row in rows]


def _count_late_rows(each: InputProgram, late: pa.Table) -> list[tuple[LateRow, int]]:
    """The late rows of an input, and how often each occurs."""
    counted = []
    for row in late.to_pylist():
        values = {name: row[f"x{i}"] for i, name in enumerate(each.names) if name is not None}
        counted.append((LateRow(row["t"], values), int(row.get("n", 1))))
    if not each.is_repeated:
        return counted
    once = {(row.time, *map(repr, row.values.items())): (row, count) for row, count in counted}
    return list(once.values())
