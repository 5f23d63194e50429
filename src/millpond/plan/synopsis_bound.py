"""Computes the bound of a plan's synopses: their worst-case size, stream by stream, with a description."""

from __future__ import annotations

from math import prod

from millpond.plan.classes import ColumnClasses
from millpond.plan.needs import Measure
from millpond.plan.state import COUNT_BYTES, VALUE_BYTES, Kept, KeptColumn, State
from millpond.plan.synopses import ExactPlan, Extreme, StreamPlan, merge_shared
from millpond.query.derived_names import strip_mark
from millpond.query.expressions import Literal, Scalar
from millpond.query.parts import Part
from millpond.query.text import expression_text
from millpond.query.trees import is_aggregate, sorted_refs


def compute_exact_state(plan: ExactPlan) -> State:
    """The bound of an exact plan: the sum over all synopses and remembered results.

    It holds for all contents of the streams and all orders of arrival.
    """
    kept: list[Kept] = []
    for select in plan.selects:
        kept += [_describe_stream(part, stream) for part, stream in merge_shared(select.needs)]
        what = "current answer" if is_aggregate(select.select) else "rows already emitted"
        for part, classes in select.results:
            entries = prod(each.classes for each in classes)
            columns = tuple(describe_column(part, each) for each in classes)
            size = entries * VALUE_BYTES * max(len(classes), 1)
            kept.append(Kept(None, None, columns, (what,), entries, size))
    return State(sum(k.entries or 0 for k in kept), sum(k.bytes or 0 for k in kept), tuple(kept))


def _describe_stream(part: Part, plan: StreamPlan) -> Kept:
    """What is kept of one stream, and its bound."""
    columns = tuple(describe_column(part, each) for each in (*plan.classes, *plan.zoned))
    width = VALUE_BYTES * len({c.name for c in columns})
    if plan.counted:
        keeps = _describe_counts(plan)
        width += COUNT_BYTES * (1 + sum(1 + m.summed for m in plan.measures))
    else:
        keeps = _describe_rows(part, plan)
        ranked = {column for p in plan.patterns for e in p.extremes for column in e.columns}
        width += VALUE_BYTES * len(ranked | set(plan.differing))
    size = plan.entries * max(width, VALUE_BYTES)
    return Kept(plan.stream, plan.alias, columns, keeps, plan.entries, size)


def _describe_counts(plan: StreamPlan) -> tuple[str, ...]:
    return ("count", *(_describe_measure(m) for m in plan.measures))


def _describe_measure(measure: Measure) -> str:
    if isinstance(measure.expression, Literal):  # of a product that has no other factor of the stream
        names = [strip_mark(ref.column) for each in measure.given for ref in sorted_refs(each)]
        return f"count of {', '.join(dict.fromkeys(names))}"
    return f"{_name_measure(measure)} of {expression_text(measure.expression)}"


def _name_measure(measure: Measure) -> str:
    if measure.squared:
        return "sum of squares"
    return "sum" if measure.summed else "count"


def _describe_rows(part: Part, plan: StreamPlan) -> tuple[str, ...]:
    extremes = [e for p in plan.patterns for e in p.extremes]
    keeps = list(dict.fromkeys(_extreme_text(part, e) for e in extremes)) or ["presence"]
    if plan.differing:
        names = ", ".join(r.column for r in plan.differing)
        keeps.append(f"further rows with other values of {names}")
    return tuple(keeps)


def _extreme_text(part: Part, extreme: Extreme) -> str:
    expressions = dict(part.derived)
    names = list(dict.fromkeys(expression_text(expressions.get(c, c)) for c in extreme.columns))
    if len(names) == 1:
        return f"row with the {'smallest' if extreme.smallest else 'largest'} {names[0]}"
    inner = ", ".join(names)
    return f"row with the smallest max({inner})" if extreme.smallest else f"row with the largest min({inner})"


def describe_column(part: Part, classes: ColumnClasses) -> KeptColumn:
    """The classes of a column in words."""
    words = [_values_text(part, classes)] if classes.values else []
    words += [text for here, text in ((classes.below, "all below"), (classes.above, "all above")) if here]
    words += ["NULL"] if classes.null else []
    return KeptColumn(strip_mark(classes.column.column), classes.classes, ", ".join(words) or "none")


def _values_text(part: Part, classes: ColumnClasses) -> str:
    """The values with a class of their own: one, two, a range, or some of a range."""
    if classes.is_counted:
        return f"at most {classes.values:,} values"
    type_ = part.closure.nodes[part.closure.index[classes.column]].type
    low, high = (_value_text(part.points.value(point, type_)) for point in (classes.low, classes.high))
    if low == high:
        return low
    if classes.values == 2:
        return f"{low}, {high}"
    between = int((classes.high - classes.low) / type_.step) + 1 if type_.step else classes.values
    return f"{low} to {high}" if classes.values >= between else f"{classes.values} of {low} to {high}"


def _value_text(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, str) else str(value)
