"""Lookup joins through Spark: from the command line and from Python, in SQLite and in PostgreSQL."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
import sqlalchemy as sa
from numpy.typing import NDArray
from pyspark.sql import SparkSession

import millpond
from millpond.cli import main as cli
from millpond.lab.simulate import cache_player
from millpond.query import types as domains
from millpond.spark import run as run_module
from tests.support.lookups import INT_LABEL, store
from tests.support.postgres import Server, server

STREAM = "CREATE STREAMING TABLE S (A INT, B INT) USING json OPTIONS (path 'in', maxFilesPerTrigger '1');\n"
RELATION = "CREATE TABLE R (K INT, LABEL STRING) USING lookup OPTIONS (url '{url}', dbtable 'R', {more});\n"
JOIN = "SELECT A, B, LABEL FROM S JOIN R ON A = K WHERE B >= 0;\n"
RNG = np.random.default_rng(11)
KEYS = RNG.zipf(1.3, 4000) % 500
Captured = pytest.CaptureFixture[str]


class Folder:
    """A query with its stream and its database."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "in").mkdir()
        self.labels = [(n, f"label {n}") for n in range(0, 400, 2)] + [(6, "again"), (8, None)]
        store(path / "r.db", "R", INT_LABEL, self.labels)
        self.rows: list[tuple[int | None, int]] = []

    def ask(
        self, query: str = JOIN, more: str = "memory '40', policy 'lru'", url: str = "sqlite:///r.db"
    ) -> None:
        (self.path / "q.sql").write_text(STREAM + RELATION.format(url=url, more=more) + query)

    def feed(self, number: int, keys: Any) -> None:
        rows = [(None if key is None else int(key), n - 1) for n, key in enumerate(keys)]
        self.rows += rows
        file = self.path / "in" / f"{number}.json"
        file.write_text("".join(json.dumps({"A": a, "B": b}) + "\n" for a, b in rows))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))

    def run(self, *options: str) -> int:
        command = ["run", str(self.path / "q.sql"), "--once", "--output", str(self.path / "out"), *options]
        return cli.main([*command, "--metrics", str(self.path / "metrics")])

    def metrics(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.path / "metrics").read_text().splitlines()]

    def written(self) -> Counter[tuple[Any, ...]]:
        files = sorted((self.path / "out").glob("part-*.json"))
        return Counter(tuple(json.loads(line).values()) for f in files for line in f.read_text().splitlines())

    def expected(self) -> Counter[tuple[Any, ...]]:
        connection = duckdb.connect()
        connection.execute("CREATE TABLE S (A INT, B INT)")
        connection.execute("CREATE TABLE R (K INT, LABEL VARCHAR)")
        connection.executemany("INSERT INTO S VALUES (?, ?)", self.rows)
        connection.executemany("INSERT INTO R VALUES (?, ?)", self.labels)
        return Counter(connection.execute(JOIN).fetchall())


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture(scope="module")
def postgres() -> Iterator[Server]:
    with server() as made:
        yield made


def error_line(capsys: Captured) -> str:
    """The one line that is said of a run that did not go well."""
    lines = [
        line
        for line in capsys.readouterr().err.splitlines()
        if not re.match("millpond: (start|run|resum)", line)
    ]
    assert len(lines) == 1, lines
    return lines[0]


# --- runs ----------------------------------------------------------------------------------------------


def count_hits(*batches: NDArray[np.int64]) -> list[list[int]]:
    """The hits of each batch in the lab, for every way in which Spark can share the batches among workers.

    Each worker has a cache of its own.
    """
    every = []
    for workers in product(range(len(batches)), repeat=len(batches)):
        hits = [0] * len(batches)
        for worker in set(workers):
            own = [i for i, each in enumerate(workers) if each == worker]
            found = cache_player("lfu", 40, None)(np.concatenate([batches[i] for i in own]))
            ends = np.cumsum([len(batches[i]) for i in own])[:-1]
            for i, part in zip(own, np.split(found, ends), strict=True):
                hits[i] = int(part.sum())
        every.append(hits)
    return every


def test_a_run_is_exact_and_its_cache_hits_equal_those_of_the_lab(folder: Folder, capsys: Captured) -> None:
    folder.ask(more="memory '40', policy 'lfu'")
    folder.labels = folder.labels[:-2]  # one row a key, as in the lab
    store(folder.path / "r.db", "R", INT_LABEL, folder.labels)
    folder.feed(1, [None, *KEYS[:1500]])
    folder.feed(2, [None, *KEYS[1500:3000]])
    folder.feed(3, [None, None, *KEYS[3000:]])
    assert folder.run() == 0
    assert folder.written() == folder.expected()
    lines = folder.metrics()
    assert [line["lookups"] for line in lines] == [1500, 1500, 1000]
    hits = [line["lookup_hits"] for line in lines]
    assert hits in count_hits(KEYS[:1500], KEYS[1500:3000], KEYS[3000:])

    assert f"4,000 lookups, {sum(hits) / 4000:.1%} from the cache" in capsys.readouterr().err


