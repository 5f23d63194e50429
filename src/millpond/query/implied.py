"""What a conjunction implies for the columns of one occurrence, as conditions."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

from millpond.query.expressions import Arithmetic, Comparison, Condition, Literal, Op, Ref
from millpond.query.parts import Part, type_of
from millpond.query.types import Family


def find_implied_conditions(part: Part, alias: str) -> tuple[Condition, ...]:
    """Conditions on the columns of one occurrence that hold in every match of a part.

    They are ranges, and differences of columns of discrete types; a column that can be NULL has none.
    """
    known = [n.ref for n in part.closure.nodes if n.ref.occurrence == alias and n.ref in part.non_null]
    found = [condition for ref in known for condition in _range_conditions(part, ref)]
    for x, y in permutations(known, 2):
        condition = _difference_condition(part, x, y)
        if condition is not None:
            found.append(condition)
    return tuple(found)


def _range_conditions(part: Part, ref: Ref) -> list[Condition]:
    type_, bounds = type_of(part, ref), part.closure.range(ref)
    if type_.family is Family.STRING:
        if bounds.low is None or bounds.low != bounds.high or bounds.low.denominator != 1:
            return []
        return [_compare(part, ref, Op.EQ, bounds.low)]
    if bounds.low is not None and bounds.low == bounds.high:
        return [_compare(part, ref, Op.EQ, bounds.low)]
    found: list[Condition] = []
    if bounds.low is not None and bounds.low != type_.low:
        found.append(_compare(part, ref, Op.GE, bounds.low))
    if bounds.high is not None and bounds.high != type_.high:
        found.append(_compare(part, ref, Op.LE, bounds.high))
    return found


def _compare(part: Part, ref: Ref, operator: Op, point: Fraction) -> Comparison:
    type_ = type_of(part, ref)
    return Comparison(ref, operator, Literal(part.points.value(point, type_), type_))


def _difference_condition(part: Part, x: Ref, y: Ref) -> Condition | None:
    """``x <= y + c`` unless constants imply it."""
    types = type_of(part, x), type_of(part, y)
    if types[0].family is not types[1].family or part.closure.is_implied_by_constants(x, y):
        return None
    bound = part.closure.bound(x, y)
    if bound is None:
        return None
    if not bound[0]:
        return Comparison(x, Op.LT if bound[1] else Op.LE, y)
    if types[0].family is not Family.NUMBER or types[0].step != 1 or types[1].step != 1:
        return None
    shift = Literal(int(bound[0]), types[1])
    return Comparison(x, Op.LE, Arithmetic("+", y, shift))
