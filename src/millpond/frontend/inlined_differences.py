"""Conditions on a column of a merged block that is, or counts, the time since an earlier row.

``gap <= 60`` is read as if the block's ``unix_timestamp(ts) - unix_timestamp(LAG(ts) OVER …)`` stood there.
"""

from __future__ import annotations

from sqlglot import exp, parse_one

from millpond.frontend.counted_times import find_differences
from millpond.frontend.scope import Scope
from millpond.frontend.time_zones import find_slack
from millpond.query.expressions import Ref
from millpond.query.model import Windowed
from millpond.query.types import INTERVAL_VALUE


def inline_differences(scope: Scope, node: exp.Expr) -> exp.Expr:
    """The condition with such columns written out; the node itself if it has none."""
    written = {}
    for column in node.find_all(exp.Column):
        difference = _find_difference(scope, column)
        if difference is not None:
            written[id(column)] = difference
    if not written:
        return node
    copied = scope.statement.copy(node)
    copied.parent = node.parent  # its place in the statement
    for column, original in zip([*copied.find_all(exp.Column)], [*node.find_all(exp.Column)], strict=True):
        made = written.get(id(original))
        if made is None:
            continue
        for each in made.walk():
            scope.statement.place(each, original)
        if column is copied:
            made.parent = copied.parent
            return made
        column.replace(made)
    return copied


def _find_difference(scope: Scope, column: exp.Column) -> exp.Expr | None:
    """The time between two timestamps that a column of a table with window functions counts."""
    if isinstance(column.this, exp.Star) or not scope.knows(column):
        return None
    ref = scope.resolve(column)[1].ref
    if ref is None or not isinstance(scope.table_of(ref.occurrence).block, Windowed):
        return None
    derivation = scope.column(ref).derivation
    if derivation is None or len(derivation.arguments) < 2:
        return None
    made = exp.Paren(this=parse_one(derivation.sql, read="spark"))
    compared = exp.LT(this=made.this.copy(), expression=exp.Literal.number(1))
    is_length = scope.column(ref).type is INTERVAL_VALUE and isinstance(made.this, exp.Sub)
    if not is_length and not find_differences(compared, find_slack(scope.statement.time_zone)):
        return None
    for each in [*made.find_all(exp.Column)]:
        each.replace(scope.make_column(Ref(ref.occurrence, each.name), each))
    return made
