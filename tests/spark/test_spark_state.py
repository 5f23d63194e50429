"""What Spark keeps for a DataFrame is part of its verdict; nothing runs here."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import millpond
from millpond.spark.plans.check import check_frame
from tests.fixtures.programs import PROGRAMS, Tables
from tests.fixtures.programs.tables import write_streams

OWN = [
    "SELECT DISTINCT o.country FROM orders o, payments p WHERE o.amount < p.paid AND o.country = 'de'",
    "SELECT window.start, COUNT(*) AS n FROM orders GROUP BY window(at, '2 minutes')",
]


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    folder: Path = tmp_path_factory.mktemp("streams")
    write_streams(folder, 1)
    return Tables(spark, folder)


def test_the_verdict_says_what_spark_keeps(tables: Tables) -> None:
    verdict = check_frame(PROGRAMS["distinct_of_pinned_join"].build(tables))
    assert (verdict.outcome, verdict.spark_state) == ("bounded", "grows")
    assert verdict.explain().splitlines()[-3:] == [
        "  Spark's own state grows for ever:",
        "    the join keeps every row of both sides: there is no watermark.",
        "    What is kept above would do: run the query with millpond.sql.",
    ]


def test_millponds_own_queries_are_flat(tables: Tables) -> None:
    for name in ("orders", "payments"):
        tables.stream(name).withWatermark("at", "30 seconds").createOrReplaceTempView(name)
    for query in OWN:
        assert check_frame(millpond.sql(tables.spark, query)).spark_state == "flat", query
