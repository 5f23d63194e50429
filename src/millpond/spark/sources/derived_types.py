"""The types of derived columns and of the columns of blocks: Spark has the last word."""

from __future__ import annotations

from dataclasses import replace

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    NullType,
    StringType,
    StructType,
)

from millpond.errors import MillpondError, one_line
from millpond.query.model import Column, Occurrence, Query, Subquery, Table
from millpond.query.trees import map_occurrences
from millpond.query.types import Family, find_type, nested
from millpond.spark.answer import infer_result_schema
from millpond.spark.failure import find_cause
from millpond.spark.sources.schema import spark_schema, spark_type


def settle_types(spark: SparkSession, query: Query) -> Query:
    """The query with the types that Spark gives to its expressions, which can differ from sqlglot's.

    Raises MillpondError if Spark cannot compute an expression, or if its type is not one of the language.
    """
    terms = tuple(
        replace(
            term,
            selects=tuple(map_occurrences(each, lambda o: _settle(spark, o)) for each in term.selects),
        )
        for term in query.terms
    )
    return query if terms == query.terms else replace(query, terms=terms)


def _settle(spark: SparkSession, occurrence: Occurrence) -> Occurrence:
    table = _settle_table(spark, occurrence.table)
    if isinstance(table.block, Subquery):
        table = replace(table, block=Subquery(settle_types(spark, table.block.query)))
    return replace(occurrence, table=table)


def _settle_table(spark: SparkSession, table: Table) -> Table:
    if isinstance(table.block, Subquery):
        query = settle_types(spark, table.block.query)
        schema = _find_result_schema(spark, replace(query, text=""))
        columns = tuple(_settle_number(column, schema[column.name].dataType) for column in table.columns)
        table = replace(table, columns=columns, block=Subquery(query))
    if not any(c.derivation is not None and c.derivation.arguments for c in table.derived):
        return table
    rows = spark.createDataFrame([], spark_schema(table))
    settled: list[Column] = []
    for column in table.derived:  # each after those that it depends on
        assert column.derivation is not None
        value = F.expr(column.derivation.sql)
        value = F.explode_outer(value) if column.derivation.repeated else value
        try:
            rows = rows.withColumn(column.name, value)
        except PySparkException as error:
            message = f"Spark cannot compute {one_line(column.name)}: {one_line(find_cause(error), 200)}"
            raise MillpondError(message) from None
        if column.derivation.arguments:
            column = _settle_column(column, rows.schema[column.name].dataType)
        settled.append(column)
    return replace(table, derived=tuple(settled))


def _find_result_schema(spark: SparkSession, query: Query) -> StructType:
    """Spark's types of the columns of a result, and of what is computed from them."""
    blocks = {n: spark_schema(t) for n, t in query.tables.items() if isinstance(t.block, Subquery)}
    schema = infer_result_schema(spark, query, blocks)
    if not query.projection:
        return schema
    rows = spark.createDataFrame([], schema)
    return rows.select(*(F.expr(each.sql).alias(each.name) for each in query.projection)).schema


def _settle_number(column: Column, type_: DataType) -> Column:
    """A column of a block; only the types of numbers can differ from Spark's."""
    return _settle_column(column, type_) if column.type.family is Family.NUMBER else column


def _settle_column(column: Column, type_: DataType) -> Column:
    type_ = StringType() if isinstance(type_, NullType) else type_
    if type_ == spark_type(column.type):
        return column
    known = find_type(type_.simpleString())
    if isinstance(type_, ArrayType | MapType | StructType | BinaryType):
        known = nested(type_.simpleString())
    if known is None:
        shown = one_line(type_.simpleString().upper(), 100)
        raise MillpondError(f"the type of {one_line(column.name)} is {shown}, which is not supported here")
    return replace(column, type=known)
