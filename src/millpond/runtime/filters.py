"""Which rows of a stream can match at all, as SQL over the row alone."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations

from millpond.query.closure import Range
from millpond.query.model import Ref
from millpond.query.parts import Part
from millpond.query.points import Points
from millpond.query.trees import conjuncts, refs
from millpond.query.types import Family, SqlType
from millpond.runtime.sql import (
    Dialect,
    Names,
    all_of,
    condition_sql,
    expression_sql,
    number_text,
    value_text,
)


def admitting_sql(part: Part, alias: str, dialect: Dialect) -> str:
    """The conditions on an occurrence alone, and what the closure says of its columns."""
    closure = part.closure
    own = [
        condition_sql(c, plain_column(dialect), dialect)
        for c in conjuncts(part.condition)
        if {r.occurrence for r in refs(c)} == {alias}
    ]
    nodes = [n for n in closure.nodes if n.ref.occurrence == alias]
    for node in nodes:
        x = spelled(part, node.ref, dialect)
        inside = within(x, closure.range(node.ref), node.type, part.points, dialect)
        if not part.can_be_null(node.ref):
            own += [f"({x} IS NOT NULL)", inside]
        elif inside != "TRUE":
            own.append(f"({x} IS NULL OR {inside})")
    return all_of(own + _differences(part, [n.ref for n in nodes if n.ref in part.solid], dialect))


def spelled(part: Part, ref: Ref, dialect: Dialect) -> str:
    """A column, or the expression that it stands for."""
    return expression_sql(dict(part.derived).get(ref, ref), plain_column(dialect), dialect)


def plain_column(dialect: Dialect) -> Names:
    return lambda ref: dialect.name_of(ref.column)


def _differences(part: Part, columns: Sequence[Ref], dialect: Dialect) -> list[str]:
    """Bounds on differences of columns of a row that can match, beyond what their ranges imply."""
    closure = part.closure
    out = []
    for a, b in permutations(columns, 2):
        i, j = closure.index[a], closure.index[b]
        bound = closure.bound(a, b) if closure.origin[i] == closure.origin[j] else None
        if bound is None:
            continue
        high, low = closure.range(a).high, closure.range(b).low
        if high is None or low is None or bound < (high - low, False):
            out.append(_difference(part, a, b, *bound, dialect))
    return out


def _difference(part: Part, a: Ref, b: Ref, bound: Fraction, strict: bool, dialect: Dialect) -> str:
    """``a - b <= bound``; nothing where rounding could make it wrong."""
    sign = "<" if strict else "<="
    x, y = spelled(part, a, dialect), spelled(part, b, dialect)
    if bound == 0:
        return f"({x} {sign} {y})"
    types = [part.closure.nodes[part.closure.index[ref]].type for ref in (a, b)]
    if types[0].family is Family.DATE:
        return f"({dialect.days(x)} {sign} {dialect.days(y)} + ({number_text(bound)}))"
    if types[0].family is not Family.NUMBER or not all(t.step for t in types):
        return "TRUE"
    return f"(CAST({x} AS DECIMAL(38,6)) {sign} CAST({y} AS DECIMAL(38,6)) + ({number_text(bound)}))"


def _comparable(x: str, type_: SqlType, dialect: Dialect) -> str:
    """A column as something that its points can be compared with."""
    match type_.family:
        case Family.BOOLEAN:
            return f"CAST({x} AS INT)"
        case Family.DATE:
            return dialect.days(x)
        case _:
            return x


def _bound_text(point: Fraction, type_: SqlType, points: Points, dialect: Dialect) -> str:
    """A point to compare a column with.  A string's is always one of the query's constants."""
    if type_.family is Family.STRING:
        assert point.denominator == 1 and 1 <= point <= len(points.strings)
        return dialect.string(points.strings[int(point) - 1])
    if type_.family is Family.TIME:
        return value_text(points.value(point, type_), type_, dialect)
    return number_text(point)


def within(x: str, r: Range, type_: SqlType, points: Points, dialect: Dialect) -> str:
    """The column lies in a range."""
    value = _comparable(x, type_, dialect)
    parts = []
    if r.low is not None and (r.low != type_.low or r.low_strict):
        sign = ">" if r.low_strict else ">="
        parts.append(f"({value} {sign} {_bound_text(r.low, type_, points, dialect)})")
    if r.high is not None and (r.high != type_.high or r.high_strict):
        sign = "<" if r.high_strict else "<="
        parts.append(f"({value} {sign} {_bound_text(r.high, type_, points, dialect)})")
    return all_of(parts)
