"""Operators that handle rows: projections, conditions, joins, unions, window functions, limits."""

from __future__ import annotations

from dataclasses import replace

from millpond.frontend.spark_names import quote_name
from millpond.spark.plans.catalog import find_hint, make_column, make_unique, read_name
from millpond.spark.plans.expressions import TRUE
from millpond.spark.plans.joins import join_selects
from millpond.spark.plans.nodes import PlanNode, UnsupportedPlanError, split_conjuncts
from millpond.spark.plans.operators import OPAQUE_MAPS, describe_operator, refuse_opaque
from millpond.spark.plans.scope import Needed, PlanScope, columns_of
from millpond.spark.plans.selects import SelectText
from millpond.spark.plans.sql_text import Precedence, Sql
from millpond.spark.plans.time_windows import find_time_window, is_session_check

_SET_OPERATIONS = {"Union": "UNION ALL", "Intersect": "INTERSECT", "Except": "EXCEPT"}
_KEEPS_STATE = {
    *("Aggregate", "Join", "Deduplicate", "Distinct", "DeduplicateWithinWatermark", "GlobalLimit", "Window"),
}


def translate_opaque_map(scope: PlanScope, node: PlanNode, needed: Needed, hint: str | None) -> SelectText:
    """The rows that an opaque function makes of rows: a stream of their own."""
    inputs = [each for child in node.children for each in child.walk()]
    for each in inputs:
        refuse_opaque(each)
    if any(each.kind in _KEEPS_STATE for each in inputs):
        scope.below += [child for child in node.children if child.kind not in OPAQUE_MAPS]
    name = find_hint(node) or describe_operator(node)
    return scope.read_table(replace(node, source=None, children=()), hint or name)


def pass_rows(scope: PlanScope, node: PlanNode, needed: Needed, hint: str | None) -> SelectText:
    """The rows of the input, under the node's own IDs of columns."""
    (child,) = node.children
    pairs = list(zip(node.output, child.output, strict=False))
    same = {a.expr_id: b.expr_id for a, b in pairs}
    block = scope.translate(child, frozenset(same.get(each, each) for each in needed), hint)
    renamed = {a: block.columns[b] for a, b in same.items() if a != b and b in block.columns}
    return replace(block, columns={**block.columns, **renamed}) if renamed else block


def translate_with(scope: PlanScope, node: PlanNode, needed: Needed, hint: str | None) -> SelectText:
    """WITH: its queries are translated where they are read."""
    *definitions, query = node.children
    scope.ctes.update({each.fields["id"]: each.children[0] for each in definitions})
    return scope.translate(query, needed)


def translate_cte(scope: PlanScope, node: PlanNode, needed: Needed, hint: str | None) -> SelectText:
    """A reference to a query of WITH."""
    definition = scope.ctes.get(node.fields.get("cteId", -1))
    if definition is None:
        raise UnsupportedPlanError("a recursive query")
    return pass_rows(scope, replace(node, children=(definition,)), needed, hint)


def translate_project(scope: PlanScope, node: PlanNode, needed: Needed, hint: str | None) -> SelectText:
    """``select(…)`` and ``withColumn(…)``: the select list."""
    wanted = [each for each in node.expressions("projectList") if each.expr_id in needed]
    block = scope.translate(node.children[0], columns_of(wanted), hint)
    if not block.is_plain and any(find_time_window(each) is not None for each in wanted):
        block = scope.prepare(block)
    if block.distinct and {each.expr_id for each in wanted} != block.columns.keys():
        block = scope.prepare(block)
    return scope.define(block, [(each, each.expr_id) for each in wanted])


