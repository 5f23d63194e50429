"""Joins of two SELECTs that are built from a plan."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from millpond.spark.plans.expressions import Definition, WindowColumn
from millpond.spark.plans.nodes import UnsupportedPlanError
from millpond.spark.plans.selects import FromItem, SelectText
from millpond.spark.plans.sql_text import Sql

Wrap = Callable[[SelectText], SelectText]
Condition = Callable[[SelectText, SelectText], tuple[str, ...]]
# Expressions of NULL that need not be NULL themselves.
_NOT_STRICT = re.compile(
    r"\b(coalesce|nvl|nvl2|ifnull|nullif|case|is|concat_ws|hash|xxhash64|struct|array)\b", re.I
)


def join_selects(
    left: SelectText, right: SelectText, kind: str, condition: Condition, wrap: Wrap
) -> SelectText:
    """The join of two plain SELECTs.

    ``kind`` is Spark's name for it, ``condition`` gives the texts of its condition over the columns of the
    two sides, and ``wrap`` makes a subquery of a side.
    """
    match kind:
        case "Inner" | "Cross":
            return _join_inner(left, right, condition, wrap)
        case "LeftOuter":
            return _join_left(left, right, condition, wrap)
        case "RightOuter":
            return _join_left(right, left, condition, wrap)
        case "FullOuter":
            left, right = (
                each if _is_table(each) and not each.where else wrap(each) for each in (left, right)
            )
            item = replace(right.items[0], join="FULL JOIN", on=condition(left, right))
            return _combine(left, right, (*left.items, item))
        case "LeftSemi" | "LeftAnti":
            inner = replace(right, where=(*right.where, *condition(left, right))).render([(Sql("1"), None)])
            test = f"{'NOT ' * (kind == 'LeftAnti')}EXISTS ({inner})"
            return replace(left, where=(*left.where, test))
        case _:
            raise UnsupportedPlanError(f"a join of type {kind}")


def _join_inner(left: SelectText, right: SelectText, condition: Condition, wrap: Wrap) -> SelectText:
    if any(item.join == "FULL JOIN" for item in right.items[1:]):
        right = wrap(right)
    (first, *others) = right.items
    on = condition(left, right)
    if others or left.laterals or right.laterals:  # the condition may use what comes after the first table
        joined = _combine(left, right, (*left.items, first, *others))
        return replace(joined, where=(*joined.where, *on))
    return _combine(left, right, (*left.items, replace(first, join="JOIN", on=on)))


def _join_left(left: SelectText, right: SelectText, condition: Condition, wrap: Wrap) -> SelectText:
    if left.laterals:
        left = wrap(left)
    if not _is_table(right) or any(map(_is_computed, right.columns.values())):
        right = wrap(right)
    item = replace(right.items[0], join="LEFT JOIN", on=(*condition(left, right), *right.where))
    return _combine(left, replace(right, where=()), (*left.items, item))


def _is_table(side: SelectText) -> bool:
    return len(side.items) == 1 and not side.laterals


def _is_computed(definition: Definition) -> bool:
    """Whether a column need not be NULL in a row without a partner."""
    if isinstance(definition, WindowColumn) or definition.column is not None:
        return False
    return _NOT_STRICT.search(definition.text) is not None or "." not in definition.text


def _combine(left: SelectText, right: SelectText, items: tuple[FromItem, ...]) -> SelectText:
    return replace(
        left,
        items=items,
        columns={**left.columns, **right.columns},
        where=(*left.where, *right.where),
        laterals=(*left.laterals, *right.laterals),
    )
