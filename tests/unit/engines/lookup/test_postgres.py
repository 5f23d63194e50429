"""Lookups in a real PostgreSQL server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import sqlalchemy as sa

from millpond.engines.lookup.database import find_table, read_columns
from millpond.engines.lookup.declaration import LookupRelation
from millpond.engines.lookup.row_fetcher import RowFetcher
from millpond.errors import MillpondError, RunError
from millpond.lab.simulate import cache_player
from millpond.query import types as domains
from millpond.query.model import Column
from tests.support.lookups import INT_LABEL, Join, relation
from tests.support.postgres import Server, server


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    with server() as made:
        engine = sa.create_engine(made.url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for statement in (
                "CREATE TABLE r (k INT PRIMARY KEY, label TEXT)",
                "INSERT INTO r SELECT 3 * n, 'label ' || n FROM generate_series(0, 999) n",
                'CREATE TABLE "Pairs" (a INT, b TEXT, v BIGINT)',
                """INSERT INTO "Pairs" VALUES (1, 'x', 10), (1, 'x', 11), (1, 'X', 12), (2, NULL, 13)""",
                "CREATE SCHEMA other",
                "CREATE TABLE other.kinds (d DATE, n NUMERIC(10, 2), at TIMESTAMPTZ, local TIMESTAMP,"
                " x FLOAT8, b BOOLEAN, s SMALLINT, j JSONB, id BIGINT NOT NULL)",
                "INSERT INTO other.kinds VALUES ('2024-02-29', 1.50, '2024-01-01 12:00:00+02',"
                " '2024-01-01 12:00:00', 0.1, true, 7, '{}', 1)",
            ):
                connection.execute(sa.text(statement))
        engine.dispose()
        yield made


def test_lookups_return_the_rows_of_the_table_and_count_hits_like_the_lab(postgres: Server) -> None:
    keys = np.random.default_rng(2).zipf(1.3, 10_000) % 4000
    for policy in ("lru", "lfu", "fifo", "rand", "rehearse"):
        join = Join(relation(postgres.url, INT_LABEL, 60, policy), ["K"], [pa.int32()])
        found, lookups, hits = join.run([(int(key),) for key in keys], [100, 4321])
        there = [(n, int(k), f"label {k // 3}") for n, k in enumerate(keys) if k % 3 == 0 and k < 3000]
        assert Counter(found) == Counter(there)
        assert (lookups, hits) == (len(keys), cache_player(policy, 60, None)(keys).sum())
        assert join.cache.rows <= 60


def test_a_key_can_have_several_columns(postgres: Server) -> None:
    columns = (Column("A", domains.INT), Column("B", domains.STRING), Column("V", domains.BIGINT))
    table = find_table(LookupRelation("P", postgres.url, "Pairs", columns, 10, "lru"))
    join = Join(table, ["A", "B"], [pa.int32(), pa.string()])
    found, lookups, hits = join.run([(1, "x"), (1, "X"), (2, "x"), (2, None), (1, "x")], [2])
    assert Counter(row[:1] + row[3:] for row in found) == Counter(
        [(0, 10), (0, 11), (1, 12), (4, 10), (4, 11)]
    )
    assert (lookups, hits) == (4, 1)


def test_a_string_with_the_character_zero_matches_nothing(postgres: Server) -> None:
    columns = (Column("A", domains.INT), Column("B", domains.STRING), Column("V", domains.BIGINT))
    table = find_table(LookupRelation("P", postgres.url, "Pairs", columns, 10, "lru"))
    for key, types in ((["B"], [pa.string()]), (["A", "B"], [pa.int32(), pa.string()])):
        asked = [(1, text)[-len(key) :] for text in ("X\0", "X", "\0")]
        found, lookups, _ = Join(table, key, types).run(asked)
        assert (found, lookups) == ([(1, 1, "X", 12)], 3)


@pytest.mark.parametrize(
    ("name", "kind", "arrow", "value"),
    [
        ("d", domains.DATE, pa.date32(), date(2024, 2, 29)),
        ("n", domains.decimal(10, 2), pa.decimal128(10, 2), Decimal("1.50")),
        ("at", domains.TIMESTAMP, pa.timestamp("us", "UTC"), datetime(2024, 1, 1, 10, tzinfo=UTC)),
        ("local", domains.TIMESTAMP, pa.timestamp("us", "UTC"), datetime(2024, 1, 1, 12, tzinfo=UTC)),
        ("b", domains.BOOLEAN, pa.bool_(), True),
        ("s", domains.TINYINT, pa.int8(), 7),
        ("id", domains.INT, pa.int32(), 1),
    ],
)
def test_a_key_can_have_any_exact_type(
    postgres: Server, name: str, kind: domains.SqlType, arrow: pa.DataType, value: Any
) -> None:
    columns = (Column(name, kind), *(Column(n, k) for n, k in (("x", domains.DOUBLE),) if n != name))
    table = find_table(LookupRelation("R", postgres.url, "other.kinds", columns, 10, "lru"))
    assert Join(table, [name], [arrow]).run([(value,), (None,)]) == ([(0, value, 0.1)], 1, 0)


def test_columns_are_read_from_the_database_without_unsupported_types(postgres: Server) -> None:
    found = read_columns(LookupRelation("R", postgres.url, "other.kinds", (), 1))
    assert {c.name: c.type.name for c in found} == {
        "d": "DATE", "n": "DECIMAL(10,2)", "at": "TIMESTAMP", "local": "TIMESTAMP", "x": "DOUBLE",
        "b": "BOOLEAN", "s": "SMALLINT", "id": "BIGINT",
    }  # fmt: skip
    with pytest.raises(
        MillpondError, match=r"R: the database has no table other\.nosuch; correct the option dbtable"
    ):
        read_columns(LookupRelation("R", postgres.url, "other.nosuch", (), 1))


def test_a_statement_that_exceeds_the_timeout_is_cancelled_and_retried(postgres: Server) -> None:
    engine = sa.create_engine(postgres.url)
    with engine.connect() as locking:
        table = relation(postgres.url, INT_LABEL, 5, timeout=0.2, retries=1)
        locking.execute(sa.text("LOCK TABLE r IN ACCESS EXCLUSIVE MODE"))
        fetcher = RowFetcher(table, ["K"], [], sleep=lambda seconds: None)
        with pytest.raises(RunError, match=r"^R: .* after 2 attempts: .*statement timeout"):
            fetcher.fetch([pa.array([3], pa.int32())])
        locking.rollback()
        assert fetcher.fetch([pa.array([3], pa.int32())]).num_rows == 1
    engine.dispose()


def test_a_fetch_is_retried_until_the_server_is_back(postgres: Server) -> None:
    """The last test here: it ends the server's connections."""
    asked = [pa.array([3, 4], pa.int32())]
    pauses: list[float] = []

    def start(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            postgres.start()

    fetcher = RowFetcher(relation(postgres.url, INT_LABEL, 5), ["K"], ["LABEL"], sleep=start)
    assert fetcher.fetch(asked).num_rows == 1
    postgres.stop()
    assert fetcher.fetch(asked).num_rows == 1 and pauses == [0.5, 1.0]
    postgres.stop()
    failing = RowFetcher(fetcher._table, ["K"], [], sleep=lambda seconds: None)
    try:
        with pytest.raises(RunError, match=r"^R: reading the database failed after 5 attempts: "):
            failing.fetch(asked)
    finally:
        postgres.start()