def test_a_database_that_fails_ends_the_run_and_loses_no_row(
    folder: Folder, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.ask(more="memory '40', retries '1'")
    folder.feed(1, KEYS[:300])
    assert folder.run() == 0
    capsys.readouterr()
    folder.feed(2, KEYS[300:600])
    database, away = folder.path / "r.db", folder.path / "away"
    start = run_module.PreparedRun.start
    with monkeypatch.context() as patched:
        patched.setattr(
            run_module.PreparedRun, "start", lambda job, once: (database.rename(away), start(job, once))[1]
        )
        assert folder.run() == 4
    line = error_line(capsys)
    assert re.search(r"R: reading the database failed after 2 attempts: no such file", line), line
    assert not database.exists()  # and none was made
    away.rename(database)
    assert folder.run() == 0
    assert folder.written() == folder.expected()


@pytest.mark.parametrize(
    ("query", "more", "pattern"),
    [
        (JOIN, "memory '0'", "R: cannot cache 0 rows"),
        (JOIN, "policy 'lru'", "R: the number of rows to cache is missing; .* or give --memory N"),
        ("SELECT A FROM S, R WHERE A < K", "memory '9'", "no equality joins it with the stream; add AND"),
        ("SELECT A FROM S, R WHERE K = 5", "memory '9'", "no equality joins it with the stream; add AND"),
        ("SELECT DISTINCT LABEL FROM S, R WHERE A = K", "memory '9'", "the query has DISTINCT; select"),
        ("SELECT COUNT(*) FROM S, R WHERE A = K", "memory '9'", "the query has an aggregate; select"),
        ("SELECT x.A FROM S x, S y, R WHERE x.A = K AND y.A = K", "memory '9'", "the query has 2 streams"),
    ],
)
def test_what_cannot_be_run_is_refused_without_spark(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, query: str, more: str, pattern: str
) -> None:
    monkeypatch.setattr(run_module, "open_session", None)
    folder = Folder(tmp_path)
    folder.ask(query, more)
    assert folder.run() == 2
    assert re.search(pattern, error_line(capsys))


def test_a_missing_database_is_reported_before_spark_starts(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "open_session", None)
    folder = Folder(tmp_path)
    folder.ask(url="sqlite:///nosuch.db")
    assert folder.run() == 2
    assert re.search(r"R: cannot connect to the database: no such file: .*/nosuch\.db; ", error_line(capsys))


def test_memory_and_policy_from_the_command_line(folder: Folder, capsys: Captured) -> None:
    folder.ask(more="ttl '1 hour'")
    folder.feed(1, KEYS[:500])
    assert folder.run("--memory", "30", "--policy", "best") == 2
    assert "there is no policy 'best'" in error_line(capsys)
    assert folder.run("--memory", "30", "--policy", "fifo") == 0
    assert folder.written() == folder.expected()


# --- from Python ---------------------------------------------------------------------------------------


def test_several_relations(spark: SparkSession, tmp_path: Path) -> None:
    """Keys of several columns and types, a key from another lookup, a relation that is read once, a UNION."""
    rng = np.random.default_rng(3)
    s = [(int(a), int(b), str(c), int(n)) for n, (a, b, c) in enumerate(rng.integers(0, 6, (300, 3)))]
    r = [(int(a), str(b), int(c), int(d)) for a, b, c, d in rng.integers(0, 6, (25, 4))]
    t = [(int(a), f"t{b}") for a, b in rng.integers(0, 6, (9, 2))]
    w = [(int(a), int(b)) for a, b in rng.integers(0, 6, (5, 2))]
    kinds = {"X": domains.BIGINT, "Y": domains.STRING, "Z": domains.BIGINT, "V": domains.BIGINT}
    url = store(tmp_path / "db", "R1", kinds, r)
    store(tmp_path / "db", "T1", {"Z": domains.BIGINT, "NAME": domains.STRING}, t)
    schema = "A INT, B SMALLINT, C STRING, N BIGINT"
    spark.createDataFrame(s, schema).coalesce(1).write.parquet(f"{tmp_path}/s")
    spark.readStream.schema(schema).parquet(f"{tmp_path}/s").createOrReplaceTempView("S")
    spark.createDataFrame(w, "P INT, Q INT").createOrReplaceTempView("W")
    millpond.lookup(spark, "R1", url=url, dbtable="R1", memory=7, policy="lru")
    millpond.lookup(spark, "t1", url=url, dbtable="T1")
    query = """
        SELECT N, R1.V + A AS v, t.NAME, Q FROM S, R1, T1 t, W
        WHERE A + 1 = X AND R1.Y = C AND t.Z = R1.Z AND P = B AND N < 250 AND R1.V <> B
        UNION ALL SELECT N, X, NAME, 0 FROM S JOIN R1 ON B = R1.X AND C = Y JOIN T1 ON A = T1.Z AND V > 2
    """
    answer = millpond.sql(spark, query, memory=3, policy="fifo")
    assert answer.isStreaming and answer.columns == ["N", "v", "NAME", "Q"]
    writer = answer.writeStream.format("memory").queryName("found").trigger(availableNow=True)
    running = writer.option("checkpointLocation", f"{tmp_path}/checkpoint").start()
    running.awaitTermination()
    connection = duckdb.connect()
    for name, columns, rows in (
        ("S", "A INT, B SMALLINT, C VARCHAR, N BIGINT", s),
        ("R1", "X BIGINT, Y VARCHAR, Z BIGINT, V BIGINT", r),
        ("T1", "Z BIGINT, NAME VARCHAR", t),
        ("W", "P INT, Q INT", w),
    ):
        connection.execute(f"CREATE TABLE {name} ({columns})")
        connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    expected = Counter(connection.execute(query).fetchall())
    assert Counter(map(tuple, spark.table("found").collect())) == expected and expected
    progress = [p.observedMetrics["millpond"] for p in running.recentProgress if p.observedMetrics]
    assert progress[0]["lookups"] > 300 and 0 < progress[0]["lookup_hits"] < progress[0]["lookups"]
    assert progress[0]["output_rows"] == sum(expected.values())


def test_lookups_in_postgresql(postgres: Server, folder: Folder) -> None:
    engine = sa.create_engine(postgres.url)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE r (k INT, label TEXT)"))
        rows = [{"k": k, "label": label} for k, label in folder.labels]
        connection.execute(sa.text("INSERT INTO r VALUES (:k, :label)"), rows)
    engine.dispose()
    folder.ask(url=postgres.url, more="memory '40', policy 'auto', timeout '10 seconds'")
    folder.feed(1, KEYS[:1000])
    folder.feed(2, KEYS[1000:2000])
    assert folder.run() == 0
    assert folder.written() == folder.expected()
    assert sum(line["lookup_hits"] for line in folder.metrics()) > 500


def test_a_name_of_both_a_view_and_a_lookup_relation_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    url = store(tmp_path / "db", "r", {"K": domains.INT}, [(1,)])
    millpond.lookup(spark, "twofold", url=url, dbtable="r", memory=5)
    spark.range(3).createOrReplaceTempView("Twofold")
    with pytest.raises(millpond.MillpondError, match="twofold is both a view and a lookup relation"):
        millpond.sql(spark, "SELECT K FROM twofold")
    spark.catalog.dropTempView("Twofold")


def test_values_of_every_type(spark: SparkSession, tmp_path: Path) -> None:
    """Values of the stream and of the relation keep their types; the key is a timestamp."""
    timestamp, day = datetime(2024, 1, 2, 3, 4, 5, 6), date(2024, 2, 29)
    kinds = {
        "at": domains.TIMESTAMP, "day": domains.DATE, "price": domains.decimal(9, 2), "share": domains.DOUBLE,
        "open": domains.BOOLEAN, "name": domains.STRING, "big": domains.BIGINT,
    }  # fmt: skip
    row = (timestamp.isoformat(" "), day.isoformat(), 1.25, 0.1, True, "ß", 1 << 60)
    url = store(tmp_path / "db", "r", kinds, [row])
    schema = "T TIMESTAMP, D DATE, P DECIMAL(5, 1), X FLOAT, N INT"
    frame = spark.sql(
        "SELECT TIMESTAMP '2024-01-02 03:04:05.000006' AS T, DATE '1999-12-31' AS D, "
        "CAST(2.5 AS DECIMAL(5, 1)) AS P, CAST(0.5 AS FLOAT) AS X, CAST(7 AS INT) AS N"
    )
    frame.write.parquet(f"{tmp_path}/s")
    spark.readStream.schema(schema).parquet(f"{tmp_path}/s").createOrReplaceTempView("Moments")
    millpond.lookup(spark, "Priced", url=url, dbtable="r", memory=5)
    columns = "T, D, P, X, N, at, day, price, share, open, name, big"
    answer = millpond.sql(spark, f"SELECT {columns} FROM Moments JOIN Priced ON T = Priced.at")
    writer = answer.writeStream.format("memory").queryName("kinds").trigger(availableNow=True)
    writer.option("checkpointLocation", f"{tmp_path}/checkpoint").start().awaitTermination()
    [found] = spark.table("kinds").collect()
    own = (timestamp, date(1999, 12, 31), Decimal("2.5"), 0.5, 7)
    assert tuple(found) == (*own, timestamp, day, Decimal("1.25"), 0.1, True, "ß", 1 << 60)
