"""The waiting room: rows wait until every stream has moved past their moment, then go on in time order.

A stream has moved past a moment when it has sent a row that is later, by more than the delay that its rows
may have.  What has gone on is final: a row that comes for an earlier moment is late.  A stream that sends
nothing holds the others up, unless it has ended for the query, or may be idle only so long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from millpond.engines.timed.fronts import ALWAYS
from millpond.engines.timed.program import FeedProgram, TimedProgram
from millpond.runtime.codec import decode_tables, encode_tables

PROGRESS = "progress"
# Per stream the latest moment seen, and when (in seconds, by the clock on the wall) it last moved.
_PROGRESS_SCHEMA = pa.schema([("stream", pa.string()), ("latest", pa.int64()), ("moved", pa.float64())])
# The name under which the end of all input is announced.
END = ""
_BEGINNING = int(ALWAYS) + 2


@dataclass(frozen=True)
class Room:
    """Rows that wait, how far each stream is, and the moment before which everything is final."""

    waiting: Mapping[str, pa.Table] = field(default_factory=dict)
    progress: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    final: int = _BEGINNING

    def rows(self, program: TimedProgram) -> int:
        """How many rows wait; a stream that is taken in several ways has them once in each."""
        counts: dict[str, int] = {}
        for feed in program.feeds:
            if feed.name in self.waiting:
                counts[feed.stream] = max(counts.get(feed.stream, 0), self.waiting[feed.name].num_rows)
        return sum(counts.values())


@dataclass(frozen=True)
class Passage:
    """The room after some rows came in: those that go on, and those that came too late."""

    room: Room
    ready: dict[str, pa.Table]
    late: dict[str, pa.Table]


def payload(program: TimedProgram, rows: Mapping[str, pa.Table], progress: Mapping[str, int]) -> bytes:
    """Rows of a task and how far its stream is, on their way to the room."""
    return _packed(program, rows, {stream: (latest, 0.0) for stream, latest in progress.items()}, 0)


def opened(program: TimedProgram, data: bytes) -> tuple[dict[str, pa.Table], dict[str, tuple[int, float]]]:
    tables, progress, _ = _unpacked(program, data)
    return tables, progress


def stored(program: TimedProgram, room: Room) -> bytes:
    return _packed(program, room.waiting, room.progress, room.final)


def restored(program: TimedProgram, data: bytes) -> Room:
    tables, progress, final = _unpacked(program, data)
    return Room(tables, progress, final)


def _shapes(program: TimedProgram) -> dict[str, pa.Schema]:
    feeds = {feed.name: feed.schema for feed in program.feeds if feed.rows is None}
    return {**feeds, PROGRESS: _PROGRESS_SCHEMA}


def _packed(
    program: TimedProgram, rows: Mapping[str, pa.Table], progress: Mapping[str, tuple[int, float]], final: int
) -> bytes:
    known = [{"stream": s, "latest": latest, "moved": moved} for s, (latest, moved) in progress.items()]
    tables = {**rows, PROGRESS: pa.Table.from_pylist(known, schema=_PROGRESS_SCHEMA)}
    return encode_tables(tables, _shapes(program), program.fingerprint, final)


def _unpacked(
    program: TimedProgram, data: bytes
) -> tuple[dict[str, pa.Table], dict[str, tuple[int, float]], int]:
    tables, final = decode_tables(data, _shapes(program), program.fingerprint)
    known = tables.pop(PROGRESS, _PROGRESS_SCHEMA.empty_table()).to_pylist()
    return tables, {row["stream"]: (row["latest"], row["moved"]) for row in known}, final


# --- in and out ----------------------------------------------------------------------------------------


def passed(
    program: TimedProgram,
    room: Room,
    rows: Mapping[str, pa.Table],
    progress: Mapping[str, int],
    now: float,
) -> Passage:
    """Take in rows and progress at the time ``now`` on the wall; those whose moment is past go on."""
    moved = dict(room.progress)
    for stream, latest in progress.items():
        known = moved.get(stream)
        if known is None or latest > known[0]:
            moved[stream] = (latest, now)
    final = max(room.final, _final(program, moved, now))
    ready: dict[str, pa.Table] = {}
    late: dict[str, pa.Table] = {}
    waiting: dict[str, pa.Table] = {}
    for feed in program.feeds:
        if feed.rows is not None:
            continue
        found = [t for t in (room.waiting.get(feed.name), rows.get(feed.name)) if t is not None]
        if not found:
            continue
        table = pa.concat_tables(found)
        if not feed.clocked:
            ready[feed.name] = _at(table, room.final - 1)
            continue
        moments = table.column("t").to_numpy()
        for target, chosen in (
            (late, moments < room.final),
            (ready, (moments >= room.final) & (moments < final)),
            (waiting, moments >= final),
        ):
            if chosen.any():
                target[feed.name] = table if chosen.all() else table.filter(pa.array(chosen))
    moved.pop(END, None)  # more may come another time
    return Passage(Room(waiting, moved, final), ready, late)


def _final(program: TimedProgram, progress: Mapping[str, tuple[int, float]], now: float) -> int:
    """The moment that every stream has moved past."""
    if END in progress:
        seen = [latest for stream, (latest, _) in progress.items() if stream != END]
        return max(seen, default=_BEGINNING) + 1
    ends = []
    for clock in program.clocks:
        known = progress.get(clock.stream)
        if known is None:
            return _BEGINNING
        latest, moved = known
        idle = clock.idle is not None and now - moved > clock.idle
        if not idle and (clock.ends is None or latest - clock.delay <= clock.ends):
            ends.append(latest - clock.delay)
    return min(ends, default=max((t for t, _ in progress.values()), default=_BEGINNING))


def _at(table: pa.Table, moment: int) -> pa.Table:
    """The rows, all at one moment."""
    place = table.schema.get_field_index("t")
    return table.set_column(place, table.schema.field("t"), pa.array(np.full(table.num_rows, moment)))


@dataclass(frozen=True)
class Late:
    """What is known of a late row: its moment, and the columns that the query uses."""

    moment: int
    values: dict[str, object]


def late_rows(feeds: Iterable[FeedProgram], late: Mapping[str, pa.Table]) -> list[Late]:
    """The late rows of a stream, each as often as it came.

    A stream that is taken in several ways hands each row to those that want it: at each moment, the way
    that has the most late rows speaks for all.
    """
    found: dict[int, list[Late]] = {}
    for feed in feeds:
        if feed.name not in late:
            continue
        rows = late[feed.name].to_pylist()
        counts: Counter[int] = Counter()
        for row in rows:
            counts[row["t"]] += int(row.get("n", 1))
        spoken = {moment for moment, count in counts.items() if count > len(found.get(moment, ()))}
        for moment in spoken:
            found[moment] = []
        for row in rows:
            if row["t"] in spoken:
                values = {name: row[f"x{i}"] for i, name in enumerate(feed.names)}
                found[row["t"]] += [Late(row["t"], values)] * int(row.get("n", 1))
    return [row for rows in found.values() for row in rows]
