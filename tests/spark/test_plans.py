"""Plans of DataFrames are read as trees, and checked as the same query in SQL is."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import millpond
from millpond.spark.plans.check import check_frame
from millpond.spark.plans.read import read_plan
from millpond.spark.plans.translate import translate_plan
from tests.fixtures.programs import PROGRAMS, Tables
from tests.fixtures.programs.tables import STREAMS


def test_a_plan_is_read_with_its_watermarks_and_sources(spark: SparkSession) -> None:
    rate = spark.readStream.format("rate").option("rowsPerSecond", "5").load()
    marked = rate.withWatermark("timestamp", "10 seconds")
    plan = read_plan(
        marked.groupBy(F.window("timestamp", "1 minute"), (F.col("value") % 5).alias("k")).count()
    )
    assert [node.kind for node in plan.walk()] == [
        "Aggregate",
        "Project",
        "Filter",
        "EventTimeWatermark",
        "StreamingRelationV2",
    ]
    assert all(node.streaming for node in plan.walk())
    assert [(each.name, each.type, each.delay) for each in plan.output] == [
        ("window", "struct<start:timestamp,end:timestamp>", 10_000),
        ("k", "bigint", None),
        ("count", "bigint", None),
    ]
    window, key = plan.expressions("groupingExpressions")
    assert (window.kind, window.expr_id) == ("AttributeReference", plan.output[0].expr_id)
    assert [each.kind for each in key.walk()] == ["Remainder", "AttributeReference", "Cast", "Literal"]
    *_, leaf = plan.walk()
    assert leaf.source is not None
    assert (leaf.source.format, leaf.source.options) == ("rate", {"rowspersecond": "5"})
    twice = read_plan(marked.alias("a").join(rate.alias("b"), F.expr("a.value = b.value")))
    other = spark.readStream.format("rate").load()
    assert {node.source for node in twice.walk() if node.source} == {leaf.source}
    assert {node.source for node in read_plan(other).walk()} != {leaf.source}


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    folder = tmp_path_factory.mktemp("streams")
    for name in STREAMS:
        (folder / name).mkdir()
    return Tables(spark, folder)


def test_programs_have_the_verdicts_of_their_sql(tables: Tables) -> None:
    """A fifth of the programs; ``tests/campaigns/programs.py`` checks all of them, and their SQL text.

    What Spark keeps is predicted for them, too; ``tests/campaigns/spark_state.py`` measures it.
    """
    chosen = list(PROGRAMS.values())[::5]
    found = {each.name: check_frame(each.build(tables), each.mode) for each in chosen}
    assert {name: verdict.outcome for name, verdict in found.items()} == {p.name: p.outcome for p in chosen}
    runnable = [each for each in chosen if each.state is not None]
    assert {each.name: found[each.name].spark_state for each in runnable} == {
        p.name: p.state for p in runnable
    }


@pytest.mark.filterwarnings("ignore:Cannot infer the eval type")
def test_plans_are_rendered_as_sql(tables: Tables) -> None:
    orders, payments = tables.stream("orders"), tables.stream("payments")
    members = orders.selectExpr("id", "customer AS member").limit(5)

    def plus_one(value: int) -> int:
        return value + 1

    def hours_of(stream: DataFrame, time: Column) -> DataFrame:
        return stream.groupBy(F.window(time, "1 hour")).count()

    parsed = F.from_json("country", "sent TIMESTAMP, by STRING").alias("event")
    hours = orders.withWatermark("at", "1 minute").groupBy(F.window("at", "1 hour"), "country").count()
    frames = {
        "orders.customer % 10 AS k": orders.select((F.col("customer") % 10).alias("k")),
        "CAST(orders.customer % 10 AS STRING)": orders.groupBy(
            (F.col("customer") % 10).cast("string")
        ).count(),
        "GROUP BY plus_one(orders.amount)": orders.groupBy(F.udf(plus_one, "int")("amount")).count(),
        "HAVING COUNT(*) > 5": hours.where("count > 5 AND country = 'NZ'"),
        "WHERE orders.country = 'NZ'\nGROUP BY window(orders.at, '1 hour')": hours.where("country = 'NZ'"),
        "GROUP BY window(step.`window_time(window)`, '1 day')": hours.groupBy(
            F.window("window", "1 day")
        ).count(),
        "'time' = 'sent', 'watermark' = '1 minute'": orders.select(parsed)
        .select("event.*")
        .withWatermark("sent", "1 minute"),
        "FROM orders AS a JOIN orders AS b ON a.id = b.customer": orders.alias("a").join(
            orders.alias("b"), F.expr("a.id = b.customer")
        ),
        "FROM payments LEFT JOIN orders ON orders.id = payments.id": orders.join(payments, "id", "right"),
        "WHERE NOT EXISTS (SELECT 1\nFROM payments": orders.join(payments, "id", "left_anti"),
        "GROUP BY orders_2.country\nUNION ALL": orders.rollup("country", "express").count(),
        "ORDER BY COUNT(*) DESC\nLIMIT 3": hours.orderBy(F.desc("count")).limit(3),
        "LIMIT 5": members.groupBy("member").count(),
        "INTERSECT": orders.select("id").intersect(payments.select("id")),
        "PARTITION BY orders.customer ORDER BY orders.at": orders.dropDuplicates(["customer"]),
        "SELECT DISTINCT orders.customer": orders.dropDuplicates(["customer"]).select("customer"),
        "named_struct('at', MAX(orders.at), 'id', MAX_BY(orders.id, orders.at))": orders.groupBy(
            "express"
        ).agg(F.max(F.struct("at", "id"))),
        "'time' = 'event_time'": hours_of(
            orders.withWatermark("at", "1 hour"), F.expr("at + INTERVAL 1 DAY")
        ),
        "mapInPandas (n INT)": orders.mapInPandas(lambda frames: frames, "n INT"),
    }
    texts = {part: translate_plan(read_plan(frame)).text for part, frame in frames.items()}
    assert [part for part, text in texts.items() if part not in text] == []


def test_operators_without_a_query_say_why(tables: Tables) -> None:
    reasons = {
        "groups_of_each_batch": "applyInPandas sees the groups of one micro-batch at a time, "
        "not those of the stream",
        "state_by_flag": "applyInPandasWithState keeps state that only its own program knows",
        "sessions_with_computed_gaps": "a session window with a computed gap cannot be written as SQL",
    }
    for name, message in reasons.items():
        verdict = check_frame(PROGRAMS[name].build(tables))
        assert [each.message for each in verdict.reasons] == [message]


@pytest.mark.parametrize(
    ("query", "mode", "message"),
    [
        (5, "append", "the query must be SQL text or a streaming DataFrame, not int"),
        ("range", "append", "the DataFrame is not a streaming one; read its source with spark.readStream"),
        ("rate", "appends", "there is no output mode 'appends'; use append, update, complete"),
    ],
)
def test_bad_arguments_get_one_line(spark: SparkSession, query: object, mode: str, message: str) -> None:
    frames = {"range": spark.range(3), "rate": spark.readStream.format("rate").load()}
    with pytest.raises(millpond.MillpondError, match=f"^{re.escape(message)}$"):
        millpond.check(frames.get(query, query), mode)  # type: ignore[call-overload]
