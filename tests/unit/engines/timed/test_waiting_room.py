"""The waiting room: what goes on when, what is late, and what its bytes hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest

from millpond.analysis.decide import decide
from millpond.engines.timed.compile import compile_timed
from millpond.engines.timed.program import FeedProgram, TimedProgram
from millpond.engines.timed.waiting_room import (
    END,
    Late,
    Passage,
    Room,
    late_rows,
    opened,
    passed,
    payload,
    restored,
    stored,
)
from millpond.frontend.parse import parse
from millpond.runtime.codec import StateError
from millpond.runtime.sql import Dialect

SECOND = 1_000_000
NEW_YEAR = 1_704_067_200  # 2024-01-01 in seconds
ORDERED = "SELECT A FROM S, T WHERE J < I AND B = 1"


def program(
    query: str = ORDERED, watermark: str = "0 seconds", idle: str | None = None, late: str = "T"
) -> TimedProgram:
    """``watermark`` and ``idle`` are those of the stream ``late``."""
    options = [f"'watermark' = '{watermark}'"] + ([f"'idle' = '{idle}'"] if idle else [])
    properties = f"TBLPROPERTIES ({', '.join(options)})"
    tables = "".join(
        f"CREATE STREAMING TABLE {name} ({column} INT, {clock} TIMESTAMP) "
        f"{properties if name == late else ''};"
        for name, column, clock in (("S", "A", "I"), ("T", "B", "J"))
    )
    tables += "CREATE STREAMING TABLE P (G INT);"
    verdict = decide(parse(f"{tables} {query}")[0])
    assert verdict.timed is not None, verdict.explain()
    return compile_timed(verdict.timed, Dialect.DUCKDB)


def micros(second: float) -> int:
    return int((NEW_YEAR + second) * SECOND)


def rows_at(program: TimedProgram, **seconds: Sequence[float]) -> dict[str, pa.Table]:
    """Rows of each stream, the same but for their moments."""
    out = {}
    for stream, moments in seconds.items():
        for feed in program.of_stream(stream):
            rows = [{name: 1 for name in feed.schema.names} | {"t": micros(s)} for s in moments]
            out[feed.name] = pa.Table.from_pylist(rows, schema=feed.schema)
    return out


class Waiting:
    """A room that is fed."""

    def __init__(self, program: TimedProgram) -> None:
        self.program = program
        self.room = Room()
        self.late: dict[str, list[float]] = {}

    def add(self, now: float = 0.0, end: bool = False, **seconds: Sequence[float]) -> dict[str, list[float]]:
        """The seconds of the rows that go on."""
        progress = {stream: micros(max(moments)) for stream, moments in seconds.items() if moments}
        if end:
            progress[END] = 0
        passage = passed(self.program, self.room, rows_at(self.program, **seconds), progress, now)
        self.room = passage.room
        self.late = self._seconds(passage.late)
        return self._seconds(passage.ready)

    def _seconds(self, tables: Mapping[str, pa.Table]) -> dict[str, list[float]]:
        names = {feed.name: feed.stream for feed in self.program.feeds}
        return {
            names[name]: sorted(t / SECOND - NEW_YEAR for t in table.column("t").to_pylist())
            for name, table in tables.items()
        }

    @property
    def waiting(self) -> dict[str, list[float]]:
        return self._seconds(self.room.waiting)


# --- what goes on ------------------------------------------------------------------------------------


def test_rows_wait_until_every_stream_has_moved_past() -> None:
    room = Waiting(program())
    assert room.add(S=[1, 2, 3]) == {}
    assert room.waiting == {"S": [1, 2, 3]} and room.room.rows(room.program) == 3
    assert room.add(T=[2]) == {"S": [1]}
    assert room.add(T=[4]) == {"S": [2], "T": [2]}
    assert room.waiting == {"S": [3], "T": [4]}
    assert room.add(S=[9], T=[9]) == {"S": [3], "T": [4]}
    assert not room.late


def test_a_moment_is_not_split() -> None:
    """Rows of one moment that come in several batches go on together."""
    room = Waiting(program())
    assert room.add(S=[1], T=[1]) == {}
    assert room.add(S=[1, 1]) == {}
    assert room.add(T=[1]) == {}
    assert room.add(S=[2], T=[1]) == {}
    assert room.add(T=[2]) == {"S": [1, 1, 1], "T": [1, 1, 1]}
    assert not room.late


def test_rows_out_of_order_within_a_batch() -> None:
    room = Waiting(program())
    assert room.add(S=[5, 1, 3], T=[4, 2]) == {"S": [1, 3], "T": [2]}
    assert room.waiting == {"S": [5], "T": [4]}


def test_a_delay_holds_everything_up_by_as_much() -> None:
    room = Waiting(program(watermark="10 seconds"))
    assert room.add(S=[1, 5, 20], T=[12]) == {"S": [1]}
    assert room.add(T=[3, 4]) == {}, "three seconds are not past yet"
    assert room.add(T=[14.5]) == {"T": [3, 4]}
    assert room.waiting == {"S": [5, 20], "T": [12, 14.5]} and not room.late
    assert room.add(T=[31]) == {"S": [5], "T": [12, 14.5]}


def test_late_rows() -> None:
    room = Waiting(program())
    room.add(S=[5], T=[5])
    room.add(S=[6], T=[6])
    assert room.add(S=[4, 5, 6, 7], T=[3]) == {}
    assert room.late == {"S": [4, 5], "T": [3]}
    assert room.waiting == {"S": [6, 6, 7], "T": [6]}


def test_a_late_row_does_not_turn_time_back() -> None:
    room = Waiting(program())
    room.add(S=[5], T=[5])
    room.add(S=[6], T=[6])
    final = room.room.final
    room.add(S=[1], T=[1])
    assert room.room.final == final
    assert room.add(S=[8], T=[8]) == {"S": [6], "T": [6]}


def test_rows_within_the_delay_are_not_late() -> None:
    room = Waiting(program(watermark="10 seconds"))
    room.add(S=[100], T=[100])
    room.add(T=[90.5])
    assert not room.late
    assert room.add(S=[200], T=[200]) == {"S": [100], "T": [90.5, 100]}


def test_what_late_rows_say() -> None:
    p = program("SELECT A FROM S, T WHERE J < I AND B = 1")
    [feed] = p.of_stream("S")
    rows = pa.Table.from_pylist(
        [{name: 1 for name in feed.schema.names} | {"t": 7, "x0": 2, "n": 3}], schema=feed.schema
    )
    assert late_rows([feed], {feed.name: rows}) == [Late(7, {"A": 2})] * 3


def test_no_late_row_is_lost_between_the_ways_a_stream_is_taken() -> None:
    p = program("SELECT A FROM S, T WHERE J < I AND B = 1 UNION ALL SELECT A FROM S, T WHERE J < I AND B = 2")
    one, other = p.of_stream("S")

    def rows(feed: FeedProgram, *moments: int) -> pa.Table:
        blank = dict.fromkeys(feed.schema.names, 1)
        return pa.Table.from_pylist([blank | {"t": moment} for moment in moments], schema=feed.schema)

    late = {one.name: rows(one, 7, 8), other.name: rows(other, 8, 8, 9)}
    assert sorted(row.moment for row in late_rows([one, other], late)) == [7, 8, 8, 9]


def test_a_row_that_is_wanted_in_several_ways_waits_once() -> None:
    p = program("SELECT COUNT(*), MAX(A) FROM S, T WHERE J < I AND B = 1")
    assert len(p.of_stream("S")) > 1
    room = Waiting(p)
    room.add(S=[1, 2, 3])
    assert room.room.rows(p) == 3


# --- streams that say nothing ------------------------------------------------------------------------


def test_a_stream_that_never_spoke_holds_everything_up() -> None:
    room = Waiting(program())
    for second in range(5):
        assert room.add(now=1e6 * second, S=[second]) == {}
    assert room.room.rows(room.program) == 5


def test_an_idle_stream_holds_nothing_up_after_a_while() -> None:
    room = Waiting(program(idle="30 seconds"))
    room.add(now=100, S=[1], T=[1])
    assert room.add(now=110, S=[2, 3]) == {}
    assert room.add(now=130, S=[4]) == {}
    assert room.add(now=131, S=[5]) == {"S": [1, 2, 3, 4], "T": [1]}
    assert room.add(now=132, T=[4]) == {} and room.late == {"T": [4]}


def test_a_stream_that_speaks_again_is_waited_for() -> None:
    room = Waiting(program(idle="30 seconds"))
    room.add(now=100, S=[1], T=[1])
    assert room.add(now=200, S=[5]) == {"S": [1], "T": [1]}
    assert room.add(now=201, T=[6]) == {}
    assert room.add(now=202, S=[9]) == {"S": [5]}
    assert room.waiting == {"S": [9], "T": [6]}


def test_a_late_row_alone_does_not_end_idleness() -> None:
    room = Waiting(program(idle="30 seconds"))
    room.add(now=100, S=[1], T=[1])
    room.add(now=200, S=[5])
    assert room.add(now=201, S=[6], T=[1]) == {"S": [5]}
    assert room.late == {"T": [1]}


def test_a_stream_that_has_ended_for_the_query() -> None:
    p = program("SELECT A, B FROM S, T WHERE A = B AND J < TIMESTAMP '2024-01-01 00:00:10'")
    room = Waiting(p)
    assert room.add(S=[1, 20], T=[5]) == {"S": [1]}
    assert room.add(T=[9.5]) == {"T": [5]}
    assert room.add(T=[10]) == {"T": [9.5, 10]}, "up to where S is"
    assert room.add(S=[30]) == {"S": [20]}, "nobody waits for T any more"


def test_a_stream_without_a_time_does_not_wait() -> None:
    p = program("SELECT B FROM S, T, P WHERE J < I AND G = 1 AND B IN (1, 2)")
    room = Waiting(p)
    assert list(room.add(P=[3])) == ["P"]
    assert list(room.add(S=[1], P=[0])) == ["P"]
    assert room.waiting == {"S": [1]}
    ready = room.add(T=[9], S=[8], P=[1])
    [moment] = ready["P"]
    assert all(moment < t for t in ready["S"]), "it was there before all that goes on with it"


# --- the end -----------------------------------------------------------------------------------------


def test_the_end_lets_everything_go_on() -> None:
    room = Waiting(program(watermark="1 hour"))
    assert room.add(S=[1, 2], T=[7]) == {}
    assert room.add(end=True) == {"S": [1, 2], "T": [7]}
    assert room.room.rows(room.program) == 0


def test_the_end_with_rows_in_the_same_batch() -> None:
    room = Waiting(program())
    assert room.add(end=True, S=[3, 1], T=[2]) == {"S": [1, 3], "T": [2]}


def test_the_end_of_streams_that_said_nothing() -> None:
    room = Waiting(program())
    assert room.add(end=True) == {}
    room = Waiting(program())
    assert room.add(end=True, S=[4]) == {"S": [4]}


def test_what_comes_after_the_end_waits_again_or_is_late() -> None:
    room = Waiting(program())
    room.add(end=True, S=[3], T=[2])
    room.room = restored(room.program, stored(room.program, room.room))
    assert room.add(S=[3], T=[3.5]) == {}
    assert room.late == {"S": [3]}
    assert room.waiting == {"T": [3.5]}


# --- bytes -------------------------------------------------------------------------------------------


def busy(p: TimedProgram) -> Room:
    room = Waiting(p)
    room.add(now=12.5, S=[1, 2, 3], T=[2])
    return room.room


def test_a_room_comes_back_from_its_bytes() -> None:
    p = program()
    room = busy(p)
    back = restored(p, stored(p, room))
    assert (back.final, back.progress, back.rows(p)) == (room.final, room.progress, room.rows(p))
    assert {n: t.to_pylist() for n, t in back.waiting.items()} == {
        n: t.to_pylist() for n, t in room.waiting.items()
    }
    assert back.progress["S"] == (micros(3), 12.5)


def test_a_new_room_comes_back_from_its_bytes() -> None:
    p = program()
    back = restored(p, stored(p, Room()))
    assert (back.final, dict(back.progress), back.rows(p)) == (Room().final, {}, 0)


def test_it_goes_on_as_if_it_had_never_been_away() -> None:
    p = program(watermark="2 seconds")
    steady, moved = Waiting(p), Waiting(p)
    for s, t in (([1, 4], [3]), ([5], [9]), ([7, 2], [6]), ([30], [30])):
        moved.room = restored(p, stored(p, moved.room))
        assert moved.add(S=s, T=t) == steady.add(S=s, T=t)
        assert (moved.late, moved.waiting) == (steady.late, steady.waiting)


def test_rows_on_their_way() -> None:
    p = program()
    rows = rows_at(p, S=[3, 4])
    tables, progress = opened(p, payload(p, rows, {"S": micros(4)}))
    assert progress == {"S": (micros(4), 0.0)}
    assert {n: t.to_pylist() for n, t in tables.items()} == {n: t.to_pylist() for n, t in rows.items()}
    tables, progress = opened(p, payload(p, {}, {END: 0}))
    assert not tables and progress == {END: (0, 0.0)}


def test_bytes_of_another_query_are_refused() -> None:
    data = stored(program(), busy(program()))
    for other in ("SELECT A FROM S, T WHERE J < I AND B = 2", "SELECT A FROM S, T WHERE J <= I AND B = 1"):
        with pytest.raises(StateError, match="another query"):
            restored(program(other), data)


def test_foreign_and_damaged_bytes_are_refused() -> None:
    p = program()
    data = stored(p, busy(p))
    for bad in (b"", b"PK\3\4", data[:3], b"x" + data[1:], data + b"\0"):
        with pytest.raises(StateError):
            restored(p, bad)
    for length in range(0, len(data), 7):
        with pytest.raises(StateError):
            restored(p, data[:length])


def test_a_passage_keeps_every_row() -> None:
    p = program(watermark="1 second")
    room: Room = Room()
    counted = 0
    for step in range(30):
        moments = [(step * 7 + i * 3) % 40 for i in range(4)]
        passage: Passage = passed(
            p, room, rows_at(p, S=moments, T=moments), {"S": micros(max(moments)), "T": micros(step)}, 0.0
        )
        counted += sum(t.num_rows for t in (*passage.ready.values(), *passage.late.values()))
        room = passage.room
        assert counted + room.rows(p) == (step + 1) * 8
