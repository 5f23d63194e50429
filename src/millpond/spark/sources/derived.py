"""Adds the derived columns of a table to its opened rows."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millpond.query.model import Query, Table
from millpond.runtime.row_guards import find_guard
from millpond.spark.sources.opened import REASON, OpenSource


def add_derived_columns(source: OpenSource, table: Table, query: Query | None = None) -> OpenSource:
    """The source with the table's derived columns, computed in the session's time zone.

    A row is repeated for each window that it lies in; a rejected row is not.  Expressions are not evaluated
    for rejected rows, nor for rows that the conditions of the query exclude before; they are NULL there.
    """
    is_row = F.col(REASON).isNull() if source.rejects else None
    return OpenSource(derive_columns(source.frame, table, is_row, query), source.rejects)


def derive_columns(
    frame: DataFrame, table: Table, is_row: Column | None, query: Query | None = None
) -> DataFrame:
    """The frame with the table's derived columns; rows for which ``is_row`` does not hold are not repeated,
    and expressions are not evaluated for them."""
    for column in table.derived:
        derivation = column.derivation
        assert derivation is not None
        value = F.expr(derivation.sql)
        guard = None if query is None else find_guard(query, table, column)
        value = value if guard is None else F.when(F.expr(guard), value)
        if is_row is not None and (derivation.repeated or derivation.arguments):
            value = F.when(is_row, value)
        frame = frame.withColumn(column.name, F.explode_outer(value) if derivation.repeated else value)
    return frame
