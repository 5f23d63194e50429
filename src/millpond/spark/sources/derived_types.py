"""The types of derived columns: Spark has the last word."""

from __future__ import annotations

from dataclasses import replace

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, NullType, StringType

from millpond.errors import MillpondError, one_line
from millpond.query.model import Column, Occurrence, Query, Table
from millpond.query.trees import map_occurrences
from millpond.query.types import find_type
from millpond.spark.failure import find_cause
from millpond.spark.sources.schema import spark_schema, spark_type


def settle_types(spark: SparkSession, query: Query) -> Query:
    """The query with the types that Spark gives to its expressions, which can differ from sqlglot's.

    Raises MillpondError if Spark cannot compute an expression, or if its type is not one of the language.
    """
    tables = {name: _settle_table(spark, table) for name, table in query.tables.items()}
    if all(tables[name] == table for name, table in query.tables.items()):
        return query

    def settle(occurrence: Occurrence) -> Occurrence:
        types = {column.name: column.type for column in tables[occurrence.table.name].derived}
        derived = tuple(replace(c, type=types[c.name]) for c in occurrence.table.derived)
        return replace(occurrence, table=replace(occurrence.table, derived=derived))

    terms = tuple(
        replace(term, selects=tuple(map_occurrences(each, settle) for each in term.selects))
        for term in query.terms
    )
    return replace(query, terms=terms)


def _settle_table(spark: SparkSession, table: Table) -> Table:
    computed = [c for c in table.derived if c.derivation is not None and c.derivation.arguments]
    if not computed:
        return table
    rows = spark.createDataFrame([], spark_schema(table))
    types = {column.name: _find_spark_type(rows, column) for column in computed}
    settled = (_settle_column(column, types.get(column.name)) for column in table.derived)
    return replace(table, derived=tuple(settled))


def _find_spark_type(rows: DataFrame, column: Column) -> DataType:
    assert column.derivation is not None
    try:
        found = rows.select(F.expr(column.derivation.sql)).schema.fields[0].dataType
    except PySparkException as error:
        message = f"Spark cannot compute {one_line(column.name)}: {one_line(find_cause(error), 200)}"
        raise MillpondError(message) from None
    return StringType() if isinstance(found, NullType) else found


def _settle_column(column: Column, type_: DataType | None) -> Column:
    if type_ is None or type_ == spark_type(column.type):
        return column
    known = find_type(type_.simpleString())
    if known is None:
        shown = one_line(type_.simpleString().upper(), 100)
        raise MillpondError(f"the type of {one_line(column.name)} is {shown}, which is not supported here")
    return replace(column, type=known)