def translate_filter(scope: PlanScope, node: PlanNode, needed: Needed, hint: str | None) -> SelectText:
    """``where(…)``: a condition of WHERE or HAVING."""
    condition = node.expression("condition")
    assert condition is not None, "a Filter has a condition"
    block = scope.translate(node.children[0], needed | condition.columns, hint)
    if block.has_over or block.limit is not None:
        block = scope.prepare(block)
    renderer = scope.make_renderer(block)
    where, having = list(block.where), list(block.having)
    for part in split_conjuncts(condition):
        text = renderer.render(part)
        if text == TRUE or is_session_check(part):
            continue
        read = {_find_text(block, each) for each in part.columns}
        is_of_keys = block.group is None or all(each in block.group for each in read)
        (where if is_of_keys else having).append(text.within(Precedence.AND))
    return replace(block, where=tuple(where), having=tuple(having))


def _find_text(block: SelectText, expr_id: int) -> str | None:
    """The SQL of a column, unless it is a time window."""
    found = block.columns.get(expr_id)
    return found.text if isinstance(found, Sql) else None


def translate_generate(scope: PlanScope, node: PlanNode, needed: Needed, hint: str | None) -> SelectText:
    """``explode(…)``: LATERAL VIEW."""
    generator = node.expression("generator")
    assert generator is not None, "a Generate has a generator"
    block = scope.prepare(scope.translate(node.children[0], needed | generator.columns, hint))
    made = node.expressions("generatorOutput")
    is_array = (generator.children[0].type or "array").startswith("array") if generator.children else False
    is_plain = len(made) == 1 and not (made[0].type or "").startswith("struct")
    if generator.kind == "Explode" and is_plain and is_array and not block.laterals:
        array = scope.make_renderer(block).render(generator.children[0]).text
        alias, name = scope.catalog.name_alias("elements"), made[0].name or "col"
        outer = "OUTER " if node.fields.get("outer") is True else ""
        view = f"LATERAL VIEW {outer}explode({array}) {quote_name(alias)} AS {quote_name(name)}"
        columns = {**block.columns, made[0].expr_id or 0: make_column(alias, name)}
        return replace(block, laterals=(view,), columns=columns)
    stream = scope.find_stream(block)
    if stream is None:
        raise UnsupportedPlanError(f"{generator.function or generator.kind} of the rows of a subquery")
    if generator.kind == "Stack":
        raise UnsupportedPlanError("stack")
    columns = dict(block.columns)
    for each in made:
        columns[each.expr_id or 0] = scope.catalog.add_column(
            stream, each.name or "col", each.type or "string"
        )
    return replace(block, columns=columns)


def translate_expand(scope: PlanScope, node: PlanNode, needed: Needed, hint: str | None) -> SelectText:
    """The rows of sliding windows; those of ROLLUP and CUBE are read with their groups."""
    projections = node.fields.get("projections")
    if not projections:  # Spark does not say what they are
        raise UnsupportedPlanError("unpivot")
    (first, *_) = projections
    if not any(find_time_window(each) is not None for each in first):
        raise UnsupportedPlanError("the operator Expand")
    pairs = [(e, a.expr_id) for e, a in zip(first, node.output, strict=True) if a.expr_id in needed]
    block = scope.prepare(scope.translate(node.children[0], columns_of(e for e, _ in pairs), hint))
    return scope.define(block, pairs)


def translate_watermark(scope: PlanScope, node: PlanNode, needed: Needed, hint: str | None) -> SelectText:
    """``withWatermark(…)``: the time column of a stream, and its watermark."""
    time = node.expression("eventTime")
    assert time is not None and time.expr_id is not None, "a watermark has a column"
    block = scope.translate(node.children[0], needed | {time.expr_id}, hint)
    delay = next((each.delay for each in node.output if each.expr_id == time.expr_id), None)
    found = block.columns.get(time.expr_id)
    if not isinstance(found, Sql) or not block.is_plain:
        return block  # the time of groups follows from that of their rows
    column = scope.make_time_column(block, found, time.name or "event_time")
    scope.catalog.set_time(column.column, delay)
    return replace(block, columns={**block.columns, time.expr_id: column})


def _select_own(side: PlanNode, needed: Needed) -> Needed:
    """The needed columns that one side of a join makes; all, if its output is not known."""
    return needed & {each.expr_id for each in side.output} if side.output else needed


