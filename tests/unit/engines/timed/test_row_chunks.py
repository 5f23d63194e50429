"""Rows in chunks of the state store: equal to rows in one table, also after restarts and repeated batches."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from millpond.analysis.decide import decide
from millpond.engines.timed import row_chunks
from millpond.engines.timed.compile import compile_timed
from millpond.engines.timed.program import TimedProgram
from millpond.engines.timed.row_chunks import MAX_ROWS, ChunkCache, RowChunks
from millpond.engines.timed.state import HEADER_KEY, ShardState
from millpond.frontend.parse import parse
from millpond.runtime.sql import Dialect
from tests.support.memory_store import MemoryStore
from tests.support.oracle import answers, normalise
from tests.support.timed_local import TimedLocal

STREAMS = (
    "CREATE STREAMING TABLE S (A INT, I TIMESTAMP) TBLPROPERTIES ('watermark' = '4 seconds'); "
    "CREATE STREAMING TABLE T (B INT, J TIMESTAMP) TBLPROPERTIES ('watermark' = '2 seconds'); "
    "CREATE STREAMING TABLE U (C INT, K TIMESTAMP);"
)
CATALOG = {
    "S": [("A", "INT"), ("I", "TIMESTAMP")],
    "T": [("B", "INT"), ("J", "TIMESTAMP")],
    "U": [("C", "INT"), ("K", "TIMESTAMP")],
}
INTERVAL = "SELECT A, I, J FROM S, T WHERE A = B AND J BETWEEN I AND I + INTERVAL 20 SECONDS"
QUERIES = (
    INTERVAL,
    "SELECT A, B FROM S, T WHERE A < B AND I BETWEEN J - INTERVAL 3 SECONDS AND J + INTERVAL 7 SECONDS",
    "SELECT COUNT(*), SUM(A) FROM S, T, U WHERE A = B AND J BETWEEN I AND I + INTERVAL 5 SECONDS "
    "AND K < I AND C = 1",
    "SELECT DISTINCT A FROM S, T, U WHERE A BETWEEN 0 AND 3 AND A <> B AND C = B AND "
    "K BETWEEN J AND J + INTERVAL 4 SECONDS AND I BETWEEN J AND J + INTERVAL 9 SECONDS",
    "SELECT A FROM S, T WHERE I > J AND B = 1",
)


def compile_query(sql: str) -> TimedLocal:
    verdict = decide(parse(STREAMS + sql)[0])
    assert verdict.timed is not None, verdict.explain()
    return TimedLocal(verdict.timed)


# --- the engine -----------------------------------------------------------------------------------------


def random_batches(rng: random.Random, streams: str) -> list[list[tuple[str, dict[str, Any]]]]:
    """Batches of rows that are a little out of order, some of them late."""
    batches, second = [], 0
    for _ in range(rng.randint(5, 25)):
        batch = []
        for _ in range(rng.choice([0, 1, 3, 12])):
            name = rng.choice(streams)
            (value, _), (time, _) = CATALOG[name]
            moment = datetime(2024, 1, 1) + timedelta(seconds=max(0, second - rng.randint(0, 6)))
            batch.append((name, {value: rng.randint(0, 4), time: moment}))
            second += rng.choice([0, 0, 1, 1, 5])
        batches.append(batch)
    return batches


@pytest.mark.parametrize("sql", QUERIES)
def test_restarts_and_repeated_batches_do_not_change_the_answer(
    sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches run in workers with and without chunks in their cache; some fail after they wrote the state."""
    monkeypatch.setattr(row_chunks, "MAX_ROWS", 6)  # chunks are split, merged and rewritten all the time
    monkeypatch.setattr(row_chunks, "_SMALL", 4)
    monkeypatch.setattr(row_chunks, "_MERGED", 2)
    results = 0
    for seed in range(2):
        rng = random.Random(seed)
        local = compile_query(sql)
        streams = "".join(sorted({each.stream for each in local.program.inputs}))
        batches = random_batches(rng, streams)
        workers = [ChunkCache(), ChunkCache(rng.choice([0, 500, 1 << 20]))]
        seen: dict[str, list[dict[str, Any]]] = {name: [] for name in streams}
        for number, batch in enumerate(batches):
            ended = number == len(batches) - 1
            if rng.random() < 0.3:  # an attempt that fails at the end, on part of the rows
                emitted, groups = local.emitted.copy(), dict(local.groups)
                stored = dict(local.stores[0].values)
                local.cache = rng.choice(workers)
                local.receive(batch[: rng.randint(0, len(batch))], ended=ended)
                local.emitted, local.groups = emitted, groups
                local.stores = [MemoryStore(stored)]
            local.cache = rng.choice([*workers, ChunkCache()])
            for name, row in local.receive(batch, ended=ended):
                seen[name].append(row)
        (truth,) = answers(STREAMS + sql, {name: CATALOG[name] for name in streams}, [seen])
        assert Counter({normalise(row): n for row, n in local.answer().items()}) == truth, f"seed {seed}"
        results += len(truth)
    assert results > 1


