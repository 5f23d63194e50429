"""Operators that handle groups: GROUP BY with all its forms, and duplicates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from millpond.spark.plans.catalog import make_column, make_unique
from millpond.spark.plans.expressions import WindowColumn
from millpond.spark.plans.nodes import Attribute, PlanExpression, PlanNode
from millpond.spark.plans.scope import RANK, Needed, PlanScope, columns_of, list_texts
from millpond.spark.plans.selects import SelectText
from millpond.spark.plans.sql_text import Sql

_GROUPING_ID = "spark_grouping_id"


def translate_aggregate(scope: PlanScope, node: PlanNode, needed: Needed, hint: str | None) -> SelectText:
    """``groupBy(…).agg(…)``: a select with GROUP BY."""
    keys = node.expressions("groupingExpressions")
    items = node.expressions("aggregateExpressions")
    wanted = [each for each in items if each.expr_id in needed]
    below = columns_of((*keys, *wanted))
    child = node.children[0]
    if child.kind == "Expand" and any(each.name == _GROUPING_ID for each in child.output):
        return _translate_grouping_sets(scope, node, wanted, hint)
    pivots = {each.expr_id or 0: pivot for each in wanted if (pivot := _find_pivot(each)) is not None}
    if pivots and child.kind == "Aggregate":
        return _translate_pivot(scope, child, keys, wanted, pivots, hint)
    block = scope.prepare(scope.translate(child, below, hint))
    return _group_rows(scope, block, keys, wanted)


def _translate_pivot(
    scope: PlanScope,
    below: PlanNode,
    keys: Iterable[PlanExpression],
    items: Iterable[PlanExpression],
    pivots: Mapping[int, int],
    hint: str | None,
) -> SelectText:
    """The aggregates of the input, for some values of the pivot column, by the remaining columns.

    ``pivots`` are the columns of the input that hold them, by the columns that collect them.
    """
    inner = {each.expr_id or 0: each for each in below.expressions("aggregateExpressions")}
    read = [
        inner[pivots[each.expr_id]] if each.expr_id and each.expr_id in pivots else each for each in items
    ]
    block = scope.prepare(scope.translate(below.children[0], columns_of((*keys, *read)), hint))
    grouped = _group_rows(scope, block, keys, read)
    columns = dict(grouped.columns)
    for key, value in pivots.items():
        found = columns[value]
        columns[key] = replace(found, pivoted=True) if isinstance(found, Sql) else found
    return replace(grouped, columns=columns)


def _group_rows(
    scope: PlanScope, block: SelectText, keys: Iterable[PlanExpression], items: Iterable[PlanExpression]
) -> SelectText:
    renderer = scope.make_renderer(block)
    group: list[str] = []
    inside = dict(block.columns)
    times: set[str] = set()
    for key in keys:
        definition = renderer.define(key)
        if isinstance(definition, WindowColumn):
            group += list_texts(definition)
            if definition.whole is not None:
                function = definition.whole.text.partition("(")[0]
                times.add(definition.whole.text[len(function) + 1 :].split(", '")[0])
                fields = (Sql(f"{function}.start"), Sql(f"{function}.end"))
                inside[key.expr_id or 0] = WindowColumn(*fields, Sql(function))
        elif key.columns:
            group.append(definition.text)
    checked = [scope.catalog.find_made(each.removesuffix(" IS NOT NULL")) for each in block.where]
    where = tuple(each for each, time in zip(block.where, checked, strict=True) if time not in times)
    block = replace(block, columns=inside, where=where)
    block = scope.define(block, [(each, each.expr_id) for each in items])
    return replace(block, group=tuple(group))


def _translate_grouping_sets(
    scope: PlanScope, node: PlanNode, items: list[PlanExpression], hint: str | None
) -> SelectText:
    """ROLLUP, CUBE and GROUPING SETS: one grouping for each projection of the Expand, all together."""
    expand = node.children[0]
    keys = [each for each in node.expressions("groupingExpressions") if each.name != _GROUPING_ID]
    names = make_unique(each.name or "column" for each in items)
    texts = []
    for projection in expand.fields["projections"]:
        block = scope.prepare(scope.translate(expand.children[0], columns_of(projection), hint))
        pairs = list(zip(projection, expand.output, strict=True))
        nulls = {a.expr_id for e, a in pairs if e.kind == "Literal" and e.value is None}
        block = scope.define(block, [(e, a.expr_id) for e, a in pairs])
        block = _group_rows(scope, block, [key for key in keys if key.expr_id not in nulls], items)
        output = [(block.columns[e.expr_id or 0], n) for e, n in zip(items, names, strict=True)]
        texts.append(block.render(output))
    exports = {each.expr_id or 0: (name,) for each, name in zip(items, names, strict=True)}
    return scope.make_subquery("\nUNION ALL\n".join(texts), exports)


def translate_distinct(scope: PlanScope, node: PlanNode, needed: Needed, hint: str | None) -> SelectText:
    """``distinct()``: a select with DISTINCT."""
    (child,) = node.children
    ids = frozenset(each.expr_id for each in child.output)
    block = scope.prepare(scope.translate(child, ids, hint))
    return replace(block, distinct=True, columns={key: block.columns[key] for key in ids})


def translate_deduplicate(scope: PlanScope, node: PlanNode, needed: Needed, hint: str | None) -> SelectText:
    """DISTINCT, if nothing but the keys is used; otherwise the first row of each key."""
    keys = [each.expr_id or 0 for each in node.expressions("keys")]
    rest = sorted(needed - set(keys))
    time = next((each for each in node.output if each.delay is not None), None)
    time = time or next((each for each in node.output if each.type.startswith("timestamp")), None)
    block = scope.prepare(
        scope.translate(node.children[0], needed | {*keys, *([time.expr_id] if time and rest else ())}, hint)
    )
    key_texts = [text for key in keys for text in list_texts(block.columns[key])]
    if not rest:
        return replace(block, distinct=True, columns={key: block.columns[key] for key in keys})
    order = _find_order(scope, block, time)
    if order is None:
        any_value = {
            key: Sql(f"ANY_VALUE({text})") for key in rest for text in list_texts(block.columns[key])[:1]
        }
        columns = {**{key: block.columns[key] for key in keys}, **any_value}
        return replace(block, columns=columns, group=tuple(key_texts))
    rank = Sql(f"ROW_NUMBER() OVER (PARTITION BY {', '.join(key_texts)} ORDER BY {order})")
    columns = {key: block.columns[key] for key in (*keys, *rest)}
    ranked = scope.wrap(replace(block, columns={**columns, RANK: rank}, has_over=True))
    first = ranked.columns[RANK]
    assert isinstance(first, Sql), "a rank is a number"
    return replace(ranked, where=(f"{first.text} = 1",))


def _find_order(scope: PlanScope, block: SelectText, time: Attribute | None) -> str | None:
    """The timestamp by which rows are ordered; None without one."""
    found = block.columns.get(time.expr_id) if time is not None else None
    if isinstance(found, Sql):
        return found.text
    alias = scope.find_stream(block)
    table = scope.catalog.find(alias) if alias is not None else None
    if alias is None or table is None or table.time_column is None:
        return None
    return make_column(alias, table.time_column).text


def translate_deduplicate_in_time(
    scope: PlanScope, node: PlanNode, needed: Needed, hint: str | None
) -> SelectText:
    """A filter: what it keeps, the keys of a stretch of time, is bounded by itself."""
    delay = max((each.delay for each in node.output if each.delay is not None), default=None)
    block = scope.translate(node.children[0], needed, hint)
    alias = scope.find_stream(block)
    table = scope.catalog.find(alias) if alias is not None else None
    if delay is not None and table is not None:
        scope.windows.append((table.name, delay))
    return block


def _find_pivot(item: PlanExpression) -> int | None:
    """The column of which an aggregate collects one value for each value of a pivot column."""
    found = next((each for each in item.walk() if each.kind == "PivotFirst"), None)
    return found.children[1].expr_id if found is not None else None
