"""Trees of expressions and conditions: walking them, the columns they mention, and rewriting them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from millpond.query.model import (
    Aggregate,
    And,
    Arithmetic,
    Comparison,
    Condition,
    Expr,
    IsNull,
    Item,
    Negation,
    Not,
    NotTrue,
    Or,
    Ref,
    Select,
    Truth,
)


def conjuncts(cond: Condition) -> list[Condition]:
    """The operands of the topmost AND, flattened."""
    out: list[Condition] = []
    todo = [cond]
    while todo:
        c = todo.pop()
        if isinstance(c, And):
            todo.extend(reversed(c.operands))
        elif c != Truth(True):
            out.append(c)
    return out


def refs(node: Expr | Condition) -> frozenset[Ref]:
    """Every column that an expression or condition mentions."""
    return frozenset(n for n in walk(node) if isinstance(n, Ref))


def aggregates_of(select: Select) -> list[Aggregate]:
    """The aggregates of the select list and of HAVING, each once, in order."""
    places = [*(item.expression for item in select.items), select.having]
    return list(dict.fromkeys(n for place in places for n in walk(place) if isinstance(n, Aggregate)))


def is_aggregate(select: Select) -> bool:
    """The select groups its rows, explicitly or by an aggregate."""
    return select.group_by is not None or bool(aggregates_of(select))


def substituted(expr: Expr, by: Mapping[Expr, Ref]) -> Expr:
    """The expression with columns in place of the given sub-expressions."""
    if expr in by:
        return by[expr]
    match expr:
        case Arithmetic(operator=op, left=left, right=right):
            return Arithmetic(op, substituted(left, by), substituted(right, by))
        case Negation(operand=operand):
            return Negation(substituted(operand, by))
        case _:
            return expr


def substituted_condition(cond: Condition, by: Mapping[Expr, Ref]) -> Condition:
    match cond:
        case Comparison(left=left, operator=op, right=right):
            return Comparison(substituted(left, by), op, substituted(right, by))
        case IsNull(operand=operand):
            return IsNull(substituted(operand, by))
        case Not(operand=operand):
            return Not(substituted_condition(operand, by))
        case NotTrue(operand=operand):
            return NotTrue(substituted_condition(operand, by))
        case And(operands=operands):
            return And(tuple(substituted_condition(c, by) for c in operands))
        case Or(operands=operands):
            return Or(tuple(substituted_condition(c, by) for c in operands))
        case Truth():
            return cond


def item_refs(items: Sequence[Item]) -> frozenset[Ref]:
    return frozenset(ref for item in items for ref in refs(item.expression))


def walk(node: Expr | Condition) -> Iterator[Expr | Condition]:
    """The node and everything below it, from left to right."""
    todo: list[Expr | Condition] = [node]
    while todo:
        node = todo.pop()
        yield node
        match node:
            case Arithmetic() | Comparison():
                todo += [node.right, node.left]
            case Negation() | IsNull() | Not() | NotTrue():
                todo.append(node.operand)
            case And() | Or():
                todo += reversed(node.operands)
            case Aggregate(argument=argument) if argument is not None:
                todo.append(argument)


def renamed(node: Any, rename: Callable[[Ref], Ref]) -> Any:
    """A condition or expression over other columns."""
    match node:
        case Ref():
            return rename(node)
        case Comparison() | Arithmetic():
            return replace(node, left=renamed(node.left, rename), right=renamed(node.right, rename))
        case Not() | IsNull() | Negation() | NotTrue():
            return replace(node, operand=renamed(node.operand, rename))
        case And() | Or():
            return replace(node, operands=tuple(renamed(c, rename) for c in node.operands))
        case _:
            return node


def moved(old: str, new: str) -> Callable[[Ref], Ref]:
    """Columns of one occurrence as those of another."""
    return lambda ref: Ref(new, ref.column) if ref.occurrence == old else ref
