"""Comparisons of the distance between two timestamps with a constant, as comparisons of the timestamps.

``unix_timestamp(b.ts) - unix_timestamp(a.ts) <= 60`` holds exactly if ``unix_timestamp(b.ts)`` is at most
``unix_timestamp(a.ts) + 60``, in which the closure sees how far apart the timestamps can be.  The same holds
for ``b.ts - a.ts <= INTERVAL 1 MINUTE`` and, in days, for ``datediff(b.ts, a.ts) <= 1``.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from millpond.frontend.expressions import Reader, strip_parentheses
from millpond.frontend.row_expressions import mark_as_read
from millpond.frontend.sides import Side, read_row_side, shift_column
from millpond.frontend.time_calls import find_time_function, read_date_of, read_time_call
from millpond.query.expressions import Literal, Op, Ref
from millpond.query.types import INTERVAL, TIMESTAMP

SideComparison = tuple[Side, Op, Side]
_WITHIN = {Op.LT: Op.GT, Op.LE: Op.GE}  # |x| < c is x < c and x > -c


def split_time_difference(
    reader: Reader, node: exp.Expr, operators: Mapping[type[exp.Expr], Op]
) -> list[SideComparison] | None:
    """The comparisons of timestamps that all have to hold; None if no distance of two tables is compared."""
    if isinstance(node, exp.Between):
        limits = [(Op.GE, node.args["low"]), (Op.LE, node.args["high"])]
        distance = node.this
    elif type(node) in operators:
        distance, operator = node.this, operators[type(node)]
        limits = [(operator, node.expression)]
        if _find_difference(reader, distance) is None:
            distance, limits = node.expression, [(operator.mirrored, node.this)]
    else:
        return None
    found = _find_difference(reader, distance)
    if found is None:
        return None
    is_absolute, *written = found
    later, earlier = (_read_moment(reader, each) for each in written)
    if later is None or earlier is None or not _are_comparable(later, earlier):
        return None
    if any(each.find(exp.Column) is not None for _, each in limits):
        return None
    mark_as_read(reader.statement, node)
    return _compare(reader, node, is_absolute, (later, earlier), limits)


def _compare(
    reader: Reader,
    node: exp.Expr,
    is_absolute: bool,
    moments: tuple[Side, Side],
    limits: list[tuple[Op, exp.Expr]],
) -> list[SideComparison] | None:
    later, earlier = moments
    compared = []
    for operator, limit in limits:
        by = read_row_side(reader, limit).expression
        if not isinstance(by, Literal) or (by.type is INTERVAL) is not (later.type is TIMESTAMP):
            return None
        compared.append((later, operator, shift_column(reader, node, "+", earlier, by)))
        if is_absolute and operator not in _WITHIN:
            return None
        if is_absolute:
            compared.append((later, _WITHIN[operator], shift_column(reader, node, "-", earlier, by)))
    return compared


def _find_difference(reader: Reader, node: exp.Expr) -> tuple[bool, exp.Expr, exp.Expr] | None:
    """The two sides of a difference, and whether it is an absolute one."""
    node = strip_parentheses(reader.statement, node)
    if isinstance(node, exp.Abs):
        inner = _find_difference(reader, node.this)
        return (True, *inner[1:]) if inner is not None else None
    if isinstance(node, exp.Sub):
        return False, node.this, node.expression
    if isinstance(node, exp.DateDiff) and node.args.get("unit") is None:
        return False, node.this, node.expression
    return None


def _read_moment(reader: Reader, node: exp.Expr) -> Side | None:
    """A timestamp, or a function of one that never falls; None for anything else."""
    inner = strip_parentheses(reader.statement, node)
    if isinstance(inner, exp.Column) and not isinstance(inner.this, exp.Star) and reader.scope.knows(inner):
        ref, kind = reader.scope.find_column(inner)
        return Side(ref, kind, node) if kind is TIMESTAMP else None
    day = inner
    while isinstance(day, exp.TsOrDsToDate):  # an argument of datediff
        day = day.this
    if day is not inner and isinstance(day, exp.Column) and reader.scope.knows(day):
        found = read_date_of(reader.scope, day)
    else:
        found = read_time_call(reader.scope, inner)
    if found is None or not isinstance(found.expression, Ref):
        return None
    function = find_time_function(reader.scope.column(found.expression))
    if function is None or not function.monotone:
        return None
    return Side(found.expression, found.type, node)


def _are_comparable(one: Side, other: Side) -> bool:
    """Whether two moments are of different tables and of one type."""
    a, b = one.expression, other.expression
    assert isinstance(a, Ref) and isinstance(b, Ref)
    return a.occurrence != b.occurrence and one.type is other.type
