"""What the state store holds: which bytes are read and which refused, and what a layout depends on."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from datetime import date
from decimal import Decimal
from functools import cache

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millpond.analysis.decide import check
from millpond.analysis.verdict import Verdict
from millpond.engines.exact.chunks import ChunkPolicy
from millpond.engines.exact.compile import compile_exact
from millpond.engines.exact.program import ExactProgram
from millpond.engines.exact.state import decode_synopsis
from millpond.engines.exact.synopsis import Synopsis
from millpond.runtime.codec import _HEAD, _LENGTH, MAGIC, VERSION, StateError
from tests.support.scenario import SMALL_CHUNKS, Run

STREAMS = (
    "CREATE STREAMING TABLE S (k INT, v INT, s STRING, d DATE, m DECIMAL(10,2), x DOUBLE);"
    "CREATE STREAMING TABLE T (k INT, w INT);"
)
QUERY = (
    "SELECT S.k, COUNT(*), SUM(v), SUM(m), MAX(d), MIN(s), MAX(x) FROM S, T"
    " WHERE S.k = T.k AND S.k BETWEEN 1 AND 3 GROUP BY S.k"
)
LINES = [
    ("S", 1, 7, "it's", date(2024, 2, 29), Decimal("0.07"), 0.5),
    ("S", 1, None, None, None, None, None),
    ("S", 3, -2147483648, "ä", date(1, 1, 1), Decimal("-99999999.99"), -1e300),
    ("T", 1, 0),
    ("T", 2, 0),
]


def program_of(sql: str, chunk_policy: ChunkPolicy | None = None) -> ExactProgram:
    verdict = check(sql)
    assert isinstance(verdict, Verdict) and verdict.plan is not None
    return compile_exact(verdict.plan, native_sets=False, chunk_policy=chunk_policy).program


def kept(run: Run) -> bytes:
    """The only value in the state store."""
    [(data,)] = run.executor.shards[0].values.values()
    return bytes(data)


@cache
def stored() -> tuple[ExactProgram, bytes]:
    run = Run(f"{STREAMS} {QUERY}")
    run.add(*LINES)
    return run.program, kept(run)


def read(program: ExactProgram, data: bytes) -> Synopsis:
    return decode_synopsis(data, program.slots, program.fingerprint)[0]


# --- bytes that are refused ------------------------------------------------------------------------------


def test_state_of_another_format_is_refused_and_the_error_names_both() -> None:
    program, data = stored()
    for version in (0, VERSION + 1, 999):
        other = _HEAD.pack(MAGIC, version, program.fingerprint, 1) + data[_HEAD.size :]
        message = f"state has format {version}, this Millpond reads format {VERSION}"
        with pytest.raises(StateError, match=message) as error:
            read(program, other)
        assert error.value.remedy is not None and "the Millpond that wrote it" in error.value.remedy


def test_state_of_another_query_is_refused() -> None:
    _, data = stored()
    other = program_of(f"{STREAMS} {QUERY.replace('AND 3', 'AND 4')}")
    with pytest.raises(
        StateError, match=r"the checkpoint belongs to another query, .*; use a new checkpoint"
    ):
        read(other, data)


def test_truncated_state_is_refused() -> None:
    program, data = stored()
    assert read(program, data).entries == 12
    for end in range(len(data)):
        with pytest.raises(StateError, match=r"holds no state of Millpond|is damaged"):
            read(program, data[:end])


def test_state_with_extra_bytes_is_refused() -> None:
    program, data = stored()
    for more in (b"\0", b"\0" * 8, data):
        with pytest.raises(StateError, match="is damaged"):
            read(program, data + more)


def test_foreign_bytes_are_refused() -> None:
    program, _ = stored()
    table = pa.table({"n": [1, 2, 3]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    foreign = [b"", b"mill", b"MILL" * 20, b"\0" * 64, pickle.dumps({"n": 1}), sink.getvalue().to_pybytes()]
    for data in foreign:
        with pytest.raises(StateError, match="holds no state of Millpond"):
            read(program, data)


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=80), st.integers(0, 400))
@example(b"\0" * 4, 0)
@example(b"\xff" * 4 + b"\0" * 4, 0)  # where a stream of Arrow ends
def test_garbage_after_the_header_is_refused(garbage: bytes, length: int) -> None:
    program, _ = stored()
    head = _HEAD.pack(MAGIC, VERSION, program.fingerprint, 1)
    for body in (garbage, _LENGTH.pack(len(garbage)) + garbage, _LENGTH.pack(length) + garbage):
        if body.strip(b"\0"):
            with pytest.raises(StateError, match="is damaged"):
                read(program, head + body)


def test_a_table_of_another_schema_is_refused() -> None:
    program, _ = stored()
    head = _HEAD.pack(MAGIC, VERSION, program.fingerprint, 1)
    for columns in ({}, {"n": [1]}, {name: ["x"] for name in "abcdefghi"}):
        body = pa.record_batch(columns).serialize().to_pybytes()
        rest = _LENGTH.pack(0) * (len(program.slots) - 1)
        with pytest.raises(StateError, match="is damaged"):
            read(program, head + _LENGTH.pack(len(body)) + body + rest)


def test_the_operator_refuses_the_state_of_another_query() -> None:
    run, other = Run(f"{STREAMS} {QUERY}"), Run(f"{STREAMS} {QUERY.replace('MAX', 'MIN')}")
    run.add(*LINES)
    other.executor.shards = run.executor.shards
    with pytest.raises(StateError, match="the checkpoint belongs to another query"):
        other.add(*LINES)


# --- bytes of earlier versions ---------------------------------------------------------------------------

# State that was written when format 1 was new, and the queries that wrote it.
GROUPED = f"{STREAMS} SELECT k, COUNT(*), SUM(m), MIN(s) FROM S WHERE k BETWEEN 1 AND 3 GROUP BY k"
GROUPED_BYTES = bytes.fromhex(
    "6d696c6c0100b42cf05ee63d0d0b8bd831a614107aa701000000000000006801000000000000ffffffff1801000014000000"
    "000000000c0016000600050008000c000c0000000003040018000000480000000000000000000a0018000c00040008000a00"
    "00009c0000001000000002000000000000000000000008000000000000000000000000000000000000000000000000000000"
    "0800000000000000080000000000000000000000000000000800000000000000100000000000000018000000000000000000"
    "0000000000001800000000000000100000000000000028000000000000000000000000000000280000000000000020000000"
    "0000000000000000040000000200000000000000000000000000000002000000000000000000000000000000020000000000"
    "0000000000000000000002000000000000000000000000000000000000000200000002000000000000000100000000000000"
    "0100000000000000010000000000000007000000000000000000000000000000011cf4abfdffffffffffffffffffffff4801"
    "000000000000ffffffff1801000014000000000000000c0016000600050008000c000c000000000304001800000028000000"
    "0000000000000a0018000c00040008000a0000009c0000001000000002000000000000000000000008000000000000000000"
    "0000000000000000000000000000000000000800000000000000080000000000000000000000000000000800000000000000"
    "0800000000000000100000000000000000000000000000001000000000000000000000000000000010000000000000000c00"
    "0000000000002000000000000000060000000000000000000000040000000200000000000000000000000000000002000000"
    "0000000000000000000000000200000000000000000000000000000002000000000000000000000000000000000000000200"
    "000000000000000000000000000004000000060000000000000069742773c3a40000"
)
JOINED = f"{STREAMS} SELECT S.k FROM S, T WHERE S.k = T.k AND S.k BETWEEN 0 AND 9"
JOINED_CHUNK = 2
JOINED_BYTES = bytes.fromhex(
    "6d696c6c0100f4995ac7ccbf4f76fd74bf57a4b398440100000000000000d800000000000000ffffffffb800000014000000"
    "000000000c0016000600050008000c000c0000000003040018000000180000000000000000000a0018000c00040008000a00"
    "00005c0000001000000002000000000000000000000004000000000000000000000000000000000000000000000000000000"
    "0800000000000000080000000000000000000000000000000800000000000000100000000000000000000000020000000200"
    "0000000000000000000000000000020000000000000000000000000000000400000005000000010000000000000002000000"
    "00000000d000000000000000ffffffffb800000014000000000000000c0016000600050008000c000c000000000304001800"
    "0000100000000000000000000a0018000c00040008000a0000005c0000001000000001000000000000000000000004000000"
    "0000000000000000000000000000000000000000000000000400000000000000080000000000000000000000000000000800"
    "0000000000000800000000000000000000000200000001000000000000000000000000000000010000000000000000000000"
    "0000000004000000000000000100000000000000"
)


def fingerprint_of(data: bytes) -> bytes:
    found = _HEAD.unpack_from(data)[2]
    assert isinstance(found, bytes)
    return found


def test_format_1_is_still_read() -> None:
    program = program_of(GROUPED)
    found, revision = decode_synopsis(GROUPED_BYTES, program.slots, fingerprint_of(GROUPED_BYTES))
    assert revision == 1
    counted, least = (found.table(slot).to_pylist() for slot in program.slots)
    assert counted == [
        {"s0_k0": 0, "n": 2, "filled0": 1, "total0": Decimal("0.07")},
        {"s0_k0": 2, "n": 1, "filled0": 1, "total0": Decimal("-99999999.99")},
    ]
    assert least == [
        {"s1_k0": 0, "extreme": 0, "row": {"v0": "it's"}},
        {"s1_k0": 2, "extreme": 0, "row": {"v0": "ä"}},
    ]


def test_a_chunk_of_format_1_is_still_read() -> None:
    program = program_of(JOINED, SMALL_CHUNKS)
    found, revision = decode_synopsis(JOINED_BYTES, program.slots, fingerprint_of(JOINED_BYTES), JOINED_CHUNK)
    assert revision == 1
    left, right = (found.table(slot).to_pylist() for slot in program.slots)
    assert left == [{"s0_k0": 4, "s0_c": 2, "n": 1}, {"s0_k0": 5, "s0_c": 2, "n": 2}]
    assert right == [{"s1_k0": 4, "s1_c": 2, "n": 1}]


@pytest.mark.parametrize(
    ("sql", "chunk_policy", "data"), [(GROUPED, None, GROUPED_BYTES), (JOINED, SMALL_CHUNKS, JOINED_BYTES)]
)
def test_the_fingerprints_of_format_1_have_not_changed(
    sql: str, chunk_policy: ChunkPolicy | None, data: bytes
) -> None:
    """A changed fingerprint makes every checkpoint unreadable; whoever intends that raises the version."""
    assert program_of(sql, chunk_policy).fingerprint == fingerprint_of(data)


# --- fingerprints -------------------------------------------------------------------------------------------

TABLE = "CREATE STREAMING TABLE S (A INT, B INT, C STRING); CREATE STREAMING TABLE T (D INT, E INT);"
ASKED = "SELECT DISTINCT A FROM S, T WHERE B < D AND A = 10 AND C <> 'x y'"
SAME = {
    "blanks": "SELECT   DISTINCT A\n  FROM S ,T\nWHERE B<D\tAND A=10 AND C<>'x y'",
    "comments": "SELECT DISTINCT A -- what\nFROM S, /* both */ T WHERE B < D AND A = 10 AND C <> 'x y'",
    "keywords": "select distinct A from S, T where B < D and A = 10 and C <> 'x y'",
    "a join": "SELECT DISTINCT A FROM S JOIN T ON B < D WHERE A = 10 AND C <> 'x y'",
    "names": "SELECT DISTINCT S.A FROM S, T WHERE S.B < T.D AND (S.A = 10) AND `C` != 'x y'",
}
OTHER = {
    "a constant": ASKED.replace("10", "11"),
    "blanks in a string": ASKED.replace("x y", "x  y"),
    "the case of a string": ASKED.replace("x y", "X y"),
    "an operator": ASKED.replace("B < D", "B <= D"),
    "a column": ASKED.replace("B < D", "B < E"),
    "the result": ASKED.replace("DISTINCT A", "DISTINCT A + 1"),
    "its name": ASKED.replace("DISTINCT A", "DISTINCT A AS z"),
    "a union": "SELECT A FROM S WHERE A = 10 AND C <> 'x y' UNION " + ASKED,
}


def fingerprint(query: str, tables: str = TABLE, chunk_policy: ChunkPolicy | None = None) -> str:
    return program_of(f"{tables} {query}", chunk_policy).fingerprint.hex()


@pytest.mark.parametrize("query", SAME.values(), ids=SAME)
def test_a_query_that_is_written_differently_has_the_same_fingerprint(query: str) -> None:
    assert fingerprint(query) == fingerprint(ASKED)


@pytest.mark.parametrize("query", OTHER.values(), ids=OTHER)
def test_a_changed_query_has_another_fingerprint(query: str) -> None:
    assert fingerprint(query) != fingerprint(ASKED)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("A INT", "A BIGINT"),
        ("B INT", "B DOUBLE"),
        ("B INT", "B SMALLINT"),
        ("D INT", "D INT CHECK (D > 0)"),
    ],
)
def test_a_query_over_changed_columns_has_another_fingerprint(old: str, new: str) -> None:
    assert fingerprint(ASKED, TABLE.replace(old, new)) != fingerprint(ASKED)


def test_unused_columns_do_not_matter_to_the_fingerprint() -> None:
    assert fingerprint(ASKED, TABLE.replace("E INT", "E STRING, F DATE")) == fingerprint(ASKED)


def test_another_chunk_policy_has_another_fingerprint() -> None:
    assert fingerprint(JOINED, "") == fingerprint(JOINED, "", ChunkPolicy())
    policies = [ChunkPolicy(min_entries=0, values_per_chunk=size) for size in (2, 3, 4)]
    fingerprints = {fingerprint(JOINED, "", policy) for policy in policies}
    assert len(fingerprints | {fingerprint(JOINED, "")}) == 4
    # A small synopsis has no chunks.
    large = ChunkPolicy(min_entries=1000, values_per_chunk=2)
    assert fingerprint(JOINED, "", large) == fingerprint(JOINED, "")


FINGERPRINTS = """
import random
from millpond.analysis.decide import check
from millpond.engines.exact.compile import compile_exact
from tests.support.generate import random_case, random_keyed_case, random_rich_case
for make in (random_case, random_rich_case, random_keyed_case):
    for seed in range(12):
        plan = check(make(random.Random(seed)).sql).plan
        print(plan and compile_exact(plan, native_sets=False).program.fingerprint.hex())
"""


@pytest.mark.campaign
def test_every_process_computes_the_same_fingerprint() -> None:
    """It does not depend on the iteration order of sets."""
    found = []
    for seed in ("1", "2"):
        path = os.pathsep.join(p for p in sys.path if p)
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, "-c", FINGERPRINTS], env=environment, capture_output=True, text=True, check=True
        )
        found.append(done.stdout.split())
    assert found[0] == found[1]
    assert len(set(found[0])) > 20
