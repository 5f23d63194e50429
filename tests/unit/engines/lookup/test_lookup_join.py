"""Lookups return the rows of the join, whatever the policy, the size of the cache and the batches."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from millpond.errors import RunError
from millpond.policies.registry import Use, policy_names
from millpond.query import types as domains
from tests.support.lookups import INT_LABEL, Join, relation, store

INT = [pa.int32()]


DUCKDB = duckdb.connect()


def expected(
    references: list[tuple[Any, ...]], rows: list[tuple[Any, ...]], types: list[pa.DataType], key: int
) -> Counter[tuple[Any, ...]]:
    """The join according to DuckDB: the number of the reference and the row; ``key`` columns join them."""
    asked = {"N": pa.int64()} | {f"c{i}": kind for i, kind in enumerate(types[:key])}
    held = {f"c{i}": kind for i, kind in enumerate(types)}
    for name, values, schema in (("s", references, asked), ("r", rows, held)):
        columns = [pa.array([v[i] for v in values], kind) for i, kind in enumerate(schema.values())]
        DUCKDB.register(name, pa.table(columns, names=list(schema)))
    on = " AND ".join(f"s.c{i} = r.c{i}" for i in range(key))
    return Counter(DUCKDB.execute(f"SELECT s.N, r.* FROM s JOIN r ON {on}").fetchall())


KEY = st.integers(-3, 8)


@pytest.mark.campaign
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(KEY, st.sampled_from(["a", "b", None])), max_size=25),
    keys=st.lists(st.one_of(st.none(), KEY), max_size=40),
    cuts=st.lists(st.integers(0, 40), max_size=4),
    memory=st.integers(1, 9),
    policy=st.sampled_from(policy_names(Use.LOOKUP)),
)
def test_lookups_return_exactly_the_rows_of_the_join(
    tmp_path: Path, rows: list[Any], keys: list[Any], cuts: list[int], memory: int, policy: str
) -> None:
    url = store(tmp_path / "r.db", "R", INT_LABEL, rows)
    join = Join(relation(url, INT_LABEL, memory, policy), ["K"], INT)
    found, lookups, hits = join.run([(key,) for key in keys], [min(cut, len(keys)) for cut in cuts])
    assert Counter(found) == expected([(n, key) for n, key in enumerate(keys)], rows, [*INT, pa.string()], 1)
    assert lookups == sum(key is not None for key in keys) and 0 <= hits <= lookups
    assert join.cache.rows <= memory and join.cache.table.num_rows <= memory


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["x", "X", "ß", "", None]), st.integers(0, 9))
    ),
    keys=st.lists(
        st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.sampled_from(["x", "X", "ß", "", None]))
    ),
    memory=st.integers(1, 20),
    cut=st.integers(0, 10),
)
def test_a_key_can_have_several_columns(
    tmp_path: Path, rows: list[Any], keys: list[Any], memory: int, cut: int
) -> None:
    columns = {"A": domains.INT, "B": domains.STRING, "V": domains.BIGINT}
    types = [pa.int32(), pa.string(), pa.int64()]
    url = store(tmp_path / "r.db", "R", columns, rows)
    join = Join(relation(url, columns, memory, "lfu"), ["A", "B"], types[:2])
    found, _, _ = join.run(keys, [min(cut, len(keys))])
    assert Counter(found) == expected([(n, *key) for n, key in enumerate(keys)], rows, types, 2)


@pytest.mark.parametrize(
    ("kind", "arrow", "stored", "values"),
    [
        (domains.BIGINT, pa.int64(), [1 << 62, -5], [1 << 62, -5, 7]),
        (domains.TINYINT, pa.int8(), [1, -128], [1, -128, 5]),
        (domains.BOOLEAN, pa.bool_(), [True], [True, False]),
        (domains.STRING, pa.string(), ["a", "A ", "it's"], ["a", "A", "A ", "it's", "%"]),
        (domains.DATE, pa.date32(), ["2024-02-29"], [date(2024, 2, 29), date(2024, 3, 1)]),
        (
            domains.decimal(10, 2),
            pa.decimal128(10, 2),
            [1.5, 2.25],
            [Decimal("1.50"), Decimal("2.25"), Decimal("9")],
        ),
        (
            domains.TIMESTAMP,
            pa.timestamp("us", "UTC"),
            ["2024-01-02 03:04:05.000006"],
            [datetime(2024, 1, 2, 3, 4, 5, 6, UTC), datetime(2024, 1, 2, 3, 4, 5, 7, UTC)],
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, domains.SqlType) else "",
)
def test_a_key_can_have_any_exact_type(
    tmp_path: Path, kind: domains.SqlType, arrow: pa.DataType, stored: list[Any], values: list[Any]
) -> None:
    columns = {"K": kind, "V": domains.INT}
    url = store(tmp_path / "r.db", "R", columns, [(value, n) for n, value in enumerate(stored)])
    join = Join(relation(url, columns, 10), ["K"], [arrow])
    found, _, hits = join.run([(value,) for value in values] * 2)
    known = {n for n, value in enumerate(values) if value in [r[1] for r in found]}
    assert len(known) == len(stored) and len(found) == 2 * len(stored) and hits == len(values)


def test_many_keys_are_fetched_in_several_statements(tmp_path: Path) -> None:
    rows = [(n, str(n)) for n in range(0, 80_000, 2)]
    url = store(tmp_path / "r.db", "R", INT_LABEL, rows)
    join = Join(relation(url, INT_LABEL, 100), ["K"], INT)
    found, lookups, hits = join.run([(n,) for n in range(70_000)])
    assert (len(found), lookups, hits) == (35_000, 70_000, 0)
    assert all(int(row[2]) == row[1] == row[0] for row in found)


def test_a_key_can_have_more_rows_than_an_output_batch(tmp_path: Path) -> None:
    url = store(tmp_path / "r.db", "R", INT_LABEL, [(1, str(n)) for n in range(70_000)] + [(2, "x")])
    join = Join(relation(url, INT_LABEL, 50), ["K"], INT)
    found, lookups, hits = join.run([(1,), (2,), (1,), (2,)])
    assert len(found) == 140_002 and (lookups, hits) == (4, 1)  # rows that do not fit are not cached
    assert join.cache.rows == 1


@pytest.mark.campaign
def test_lookups_stay_correct_when_old_keys_are_forgotten(tmp_path: Path) -> None:
    url = store(tmp_path / "r.db", "R", INT_LABEL, [(n, str(n)) for n in range(1000)])
    for policy in ("auto", "lfu", "rand", "fifo"):
        join = Join(relation(url, INT_LABEL, 2000 if policy == "auto" else 20, policy), ["K"], INT)
        rng = np.random.default_rng(5)
        for _ in range(4):
            keys = np.where(
                rng.random(60_000) < 0.5, rng.integers(0, 50, 60_000), rng.integers(0, 1 << 30, 60_000)
            )
            found, _, hits = join.run([(int(key),) for key in keys])
            assert Counter(row[0] for row in found) == Counter(np.flatnonzero(keys < 1000).tolist())
            assert all(str(keys[n]) == label for n, _, label in found)
            assert hits > 5_000 and join.cache.rows <= 2000


def test_rows_older_than_the_ttl_are_fetched_again(tmp_path: Path) -> None:
    now = [0.0]
    url = store(tmp_path / "r.db", "R", INT_LABEL, [(1, "old")])
    join = Join(relation(url, INT_LABEL, 3, ttl=60.0), ["K"], INT)
    join.cache._clock = lambda: now[0]
    assert join.run([(1,), (2,)]) == ([(0, 1, "old")], 2, 0)
    store(tmp_path / "r.db", "R", INT_LABEL, [(1, "new"), (1, "newer"), (2, "two"), (3, "x")])
    now[0] = 59.0
    assert join.run([(1,), (2,)]) == ([(0, 1, "old")], 2, 2)
    now[0] = 61.0
    found, lookups, hits = join.run([(1,), (1,), (2,)])
    assert Counter(row[2] for row in found) == Counter({"new": 2, "newer": 2, "two": 1})
    assert (lookups, hits) == (3, 1) and join.cache.rows == 3  # a key may have more rows than before


def test_a_value_that_is_not_of_the_declared_type_ends_the_run(tmp_path: Path) -> None:
    url = store(tmp_path / "r.db", "R", INT_LABEL, [(1, "a")])
    wrong = {"K": domains.INT, "LABEL": domains.INT}
    with pytest.raises(RunError, match=r"^R\.LABEL: a value in the database is not INT: "):
        Join(relation(url, wrong, 3), ["K"], INT).run([(1,)])
