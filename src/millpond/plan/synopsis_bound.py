"""How large a plan gets, stream by stream, and in words."""

from __future__ import annotations

from math import prod

from millpond.plan.classes import ColumnClasses
from millpond.plan.state import Kept, KeptColumn, State
from millpond.plan.synopses import ExactPlan, Extreme, StreamPlan, merge_shared
from millpond.query.model import Scalar
from millpond.query.parts import Part
from millpond.query.text import expression_text
from millpond.query.trees import is_aggregate

# What an entry takes: a word a value, two for a count or a sum, which may outgrow one.
_WORD = 8
_COUNT = 16


def compute_exact_state(plan: ExactPlan) -> State:
    """The worst case over all streams and interleavings: the sum over everything that is kept."""
    kept: list[Kept] = []
    for select in plan.selects:
        for need in merge_shared(select.needs):
            kept += [_kept(need.need.part, stream) for stream in need.streams]
        what = "current answer" if is_aggregate(select.select) else "rows already emitted"
        for part, codes in select.results:
            entries = prod(code.classes for code in codes)
            columns = tuple(kept_column(part, code) for code in codes)
            kept.append(Kept(None, None, columns, (what,), entries, entries * _WORD * max(len(codes), 1)))
    return State(sum(k.entries or 0 for k in kept), sum(k.bytes or 0 for k in kept), tuple(kept))


def _kept(part: Part, plan: StreamPlan) -> Kept:
    columns = tuple(kept_column(part, code) for code in (*plan.classes, *plan.zoned))
    width = _WORD * len({c.name for c in columns})
    if plan.counted:
        keeps = _counted_texts(plan)
        width += _COUNT * (1 + sum(1 + m.summed for m in plan.measures))
    else:
        keeps = _row_texts(part, plan)
        ranked = {column for p in plan.patterns for e in p.extremes for column in e.columns}
        width += _WORD * len(ranked | set(plan.differing))
    size = plan.entries * max(width, _WORD)
    return Kept(plan.stream, plan.alias, columns, keeps, plan.entries, size)


def _counted_texts(plan: StreamPlan) -> tuple[str, ...]:
    sums = [f"{'sum' if m.summed else 'count'} of {expression_text(m.expression)}" for m in plan.measures]
    return ("count", *sums)


def _row_texts(part: Part, plan: StreamPlan) -> tuple[str, ...]:
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


def kept_column(part: Part, code: ColumnClasses) -> KeptColumn:
    words = [_values_text(part, code)] if code.values else []
    words += [text for here, text in ((code.below, "all below"), (code.above, "all above")) if here]
    words += ["NULL"] if code.null else []
    return KeptColumn(code.column.column, code.classes, ", ".join(words) or "none")


def _values_text(part: Part, code: ColumnClasses) -> str:
    """The values told apart: one, two, a range, or some of a range."""
    type_ = part.closure.nodes[part.closure.index[code.column]].type
    low, high = (_value_text(part.points.value(point, type_)) for point in (code.low, code.high))
    if low == high:
        return low
    if code.values == 2:
        return f"{low}, {high}"
    between = int((code.high - code.low) / type_.step) + 1 if type_.step else code.values
    return f"{low} to {high}" if code.values >= between else f"{code.values} of {low} to {high}"


def _value_text(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, str) else str(value)
