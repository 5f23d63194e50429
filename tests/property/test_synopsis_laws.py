"""The laws of synopses, on random bounded queries and random rows.

Merging is associative and commutative, the empty synopsis changes nothing, and rows may be taken in
together or apart.  The tables are deterministic, so they are compared row by row, all columns.  A failure
names the kind and the seed of the query; ``World.of(kind, seed)`` makes it again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from millpond.analysis.decide import analyse, check, decide
from millpond.analysis.verdict import BOUNDED, Verdict
from millpond.engines.exact.chunks import ChunkPolicy
from millpond.engines.exact.compile import CompiledExact, compile_exact
from millpond.engines.exact.program import SlotProgram
from millpond.engines.exact.state import decode_synopsis, encode_synopsis
from millpond.engines.exact.synopsis import Synopsis, _add_counts
from millpond.errors import MillpondError
from millpond.frontend.parse import parse
from millpond.query.model import Query
from millpond.query.normalize import TooManyParts
from millpond.runtime.duckdb import DuckDb
from millpond.runtime.sql import Dialect
from millpond.spark.operators.exact import divide_synopsis
from millpond.spark.operators.shard import WHOLE
from tests.campaigns.exact_engine import KINDS
from tests.support.generate import RichCase, Row, random_rows
from tests.support.local import arrow_table

pytestmark = pytest.mark.campaign

ENGINE = DuckDb()
ROWS = 24
# What random queries seldom have: representatives of many rows, conflicting requirements, several ``<>``.
RARE = (
    "SELECT A FROM S, T WHERE B < D AND D > 0 AND B < 4 AND A IN (1, 2)",
    "SELECT COUNT(*), SUM(C), COUNT(C) FROM S, T WHERE B <= D AND D > 0 AND B < 4",
    "SELECT DISTINCT A FROM S, T WHERE B < D AND C < E AND B < E AND C < D AND A BETWEEN 0 AND 3",
    "SELECT DISTINCT 1 FROM S, T WHERE B <= D AND C < D AND B < E AND C <= E",
    "SELECT DISTINCT A FROM S, T WHERE B <> D AND C <> E AND A BETWEEN 0 AND 1",
    "SELECT DISTINCT A FROM S, T WHERE B < D AND C <> E AND A BETWEEN 0 AND 1",
    "SELECT MIN(A), MAX(C) FROM S, T WHERE B < D AND D > 0 AND B < 4",
    "SELECT A, AVG(B), MEDIAN(C) FROM S, T WHERE A = D AND A BETWEEN 0 AND 3 AND C IN (1, 2) GROUP BY A",
)
Rows = Sequence[tuple[str, Row]]


def rare_case(rng: random.Random) -> RichCase:
    streams = {"S": "ABC", "T": "DE"}
    ddl = [f"CREATE STREAMING TABLE {s} ({', '.join(f'{c} INT' for c in cs)});" for s, cs in streams.items()]
    typed = {s: tuple((c, "INT") for c in columns) for s, columns in streams.items()}
    return RichCase(f"{' '.join(ddl)} {rng.choice(RARE)}", typed)


MAKERS = {**KINDS, "rare": rare_case}
Contents = dict[str, Counter[str]]


@dataclass(frozen=True)
class World:
    """A bounded query, ready to run, and rows of its streams."""

    verdict: Verdict
    compiled: CompiledExact
    rows: Rows

    @staticmethod
    @lru_cache(maxsize=256)
    def of(kind: str, seed: int) -> World | None:
        """The random query of a seed, if it is bounded; that of an odd seed is cut into chunks."""
        rng = random.Random(seed)
        case = MAKERS[kind](rng)
        [query] = parse(case.sql)
        if not _may_be_bounded(query):
            return None
        verdict = decide(query)
        if verdict.outcome != BOUNDED or verdict.plan is None:
            return None
        policy = ChunkPolicy(min_entries=0, values_per_chunk=rng.choice([1, 2, 3])) if seed % 2 else None
        compiled = compile_exact(verdict.plan, native_sets=False, chunk_policy=policy)
        rows = random_rows(rng, case, ROWS, nulls=rng.choice([0.0, 0.1]))
        return World(verdict, compiled, rows) if compiled.slots else None

    @property
    def slots(self) -> tuple[SlotProgram, ...]:
        return self.compiled.program.slots

    def taken_in(self, rows: Rows) -> Synopsis:
        """The synopsis of a batch."""
        program = self.compiled.program
        tables: dict[str, pa.Table] = {}
        for stream in self.compiled.streams():
            mine = [row for name, row in rows if name == stream]
            where, columns = self.compiled.ingest(stream, Dialect.DUCKDB)
            texts = ", ".join(f"{text} AS {name}" for name, text in columns)
            given = arrow_table(self.verdict.query.tables[stream], mine)
            coded = ENGINE.query(f"SELECT {texts} FROM input WHERE {where}", {"input": given})
            tables |= Synopsis.of_batch(ENGINE, program.slots_of(stream), coded).tables
        return Synopsis(tables)

    def merged(self, *parts: Synopsis) -> Synopsis:
        return Synopsis.merge(ENGINE, self.slots, parts)

    def parts(self, data: st.DataObject, count: int) -> list[Synopsis]:
        """The rows dealt out at random, each share taken in by itself."""
        places = data.draw(st.lists(st.integers(0, count - 1), min_size=ROWS, max_size=ROWS), "shares")
        shares = [[r for r, p in zip(self.rows, places, strict=True) if p == i] for i in range(count)]
        return [self.taken_in(share) for share in shares]


def _may_be_bounded(query: Query) -> bool:
    """Without the search for a witness, which takes its time."""
    try:
        return not analyse(query)[1]
    except TooManyParts:
        return False


def contents(synopsis: Synopsis) -> Contents:
    """The rows of every table, without order."""
    return {name: rows_of(table) for name, table in synopsis.tables.items() if table.num_rows}


def rows_of(table: pa.Table) -> Counter[str]:
    return Counter(repr(row) for row in table.to_pylist())


def assert_same(one: Synopsis, other: Synopsis) -> None:
    assert contents(one) == contents(other)
    for name in one.tables.keys() & other.tables.keys():
        assert one.tables[name].schema == other.tables[name].schema


def world(kind: str, seed: int) -> World:
    found = World.of(kind, seed)
    assume(found is not None)
    assert found is not None
    return found


laws = settings(deadline=None, max_examples=15, print_blob=True)
any_query = given(kind=st.sampled_from(sorted(MAKERS)), seed=st.integers(0, 5_000), data=st.data())


# --- merging -----------------------------------------------------------------------------------------


@laws
@any_query
def test_merging_is_associative_and_commutative(kind: str, seed: int, data: st.DataObject) -> None:
    w = world(kind, seed)
    a, b, c = w.parts(data, 3)
    assert_same(w.merged(a, w.merged(b, c)), w.merged(w.merged(a, b), c))
    assert_same(w.merged(a, b), w.merged(b, a))
    assert_same(w.merged(c, a, b), w.merged(a, b, c))


@laws
@any_query
def test_the_empty_synopsis_changes_nothing(kind: str, seed: int, data: st.DataObject) -> None:
    w = world(kind, seed)
    (a, _) = w.parts(data, 2)
    hollow = Synopsis({slot.name: slot.empty() for slot in w.slots})
    for empty in (Synopsis.empty(), hollow, w.taken_in([])):
        assert_same(w.merged(a, empty), a)
        assert_same(w.merged(empty, a), a)
        assert_same(w.merged(empty, empty), Synopsis.empty())


@laws
@any_query
def test_rows_may_be_taken_in_together_or_apart(kind: str, seed: int, data: st.DataObject) -> None:
    w = world(kind, seed)
    together = w.taken_in(w.rows)
    parts = w.parts(data, data.draw(st.sampled_from([2, 3, 5]), "count"))
    assert_same(w.merged(*parts), together)
    one_by_one = Synopsis.empty()
    for part in parts:
        one_by_one = w.merged(one_by_one, part)
    assert_same(one_by_one, together)


@laws
@any_query
def test_the_order_of_rows_does_not_matter(kind: str, seed: int, data: st.DataObject) -> None:
    w = world(kind, seed)
    assert_same(w.taken_in(data.draw(st.permutations(w.rows))), w.taken_in(w.rows))


@laws
@any_query
def test_synopsis_of_an_existence_need_has_no_counts(kind: str, seed: int, data: st.DataObject) -> None:
    """Counts add up; the rows kept of a class are the same however often they come."""
    w = world(kind, seed)
    a, b = w.parts(data, 2)
    twice, once = w.merged(a, b, a), w.merged(a, b)
    for slot in w.compiled.slots:
        same = contents(twice).get(slot.name) == contents(once).get(slot.name)
        assert same != (slot.plan.counted and slot.name in a.tables)


# --- size --------------------------------------------------------------------------------------------


@laws
@any_query
def test_entries_are_rows_and_stay_within_the_bound(kind: str, seed: int, data: st.DataObject) -> None:
    w = world(kind, seed)
    bound = w.verdict.state.entries
    assert bound is not None
    whole = Synopsis.empty()
    for part in w.parts(data, 3):
        whole = w.merged(whole, part)
        assert whole.entries == sum(len(table.to_pylist()) for table in whole.tables.values())
        assert whole.entries <= bound


# --- bytes -------------------------------------------------------------------------------------------


@laws
@any_query
def test_bytes_hold_the_whole_synopsis(kind: str, seed: int, data: st.DataObject) -> None:
    w = world(kind, seed)
    layout = w.compiled.program.fingerprint
    revision = data.draw(st.integers(0, 1 << 60), "revision")
    a, b = w.parts(data, 2)
    for synopsis in (a, w.merged(a, b), Synopsis.empty()):
        kept = encode_synopsis(synopsis, w.slots, layout, revision)
        again, number = decode_synopsis(kept, w.slots, layout)
        assert number == revision
        assert_same(again, synopsis)
        assert_same(w.merged(again, b), w.merged(synopsis, b))


@laws
@any_query
def test_bytes_hold_every_chunk(kind: str, seed: int, data: st.DataObject) -> None:
    w = world(kind, seed)
    layout = w.compiled.program.fingerprint
    whole = w.merged(*w.parts(data, 2))
    pieces = divide_synopsis(whole, w.slots, lambda chunk: chunk)
    found = []
    for chunk, tables in pieces.items():
        piece = Synopsis(tables)
        again, _ = decode_synopsis(encode_synopsis(piece, w.slots, layout, 7, chunk), w.slots, layout, chunk)
        assert_same(again, piece)
        found.append(again)
    assert_same(w.merged(*found), whole)
    cut = {slot.name for slot in w.slots if slot.chunk is not None}
    assert all((chunk == WHOLE) == (name not in cut) for chunk, part in pieces.items() for name in part)


# --- counts, added up without SQL --------------------------------------------------------------------


@laws
@any_query
def test_counts_of_a_query_are_added_as_sql_adds_them(kind: str, seed: int, data: st.DataObject) -> None:
    w = world(kind, seed)
    parts = w.parts(data, 3)
    for slot in w.slots:
        tables = [part.tables[slot.name] for part in parts if slot.name in part.tables]
        if slot.is_count and tables:
            assert_added_as_by_sql(slot, tables)


def counting_slot(chunk_policy: ChunkPolicy | None) -> SlotProgram:
    verdict = check(
        "CREATE STREAMING TABLE S (A INT); CREATE STREAMING TABLE T (D INT);"
        "SELECT A FROM S, T WHERE A = D AND A BETWEEN 0 AND 99"
    )
    assert isinstance(verdict, Verdict) and verdict.plan is not None
    slot = compile_exact(verdict.plan, chunk_policy=chunk_policy).program.slots[0]
    assert slot.is_count and (slot.chunk is None) == (chunk_policy is None)
    return slot


SLOTS = [counting_slot(None), counting_slot(ChunkPolicy(min_entries=0, values_per_chunk=10))]
COUNTS = st.dictionaries(st.integers(0, 99), st.integers(1, 1 << 60), max_size=12)


def counts_table(slot: SlotProgram, counts: Mapping[int, int], order: Iterable[int]) -> pa.Table:
    """A table of counts by key; a key's chunk is its tens."""
    keys = [k for k in order if k in counts]
    columns = {"n": [counts[k] for k in keys], slot.chunk: [k // 10 for k in keys]}
    return pa.table([columns.get(field.name, keys) for field in slot.schema], schema=slot.schema)


def assert_added_as_by_sql(slot: SlotProgram, tables: Sequence[pa.Table]) -> None:
    found = _add_counts(slot, tables)
    rows = ENGINE.query(slot.merge, {"rows": pa.concat_tables(tables)}).cast(slot.schema)
    assert found.schema == slot.schema
    assert rows_of(found) == rows_of(rows)


@settings(deadline=None, max_examples=150)
@given(slot=st.sampled_from(SLOTS), counts=st.lists(COUNTS, min_size=1, max_size=5), data=st.data())
def test_counts_are_added_as_sql_adds_them(
    slot: SlotProgram, counts: list[dict[int, int]], data: st.DataObject
) -> None:
    """Keys in any order, in some of the tables or in all; tables that are empty."""
    order = data.draw(st.permutations(range(100)), "order")
    assert_added_as_by_sql(slot, [counts_table(slot, c, order) for c in counts])


@pytest.mark.parametrize("slot", SLOTS, ids=["whole", "cut"])
def test_a_count_beyond_its_type_is_refused(slot: SlotProgram) -> None:
    """Neither way of adding may wrap around."""
    most = (1 << 63) - 1
    tables = [counts_table(slot, {3: most, 4: 1}, range(9)), counts_table(slot, {3: 1, 5: 1}, range(9))]
    with pytest.raises(MillpondError, match="does not fit"):
        ENGINE.query(slot.merge, {"rows": pa.concat_tables(tables)})
    with pytest.raises(MillpondError, match="does not fit"):
        Synopsis.merge(ENGINE, [slot], [Synopsis({slot.name: table}) for table in tables])
