"""Declared columns as Spark types."""

from __future__ import annotations

from pyspark.sql import types as T
from pyspark.sql.types import DataType, StructField, StructType

from millpond.query.model import Table
from millpond.query.types import Family, SqlType


def spark_schema(table: Table) -> StructType:
    """The declared columns as Spark types, all nullable, because a rejected row holds NULLs."""
    return StructType([StructField(column.name, spark_type(column.type)) for column in table.columns])


def spark_type(type_: SqlType) -> DataType:
    """The Spark type of an SQL type."""
    if type_.family is Family.NESTED:
        return T.DataType.fromDDL(type_.name)
    made: DataType = type_.names.spark.call(T)
    return made
