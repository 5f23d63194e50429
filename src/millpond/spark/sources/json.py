"""JSON: one object per line, and what is wrong with a record."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import StringType, StructField, StructType

from millpond.spark.sources.expressions import (
    column_named,
    declared_type,
    let,
    misfit_reason,
    null_columns,
    optimizer_barrier,
    quote,
    shorten,
)
from millpond.spark.sources.opened import RECORD
from millpond.spark.sources.reading import (
    CORRUPT,
    UNKNOWN_MISFIT,
    RawRows,
    TableReader,
    fit_columns,
    read_schema,
)

_PARSED, _WHOLE = "_millpond_parsed", "_millpond_whole"


def read_json_lines(reader: TableReader) -> RawRows:
    """Read one JSON object a line.  An array needs ``multiLine``, which reads files as a whole.

    Spark's own reader stops after the first value of a line: if two objects share a line, it drops the second
    one silently.  So lines are read as text, and each must be one object from start to end.
    """
    lines = reader.load("text", None)
    # Spark turns folder names such as day=2024-01-31 into columns.
    folders = {name.lower() for name in lines.columns} - {"value"}
    given = [column.name for column in reader.table.columns if column.name.lower() in folders]
    return parse_json_records(reader, lines, given)


def parse_json_records(
    reader: TableReader, lines: DataFrame, given: Sequence[str], blank: str | None = None
) -> RawRows:
    """Parse the column ``value``, one JSON object in each row; the columns ``given`` are not in it.

    ``blank`` is the reason to reject a row without a value; by default it is left out.
    """
    schema = StructType([field for field in read_schema(reader) if field.name not in given])
    line = column_named("value")
    wide = StructType([*schema.fields, StructField(CORRUPT, StringType())])
    options = {**reader.record_options, "columnNameOfCorruptRecord": CORRUPT}
    parsed = F.from_json(F.when(optimizer_barrier(), line), wide, options)
    # If the only closing brace is the last character, nothing can follow the object.
    is_plain = line.endswith("}") & (F.octet_length(F.replace(line, F.lit("}"))) == F.octet_length(line) - 1)
    is_whole = (is_plain | _is_json(reader, line)).alias(_WHOLE)
    frame = lines.select(*map(column_named, given), line.alias(RECORD), parsed.alias(_PARSED), is_whole)
    if blank is None:
        frame = frame.where(F.col(_PARSED).isNotNull())
    frame = frame.select("*", *(F.col(_PARSED).getField(name).alias(name) for name in schema.names))
    is_bad = F.col(_PARSED).getField(CORRUPT).isNotNull() | ~F.col(_WHOLE)
    damage = F.when(is_bad, F.coalesce(find_json_damage(reader, F.col(RECORD)), F.lit(UNKNOWN_MISFIT)))
    if blank is not None:
        damage = F.when(F.col(_PARSED).isNull(), blank).otherwise(damage)
    return fit_columns(reader.table, frame, damage, F.col(RECORD))


def find_json_damage(reader: TableReader, record: Column) -> Column:
    """Why a record is not a JSON object with values of the declared types."""
    texts, values = (
        F.from_json(record, T.MapType(StringType(), type_), reader.record_options).alias(name)
        for name, type_ in (("texts", StringType()), ("values", T.VariantType()))
    )

    def find_damage(read: Column) -> Column:
        def describe(name: Column) -> Column:
            text = F.try_element_at(read.getField("texts"), name)
            kind = F.schema_of_variant(F.try_element_at(read.getField("values"), name))
            shown = F.when(kind == "STRING", quote(text)).otherwise(shorten(text))
            return misfit_reason(name, shown, declared_type(reader.table, name))

        fields = read.getField("texts")
        lost = F.filter(null_columns(reader.table), lambda name: F.try_element_at(fields, name).isNotNull())
        other = "an array with a wrong value in it" if reader.multiline else "not a JSON object"
        return F.when(fields.isNull(), other).otherwise(let(F.get(lost, F.lit(0)), describe))

    is_json = _is_json(reader, record)
    return F.when(is_json, let(F.struct(texts, values), find_damage)).otherwise("not valid JSON")


def _is_json(reader: TableReader, record: Column) -> Column:
    """Whether the record is exactly one JSON value: inside another object, anything after it is an error."""
    inside = F.concat(F.lit('[{"_":'), record, F.lit("\n}]"))
    schema = T.ArrayType(StructType([StructField("none", StringType())]))
    return F.from_json(inside, schema, reader.record_options).isNotNull()
