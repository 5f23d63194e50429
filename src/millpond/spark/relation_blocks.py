"""Subqueries of relations: Spark computes them once, as a batch, and their rows are a relation, too."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millpond.query.expressions import Aggregate, Expr, Ref
from millpond.query.model import Occurrence, Query, Select, Subquery, Table, Windowed
from millpond.query.trees import find_aggregates, is_aggregate, substitute
from millpond.runtime.aggregates import call_sql
from millpond.runtime.sql import Dialect, condition_sql, expression_sql
from millpond.spark.answer import quoted
from millpond.spark.relation_windows import spark_window_sql
from millpond.spark.sources.derived import derive_columns
from millpond.spark.stream_static import prefix_columns, prefixed_name

OpenRelation = Callable[[Table, Query], DataFrame]


def read_relation_block(table: Table, open_relation: OpenRelation) -> DataFrame:
    """The rows of a subquery that reads relations only, with the columns of its table and derived ones.

    ``open_relation`` opens a declared table, with the columns derived from it.
    """
    assert isinstance(table.block, Subquery)
    return _complete(table, _answer(table.block.query, open_relation))


def _open_table(table: Table, query: Query, open_relation: OpenRelation) -> DataFrame:
    """The rows of a relation, of a subquery of relations, or of window functions over one."""
    match table.block:
        case Subquery():
            return read_relation_block(table, open_relation)
        case Windowed():
            base = _open_table(table.block.base, query, open_relation)
            return _complete(table, _compute_windows(table.block, base))
        case _:
            return open_relation(table, query)


def _compute_windows(block: Windowed, rows: DataFrame) -> DataFrame:
    """The rows that take part in window functions, with their values."""
    types = {column.name: column.type.family for column in block.base.all_columns}
    where = condition_sql(block.where, lambda ref: Dialect.SPARK.name_of(ref.column), Dialect.SPARK)
    values = [
        F.expr(spark_window_sql(each, types[each.order_by[0].column] if each.order_by else None)).alias(
            each.name
        )
        for each in block.functions
    ]
    return rows.where(F.expr(where)).select("*", *values)


def _complete(table: Table, rows: DataFrame) -> DataFrame:
    """The columns of a table of a block, and those derived from them."""
    return derive_columns(rows.select(*(quoted(column.name) for column in table.columns)), table, None)


def _answer(query: Query, open_relation: OpenRelation) -> DataFrame:
    terms = []
    for term in query.terms:
        rows = reduce(DataFrame.unionAll, (_select(each, query, open_relation) for each in term.selects))
        terms.append(rows.distinct() if term.distinct else rows)
    answer = reduce(DataFrame.unionAll, terms)
    if query.filter is not None:
        answer = answer.where(F.expr(query.filter.sql))
    if not query.projection:
        return answer
    return answer.select(*(F.expr(each.sql).alias(each.name) for each in query.projection))


def _select(select: Select, query: Query, open_relation: OpenRelation) -> DataFrame:
    """The rows of a select, with the names of the query's columns."""

    def open_occurrence(occurrence: Occurrence) -> DataFrame:
        return prefix_columns(_open_table(occurrence.table, query, open_relation), occurrence)

    first, *others = select.occurrences
    rows = open_occurrence(first)
    for number, occurrence in enumerate(others):
        frame = open_occurrence(occurrence)
        if not select.joins:
            rows = rows.crossJoin(frame)
            continue
        join = select.joins[number]
        on = F.expr(condition_sql(join.on, prefixed_name, Dialect.SPARK))
        rows = rows.join(frame, on, join.side.value.lower())
    for exists in select.exists:
        partners = reduce(DataFrame.crossJoin, map(open_occurrence, exists.occurrences))
        condition = F.expr(condition_sql(exists.condition, prefixed_name, Dialect.SPARK))
        rows = rows.join(partners, condition, "left_anti" if exists.negated else "left_semi")
    rows = rows.where(F.expr(condition_sql(select.where, prefixed_name, Dialect.SPARK)))
    values: dict[Expr, Ref] = {}
    if is_aggregate(select):
        rows, values = _aggregate(select, rows)

    def name(ref: Ref) -> str:
        return prefixed_name(ref) if ref.occurrence else ref.column

    having = condition_sql(substitute(select.having, values), name, Dialect.SPARK)
    items = [
        F.expr(expression_sql(substitute(item.expression, values), name, Dialect.SPARK)).alias(column)
        for item, column in zip(select.items, query.columns, strict=True)
    ]
    return rows.where(F.expr(having)).select(*items)


def _aggregate(select: Select, rows: DataFrame) -> tuple[DataFrame, dict[Expr, Ref]]:
    """The groups with the values of the aggregates, and the columns that these are in."""
    calls: list[Aggregate] = list(dict.fromkeys(find_aggregates(select)))
    columns = [F.expr(call_sql(each, prefixed_name)).alias(f"_a{i}") for i, each in enumerate(calls)]
    keys = [F.col(prefixed_name(ref)) for ref in select.group_by or ()]
    counted = F.count(F.lit(1)).alias("_rows")  # a group needs no aggregate
    groups = rows.groupBy(*keys).agg(counted, *columns)
    return groups, {each: Ref("", f"_a{i}") for i, each in enumerate(calls)}
