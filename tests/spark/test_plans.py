"""Plans of DataFrames are read as trees, and checked as the same query in SQL is."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from millpond.spark.plans.read import read_plan


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
