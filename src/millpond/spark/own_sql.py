"""A query in Spark's own SQL, over the files that Millpond reads: to compare both."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from millpond.query.model import Query
from millpond.spark.session import open_session
from millpond.spark.sources.schema import spark_schema

_MESSAGE = re.compile(r"^\[[\w.]+\] (.*?)\s*(SQLSTATE.*)?$", re.DOTALL)


def open_views(spark: SparkSession, query: Query, folder: Path) -> None:
    """Register each stream of the query as a view, with the format and path of its declaration."""
    for name, table in query.declared_tables.items():
        assert table.source is not None, f"{name} has no source"
        reader = spark.readStream.schema(spark_schema(table)).format(table.source.format)
        frame = reader.load(str(folder / table.source.options["path"]))
        if table.time is not None:
            frame = frame.withWatermark(table.time, "0 seconds")
        frame.createOrReplaceTempView(name)


def find_refusal(query: Query, folder: Path) -> str | None:
    """Why Spark's own SQL refuses the text of the query over streams; None if it runs it."""
    with open_session() as spark:
        open_views(spark, query, folder)
        try:
            spark.sql(query.text).writeStream.format("noop").outputMode("append").start().stop()
        except AnalysisException as error:
            return shorten_message(str(error))
        return None


def shorten_message(message: str) -> str:
    """The sentence of a message, without its class, its SQL state and the plan.

    >>> shorten_message("[INVALID] It is not allowed. SQLSTATE: 42823; line 1 pos 0;\\n~Project [id]")
    'It is not allowed.'
    """
    found = _MESSAGE.match(message)
    return (found[1] if found else message).splitlines()[0].strip()
