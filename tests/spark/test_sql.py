"""Bounded queries as streaming DataFrames: exact, with Spark's own types, in constant state."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession

import millpond
from tests.campaigns.exact_on_spark import bounded_case, examine

View = Callable[[str, str, list[list[tuple[Any, ...]]]], None]


@pytest.fixture
def view(spark: SparkSession, tmp_path: Path) -> View:
    """Registers a stream of micro-batches, and as NAME_all a static view of the same rows."""

    def register(name: str, schema: str, batches: list[list[tuple[Any, ...]]]) -> None:
        folder = str(tmp_path / name)
        for rows in batches:
            spark.createDataFrame(rows, schema).coalesce(1).write.mode("append").parquet(folder)
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(folder)
        stream.createOrReplaceTempView(name)
        spark.read.schema(schema).parquet(folder).createOrReplaceTempView(f"{name}_all")

    return register


def run(frame: DataFrame, folder: Path) -> tuple[list[Row], list[Any]]:
    """All rows that a query emits, and the progress of its batches."""
    rows: list[Row] = []

    def keep(batch: DataFrame, number: int) -> None:
        del number
        rows.extend(batch.collect())

    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return rows, [p for p in query.recentProgress if "addBatch" in p.durationMs]


def latest(rows: list[Row], keys: int) -> Counter[tuple[Any, ...]]:
    """The row with the highest revision of each group."""
    groups: dict[tuple[Any, ...], Row] = {}
    for row in sorted(rows, key=lambda r: r["_revision"]):
        groups[tuple(row[:keys])] = row
    return Counter(tuple(row[:-1]) for row in groups.values())


@pytest.mark.campaign
def test_random_queries_through_spark(spark: SparkSession) -> None:
    """``python -m tests.campaigns.exact_on_spark`` runs more of them."""
    done, seed = 0, 40
    while done < 2:
        if (found := bounded_case(seed)) is not None:
            case, verdict, rng = found
            assert examine(spark, seed, case, verdict, rng) is None
            done += 1
        seed += 1


DAY = datetime.date(2024, 2, 28)
JOINED = "FROM {S} s, {T} t WHERE k = j AND k BETWEEN 0 AND 5"
DAYS = "d BETWEEN DATE '2024-02-28' AND DATE '2024-03-02'"


@pytest.mark.parametrize(
    ("keys", "query"),
    [
        (1, f"SELECT k, COUNT(*), COUNT(x), SUM(x), AVG(x), MIN(x), MAX(x) {JOINED} GROUP BY k"),
        (1, f"SELECT d, MEDIAN(k), COUNT(DISTINCT k), AVG(p) a {JOINED} AND {DAYS} GROUP BY d"),
        (0, f"SELECT SUM(p) AS total, MAX(d), SUM(x) * 2 {JOINED}"),
        (0, f"SELECT COUNT(*), SUM(x), MIN(name) {JOINED} AND k = 4"),
    ],
)
def test_aggregates_have_sparks_types_and_values(
    spark: SparkSession, view: View, tmp_path: Path, keys: int, query: str
) -> None:
    rows = [
        (i % 4, i if i % 3 else None, Decimal(i) / 4, DAY + datetime.timedelta(i % 4), f"n{i}")
        for i in range(24)
    ]
    view("S", "k INT, x INT, p DECIMAL(10,2), d DATE, name STRING", [rows[:7], rows[7:15], rows[15:]])
    view("T", "j INT", [[(1,), (None,)], [(2,), (1,)], [(3,), (9,)]])
    frame = millpond.sql(spark, query.format(S="S", T="T"))
    truth = spark.sql(query.format(S="S_all", T="T_all"))
    assert [(f.name, f.dataType) for f in frame.schema.fields[:-1]] == [
        (f.name, f.dataType) for f in truth.schema.fields
    ]
    emitted, _ = run(frame, tmp_path)
    assert latest(emitted, keys) == Counter(tuple(row) for row in truth.collect())


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT k, name {JOINED} AND name IN ('it''s', 'b')",
        "SELECT x FROM {S} s WHERE x > 1",
        "SELECT DISTINCT k FROM {S} s WHERE k < 3 AND k > -3",
        f"SELECT k {JOINED} AND k < 2 AND k > 0 UNION ALL SELECT j FROM {{T}} t WHERE j > 1",
        "SELECT k + 1 AS n FROM {S} s, {T} t WHERE x < j AND k IN (1, 2) UNION SELECT j FROM {T} WHERE j = 1",
    ],
)
def test_rows_are_those_of_the_batch_answer(
    spark: SparkSession, view: View, tmp_path: Path, query: str
) -> None:
    names = ["it's", "b", "ü\\"]
    rows = [(i % 4 if i % 5 else None, i, names[i % 3]) for i in range(30)]
    view("S", "k INT, x BIGINT, name STRING", [rows[:11], rows[11:12], rows[12:]])
    view("T", "j INT", [[(3,), (None,)], [(2,), (1,)], [(3,), (9,)]])
    frame = millpond.sql(spark, query.format(S="S", T="T"))
    truth = spark.sql(query.format(S="S_all", T="T_all"))
    assert frame.schema.names == truth.schema.names
    assert [f.dataType for f in frame.schema] == [f.dataType for f in truth.schema]
    emitted, _ = run(frame, tmp_path)
    assert Counter(map(tuple, emitted)) == Counter(map(tuple, truth.collect()))


def test_a_large_synopsis_is_divided_into_chunks_and_stays_exact(
    spark: SparkSession, view: View, tmp_path: Path
) -> None:
    keys = [i * 7919 % 100_000 for i in range(3_000)]
    view("S", "k INT", [[(k,) for k in keys[:1000]], [(k,) for k in keys[1000:1500]]])
    view("T", "j INT", [[(k + 1,) for k in keys[500:1200]], [(k + 1,) for k in keys[:800]]])
    query = "SELECT j, COUNT(*) AS n FROM {S} s, {T} t WHERE k + 1 = j AND k BETWEEN 0 AND 100000 GROUP BY j"
    emitted, progress = run(millpond.sql(spark, query.format(S="S", T="T")), tmp_path)
    truth = spark.sql(query.format(S="S_all", T="T_all")).collect()
    assert latest(emitted, 1) == Counter(map(tuple, truth))
    state = progress[-1].observedMetrics["millpond"]
    assert state["state_entries"] == 1500 + 1200  # one for each different key of each stream
    assert 1 < sum(s.numRowsTotal for s in progress[-1].stateOperators) < 200


def test_state_does_not_grow(spark: SparkSession, view: View, tmp_path: Path) -> None:
    rows = [(10, i, i % 7) for i in range(50)]
    view("S", "A INT, B INT, C INT", [rows] * 4)
    view("T", "D INT, E INT", [[(i, i) for i in range(40)]] * 4)
    query = "SELECT DISTINCT A FROM S, T WHERE B < D AND C < E AND B < E AND C < D AND A = 10"
    emitted, progress = run(millpond.sql(spark, query), tmp_path)
    assert emitted == [Row(A=10)]
    kept = {p.observedMetrics["millpond"]["state_entries"] for p in progress}
    stored = {sum(s.numRowsTotal for s in p.stateOperators) for p in progress}
    assert len(progress) == 4 and len(kept) == 1 and stored == {1}


def test_another_query_on_the_checkpoint_is_refused(spark: SparkSession, view: View, tmp_path: Path) -> None:
    view("S", "k INT", [[(1,)], [(2,)]])
    view("T", "j INT", [[(1,)], [(2,)]])
    query = "SELECT k FROM S, T WHERE k = j AND k BETWEEN 0 AND {}"
    emitted, _ = run(millpond.sql(spark, query.format(5)), tmp_path)
    assert sorted(emitted) == [Row(k=1), Row(k=2)]
    view("S", "k INT", [[(1,)]])
    with pytest.raises(StreamingQueryException, match="the checkpoint belongs to another query"):
        run(millpond.sql(spark, query.format(6)), tmp_path)


def test_a_query_that_cannot_run_is_refused_at_once(spark: SparkSession, view: View) -> None:
    view("S", "k INT", [[(1,)]])
    view("T", "j INT", [[(1,)]])
    with pytest.raises(millpond.MillpondError, match="unbounded"):
        millpond.sql(spark, "SELECT k FROM S, T WHERE k < j")
    with pytest.raises(millpond.MillpondError, match="no view named absent"):
        millpond.sql(spark, "SELECT k FROM absent")
    with pytest.raises(millpond.MillpondError, match="line 1, column 8: there is no column x"):
        millpond.sql(spark, "SELECT x FROM S")


def test_a_result_that_does_not_fit_ends_the_query(spark: SparkSession, view: View, tmp_path: Path) -> None:
    view("S", "k INT, x BIGINT", [[(1, 2**62), (1, 2**62)]])
    view("T", "j INT", [[(1,)]])
    frame = millpond.sql(spark, "SELECT SUM(x) FROM S, T WHERE k = j AND k = 1")
    with pytest.raises(StreamingQueryException, match="does not fit its type"):
        run(frame, tmp_path)
