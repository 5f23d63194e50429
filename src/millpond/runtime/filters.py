"""Which rows of a stream can match, as SQL over a single row."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations

from millpond.query.closure import Range
from millpond.query.expressions import Condition, Expr, Ref
from millpond.query.number_line import Points
from millpond.query.parts import Part
from millpond.query.trees import aliases_in, conjuncts
from millpond.query.types import Family, SqlType
from millpond.runtime.sql import (
    ColumnSql,
    Dialect,
    all_of,
    condition_sql,
    expression_sql,
    literal_sql,
    number_sql,
)


def row_filter_sql(part: Part, alias: str, dialect: Dialect) -> str:
    """A condition that holds for every row of the occurrence that can take part in a match.

    It consists of the part's conditions on the occurrence alone and of the bounds that the closure implies
    for its columns.
    """
    closure = part.closure
    own = [
        condition_sql(c, quoted_column(dialect), dialect)
        for c in conjuncts(part.condition)
        if aliases_in(c) == {alias}
    ]
    nodes = [n for n in closure.nodes if n.ref.occurrence == alias]
    for node in nodes:
        x = column_sql(part, node.ref, dialect)
        inside = range_sql(x, closure.range(node.ref), node.type, part.points, dialect)
        if not part.can_be_null(node.ref):
            own += [f"({x} IS NOT NULL)", inside]
        elif inside != "TRUE":
            own.append(f"({x} IS NULL OR {inside})")
    return all_of(own + _difference_bounds(part, [n.ref for n in nodes if n.ref in part.non_null], dialect))


def column_sql(part: Part, ref: Ref, dialect: Dialect) -> str:
    """A column of the stream, or the expression that a derived column stands for."""
    return expression_sql(dict(part.derived).get(ref, ref), quoted_column(dialect), dialect)


def measure_sql(expression: Expr, given: Sequence[Condition], dialect: Dialect) -> str:
    """The value that a row adds to a measure; NULL for a row that does not count."""
    value = expression_sql(expression, quoted_column(dialect), dialect)
    conditions = [condition_sql(each, quoted_column(dialect), dialect) for each in given]
    return f"CASE WHEN {all_of(conditions)} THEN {value} END" if conditions else value


def quoted_column(dialect: Dialect) -> ColumnSql:
    """Renders a reference as the column's name alone, for SQL over a single table."""
    return lambda ref: dialect.name_of(ref.column)


def _difference_bounds(part: Part, columns: Sequence[Ref], dialect: Dialect) -> list[str]:
    """The bounds on differences between columns of one row that their ranges do not already imply."""
    closure = part.closure
    out = []
    for a, b in permutations(columns, 2):
        i, j = closure.index[a], closure.index[b]
        bound = closure.bound(a, b) if closure.origin[i] == closure.origin[j] else None
        if bound is None:
            continue
        high, low = closure.range(a).high, closure.range(b).low
        if high is None or low is None or bound < (high - low, False):
            out.append(_difference_bound_sql(part, a, b, *bound, dialect))
    return out


def _difference_bound_sql(part: Part, a: Ref, b: Ref, bound: Fraction, strict: bool, dialect: Dialect) -> str:
    """``a - b <= bound``; TRUE where floating-point rounding could make the comparison wrong."""
    sign = "<" if strict else "<="
    x, y = column_sql(part, a, dialect), column_sql(part, b, dialect)
    if bound == 0:
        return f"({x} {sign} {y})"
    types = [part.closure.nodes[part.closure.index[ref]].type for ref in (a, b)]
    if types[0].family is Family.DATE:
        return f"({dialect.days(x)} {sign} {dialect.days(y)} + ({number_sql(bound)}))"
    if types[0].family is not Family.NUMBER or not all(t.step for t in types):
        return "TRUE"
    return f"(CAST({x} AS DECIMAL(38,6)) {sign} CAST({y} AS DECIMAL(38,6)) + ({number_sql(bound)}))"


def comparable_sql(x: str, type_: SqlType, dialect: Dialect) -> str:
    """A value in the form in which ``bound_sql`` renders the points of its type."""
    match type_.family:
        case Family.BOOLEAN:
            return f"CAST({x} AS INT)"
        case Family.DATE:
            return dialect.days(x)
        case _:
            return x


def bound_sql(point: Fraction, type_: SqlType, points: Points, dialect: Dialect) -> str:
    """A point on the value axis, to be compared with a column; strings have points at constants only."""
    if type_.family is Family.STRING:
        assert point.denominator == 1 and 1 <= point <= len(points.strings)
        return dialect.string(points.strings[int(point) - 1])
    if type_.family is Family.TIME:
        return literal_sql(points.value(point, type_), type_, dialect)
    return number_sql(point)


def range_sql(x: str, r: Range, type_: SqlType, points: Points, dialect: Dialect) -> str:
    """SQL for: the value lies in the range."""
    value = comparable_sql(x, type_, dialect)
    parts = []
    if r.low is not None and (r.low != type_.low or r.low_strict):
        sign = ">" if r.low_strict else ">="
        parts.append(f"({value} {sign} {bound_sql(r.low, type_, points, dialect)})")
    if r.high is not None and (r.high != type_.high or r.high_strict):
        sign = "<" if r.high_strict else "<="
        parts.append(f"({value} {sign} {bound_sql(r.high, type_, points, dialect)})")
    return all_of(parts)
