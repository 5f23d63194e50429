"""Predicts whether the state that Spark keeps for a query grows for ever.

Spark's operators keep rows or groups until the watermark passes them.  Where it never does, because there is
no watermark, or the time is not among the keys, or the output mode is complete, the state grows with the
input, unless the keys have finitely many values.  The rules are those of Spark's streaming operators, applied
to the plan that Spark executes, which has filters where Spark evaluates them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from millpond.spark.answer import OBSERVED
from millpond.spark.plans.nodes import Attribute, PlanExpression, PlanNode, split_conjuncts
from millpond.spark.plans.values import has_finite_values, show_expression

FLAT = "flat"
GROWS = "grows"

# Aggregates that keep every value, and those that keep every different value.
_LISTS = {"CollectList", "ListAgg"}
_SETS = {"CollectSet", "Percentile", "PercentileCont", "PercentileDisc", "Median", "Mode"}
_LESS = {"LessThan", "LessThanOrEqual"}
_GREATER = {"GreaterThan", "GreaterThanOrEqual"}
_SUMS = {"Add", "TimestampAddInterval", "TimeAdd"}
_SAME = {"Cast", "CheckOverflow", "PromotePrecision"}
_NO_TIMEOUT = {"NoTimeout", "NoTime", None}


@dataclass(frozen=True)
class OperatorState:
    """The state of an operator: whether it grows for ever, and why."""

    grows: bool
    reason: str


@dataclass(frozen=True)
class SparkState:
    """What Spark keeps for a query: the state of each of its operators."""

    operators: tuple[OperatorState, ...]

    @property
    def outcome(self) -> str:
        return GROWS if any(each.grows for each in self.operators) else FLAT

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the state grows, or does not: one sentence for each operator that decides it."""
        grows = self.outcome == GROWS
        return tuple(each.reason for each in self.operators if each.grows == grows)


def predict_state(plan: PlanNode, output_mode: str) -> SparkState:
    """The state of the operators of an optimised plan, in the order of the plan."""
    if any(node.kind == "CollectMetrics" and node.fields.get("name") == OBSERVED for node in plan.walk()):
        return SparkState(
            (OperatorState(False, "Millpond's own operators keep their state within its bound"),)
        )
    return SparkState(tuple(_predict_operators(plan, output_mode.lower() == "complete")))


def _predict_operators(node: PlanNode, complete: bool) -> Iterator[OperatorState]:
    if not node.streaming:
        return
    streams = [child for child in node.children if child.streaming]
    if node.kind == "Aggregate":
        yield _predict_aggregation(node, complete)
    elif node.kind in ("Deduplicate", "Distinct"):
        yield _predict_deduplication(node)
    elif node.kind == "DeduplicateWithinWatermark":
        yield OperatorState(False, "dropDuplicatesWithinWatermark forgets keys that the watermark has passed")
    elif node.kind == "Join" and len(streams) == 2:
        yield _predict_join(node)
    elif node.kind == "GlobalLimit":
        yield OperatorState(False, "limit keeps a counter")
    elif "WithState" in node.kind:
        yield _predict_own_state(node)
    for child in streams:
        yield from _predict_operators(child, complete)


# --- groups --------------------------------------------------------------------------------------------


def _predict_aggregation(node: PlanNode, complete: bool) -> OperatorState:
    (child,) = node.children
    keys = node.expressions("groupingExpressions")
    if _emits_finitely_many_rows(child):
        return OperatorState(False, "the aggregation has finitely many input rows")
    timed = [key for key in keys if _find_delay(child, key) is not None]
    if timed and not complete:
        return OperatorState(
            False, f"the aggregation forgets groups whose {_show(child, timed)} the watermark has passed"
        )
    open_keys = [key for key in keys if not has_finite_values(child, key)]
    if open_keys:
        return OperatorState(
            True,
            f"the aggregation keeps all groups, and {_show(child, open_keys)} can take any number of values: "
            + _explain_no_eviction(child, bool(timed)),
        )
    collected = _find_collecting_aggregate(node)
    if collected is not None:
        return OperatorState(True, f"{collected} keeps every value, and no group is ever removed")
    groups = f"finitely many values of {_show(child, keys)}" if keys else "all rows"
    return OperatorState(False, f"the aggregation keeps one row for {'each of ' if keys else ''}{groups}")


