"""Columns of a plan with finitely many values.

Projections and filters down to a leaf, a join, a union or an aggregation become one query without time,
``SELECT DISTINCT expression FROM input WHERE conditions``.  It is bounded if, and only if, the expression has
finitely many values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

from millpond.analysis.decide import decide
from millpond.analysis.verdict import BOUNDED
from millpond.errors import MillpondError
from millpond.frontend.parse import parse_query
from millpond.query.model import Column, Query, Table
from millpond.query.types import INT, find_type, nested
from millpond.spark.plans.expressions import (
    FRESH,
    Definition,
    ExpressionRenderer,
    PlanContext,
)
from millpond.spark.plans.nodes import (
    Attribute,
    PlanExpression,
    PlanNode,
    UnsupportedPlanError,
    split_conjuncts,
)
from millpond.spark.plans.sql_text import Sql

_ROWS = "rows_of_input"
_SMALL_TYPES = ("boolean", "tinyint", "void")
# Aggregates whose value is one of those that they are given.
_PICKS = {"Max", "Min", "First", "Last", "AnyValue", "Mode", "MaxBy", "MinBy"}


def has_finite_values(node: PlanNode, expression: PlanExpression) -> bool:
    """Whether an expression over the output of a node has finitely many values, however long the streams are.

    False if that is not known.
    """
    if not node.streaming or _is_small(expression):
        return True
    conditions: list[PlanExpression] = []
    while node.kind in ("Project", "Filter"):
        if node.kind == "Filter":
            conditions += split_conjuncts(node.expression("condition"))
        else:
            made = {each.expr_id: each for each in node.expressions("projectList") if each.kind == "Alias"}
            expression = _inline(expression, made)
            conditions = [_inline(each, made) for each in conditions]
        (node,) = node.children
    if node.kind == "Join" and node.fields.get("joinType") in ("Inner", "Cross", "LeftSemi"):
        conditions += split_conjuncts(node.expression("condition"))
    conditions += _list_facts(node)
    used = {column for each in (expression, *conditions) for column in each.columns}
    columns = [each for each in _list_inputs(node) if each.expr_id in used]
    finite: set[int | None] = {each.expr_id for each in columns if _is_finite(node, each)}
    finite = _spread(finite | set(map(_find_listed, conditions)), conditions)
    return _Question(columns, finite, conditions).is_finite(expression)


def _is_small(expression: PlanExpression) -> bool:
    """Whether an expression is constant, or has few values by its type."""
    if expression.kind == "AttributeReference":
        return expression.type in _SMALL_TYPES
    return not expression.columns and not any(each.kind in FRESH for each in expression.walk())


def _inline(expression: PlanExpression, made: Mapping[int | None, PlanExpression]) -> PlanExpression:
    """The expression with the columns that a projection makes replaced by what they are computed from."""
    if expression.kind == "AttributeReference":
        found = made.get(expression.expr_id)
        return expression if found is None else found.children[0]
    return replace(expression, children=tuple(_inline(each, made) for each in expression.children))


def _list_inputs(base: PlanNode) -> list[Attribute]:
    """The columns over which the conditions at a base are: those of both sides of a join."""
    if base.kind == "Join":
        return [each for child in base.children for each in child.output]
    return list(base.output)


def _list_facts(leaf: PlanNode) -> list[PlanExpression]:
    """What is known of the rows of a source: the values of the rate sources count from 0."""
    if leaf.source is None or not leaf.source.format.startswith("rate"):
        return []
    zero = PlanExpression("Literal", type="bigint", value="0")
    counts = (each for each in leaf.output if each.name == "value")
    return [PlanExpression("GreaterThanOrEqual", (_refer(each), zero)) for each in counts]


def _find_listed(condition: PlanExpression) -> int | None:
    """The column that a condition restricts to a list which Spark has made a set."""
    return condition.children[0].expr_id if condition.kind == "InSet" else None


def _spread(finite: set[int | None], conditions: Iterable[PlanExpression]) -> set[int | None]:
    """The columns that equal one with finitely many values, and those."""
    pairs = [
        {child.expr_id for child in each.children}
        for each in conditions
        if each.kind in ("EqualTo", "EqualNullSafe")
        and all(child.kind == "AttributeReference" for child in each.children)
    ]
    while any(pair & finite and not pair <= finite for pair in pairs):
        finite = finite.union(*(pair for pair in pairs if pair & finite))
    return finite


def _is_finite(base: PlanNode, column: Attribute) -> bool:
    """Whether a column of a base has finitely many values, apart from conditions on it."""
    if column.type in _SMALL_TYPES or not base.streaming:
        return True
    if base.kind in ("BatchEvalPython", "ArrowEvalPython"):
        results = [each.expr_id for each in base.expressions("resultAttrs")]
        if column.expr_id in results:
            call = base.expressions("udfs")[results.index(column.expr_id)]
            return all(has_finite_values(base.children[0], each) for each in call.children)
    if base.kind == "Aggregate":
        return _is_finite_in_groups(base, column)
    if base.kind == "Union":
        position = [each.expr_id for each in base.output].index(column.expr_id)
        return all(has_finite_values(child, _refer(child.output[position])) for child in base.children)
    if base.kind == "Generate" and column.expr_id not in {each.expr_id for each in base.children[0].output}:
        return _is_generated_finite(base, column)
    if base.kind == "Expand":
        position = [each.expr_id for each in base.output].index(column.expr_id)
        rows = base.fields.get("projections") or ()
        return bool(rows) and all(has_finite_values(base.children[0], row[position]) for row in rows)
    for child in base.children:
        if column.expr_id in {each.expr_id for each in child.output}:
            return has_finite_values(child, _refer(column))
    return False


def _is_generated_finite(base: PlanNode, column: Attribute) -> bool:
    """Whether a column that a generator makes has finitely many values."""
    generator, child = base.expression("generator"), base.children[0]
    if generator is None:
        return False
    if generator.kind == "Stack":  # the values of a column are every n-th argument after the number of rows
        names = [each.expr_id for each in base.expressions("generatorOutput")]
        position = names.index(column.expr_id)
        return all(has_finite_values(child, each) for each in generator.children[1 + position :: len(names)])
    return generator.kind in ("Explode", "Inline") and has_finite_values(child, generator.children[0])


def _is_finite_in_groups(aggregate: PlanNode, column: Attribute) -> bool:
    (child,) = aggregate.children
    for item in aggregate.expressions("aggregateExpressions"):
        if item.expr_id != column.expr_id:
            continue
        value = item.children[0] if item.kind == "Alias" else item
        if value.kind == "AggregateExpression":
            function = value.children[0]
            return function.kind in _PICKS and has_finite_values(child, function.children[0])
        if not any(each.kind == "AggregateExpression" for each in value.walk()):
            return has_finite_values(child, value)
    return False


def _refer(column: Attribute) -> PlanExpression:
    return PlanExpression("AttributeReference", expr_id=column.expr_id, name=column.name, type=column.type)


# --- the question --------------------------------------------------------------------------------------


class _UnknownValueError(Exception):
    """An expression that the language does not have."""


@dataclass(frozen=True)
class _Question:
    """A stream of columns, some with finitely many values, and conditions that its rows fulfil."""

    columns: list[Attribute]
    finite: set[int | None]
    conditions: list[PlanExpression]

    def is_finite(self, expression: PlanExpression) -> bool:
        if _is_small(expression):
            return True
        if expression.kind in FRESH:
            return False
        try:
            return self._is_bounded(expression)
        except _UnknownValueError:  # a struct or an array, for example: its parts decide
            parts = expression.children
            return bool(parts) and all(self.is_finite(each) for each in parts)

    def _is_bounded(self, expression: PlanExpression) -> bool:
        item = f"SELECT DISTINCT {self._render(expression)} AS value"
        if decide(self._parse(item)).outcome == BOUNDED:
            return True
        known = [f"({each})" for each in map(self._render_condition, self.conditions) if each]
        return bool(known) and decide(self._parse(item, " AND ".join(known))).outcome == BOUNDED

    def _render(self, expression: PlanExpression) -> str:
        names: dict[int, Definition] = {each.expr_id: Sql(_name(each)) for each in self.columns}
        try:
            return ExpressionRenderer(names, _ALONE).render(expression).text
        except UnsupportedPlanError:
            raise _UnknownValueError from None

    def _render_condition(self, condition: PlanExpression) -> str | None:
        """A condition as SQL; None for one that cannot be rendered: without it, there are more values."""
        try:
            text = self._render(condition)
            self._parse("SELECT 1", text)
            return text
        except _UnknownValueError:
            return None

    def _parse(self, item: str, where: str = "TRUE") -> Query:
        columns = (
            Column(
                _name(each),
                find_type(each.type) or nested(each.type),
                cardinality=1 if each.expr_id in self.finite else None,
            )
            for each in self.columns
        )
        # The stream has no time, so that no value is forgotten.
        table = Table(_ROWS, (Column(_ROWS, INT), *columns), streaming=True)
        try:
            return parse_query(f"{item} FROM {_ROWS} WHERE {where}", {_ROWS: table}, "UTC")
        except MillpondError:
            raise _UnknownValueError from None


def _name(column: Attribute) -> str:
    return f"c{column.expr_id}"


def _refuse(*_: object) -> NoReturn:
    raise UnsupportedPlanError("a value that does not follow from the row")


_ALONE = PlanContext(_refuse, _refuse, _refuse)


def show_expression(node: PlanNode, expression: PlanExpression) -> str:
    """An expression over the output of a node for people: as SQL, with the names of columns."""
    while node.kind == "Project":
        made = {each.expr_id: each for each in node.expressions("projectList") if each.kind == "Alias"}
        found = made.get(expression.expr_id) if expression.kind == "AttributeReference" else None
        if found is not None and not (found.name or "").startswith("_groupingexpression"):
            break
        expression = _inline(expression, made)
        (node,) = node.children
    names: dict[int, Definition] = {each.expr_id: Sql(each.name) for each in node.output}
    try:
        return ExpressionRenderer(names, _ALONE).render(expression).text
    except UnsupportedPlanError:
        return expression.name or "its key"
