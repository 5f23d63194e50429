"""Ranks of groups: ``GROUP BY user ORDER BY … LIMIT 3`` over any number of users.

Ordered by the group itself, only the first groups are kept: one that has left them never comes back.
Ordered by MAX descending (or MIN ascending), one comes back only with a row that decides its value.
Ordered by anything else, every group may still become the first.
"""

from __future__ import annotations

from millpond.analysis.over import WindowedSource, list_windowed
from millpond.plan.state import COUNT_BYTES, VALUE_BYTES, Kept, State
from millpond.query.expressions import TRUE, Aggregate, Expr, Ref
from millpond.query.model import Query, Select, SortKey, Subquery, WindowFunction
from millpond.query.normalize import find_non_null, push_negations
from millpond.query.trees import conjuncts, is_aggregate

_SMALL = ("COUNT", "SUM", "AVG", "MIN", "MAX", "BOOL_AND", "BOOL_OR")


def compute_top_groups(query: Query) -> State | None:
    """What is kept for the first groups of a query; None unless these are enough."""
    if len(query.selects) != 1 or query.terms[0].distinct or is_aggregate(query.selects[0]):
        return None
    (select,) = query.selects
    sources = list(list_windowed(select))
    if len(sources) != 1 or len(select.every_occurrence) != 1:
        return None
    (source,) = sources
    functions = [f for f in source.block.functions if f.name in source.used]
    if len(functions) != 1 or source.block.where != TRUE:
        return None
    limit = source.limit_of(functions[0])
    if limit is None or not _is_top(source, functions[0]):
        return None
    width = VALUE_BYTES + COUNT_BYTES
    kept = Kept(None, None, (), ("the first groups",), limit, limit * width * len(source.base.columns))
    return State(kept.entries, kept.bytes, (kept,))


def _is_top(source: WindowedSource, function: WindowFunction) -> bool:
    """Whether a group that is not among the first needs not be kept."""
    block = source.base.block
    if not isinstance(block, Subquery) or block.query.projection or len(block.query.selects) != 1:
        return False
    (inner,) = block.query.selects
    streams = [o for o in inner.every_occurrence if o.table.streaming]
    is_single = len(streams) == 1 and streams[0].table.block is None and not inner.joins and not inner.exists
    if not is_single or inner.having != TRUE or inner.session is not None:
        return False
    if function.function != "ROW_NUMBER" or function.partition_by or not function.order_by:
        return False
    values = {n: i.expression for n, i in zip(block.query.columns, inner.items, strict=True)}
    keys = _list_keys(inner, block.query.terms[0].distinct)
    first, *others = function.order_by
    if not all(values.get(key.column) in keys for key in others):
        return False
    shown = [values[name] for name in source.used if name in values]
    if values.get(first.column) in keys:
        return all(each in keys or _is_small(each) for each in shown)
    best = values.get(first.column)
    return _is_best(inner, best, first) and all(each in keys or each == best for each in shown)


def _list_keys(select: Select, distinct: bool) -> set[Expr]:
    """The expressions that tell groups, or rows of a set, apart."""
    if is_aggregate(select):
        return set(select.group_by or ())
    return {i.expression for i in select.items if isinstance(i.expression, Ref)} if distinct else set()


def _is_small(expression: Expr) -> bool:
    """Whether an aggregate has a state of fixed size."""
    return isinstance(expression, Aggregate) and expression.function in _SMALL and not expression.distinct


def _is_best(select: Select, expression: Expr | None, key: SortKey) -> bool:
    """Whether groups come first by their best value: the greatest, descending, or the least, ascending.

    A group without a value must not come first, as it would give way to others when it gets one.
    """
    if not isinstance(expression, Aggregate) or not isinstance(expression.argument, Ref):
        return False
    ref = expression.argument
    known = find_non_null(conjuncts(push_negations(select.where)))
    has_value = ref in known or not select.occurrence(ref.occurrence).table.column(ref.column).nullable
    is_best = expression.function == ("MAX" if key.descending else "MIN")
    return is_best and (has_value or not key.nulls_first)
