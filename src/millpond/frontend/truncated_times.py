"""Comparisons of two timestamps that are truncated to the same unit: ``to_date(prev) = to_date(ts)``.

They tell how far apart the timestamps are, up to the length of the unit.
"""

from __future__ import annotations

from sqlglot import exp

from millpond.frontend.time_bounds import TimeBound, TimeDifference
from millpond.query.calendar import LONGEST

_UPPER = (exp.EQ, exp.LT, exp.LTE)
_LOWER = (exp.EQ, exp.GT, exp.GTE)
_IF_FAR = {exp.EQ: False, exp.NEQ: True, exp.LT: False, exp.LTE: False, exp.GT: True, exp.GTE: True}


def find_truncated(node: exp.Expr, slack: int) -> list[TimeDifference]:
    """The difference that a comparison of two equally truncated timestamps is about; empty for others.

    ``slack``: by how many microseconds a stretch of local time can be longer than one in UTC.

    >>> from sqlglot import parse_one
    >>> (found,) = find_truncated(parse_one("to_date(ts) = to_date(prev)", read="spark"), 0)
    >>> found.later.sql(), found.reach, found.if_far
    ('ts', 86400000000, False)
    """
    kind = type(node)
    if kind not in _IF_FAR:
        return []
    left, right = _read_truncation(node.this), _read_truncation(node.expression)
    if left is None or right is None or left[1] != right[1]:
        return []
    (later, unit), (earlier, _) = left, right
    most = LONGEST[unit] + slack
    bounds = [TimeBound(exp.LT, most)] if kind in _UPPER else []
    bounds += [TimeBound(exp.GT, -most)] if kind in _LOWER else []
    return [TimeDifference(later, earlier, tuple(bounds), False, most, _IF_FAR[kind])]


def _read_truncation(node: exp.Expr) -> tuple[exp.Expr, str] | None:
    """A timestamp and the unit to which an expression truncates it."""
    node = node.unnest()
    if isinstance(node, exp.TsOrDsToDate) and not node.args.get("format"):
        return node.this.unnest(), "day"
    if isinstance(node, exp.Cast) and node.is_type(exp.DType.DATE):
        return node.this.unnest(), "day"
    if isinstance(node, exp.TimestampTrunc | exp.DateTrunc):
        unit = node.text("unit").lower()
        return (node.this.unnest(), unit) if unit in LONGEST else None
    return None
