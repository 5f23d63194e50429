"""Kafka: the records of topics, with Kafka's own columns or with columns that are read from the value."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import functions as F

from millpond.errors import MillpondError, one_line
from millpond.query.model import Table
from millpond.spark.sources.json import parse_json_records
from millpond.spark.sources.reading import RawRows, TableReader, fit_columns

SPARK_FORMAT = "kafka"
OWN_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
# Options of ours, in lower case: the format of the value, and the columns that are not in it.
VALUE_FORMAT, METADATA = "value.format", "metadata"
_TOPICS = ("subscribe", "subscribePattern", "assign")
_SERVERS = "kafka.bootstrap.servers"
_NO_VALUE = "the record has no value"


def read_kafka(reader: TableReader) -> RawRows:
    """Read records.  Without ``value.format``, the declared columns are those of Kafka.

    With ``value.format 'json'`` they are fields of the value, which must be one JSON object; ``metadata
    'timestamp, offset'`` names those that are Kafka's own.  A stream starts with the earliest records.
    """
    _check_options(reader)
    table, options = reader.table, dict(reader.options)
    value_format, metadata = options.pop(VALUE_FORMAT, None), options.pop(METADATA, "")
    if not any(key.startswith("starting") for key in options):
        options["startingoffsets"] = "earliest"
    records = replace(reader, options=options)
    given = [name.strip() for name in metadata.split(",") if name.strip()]
    _check_columns(table, given, value_format is not None)
    frame = records.load(SPARK_FORMAT, None)
    if value_format is None:
        return fit_columns(table, frame)
    own = {name.lower(): name for name in frame.columns}
    value = F.col("value").cast("string").alias("value")
    kept = [column.name for column in table.columns if column.name.lower() in {n.lower() for n in given}]
    lines = frame.select(
        value, *(F.col(own[name.lower()]).alias(name) for name in kept if name.lower() != "value")
    )
    return parse_json_records(replace(records, format="json"), lines, kept, blank=_NO_VALUE)


def _check_options(reader: TableReader) -> None:
    """Refuse what Spark would refuse less clearly, or only after a while."""
    name = one_line(reader.table.name)
    if not reader.options.get(_SERVERS):
        raise MillpondError(
            f"{name} does not say where Kafka is", remedy=f"add OPTIONS ({_SERVERS} 'host:9092')"
        )
    if not any(topic.lower() in reader.options for topic in _TOPICS):
        raise MillpondError(f"{name} does not name a topic", remedy="add OPTIONS (subscribe 'topic')")
    value_format = reader.options.get(VALUE_FORMAT)
    if value_format is not None and value_format.lower() != "json":
        message = f"{name}: {VALUE_FORMAT} '{one_line(value_format, 40)}' is not supported"
        raise MillpondError(message, remedy="write 'json', or leave it out and parse value in the query")
    if METADATA in reader.options and value_format is None:
        remedy = f"leave it out, or add {VALUE_FORMAT} 'json'"
        raise MillpondError(f"{name}: {METADATA} without {VALUE_FORMAT}", remedy=remedy)


def _check_columns(table: Table, given: list[str], has_format: bool) -> None:
    """Refuse a declared column that no record has, and metadata that is not declared or not Kafka's."""
    name, own = one_line(table.name), ", ".join(OWN_COLUMNS)
    known = {column.lower() for column in OWN_COLUMNS}
    declared = {column.name.lower() for column in table.columns}
    for column in given:
        if column.lower() not in known:
            message = f"{name}: {one_line(column, 40)} in {METADATA} is not a column of Kafka"
            raise MillpondError(message, remedy=f"they are {own}")
        if column.lower() not in declared:
            message = f"{name}: {one_line(column, 40)} in {METADATA} is not declared"
            raise MillpondError(message, remedy="declare the column")
    unknown = [column.name for column in table.columns if column.name.lower() not in known]
    if unknown and not has_format:
        message = f"{name}: a Kafka record has no column {one_line(unknown[0], 40)}; it has {own}"
        remedy = f"with OPTIONS ({VALUE_FORMAT} 'json') columns are read from value"
        raise MillpondError(message, remedy=remedy)