def _explain_no_eviction(child: PlanNode, in_complete_mode: bool) -> str:
    """Why a watermark removes nothing."""
    if in_complete_mode:
        return "output mode complete writes all groups again, so the watermark removes none"
    if _has_watermark(child):
        return "no key has the watermark, so it removes nothing"
    return "there is no watermark that would remove any"


def _find_collecting_aggregate(node: PlanNode) -> str | None:
    """An aggregate whose value for one group grows with its input."""
    (child,) = node.children
    for item in node.expressions("aggregateExpressions"):
        for call in (each for each in item.walk() if each.kind == "AggregateExpression"):
            function = call.children[0]
            shown = function.function or function.kind.lower()
            if function.kind in _LISTS:
                return shown
            distinct = function.kind in _SETS or call.fields.get("isDistinct") is True
            if distinct and not all(has_finite_values(child, each) for each in function.children[:1]):
                return shown
    return None


def _predict_deduplication(node: PlanNode) -> OperatorState:
    (child,) = node.children
    keys = node.expressions("keys") or tuple(map(_refer, child.output))
    if _emits_finitely_many_rows(child):
        return OperatorState(False, "the deduplication has finitely many input rows")
    timed = [key for key in keys if _find_delay(child, key) is not None]
    if timed:
        return OperatorState(
            False, f"dropDuplicates forgets rows whose {_show(child, timed)} the watermark has passed"
        )
    open_keys = [key for key in keys if not has_finite_values(child, key)]
    if open_keys:
        return OperatorState(
            True,
            f"dropDuplicates keeps every row, and {_show(child, open_keys)} can take any number of values: "
            + _explain_no_eviction(child, False),
        )
    return OperatorState(False, f"dropDuplicates keeps finitely many values of {_show(child, keys)}")


def _predict_own_state(node: PlanNode) -> OperatorState:
    """State of the user's own functions: they are not read, so this is what such functions usually do."""
    child = next(each for each in node.children if each.streaming)
    keys = node.expressions("groupingAttributes")
    if not keys:
        count = node.fields.get("groupingAttributesLen")
        keys = tuple(map(_refer, child.output[:count] if isinstance(count, int) else ()))
    if keys and all(has_finite_values(child, key) for key in keys):
        return OperatorState(False, f"the program's own state has finitely many keys: {_show(child, keys)}")
    if {node.fields.get("timeout"), node.fields.get("timeMode")} - _NO_TIMEOUT:
        return OperatorState(False, "the program's own state has a timeout, which is taken to remove it")
    return OperatorState(
        True, f"the program keeps state of its own for every {_show(child, keys) or 'key'}, without a timeout"
    )


# --- joins ---------------------------------------------------------------------------------------------


def _predict_join(node: PlanNode) -> OperatorState:
    """A join of two streams keeps the rows of each side until the watermark rules out a partner."""
    left, right = node.children
    conjuncts = list(split_conjuncts(node.expression("condition")))
    if any(_has_watermark_key(each, left, right) for each in conjuncts):
        return OperatorState(False, "the join forgets rows whose key the watermark has passed")
    kept, has_constant = [], False
    for side, other, name in ((left, right, "left"), (right, left, "right")):
        bounds = {_find_lower_bound(each, side, other) for each in conjuncts}
        if not _emits_finitely_many_rows(side) and not _evicts(bounds, side):
            kept.append(name)
            has_constant |= {"constant", "watermark"} <= bounds
    if not kept:
        return OperatorState(False, "the join forgets rows that are too old for a partner by the watermarks")
    sides = "both sides" if len(kept) == 2 else f"its {kept[0]} side"
    marked = [_has_watermark(side) for side in (left, right)]
    if has_constant:
        why = "Spark takes a condition of ON about this side alone for a bound of its time"
    elif all(marked):
        why = "no condition says how much later a partner may come"
    else:
        why = "there is a watermark on one side only" if any(marked) else "there is no watermark"
    return OperatorState(True, f"the join keeps every row of {sides}: {why}")