# --- chunks ---------------------------------------------------------------------------------------------


class Rows:
    """The chunks of the stream S of an interval join."""

    def __init__(self) -> None:
        self.program: TimedProgram = compile_timed(plan_of(INTERVAL), Dialect.DUCKDB)
        (self.input,) = self.program.inputs_of("S")
        self.store = MemoryStore()
        self.chunks = RowChunks(self.program, self.store, ChunkCache(), b"owner")

    def add(self, *times: int) -> None:
        columns = {name: np.ones(len(times), np.int64) for name in self.input.schema.names} | {"t": times}
        arrays = [pa.array(columns[f.name]).cast(f.type) for f in self.input.schema]
        self.chunks.add(self.input.name, pa.table(arrays, schema=self.input.schema))

    def times(self, *range_: int) -> list[int]:
        return sorted(self.chunks.select(self.input.name, *range_).column("t").to_pylist())

    @property
    def sizes(self) -> list[int]:
        return [chunk.rows for chunk in self.chunks]


def plan_of(sql: str) -> Any:
    return decide(parse(STREAMS + sql)[0]).timed


def test_rows_are_selected_and_counted_by_time() -> None:
    rows = Rows()
    for times in ((5, 1, 3), (2, 2, 9), (8,)):
        rows.add(*times)
    assert rows.times() == [1, 2, 2, 3, 5, 8, 9]
    for low in range(11):
        for high in range(low, 11):
            expected = [t for t in (1, 2, 2, 3, 5, 8, 9) if low <= t < high]
            assert rows.times(low, high) == expected
            assert rows.chunks.count(rows.input.name, low, high) == len(expected)


def test_old_chunks_are_removed_and_others_stay_as_they_are() -> None:
    rows = Rows()
    rows.add(*range(10))
    rows.add(*range(10, 20))
    written = rows.store.written
    rows.chunks.drop_before(rows.input.name, 13)
    assert rows.sizes == [10] and rows.store.written == written
    assert rows.times(13) == list(range(13, 20))
    rows.chunks.drop_before(rows.input.name, 15)  # half of the chunk
    assert rows.sizes == [5] and rows.times() == list(range(15, 20))
    rows.chunks.drop_before(rows.input.name, 30)
    assert rows.sizes == [] and not rows.store.values


def test_the_number_of_chunks_stays_small_and_rows_are_rarely_written() -> None:
    rows = Rows()
    size = 0
    for number in range(1000):
        rows.add(2 * number, 2 * number + 1)
        rows.chunks.drop_before(rows.input.name, 2 * number - 1000)
        size = size or rows.store.written
        assert len(rows.sizes) < 40
    assert sum(rows.sizes) < 1000 * 1.3
    assert rows.store.written < 3 * 1000 * size


def test_a_large_batch_is_divided_in_the_order_of_time() -> None:
    rows = Rows()
    rows.add(*reversed(range(MAX_ROWS + 10)))
    assert rows.sizes == [MAX_ROWS, 10]
    assert [chunk.first for chunk in rows.chunks] == [0, MAX_ROWS]


def test_a_micro_batch_writes_its_own_rows_only() -> None:
    local = compile_query(INTERVAL)
    rows = [("S", {"A": n, "I": datetime(2024, 1, 1) + timedelta(milliseconds=n)}) for n in range(20_000)]
    last = {"B": -1, "J": datetime(2024, 1, 1, 0, 0, 19)}
    local.receive([*rows, ("T", last)])
    (store,) = local.stores
    store.written = 0
    local.receive([("S", {"A": 1, "I": datetime(2024, 1, 1, 0, 0, 20)}), ("T", last)])
    assert store.written < 5000 < sum(map(len, store.values.values()))


def test_a_worker_reads_only_chunks_that_it_does_not_have() -> None:
    local = compile_query(INTERVAL)
    read: list[int] = []

    class Watched(MemoryStore):
        def get_value(self, key: int) -> bytes | None:
            read.append(key)
            return super().get_value(key)

    local.stores = [Watched()]
    for second in range(3):
        row = {"A": 1, "I": datetime(2024, 1, 1, 0, 0, second)}
        local.receive([("S", row), ("T", {"B": 1, "J": row["I"]})])
    assert set(read) == {HEADER_KEY}
    read.clear()
    state = ShardState(local.program, local.stores[0], ChunkCache())
    assert state.rows.select(local.program.inputs_of("S")[0].name).num_rows == 3
    assert len(read) > 1
