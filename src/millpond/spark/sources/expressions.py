"""Column expressions that the readers of all formats share."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from millpond.query.model import Table
from millpond.runtime.sql import Dialect

# The longest value that a reason quotes.
_MAX_WIDTH = 60


def column_named(name: str) -> Column:
    """The column with this very name, whatever characters it contains."""
    return F.col(Dialect.SPARK.name_of(name))


def optimizer_barrier() -> Column:
    """Always true, but not to the optimizer, which neither moves a filter across it nor computes it twice."""
    return F.spark_partition_id() >= 0


def let(value: Column, body: Callable[[Column], Column]) -> Column:
    """``body`` applied to a value that is computed once, however often the body mentions it.

    Spark generates no Java code for ``zip_with``.  This keeps expressions that are rarely evaluated out of
    the generated method that every row passes through: the JVM does not compile very large methods.
    """
    return F.zip_with(F.array(value), F.array(F.lit(0)), lambda each, _: body(each))[0]


# --- reasons -------------------------------------------------------------------------------------------


def null_columns(table: Table) -> Column:
    """The names of the declared columns that are NULL in a row, as an array."""
    return F.array_compact(F.array(*(F.when(column_named(c.name).isNull(), c.name) for c in table.columns)))


def declared_type(table: Table, name: Column) -> Column:
    """The declared type of the column with a name, as text."""
    types = F.create_map(*(F.lit(text) for c in table.columns for text in (c.name, c.type.name)))
    return F.try_element_at(types, name)


def misfit_reason(name: Column, shown: Column, type_: Column) -> Column:
    """``price: 'x' is not INT``."""
    return F.concat(name, F.lit(": "), shown, F.lit(" is not "), type_)


def quote(text: Column) -> Column:
    return F.concat(F.lit("'"), shorten(text), F.lit("'"))


def shorten(text: Column) -> Column:
    short = F.concat(F.left(text, F.lit(_MAX_WIDTH - 1)), F.lit("…"))
    return F.when(F.length(text) > _MAX_WIDTH, short).otherwise(text)
