"""The SQL of result tables: what complete matches add to them, and what aggregates read from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millpond.engines.timed.partial_match_sql import PartialMatchSql
from millpond.engines.timed.value_sql import from_number, to_micros
from millpond.plan.closing import Closing
from millpond.plan.needs import MeasuredProduct, Need
from millpond.query.aggregate_functions import Memory, find_memory
from millpond.query.expressions import Aggregate, Expr, Ref
from millpond.query.model import Select
from millpond.query.parts import is_threshold, type_of
from millpond.query.trees import refs, substitute
from millpond.runtime.aggregates import add_sums_sql, adds_squares
from millpond.runtime.sql import Dialect, expression_sql, widen
from millpond.runtime.terms import Version

# The column of a result table with the watermark at which a result closes.
CLOSES = "closes"


def match_expression(sql: PartialMatchSql, expr: Expr) -> str:
    """An expression over the result columns of complete matches."""

    def column(ref: Ref) -> str:
        return widen(f"p{sql.timed.result_columns.index(ref)}", type_of(sql.timed.part, ref))

    return expression_sql(sql.timed.part.rewrite(expr), column, Dialect.DUCKDB)


def closing_columns(sql: PartialMatchSql, closing: Closing | None) -> list[str]:
    """The watermark at which a complete match's result closes, as a column; none if results do not close."""
    if closing is None:
        return []
    text = f"epoch_us({match_expression(sql, closing.column)}) + {closing.after}"
    if closing.end is not None:
        text = f"greatest({text}, {to_micros(closing.end, sql.zone) + 1})"
    return [f"CAST({text} AS BIGINT) AS {CLOSES}"]


def extreme_value(sql: PartialMatchSql, argument: Expr) -> str:
    """The argument of MIN or MAX, from the requirement of complete matches on the virtual stream."""
    requirements = sql.complete.requirements
    (number,) = [
        i for i, r in enumerate(requirements) if any(is_threshold(z.occurrence) for z, _ in r.partners)
    ]
    column = requirements[number].terms[0][0]
    value = from_number(f"c{number}", type_of(sql.timed.part, column))
    if column in dict(sql.timed.part.derived):
        return value
    return expression_sql(substitute(argument, {column: Ref("", "v")}), lambda _: value, Dialect.DUCKDB)


def _groups_of(select: Select, need: Need) -> list[tuple[str, Ref]]:
    """The grouping columns that a need has, by name."""
    return [
        (f"g{i}", ref)
        for i, ref in enumerate(select.group_by or ())
        if all(r.occurrence in need.scope for r in refs(need.part.rewrite(ref)))
    ]


def group_keys(select: Select, need: Need) -> list[str]:
    """The names of the grouping columns that a need has."""
    return [key for key, _ in _groups_of(select, need)]


def group_columns(sql: PartialMatchSql, select: Select) -> list[str]:
    """The grouping columns of a complete match, as SQL with their names."""
    groups = _groups_of(select, sql.timed.need)
    return [f"{match_expression(sql, ref)} AS {key}" for key, ref in groups]


def find_counted_argument(aggregate: Aggregate | None) -> Expr | None:
    """The argument of MEDIAN and its like, whose values must all be counted."""
    return aggregate.argument if aggregate is not None and find_memory(aggregate) is Memory.VALUES else None


def build_counted_matches(
    need: Need, measures: Sequence[MeasuredProduct], keys: Sequence[str], table: str
) -> Callable[[Version], str]:
    """An aggregate's matches, from a result table with counts that it may share with others."""
    square = "0"
    if find_counted_argument(need.aggregate) is not None:
        value, number, total = "v", "CASE WHEN v IS NULL THEN 0 ELSE n END", "0"
    elif need.measures:
        added = [(each, measures.index(each)) for each in need.measures if not each.squared]
        number = " + ".join(f"f{i}" for each, i in added if each.leads)
        sums = [f"s{i}" for each, i in added if not adds_squares(need.aggregate) or each.leads]
        total = add_sums_sql(sums)
        value = "NULL AS v"
        square = "".join(f"s{measures.index(each)}" for each in need.measures if each.squared) or "0"
    else:
        value, number, total = "NULL AS v", "n", "0"
    columns = ", ".join([*keys, value, f"CAST({number} AS HUGEINT) AS w", f"{total} AS t", f"{square} AS q"])
    return lambda version: f"SELECT {columns} FROM {version.of(table)}"
