"""Translates an analysed plan to SQL text: CREATE statements and one query.

Operators are added to one SELECT as long as they fit, as a person would write the query; what does not fit
becomes a subquery.  Only columns that an operator above needs are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from millpond.spark.plans import group_operators as groups
from millpond.spark.plans import row_operators as rows
from millpond.spark.plans.catalog import find_hint, read_name
from millpond.spark.plans.nodes import PlanNode, UnsupportedPlanError
from millpond.spark.plans.operators import (
    OPAQUE_MAPS,
    TRANSPARENT,
    describe_operator,
    refuse_opaque,
)
from millpond.spark.plans.scope import Needed, PlanScope
from millpond.spark.plans.selects import SelectText

_OPERATORS: dict[str, Callable[[PlanScope, PlanNode, Needed, str | None], SelectText]] = {
    "Project": rows.translate_project,
    "Filter": rows.translate_filter,
    "EventTimeWatermark": rows.translate_watermark,
    "Generate": rows.translate_generate,
    "Expand": rows.translate_expand,
    "Join": rows.translate_join,
    "Union": rows.translate_union,
    "Intersect": rows.translate_union,
    "Except": rows.translate_union,
    "Window": rows.translate_over,
    "Sort": rows.translate_sort,
    "GlobalLimit": rows.translate_limit,
    "WithCTE": rows.translate_with,
    "CTERelationRef": rows.translate_cte,
    "Aggregate": groups.translate_aggregate,
    "Distinct": groups.translate_distinct,
    "Deduplicate": groups.translate_deduplicate,
    "DeduplicateWithinWatermark": groups.translate_deduplicate_in_time,
    **dict.fromkeys(OPAQUE_MAPS, rows.translate_opaque_map),
    **dict.fromkeys(TRANSPARENT, rows.pass_rows),
}


@dataclass(frozen=True)
class Translation:
    """A plan as SQL text.

    ``functions`` are functions of users with the types of their values.  ``below`` are plans whose rows an
    opaque function takes and whose own state counts as well.  ``windows`` are streams with the stretch of
    time, in ms, for which ``dropDuplicatesWithinWatermark`` keeps their keys.
    """

    text: str
    functions: Mapping[str, str]
    below: tuple[PlanNode, ...]
    windows: tuple[tuple[str, int], ...]


def translate_plan(plan: PlanNode) -> Translation:
    """The plan as SQL text.

    Raises OpaqueOperatorError for opaque stateful operators, UnsupportedPlanError for what has no SQL.
    """
    scope = PlanScope(_translate)
    block = scope.translate(plan, frozenset(each.expr_id for each in plan.output))
    query = block.render([(block.columns[each.expr_id], each.name) for each in plan.output])
    if not any(each.streaming for each in scope.catalog.tables if each.name not in scope.ended):
        query = scope.limited or query  # all streams have come to an end
    text = f"{scope.catalog.render()}\n{query}"
    return Translation(text, scope.functions, tuple(scope.below), tuple(scope.windows))


def _translate(scope: PlanScope, node: PlanNode, needed: Needed, hint: str | None) -> SelectText:
    """The rows of a node; its name, if it has one, is their alias, unless an operator above gives another."""
    alias = hint or read_name(node)
    if node.kind == "View":
        scope.view = read_name(node)
    elif len(node.children) > 1:
        scope.view = None
    refuse_opaque(node)
    if not node.streaming and node.output:
        return scope.read_table(node, hint or find_hint(node))
    if node.kind in _OPERATORS:
        return _OPERATORS[node.kind](scope, node, needed, alias)
    if node.children:
        raise UnsupportedPlanError(f"the operator {describe_operator(node)}")
    return scope.read_table(node, alias)