def _has_watermark_key(condition: PlanExpression, left: PlanNode, right: PlanNode) -> bool:
    """Whether a condition equates a column that has the watermark with the other side."""
    if condition.kind not in ("EqualTo", "EqualNullSafe"):
        return False
    a, b = condition.children
    if not (_is_over(a, left) and _is_over(b, right)):
        a, b = b, a
    if not (_is_over(a, left) and _is_over(b, right)):
        return False
    return _find_delay(left, a) is not None or _find_delay(right, b) is not None


def _evicts(bounds: set[str | None], side: PlanNode) -> bool:
    """Whether Spark ever forgets rows of one side of a join, by its watermark.

    A condition has to bound a time of the side from below by a time of the other one, which has a watermark.
    Spark takes the lowest of all lower bounds, so that a constant one, which the condition of an outer join
    can have, keeps every row.
    """
    return bounds - {None} == {"watermark"} and any(each.delay is not None for each in side.output)


def _find_lower_bound(condition: PlanExpression, side: PlanNode, other: PlanNode) -> str | None:
    """What Spark reads as a lower bound of a column: the "watermark" of the other side, or a "constant"."""
    if condition.kind not in _LESS | _GREATER:
        return None
    low, high = condition.children if condition.kind in _LESS else reversed(condition.children)
    lows, highs = _find_terms(low, 1), _find_terms(high, -1)
    if lows is None or highs is None:
        return None
    own = {each.expr_id for each in side.output}
    terms = [*lows, *highs]
    if [sign for sign, column in terms if column in own] != [-1]:
        return None
    others = [column for _, column in terms if column not in own]
    if not others:
        return "constant"
    marked = {each.expr_id for each in other.output if each.delay is not None}
    return "watermark" if len(others) == 1 and others[0] in marked else None


def _find_terms(expression: PlanExpression, sign: int) -> list[tuple[int, int]] | None:
    """The columns of a sum of columns and constants, with their signs; None for any other expression."""
    if not expression.columns:
        return []
    if expression.kind == "AttributeReference" and expression.expr_id is not None:
        return [(sign, expression.expr_id)]
    if expression.kind in _SAME:
        return _find_terms(expression.children[0], sign)
    if expression.kind == "UnaryMinus":
        return _find_terms(expression.children[0], -sign)
    if expression.kind in _SUMS or expression.kind == "Subtract":
        first, second = expression.children
        left = _find_terms(first, sign)
        right = _find_terms(second, -sign if expression.kind == "Subtract" else sign)
        return None if left is None or right is None else left + right
    return None


# --- columns and rows ----------------------------------------------------------------------------------


def _find_delay(node: PlanNode, expression: PlanExpression) -> int | None:
    """The delay of the watermark of a column; only columns have one."""
    if expression.kind != "AttributeReference":
        return None
    return next((each.delay for each in node.output if each.expr_id == expression.expr_id), None)


def _has_watermark(node: PlanNode) -> bool:
    return any(each.kind == "EventTimeWatermark" for each in node.walk())


def _is_over(expression: PlanExpression, node: PlanNode) -> bool:
    return expression.columns <= {each.expr_id for each in node.output}


def _emits_finitely_many_rows(node: PlanNode) -> bool:
    """Whether only finitely many rows can ever leave a node."""
    if not node.streaming or node.kind == "GlobalLimit":
        return True
    if node.kind == "Deduplicate":
        return all(has_finite_values(node.children[0], key) for key in node.expressions("keys"))
    if node.kind in ("Project", "Filter", "Generate", "EventTimeWatermark", "Join", "Union"):
        return all(map(_emits_finitely_many_rows, node.children))
    return False


def _show(node: PlanNode, columns: Sequence[PlanExpression]) -> str:
    return ", ".join(show_expression(node, each) for each in columns)


def _refer(column: Attribute) -> PlanExpression:
    return PlanExpression("AttributeReference", expr_id=column.expr_id, name=column.name, type=column.type)
