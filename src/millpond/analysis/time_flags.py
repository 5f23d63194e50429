"""Conditions that read an earlier timestamp only to see whether it is near."""

from __future__ import annotations

from datetime import timedelta

from millpond.query.expressions import (
    And,
    Arithmetic,
    Comparison,
    Condition,
    Expr,
    IsNull,
    Literal,
    Not,
    NotTrue,
    Op,
    Or,
    Ref,
    Truth,
)
from millpond.query.trees import refs, walk

_IF_FAR = {Op.GT: True, Op.GE: True, Op.LT: False, Op.LE: False}
_MICROSECOND = timedelta(microseconds=1)


def find_flag_distance(condition: Condition, time: Ref, earlier: Ref) -> int | None:
    """The microseconds beyond which an earlier timestamp has the same effect as NULL; None without such.

    >>> time, prev = Ref("t", "ts"), Ref("t", "prev")
    >>> later = Comparison(time, Op.GT, Arithmetic("+", prev, Literal(timedelta(minutes=30), None)))
    >>> find_flag_distance(Or((IsNull(prev), later)), time, prev), find_flag_distance(later, time, prev)
    (1800000000, None)
    """
    distances = [0]
    for node in walk(condition):
        if isinstance(node, Comparison) and earlier in refs(node):
            read = _read_comparison(node, time, earlier)
            if read is None:
                return None
            distances.append(read[1])
        elif isinstance(node, IsNull) and earlier in refs(node) and node.operand != earlier:
            return None
    missing = _reduce(condition, time, earlier, is_missing=True)
    far = _reduce(condition, time, earlier, is_missing=False)
    return max(distances) if missing == far else None


def _reduce(condition: Condition, time: Ref, earlier: Ref, is_missing: bool) -> Condition:
    """The condition, if the earlier timestamp is missing or far away, without constants where possible."""
    match condition:
        case IsNull(operand=operand) if operand == earlier:
            return Truth(is_missing)
        case Comparison() if earlier in refs(condition):
            read = _read_comparison(condition, time, earlier)
            assert read is not None
            return Truth(None if is_missing else read[0])
        case Not(operand=operand):
            inner = _reduce(operand, time, earlier, is_missing)
            if isinstance(inner, Truth):
                return Truth(None if inner.value is None else not inner.value)
            return Not(inner)
        case NotTrue(operand=operand):
            inner = _reduce(operand, time, earlier, is_missing)
            return Truth(inner.value is not True) if isinstance(inner, Truth) else NotTrue(inner)
        case And(operands=operands) | Or(operands=operands):
            decisive = isinstance(condition, Or)
            parts = [_reduce(each, time, earlier, is_missing) for each in operands]
            if Truth(decisive) in parts:
                return Truth(decisive)
            kept = tuple(each for each in parts if each != Truth(not decisive))
            if len(kept) == 1:
                return kept[0]
            return type(condition)(kept) if kept else Truth(not decisive)
    return condition


def _read_comparison(condition: Comparison, time: Ref, earlier: Ref) -> tuple[bool, int] | None:
    """Whether a comparison holds if the earlier timestamp is far away, and how far that is."""
    left, right = _read_side(condition.left), _read_side(condition.right)
    operator = condition.operator
    if left is None or right is None or operator not in _IF_FAR:
        return None
    if left[0] == earlier:
        left, right, operator = right, left, operator.mirrored
    if left[0] != time or right[0] != earlier:
        return None
    return _IF_FAR[operator], max(right[1] - left[1], 0)


def _read_side(side: Expr) -> tuple[Ref, int] | None:
    """A column plus a number of microseconds."""
    match side:
        case Ref():
            return side, 0
        case Arithmetic(operator=sign, left=Ref() as ref, right=Literal(value=timedelta() as length)):
            micros = length // _MICROSECOND
            return (ref, micros if sign == "+" else -micros) if sign in "+-" else None
    return None
