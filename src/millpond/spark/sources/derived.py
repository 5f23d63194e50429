"""Adds the derived columns of a table to its opened rows."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millpond.query.model import Table
from millpond.spark.sources.opened import REASON, OpenSource


def add_derived_columns(source: OpenSource, table: Table) -> OpenSource:
    """The source with the table's derived columns, computed in the session's time zone.

    A row is repeated for each window that it lies in; a rejected row is not.
    """
    is_row = F.col(REASON).isNull() if source.rejects else F.lit(True)
    return OpenSource(derive_columns(source.frame, table, is_row), source.rejects)


def derive_columns(frame: DataFrame, table: Table, is_row: Column) -> DataFrame:
    """The frame with the table's derived columns; only rows for which ``is_row`` holds are repeated."""
    for column in table.derived:
        derivation = column.derivation
        assert derivation is not None
        value = F.expr(derivation.sql)
        if derivation.repeated:
            value = F.explode_outer(F.when(is_row, value))
        frame = frame.withColumn(column.name, value)
    return frame
