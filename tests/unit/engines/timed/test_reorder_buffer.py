"""The reorder buffer: when rows are released, which rows are late, and what its bytes contain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest

from millpond.analysis.decide import decide
from millpond.engines.timed.compile import compile_timed
from millpond.engines.timed.program import InputProgram, TimedProgram
from millpond.engines.timed.reorder_buffer import (
    END,
    Clock,
    LateRow,
    StreamProgress,
    list_late_rows,
    release_rows,
)
from millpond.engines.timed.row_chunks import Chunk, ChunkCache
from millpond.engines.timed.state import (
    Header,
    ShardState,
    decode_header,
    decode_payload,
    encode_header,
    encode_payload,
)
from millpond.frontend.parse import parse
from millpond.runtime.codec import StateError
from millpond.runtime.sql import Dialect
from tests.support.memory_store import MemoryStore

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
    """Rows of each stream that differ in their timestamps only."""
    out = {}
    for stream, timestamps in seconds.items():
        for each in program.inputs_of(stream):
            rows = [{name: 1 for name in each.schema.names} | {"t": micros(s)} for s in timestamps]
            out[each.name] = pa.Table.from_pylist(rows, schema=each.schema)
    return out


class Buffer:
    """A reorder buffer in a state store that is fed by hand."""

    def __init__(self, program: TimedProgram) -> None:
        self.program = program
        self.store = MemoryStore()
        self.cache = ChunkCache()
        self.late: dict[str, list[float]] = {}

    @property
    def state(self) -> ShardState:
        return ShardState(self.program, self.store, self.cache)

    started = 0.0  # when the run that feeds it has started

    def add(self, now: float = 0.0, end: bool = False, **seconds: Sequence[float]) -> dict[str, list[float]]:
        """Add rows; returns the seconds of the rows that are released."""
        progress = {stream: micros(max(timestamps)) for stream, timestamps in seconds.items() if timestamps}
        if end:
            progress[END] = 0
        return self.add_rows(rows_at(self.program, **seconds), progress, now)

    def add_rows(
        self, rows: Mapping[str, pa.Table], progress: Mapping[str, int], now: float = 0.0
    ) -> dict[str, list[float]]:
        state = self.state
        release = release_rows(self.program, state.clock, state.rows, rows, progress, now, self.started)
        state.store_header(release.clock)
        self.late = self._seconds(release.late)
        return self._seconds(release.released)

    def _seconds(self, tables: Mapping[str, pa.Table]) -> dict[str, list[float]]:
        names = {each.name: each.stream for each in self.program.inputs}
        return {
            names[name]: sorted(t / SECOND - NEW_YEAR for t in table.column("t").to_pylist())
            for name, table in tables.items()
        }

    @property
    def held(self) -> dict[str, list[float]]:
        state = self.state
        kept = {name: state.rows.select(name, state.clock.watermark) for name in self._stream_inputs()}
        return self._seconds({name: rows for name, rows in kept.items() if rows.num_rows})

    def _stream_inputs(self) -> list[str]:
        return [each.name for each in self.program.inputs if not each.is_relation]


# --- released rows ------------------------------------------------------------------------------------


def test_rows_are_held_until_the_watermark_passes_them() -> None:
    buffer = Buffer(program())
    assert buffer.add(S=[1, 2, 3]) == {}
    assert buffer.held == {"S": [1, 2, 3]} and buffer.state.count_held_rows() == 3
    assert buffer.add(T=[2]) == {"S": [1]}
    assert buffer.add(T=[4]) == {"S": [2], "T": [2]}
    assert buffer.held == {"S": [3], "T": [4]}
    assert buffer.add(S=[9], T=[9]) == {"S": [3], "T": [4]}
    assert not buffer.late


def test_rows_with_equal_timestamps_are_released_together() -> None:
    """Even if they arrive in several batches."""
    buffer = Buffer(program())
    assert buffer.add(S=[1], T=[1]) == {}
    assert buffer.add(S=[1, 1]) == {}
    assert buffer.add(T=[1]) == {}
    assert buffer.add(S=[2], T=[1]) == {}
    assert buffer.add(T=[2]) == {"S": [1, 1, 1], "T": [1, 1, 1]}
    assert not buffer.late


def test_rows_may_be_out_of_order_within_a_batch() -> None:
    buffer = Buffer(program())
    assert buffer.add(S=[5, 1, 3], T=[4, 2]) == {"S": [1, 3], "T": [2]}
    assert buffer.held == {"S": [5], "T": [4]}


def test_a_declared_delay_holds_the_watermark_back() -> None:
    buffer = Buffer(program(watermark="10 seconds"))
    assert buffer.add(S=[1, 5, 20], T=[12]) == {"S": [1]}
    assert buffer.add(T=[3, 4]) == {}, "the watermark is at 2 seconds"
    assert buffer.add(T=[14.5]) == {"T": [3, 4]}
    assert buffer.held == {"S": [5, 20], "T": [12, 14.5]} and not buffer.late
    assert buffer.add(T=[31]) == {"S": [5], "T": [12, 14.5]}


def test_rows_before_the_watermark_are_late() -> None:
    buffer = Buffer(program())
    buffer.add(S=[5], T=[5])
    buffer.add(S=[6], T=[6])
    assert buffer.add(S=[4, 5, 6, 7], T=[3]) == {}
    assert buffer.late == {"S": [4, 5], "T": [3]}
    assert buffer.held == {"S": [6, 6, 7], "T": [6]}


def test_a_late_row_does_not_move_the_watermark_back() -> None:
    buffer = Buffer(program())
    buffer.add(S=[5], T=[5])
    buffer.add(S=[6], T=[6])
    before = buffer.state.clock.watermark
    buffer.add(S=[1], T=[1])
    assert buffer.state.clock.watermark == before
    assert buffer.add(S=[8], T=[8]) == {"S": [6], "T": [6]}


def test_rows_within_the_delay_are_not_late() -> None:
    buffer = Buffer(program(watermark="10 seconds"))
    buffer.add(S=[100], T=[100])
    buffer.add(T=[90.5])
    assert not buffer.late
    assert buffer.add(S=[200], T=[200]) == {"S": [100], "T": [90.5, 100]}


def test_a_late_row_has_its_timestamp_and_values() -> None:
    p = program("SELECT A FROM S, T WHERE J < I AND B = 1")
    [each] = p.inputs_of("S")
    rows = pa.Table.from_pylist(
        [{name: 1 for name in each.schema.names} | {"t": 7, "x0": 2, "n": 3}], schema=each.schema
    )
    assert list_late_rows([each], {each.name: rows}) == [LateRow(7, {"A": 2})] * 3


def test_every_late_row_is_listed_when_several_inputs_read_the_stream() -> None:
    p = program("SELECT A FROM S, T WHERE J < I AND B = 1 UNION ALL SELECT A FROM S, T WHERE J < I AND B = 2")
    one, other = p.inputs_of("S")

    def rows(each: InputProgram, *times: int) -> pa.Table:
        blank = dict.fromkeys(each.schema.names, 1)
        return pa.Table.from_pylist([blank | {"t": time} for time in times], schema=each.schema)

    late = {one.name: rows(one, 7, 8), other.name: rows(other, 8, 8, 9)}
    assert sorted(row.time for row in list_late_rows([one, other], late)) == [7, 8, 8, 9]


def test_a_row_that_several_inputs_hold_counts_once() -> None:
    p = program("SELECT COUNT(*), MAX(A) FROM S, T WHERE J < I AND B = 1")
    assert len(p.inputs_of("S")) > 1
    buffer = Buffer(p)
    buffer.add(S=[1, 2, 3])
    assert buffer.state.count_held_rows() == 3


# --- idle streams ----------------------------------------------------------------------------


def test_a_stream_without_rows_holds_the_watermark_back() -> None:
    buffer = Buffer(program())
    for second in range(5):
        assert buffer.add(now=1e6 * second, S=[second]) == {}
    assert buffer.state.count_held_rows() == 5


def test_an_idle_stream_no_longer_holds_the_watermark_back() -> None:
    buffer = Buffer(program(idle="30 seconds"))
    buffer.add(now=100, S=[1], T=[1])
    assert buffer.add(now=110, S=[2, 3]) == {}
    assert buffer.add(now=130, S=[4]) == {}
    assert buffer.add(now=131, S=[5]) == {"S": [1, 2, 3, 4], "T": [1]}
    assert buffer.add(now=132, T=[4]) == {} and buffer.late == {"T": [4]}


def test_a_stream_that_was_idle_counts_again_when_it_sends_rows() -> None:
    buffer = Buffer(program(idle="30 seconds"))
    buffer.add(now=100, S=[1], T=[1])
    assert buffer.add(now=200, S=[5]) == {"S": [1], "T": [1]}
    assert buffer.add(now=201, T=[6]) == {}
    assert buffer.add(now=202, S=[9]) == {"S": [5]}
    assert buffer.held == {"S": [9], "T": [6]}


def test_downtime_does_not_make_a_stream_idle() -> None:
    """After a restart, a stream gets its time to send rows before it counts as idle."""
    buffer = Buffer(program(idle="30 seconds"))
    buffer.add(now=100, S=[1], T=[1])
    buffer.started = 9_000
    assert buffer.add(now=9_010, S=[7_000]) == {}
    assert buffer.add(now=9_020, T=[6_999]) == {"S": [1], "T": [1]} and not buffer.late
    assert buffer.add(now=9_060, S=[7_010]) == {"S": [7_000], "T": [6_999]}, "now T is idle"


def test_a_late_row_does_not_end_idleness() -> None:
    buffer = Buffer(program(idle="30 seconds"))
    buffer.add(now=100, S=[1], T=[1])
    buffer.add(now=200, S=[5])
    assert buffer.add(now=201, S=[6], T=[1]) == {"S": [5]}
    assert buffer.late == {"T": [1]}


def test_a_stream_whose_rows_can_no_longer_match_does_not_hold_the_watermark_back() -> None:
    p = program("SELECT A, B FROM S, T WHERE A = B AND J < TIMESTAMP '2024-01-01 00:00:10'")
    buffer = Buffer(p)
    assert buffer.add(S=[1, 20], T=[5]) == {"S": [1]}
    assert buffer.add(T=[9.5]) == {"T": [5]}
    assert buffer.add(T=[10]) == {"T": [9.5, 10]}, "the watermark of S decides"
    assert buffer.add(S=[30]) == {"S": [20]}, "T no longer counts"


def test_rows_of_a_stream_without_time_are_released_at_once() -> None:
    p = program("SELECT B FROM S, T, P WHERE J < I AND G = 1 AND B IN (1, 2)")
    buffer = Buffer(p)
    assert list(buffer.add(P=[3])) == ["P"]
    assert list(buffer.add(S=[1], P=[0])) == ["P"]
    assert buffer.held == {"S": [1]}
    released = buffer.add(T=[9], S=[8], P=[1])
    [time] = released["P"]
    assert all(time < t for t in released["S"]), "its rows precede all that are released with them"


# --- end of input -----------------------------------------------------------------------------------------


def test_the_end_of_input_releases_every_row() -> None:
    buffer = Buffer(program(watermark="1 hour"))
    assert buffer.add(S=[1, 2], T=[7]) == {}
    assert buffer.add(end=True) == {"S": [1, 2], "T": [7]}
    assert buffer.state.count_held_rows() == 0


def test_the_end_of_input_releases_rows_of_the_same_batch() -> None:
    buffer = Buffer(program())
    assert buffer.add(end=True, S=[3, 1], T=[2]) == {"S": [1, 3], "T": [2]}


def test_the_end_of_input_does_not_wait_for_streams_without_rows() -> None:
    buffer = Buffer(program())
    assert buffer.add(end=True) == {}
    buffer = Buffer(program())
    assert buffer.add(end=True, S=[4]) == {"S": [4]}


def test_rows_after_the_end_of_input_are_held_or_late() -> None:
    buffer = Buffer(program())
    buffer.add(end=True, S=[3], T=[2])
    buffer.cache = ChunkCache()
    assert buffer.add(S=[3], T=[3.5]) == {}
    assert buffer.late == {"S": [3]}
    assert buffer.held == {"T": [3.5]}


# --- bytes -------------------------------------------------------------------------------------------


def busy(p: TimedProgram) -> Header:
    progress = {"S": StreamProgress(micros(3), 12.5), "T": StreamProgress(micros(2), 12.5)}
    chunks = (Chunk(0, b"one", p.inputs[0].name, 3, 400, micros(1), micros(3)),)
    return Header(b"owner", Clock(progress, micros(2)), 7, b"matches", 1000, chunks)


def test_a_header_is_restored_from_its_bytes() -> None:
    p = program()
    for header in (busy(p), Header(b"owner")):
        assert decode_header(p, encode_header(p, header)) == header


def test_a_restored_buffer_releases_the_same_rows() -> None:
    p = program(watermark="2 seconds")
    steady, moved = Buffer(p), Buffer(p)
    for s, t in (([1, 4], [3]), ([5], [9]), ([7, 2], [6]), ([30], [30])):
        moved.cache = ChunkCache()
        assert moved.add(S=s, T=t) == steady.add(S=s, T=t)
        assert (moved.late, moved.held) == (steady.late, steady.held)


def test_a_payload_is_restored_from_its_bytes() -> None:
    p = program()
    rows = rows_at(p, S=[3, 4])
    tables, progress = decode_payload(p, encode_payload(p, rows, {"S": micros(4)}))
    assert progress == {"S": micros(4)}
    assert {n: t.to_pylist() for n, t in tables.items()} == {n: t.to_pylist() for n, t in rows.items()}
    tables, progress = decode_payload(p, encode_payload(p, {}, {END: 0}))
    assert not tables and progress == {END: 0}


def test_bytes_of_another_query_are_refused() -> None:
    data = encode_header(program(), busy(program()))
    for other in ("SELECT A FROM S, T WHERE J < I AND B = 2", "SELECT A FROM S, T WHERE J <= I AND B = 1"):
        with pytest.raises(StateError, match="another query"):
            decode_header(program(other), data)


def test_bytes_of_the_format_before_are_refused() -> None:
    p = program()
    data = bytearray(encode_header(p, busy(p)))
    assert data[4:6] == b"\3\0"
    data[4] = 2
    with pytest.raises(StateError, match="has format 2, this Millpond reads format 3"):
        decode_header(p, bytes(data))


def test_foreign_and_damaged_bytes_are_refused() -> None:
    p = program()
    data = encode_header(p, busy(p))
    for bad in (b"", b"PK\3\4", data[:3], b"x" + data[1:], data + b"\0"):
        with pytest.raises(StateError):
            decode_header(p, bad)
    for length in range(0, len(data), 7):
        with pytest.raises(StateError):
            decode_header(p, data[:length])


def test_no_row_is_lost() -> None:
    p = program(watermark="1 second")
    buffer = Buffer(p)
    counted = 0
    for step in range(30):
        timestamps = [(step * 7 + i * 3) % 40 for i in range(4)]
        progress = {"S": micros(max(timestamps)), "T": micros(step)}
        released = buffer.add_rows(rows_at(p, S=timestamps, T=timestamps), progress)
        counted += sum(map(len, (*released.values(), *buffer.late.values())))
        assert counted + buffer.state.count_held_rows() == (step + 1) * 8
