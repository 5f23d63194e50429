"""Which aggregates the engines with a state of their own compute; Spark's operators compute all of them."""

from __future__ import annotations

from collections.abc import Iterator

from millpond.plan.needs import Need, TimedPlan
from millpond.plan.synopses import ExactPlan
from millpond.query.aggregate_functions import ORDERED, Memory, find_memory
from millpond.query.expressions import Aggregate, Arithmetic, Choice, Expr, Literal, Negation, Ref
from millpond.query.model import Select
from millpond.query.parts import Part, type_of
from millpond.query.trees import aliases_in, refs
from millpond.query.types import INTEGERS, MAX_PRECISION, Family

# The digits that Spark gives to an integer beside a decimal.
_DIGITS = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 20}
_IN_WINDOWS = "is run only where groups close and one stream is read"


def explain_uncomputed(plan: TimedPlan | ExactPlan) -> str | None:
    """Why no engine computes an aggregate of the plan; None if they compute all of them."""
    for select, need in _list_needs(plan):
        if need.aggregate is not None:
            reason = _explain_aggregate(select, need, need.aggregate, isinstance(plan, TimedPlan))
            if reason is not None:
                return f"{need.aggregate.text} is checked, but {reason}"
    return None


def _list_needs(plan: TimedPlan | ExactPlan) -> Iterator[tuple[Select, Need]]:
    if isinstance(plan, TimedPlan):
        for timed in plan.selects:
            yield from ((timed.select, need) for _, wanted in timed.parts for need in wanted)
    else:
        for exact in plan.selects:
            yield from ((exact.select, each.need) for each in exact.needs)


def _explain_aggregate(select: Select, need: Need, aggregate: Aggregate, in_time: bool) -> str | None:
    memory = find_memory(aggregate)
    if memory in (Memory.SKETCH, Memory.LIST) or aggregate.function == "COLLECT_SET":
        return f"{aggregate.function} {_IN_WINDOWS}"
    if need.values is not None and aggregate.function == "PERCENTILE_APPROX":
        return f"{aggregate.function} {_IN_WINDOWS}"
    if need.values is not None:
        return f"it is not run: keeping only {need.values} values of its argument is not supported"
    is_joint = len(aliases_in(aggregate)) > 1
    if any(type_of(need.part, ref).family is Family.INTERVAL for ref in refs(aggregate)):
        return f"{aggregate.function} of a length of time {_IN_WINDOWS}"
    if memory is Memory.COUNTS and aggregate.function not in ("COUNT", "SUM", "AVG"):
        types = {type_of(need.part, ref) for ref in refs(aggregate)}
        if aggregate.others or is_joint or not types <= set(INTEGERS):
            return f"{aggregate.function} {_IN_WINDOWS}, or of one column of integers"
    if is_joint and memory is Memory.COUNTS and aggregate.argument is not None:
        digits = _find_digits(need.part, aggregate.argument)
        if digits is not None and digits[0] > MAX_PRECISION:
            return f"it is not run: values of more than {MAX_PRECISION} digits are rounded one by one"
    if is_joint and memory is Memory.EXTREME and in_time:
        return f"{aggregate.function} of a sum over several tables is not run in a join in time"
    streams = [o for o in select.every_occurrence if o.table.streaming]
    if aggregate.function in ORDERED and in_time and len(streams) > 1:
        return f"{aggregate.function} over a join in time is not run"
    return None


def _find_digits(part: Part, expr: Expr) -> tuple[int, int] | None:
    """The digits of a number as Spark counts them, and those after the point; None if it is no exact number.

    With decimals of up to 38 digits, sums and products are exact.  Integers alone have no such limit: their
    sums have to fit the type of the result.
    """
    found = count_digits(part, expr)
    is_decimal = any(type_of(part, ref).scale is not None for ref in refs(expr))
    return found if is_decimal else None


def count_digits(part: Part, expr: Expr) -> tuple[int, int] | None:
    """The digits of a number, and those after the point, by Spark's rules; None if it is no exact number.

    The quotient of integers is no exact number.
    """
    match expr:
        case Literal(value=value, type=type_):
            if type_ is not None and type_.precision is not None and type_.scale is not None:
                return type_.precision, type_.scale
            return (
                (len(str(abs(value))), 0) if isinstance(value, int) else None if value is not None else (1, 0)
            )
        case Ref():
            type_ = type_of(part, expr)
            if type_.precision is not None and type_.scale is not None:
                return type_.precision, type_.scale
            return (_DIGITS[type_.name], 0) if type_.name in _DIGITS else None
        case Negation(operand=operand):
            return count_digits(part, operand)
        case Arithmetic(left=left, right=right) | Choice(chosen=left, otherwise=right):
            one, other = count_digits(part, left), count_digits(part, right)
            if one is None or other is None:
                return None
            if isinstance(expr, Arithmetic) and expr.operator == "/" and not one[1] + other[1]:
                return None
            return _combine_digits(expr.operator if isinstance(expr, Arithmetic) else "", one, other)
    return None


def _combine_digits(operator: str, one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """The digits of the result of an operation, as Spark's types have them."""
    (p, s), (q, t) = one, other
    whole, scale = max(p - s, q - t), max(s, t)
    match operator:
        case "*":
            return p + q + 1, s + t
        case "/":
            after = max(6, s + q + 1)
            return min(p - s + t + after, MAX_PRECISION), after
        case "+" | "-":
            return whole + scale + 1, scale
    return whole + scale, scale
