"""Open a declared table, so that every malformed row is found.

Spark by itself turns a value that it cannot read into NULL, and parses only the columns that a query uses.
Here every declared column of every row is parsed and checked, whatever the query uses: the expression for the
reason refers to all columns, and stands behind a barrier that the optimizer does not cross.
"""

from __future__ import annotations

import re
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from millpond.errors import MillpondError, one_line
from millpond.query.model import Query, Table
from millpond.spark.connectors import describe_kafka_download, uses_kafka
from millpond.spark.failure import find_cause
from millpond.spark.sources.checks import check_rows
from millpond.spark.sources.csv import find_csv_damage
from millpond.spark.sources.derived import add_derived_columns
from millpond.spark.sources.expressions import column_named, null_columns
from millpond.spark.sources.json import find_json_damage, read_json_lines
from millpond.spark.sources.kafka import VALUE_FORMAT, read_kafka
from millpond.spark.sources.opened import REASON, RECORD, OpenSource
from millpond.spark.sources.reading import (
    CORRUPT,
    ENCODING_OPTIONS,
    UNKNOWN_MISFIT,
    RawRows,
    TableReader,
    fit_columns,
    read_schema,
)
from millpond.spark.sources.schema import spark_schema

# Formats whose readers turn into NULL what they cannot read, unless there is a column for the record.
_LENIENT = ("json", "csv", "xml")
_FILES = (*_LENIENT, "parquet", "orc", "avro", "text", "binaryfile")
_RESERVED_OPTIONS = ("mode", "columnnameofcorruptrecord")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_GLOB = re.compile(r"([\\\[\]{}*?])")


def open_source(
    spark: SparkSession, table: Table, folder: Path, strict: bool = False, query: Query | None = None
) -> OpenSource:
    """Open a table; a relative path in its options is relative to ``folder``.

    With ``strict``, no row is rejected: the first malformed row fails the query, even if the query does not
    use the column that is wrong.  The conditions of ``query`` protect the evaluation of its expressions.
    """
    reader = _make_reader(spark, table, folder)
    try:
        rows = _read_rows(reader)
    except (PySparkException, Py4JError) as error:
        raise _explain_failure(reader, error) from None
    return add_derived_columns(check_rows(table, rows, strict), table, query)


# --- the declaration -----------------------------------------------------------------------------------


def _make_reader(spark: SparkSession, table: Table, folder: Path) -> TableReader:
    """Check the format and options of a declaration."""
    name = one_line(table.name)
    for column in table.columns:
        if column.name.lower() in (REASON, RECORD, CORRUPT):
            raise MillpondError(
                f"{name}: the column name {column.name} is reserved", remedy="choose another name"
            )
    if table.source is None:
        remedy = f"add USING … OPTIONS (path '…') to CREATE TABLE {name}"
        raise MillpondError(f"{name} does not say where its rows come from", remedy=remedy)
    # Spark also knows its own formats by old names such as org.apache.spark.sql.json.
    last = table.source.format.rpartition(".")[2].lower()
    format_ = last if last in _LENIENT else table.source.format
    options = {key.lower(): value for key, value in table.source.options.items()}
    for key in table.source.options:
        if (last in _LENIENT or VALUE_FORMAT in options) and key.lower() in _RESERVED_OPTIONS:
            message = (
                f"{name}: the option {key} cannot be set, because it decides what becomes of malformed rows"
            )
            raise MillpondError(
                message, remedy="remove it; malformed rows are counted and written to _rejected"
            )
    if last in _FILES and not options.get("path"):
        raise MillpondError(f"{name} does not say where its files are", remedy="add OPTIONS (path '…')")
    if "path" in options:
        options["path"] = _resolve_path(options["path"], folder)
    return TableReader(spark, table, format_, options)


def _resolve_path(path: str, folder: Path) -> str:
    """A path as Spark takes it: a glob pattern, in which special characters of the folder are escaped.

    >>> _resolve_path("data/*", Path("/a[1]")), _resolve_path("s3a://b/c", Path("/a"))
    ('/a\\\\[1\\\\]/data/*', 's3a://b/c')
    >>> _resolve_path("/d", Path("/a"))
    '/d'
    """
    if _SCHEME.match(path) or Path(path).is_absolute():
        return path
    return _GLOB.sub(r"\\\1", folder.absolute().as_posix()) + "/" + path


def _explain_failure(reader: TableReader, error: Exception) -> MillpondError:
    """Why Spark does not open a source."""
    name, text = one_line(reader.table.name), str(error)
    if "PATH_NOT_FOUND" in text:
        message = f"{name}: there is nothing at {one_line(reader.options.get('path', ''), 200)}"
        return MillpondError(message, remedy="create the folder, or correct the path in OPTIONS")
    if "DATA_SOURCE_NOT_FOUND" in text or "DATA_SOURCE_NOT_ENABLED" in text:
        if uses_kafka(reader.table):
            return MillpondError(
                f"{name}: Spark has no Kafka connector", remedy=f"{describe_kafka_download()}"
            )
        message = f"{name}: Spark has no format {one_line(reader.format, 40)}"
        return MillpondError(message, remedy="correct it, or add the package that contains it to Spark")
    cause = one_line(find_cause(error), 200)
    return MillpondError(f"{name}: Spark cannot open it: {cause}", remedy="correct its USING and OPTIONS")


# --- formats -------------------------------------------------------------------------------------------


def _read_rows(reader: TableReader) -> RawRows:
    is_recoded = not reader.options.keys().isdisjoint(ENCODING_OPTIONS)
    if reader.format == "json" and not is_recoded and not reader.multiline:
        return read_json_lines(reader)
    if reader.format in _LENIENT:
        return _read_leniently(reader)
    if uses_kafka(reader.table):
        return read_kafka(reader)
    schema = spark_schema(reader.table)
    try:
        return RawRows(reader.load(reader.format, schema), [column_named(name) for name in schema.names])
    except PySparkException as error:
        if "user-specified schema" not in str(error):
            raise
    return fit_columns(reader.table, reader.load(reader.format, None))


def _read_leniently(reader: TableReader) -> RawRows:
    """Read files with Spark's own reader, which keeps the text of a record that it cannot parse.

    The expression for the damage contains all columns, so Spark parses all of them.  In a JSON file with
    ``multiLine``, Spark ignores what follows the first value.
    """
    schema = read_schema(reader)
    wide = StructType([*schema.fields, StructField(CORRUPT, StringType())])
    frame = reader.load(reader.format, wide, mode="PERMISSIVE", columnNameOfCorruptRecord=CORRUPT)
    record = F.col(CORRUPT)
    if reader.format == "json":
        damage = find_json_damage(reader, record)
    elif reader.format == "csv":
        damage = find_csv_damage(reader, record)
    else:
        message = "not valid XML, or a value is not of its declared type; these columns are NULL: "
        damage = F.concat(F.lit(message), F.array_join(null_columns(reader.table), ", "))
    damage = F.when(record.isNotNull(), F.coalesce(damage, F.lit(UNKNOWN_MISFIT)))
    return fit_columns(reader.table, frame, damage, record)
