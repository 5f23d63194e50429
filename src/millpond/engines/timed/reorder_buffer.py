"""The reorder buffer: holds rows until the watermark passes them, and releases them in time order.

The watermark of a stream is its latest timestamp minus the delay that the stream declares; the watermark of
the query is the lowest of them.  A row before the watermark is late.  A stream that sends nothing holds the
watermark back, unless its rows can no longer match, or it has been idle for longer than it declares.
At the end of the input every row is released.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from millpond.engines.timed.pareto_fronts import ALWAYS
from millpond.engines.timed.program import InputProgram, TimedProgram

# The name under which progress announces the end of all input.
END = ""
# The watermark before any row.
BEGINNING = int(ALWAYS) + 2


class StreamProgress(NamedTuple):
    """The latest timestamp of a stream, and the wall-clock time (in seconds) at which it last advanced."""

    latest: int
    advanced: float


@dataclass(frozen=True)
class ReorderBuffer:
    """The rows that are held, by input table; the progress of each stream; and the watermark.

    All rows before the watermark have been released.
    """

    rows: Mapping[str, pa.Table] = field(default_factory=dict)
    progress: Mapping[str, StreamProgress] = field(default_factory=dict)
    watermark: int = BEGINNING

    def count_rows(self, program: TimedProgram) -> int:
        """How many rows are held; a row that is held for several inputs counts once."""
        counts: dict[str, int] = {}
        for each in program.inputs:
            if each.name in self.rows:
                counts[each.stream] = max(counts.get(each.stream, 0), self.rows[each.name].num_rows)
        return sum(counts.values())


@dataclass(frozen=True)
class Release:
    """The buffer after a micro-batch, the rows that it released, and the late rows; by input table.

    ``has_ended``: the input has ended.
    """

    buffer: ReorderBuffer
    released: dict[str, pa.Table]
    late: dict[str, pa.Table]
    has_ended: bool = False


def release_rows(
    program: TimedProgram,
    buffer: ReorderBuffer,
    rows: Mapping[str, pa.Table],
    progress: Mapping[str, int],
    now: float,
) -> Release:
    """Add rows and the latest timestamps of streams; release the rows that the new watermark passes.

    ``now`` is the wall-clock time in seconds.
    """
    advanced = dict(buffer.progress)
    for stream, latest in progress.items():
        known = advanced.get(stream)
        if known is None or latest > known.latest:
            advanced[stream] = StreamProgress(latest, now)
    watermark = max(buffer.watermark, _compute_watermark(program, advanced, now))
    released: dict[str, pa.Table] = {}
    late: dict[str, pa.Table] = {}
    held: dict[str, pa.Table] = {}
    for each in program.inputs:
        if each.is_relation:
            continue
        found = [t for t in (buffer.rows.get(each.name), rows.get(each.name)) if t is not None]
        if not found:
            continue
        table = pa.concat_tables(found)
        if not each.has_time:
            released[each.name] = _set_timestamp(table, buffer.watermark - 1)
            continue
        times = table.column("t").to_numpy()
        for target, chosen in (
            (late, times < buffer.watermark),
            (released, (times >= buffer.watermark) & (times < watermark)),
            (held, times >= watermark),
        ):
            if chosen.any():
                target[each.name] = table if chosen.all() else table.filter(pa.array(chosen))
    has_ended = advanced.pop(END, None) is not None  # a later run may continue the input
    return Release(ReorderBuffer(held, advanced, watermark), released, late, has_ended)


def _compute_watermark(program: TimedProgram, progress: Mapping[str, StreamProgress], now: float) -> int:
    """The timestamp before which no stream is expected to send rows."""
    if END in progress:
        seen = [known.latest for stream, known in progress.items() if stream != END]
        return max(seen, default=BEGINNING) + 1
    watermarks = []
    for column in program.time_columns:
        known = progress.get(column.stream)
        if known is None:
            return BEGINNING
        own = known.latest - column.delay
        is_idle = column.idle is not None and now - known.advanced > column.idle
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
    input with the most late rows is listed.
    """
    found: dict[int, list[LateRow]] = {}
    for each in inputs:
        if each.name not in late:
            continue
        rows = late[each.name].to_pylist()
        counts: Counter[int] = Counter()
        for row in rows:
            counts[row["t"]] += int(row.get("n", 1))
        replaced = {time for time, count in counts.items() if count > len(found.get(time, ()))}
        for time in replaced:
            found[time] = []
        for row in rows:
            if row["t"] in replaced:
                values = {name: row[f"x{i}"] for i, name in enumerate(each.names)}
                found[row["t"]] += [LateRow(row["t"], values)] * int(row.get("n", 1))
    return [row for rows in found.values() for row in rows]
