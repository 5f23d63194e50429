"""What opening a table and reading its records have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import DataType, StringType, StructField, StructType

from millpond.errors import MillpondError, one_line
from millpond.query import model
from millpond.query.model import Table
from millpond.query.types import DATE, TIMESTAMP, Family
from millpond.spark.sources.expressions import column_named, misfit_reason, quote
from millpond.spark.sources.schema import spark_schema

# The column in which Spark's readers leave the text of a record that they cannot read.
CORRUPT = "_millpond_corrupt"
# The reason where no better one is found.
UNKNOWN_MISFIT = "a value is not of its declared type"
# Options that change the encoding of a file.
ENCODING_OPTIONS = ("encoding", "charset")
# Options that say how a file is divided into records; the functions that parse one record do not take them.
_FILE_OPTIONS = ("path", "header", "linesep", "multiline", *ENCODING_OPTIONS)
# The first and last date or timestamp of the language.
_CALENDAR = ("0001-01-01", "9999-12-31 23:59:59.999999")
# Each type can hold every value of the types before it.
_WIDENING = (("tinyint", "smallint", "int", "bigint"), ("float", "double"), ("date", "timestamp"))


@dataclass(frozen=True)
class TableReader:
    """A declared table, with the Spark format and options to read it."""

    spark: SparkSession
    table: Table
    format: str
    options: Mapping[str, str]  # by names in lower case

    def load(self, format: str, schema: StructType | None, **extra: str) -> DataFrame:
        reader = self.spark.readStream if self.table.streaming else self.spark.read
        reader = reader.format(format).options(**{**self.options, **extra})
        return (reader if schema is None else reader.schema(schema)).load()

    @property
    def multiline(self) -> bool:
        return self.options.get("multiline", "").lower() == "true"

    @property
    def record_options(self) -> dict[str, str]:
        """The options for parsing a single record."""
        kept = {key: value for key, value in self.options.items() if key not in _FILE_OPTIONS}
        return {**kept, "mode": "PERMISSIVE"}


@dataclass(frozen=True)
class RawRows:
    """The rows of a format: ``damage`` is why a record could not be read, ``record`` is its text."""

    frame: DataFrame
    columns: Sequence[Column]
    damage: Column | None = None
    record: Column | None = None


def read_schema(reader: TableReader) -> StructType:
    """The schema to read with: the declared one, but JSON reads TINYINT as SMALLINT.

    Spark's JSON parser turns 128 into the TINYINT -128 without an error.
    """
    wider: dict[DataType, DataType] = {T.ByteType(): T.ShortType()} if reader.format == "json" else {}
    declared = spark_schema(reader.table)
    return StructType([StructField(f.name, wider.get(f.dataType, f.dataType)) for f in declared])


def fit_columns(
    table: Table, frame: DataFrame, damage: Column | None = None, record: Column | None = None
) -> RawRows:
    """Select the declared columns of a frame, cast where the types differ.

    A value that does not survive the cast is damage.  Dates and timestamps that were read from text (there
    is a ``damage``) must lie within the calendar.
    """
    columns: list[Column] = []
    damages = [] if damage is None else [damage]
    fields = {field.name.lower(): field for field in frame.schema}
    for column, wanted in zip(table.columns, (field.dataType for field in spark_schema(table)), strict=True):
        field = fields.get(column.name.lower())
        if field is None:
            message = f"{one_line(table.name)}: its source has no column {one_line(column.name)}"
            shown = ", ".join(f"{f.name} {f.dataType.simpleString().upper()}" for f in fields.values())
            raise MillpondError(message, remedy=f"it has {one_line(shown, 200)}")
        given = value = column_named(field.name)
        is_lossless = _is_widening(field.dataType, wanted)
        if field.dataType != wanted:
            value = given.try_cast(wanted)
            _check_cast(table, column, frame.select(given), value)
        if damage is not None and column.type in (DATE, TIMESTAMP):
            is_lossless = False
            low, high = (F.lit(end).cast(wanted) for end in _CALENDAR)
            value = F.when(value.between(low, high), value)
        columns.append(value.alias(column.name))
        if not is_lossless:
            is_lost, text = given.isNotNull() & value.isNull(), given.cast("string")
            if isinstance(field.dataType, T.NumericType) and column.type.family is Family.NUMBER:
                is_lost |= value.try_cast(field.dataType) != given
            else:
                text = quote(text)
            damages.append(F.when(is_lost, misfit_reason(F.lit(column.name), text, F.lit(column.type.name))))
    return RawRows(frame, columns, F.coalesce(*damages) if damages else None, record)


def _check_cast(table: Table, column: model.Column, given: DataFrame, cast: Column) -> None:
    """Refuse a declared type that Spark cannot cast the source's column to."""
    try:
        given.select(cast)
    except PySparkException:
        message = f"{one_line(table.name)}: {one_line(column.name)} is declared {column.type}"
        kind = given.schema.fields[0].dataType.simpleString().upper()
        remedy = f"its source has {kind}, which cannot be cast to {column.type}"
        raise MillpondError(message, remedy=remedy) from None


def _is_widening(given: DataType, wanted: DataType) -> bool:
    """Whether every value of the given type is a value of the wanted one."""
    if given == wanted or isinstance(wanted, StringType):
        return True
    names = given.simpleString(), wanted.simpleString()
    return any(
        set(names) <= set(chain) and chain.index(names[0]) < chain.index(names[1]) for chain in _WIDENING
    )
