"""How large a plan gets, stream by stream, and in words."""

from __future__ import annotations

from fractions import Fraction
from math import prod

from millpond.analysis.explain import expression_text
from millpond.analysis.verdict import Kept, KeptColumn, State
from millpond.query.evaluate import is_aggregate
from millpond.query.normalize import Part
from millpond.synopsis.classes import Code
from millpond.synopsis.plan import Extreme, Plan, StreamPlan, merged

# What an entry takes: a word a value, two for a count or a sum, which may outgrow one.
_WORD = 8
_COUNT = 16


def state_of(plan: Plan) -> State:
    """The worst case over all streams and interleavings: the sum over everything that is kept."""
    kept: list[Kept] = []
    for select in plan.selects:
        for need in merged(select.needs):
            kept += [_kept(need.need.part, stream) for stream in need.streams]
        what = "current answer" if is_aggregate(select.select) else "rows already emitted"
        for part, codes in select.results:
            entries = prod(code.classes for code in codes)
            columns = tuple(_kept_column(part, code) for code in codes)
            kept.append(Kept(None, None, columns, (what,), entries, entries * _WORD * max(len(codes), 1)))
    return State(sum(k.entries for k in kept), sum(k.bytes for k in kept), tuple(kept))


def _kept(part: Part, plan: StreamPlan) -> Kept:
    columns = [_kept_column(part, code) for code in (*plan.codes, *plan.zoned)]
    if plan.counted:
        keeps = (
            "count",
            *(f"{'sum' if m.summed else 'count'} of {expression_text(m.expression)}" for m in plan.measures),
        )
    else:
        keeps = tuple(dict.fromkeys(_extreme_text(e) for p in plan.patterns for e in p.extremes)) or (
            "presence",
        )
        if plan.differing:
            names = ", ".join(r.column for r in plan.differing)
            keeps = (*keeps, f"further rows with other values of {names}")
    width = _WORD * len({c.name for c in columns})
    if plan.counted:
        width += _COUNT * (1 + sum(1 + m.summed for m in plan.measures))
    else:
        stored = {e.columns for p in plan.patterns for e in p.extremes}
        width += _WORD * len({c for group in stored for c in group} | set(plan.differing))
    size = max(width, _WORD)
    return Kept(plan.stream, plan.alias, tuple(columns), keeps, plan.entries, plan.entries * size)


def _extreme_text(extreme: Extreme) -> str:
    names = list(dict.fromkeys(c.column for c in extreme.columns))
    if len(names) == 1:
        return f"row with the {'smallest' if extreme.smallest else 'largest'} {names[0]}"
    inner = ", ".join(names)
    return f"row with the smallest max({inner})" if extreme.smallest else f"row with the largest min({inner})"


def _kept_column(part: Part, code: Code) -> KeptColumn:
    words = []
    if code.values:
        low, high = _value_text(part, code, code.low), _value_text(part, code, code.high)
        words.append(low if low == high else f"{low} to {high}")
    if code.below:
        words.append("all below")
    if code.above:
        words.append("all above")
    if code.null:
        words.append("NULL")
    return KeptColumn(code.column.column, code.classes, ", ".join(words) or "none")


def _value_text(part: Part, code: Code, point: Fraction) -> str:
    value = part.points.value(point, part.closure.nodes[part.closure.index[code.column]].type)
    return repr(value) if isinstance(value, str) else str(value)