def translate_join(scope: PlanScope, node: PlanNode, needed: Needed, hint: str | None) -> SelectText:
    """``join(…)``: a join of any kind, with its condition in ON."""
    condition = node.expression("condition")
    if condition is not None:
        needed = needed | condition.columns
    sides = [
        scope.prepare(scope.translate(child, _select_own(child, needed), read_name(child)))
        for child in node.children
    ]
    parts = list(split_conjuncts(condition))
    left, right = sides
    columns = {**left.columns, **right.columns}
    for each in (found for part in parts for found in part.walk()):
        if each.type == "timestamp" and each.kind == "AttributeReference":
            column = columns.get(each.expr_id or 0)
            scope.catalog.set_time(column.column if isinstance(column, Sql) else None)
    kind = node.fields.get("joinType")
    if isinstance(kind, dict):
        kind = str(kind.get("product-class", "")).rpartition(".")[2]

    def render_condition(left: SelectText, right: SelectText) -> tuple[str, ...]:
        renderer = scope.make_renderer(replace(left, columns={**left.columns, **right.columns}))
        return tuple(renderer.render(each).within(Precedence.AND) for each in parts)

    return join_selects(left, right, str(kind), render_condition, scope.wrap)


def translate_union(scope: PlanScope, node: PlanNode, needed: Needed, hint: str | None) -> SelectText:
    """UNION ALL, INTERSECT and EXCEPT; of UNION ALL, only columns that are needed."""
    word = _SET_OPERATIONS[node.kind] + (" ALL" if node.fields.get("isAll") is True else "")
    is_needed = [node.kind != "Union" or each.expr_id in needed for each in node.output]
    kept = [i for i, each in enumerate(is_needed) if each] or [0]
    names = make_unique(node.output[i].name for i in kept)
    texts = []
    for child in node.children:
        ids = [child.output[i].expr_id for i in kept]
        block = scope.translate(child, frozenset(ids), read_name(child))
        if block.limit is not None or (block.distinct and set(ids) != block.columns.keys()):
            block = scope.prepare(block)
        texts.append(block.render([(block.columns[i], n) for i, n in zip(ids, names, strict=True)]))
    return scope.make_subquery(
        f"\n{word}\n".join(texts),
        {node.output[i].expr_id: (name,) for i, name in zip(kept, names, strict=True)},
    )


def translate_over(scope: PlanScope, node: PlanNode, needed: Needed, hint: str | None) -> SelectText:
    """Window functions: items with OVER."""
    items = [each for each in node.expressions("windowExpressions") if each.expr_id in needed]
    block = scope.translate(node.children[0], needed | columns_of(items), hint)
    if not block.is_plain and not block.has_over:
        block = scope.prepare(block)
    over = scope.define(block, [(each, each.expr_id) for each in items])
    return replace(over, columns={**block.columns, **over.columns}, has_over=True)


def translate_sort(scope: PlanScope, node: PlanNode, needed: Needed, hint: str | None) -> SelectText:
    """``orderBy(…)``: ORDER BY."""
    order = node.expressions("order")
    block = scope.translate(node.children[0], needed | columns_of(order), hint)
    if node.fields.get("global") is not True:
        return block
    renderer = scope.make_renderer(block)
    return replace(block, order=tuple(renderer.render_order(each) for each in order))


def translate_limit(scope: PlanScope, node: PlanNode, needed: Needed, hint: str | None) -> SelectText:
    """``limit(n)``: LIMIT."""
    limit = node.expression("limitExpr")
    number = (limit.value or "") if limit is not None else ""
    if not number.isdecimal():
        raise UnsupportedPlanError("a LIMIT that is not a number")
    (child,) = node.children
    if child.kind == "LocalLimit":
        (child,) = child.children
    block = scope.translate(child, needed, hint)
    if block.limit is not None or block.has_over:
        block = scope.prepare(block)
    return replace(block, limit=int(number))
