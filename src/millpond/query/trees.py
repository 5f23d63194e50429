"""Trees of expressions and conditions: walking them, the columns they mention, and rewriting them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from millpond.query.expressions import (
    TRUE,
    Aggregate,
    And,
    Arithmetic,
    Choice,
    Comparison,
    Condition,
    Expr,
    IsNull,
    Negation,
    Not,
    NotTrue,
    Or,
    Ref,
    Truth,
)
from millpond.query.model import Item, Occurrence, Query, Select

Node = Expr | Condition
_Tree = TypeVar("_Tree", Expr, Condition)


# --- reading -----------------------------------------------------------------------------------------


def children(node: Node) -> Sequence[Node]:
    """The nodes right below a node, from left to right."""
    match node:
        case Arithmetic() | Comparison():
            return node.left, node.right
        case Negation() | IsNull() | Not() | NotTrue():
            return (node.operand,)
        case And() | Or():
            return node.operands
        case Choice():
            return node.condition, node.chosen, node.otherwise
        case Aggregate():
            return node.arguments
    return ()


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, from left to right."""
    todo: list[Node] = [node]
    while todo:
        node = todo.pop()
        yield node
        todo += reversed(children(node))


def refs(node: Node) -> frozenset[Ref]:
    """Every column that an expression or condition mentions."""
    return frozenset(n for n in walk(node) if isinstance(n, Ref))


def sorted_refs(node: Node) -> tuple[Ref, ...]:
    """Every column that an expression or condition mentions, by name."""
    return tuple(sorted(refs(node), key=str))


def aliases_in(node: Node) -> frozenset[str]:
    """The aliases of the occurrences that an expression or condition mentions."""
    return frozenset(ref.occurrence for ref in refs(node))


def item_refs(items: Sequence[Item]) -> frozenset[Ref]:
    """Every column that a select list mentions."""
    return frozenset(ref for item in items for ref in refs(item.expression))


def has_aggregate(node: Node) -> bool:
    """The expression or condition contains an aggregate."""
    return any(isinstance(n, Aggregate) for n in walk(node))


def find_aggregates(select: Select) -> list[Aggregate]:
    """The aggregates of the select list and of HAVING, each once, in order."""
    places = [*(item.expression for item in select.items), select.having]
    return list(dict.fromkeys(n for place in places for n in walk(place) if isinstance(n, Aggregate)))


def is_aggregate(select: Select) -> bool:
    """The select groups its rows, explicitly or by an aggregate."""
    return select.group_by is not None or bool(find_aggregates(select))


def is_projection(query: Query) -> bool:
    """Whether each row of the answer is a row of one table by itself, and every select has another table."""
    names = [select.occurrences[0].table.name for select in query.selects if select.occurrences]
    is_plain = all(
        len(select.occurrences) == 1 and not is_aggregate(select) and not select.exists
        for select in query.selects
    )
    return is_plain and len({*names}) == len(names) and not any(term.distinct for term in query.terms)


def is_row_by_row(query: Query) -> bool:
    """Whether each row of the answer is a row of one stream, alone or joined with rows of relations."""
    return not any(
        term.distinct or is_aggregate(select) or sum(o.table.streaming for o in select.every_occurrence) != 1
        for term in query.terms
        for select in term.selects
    )


def keeps_no_rows(query: Query) -> bool:
    """Whether each row of a stream is answered at once: relations are joined with it, whatever the joins.

    No relation's row waits for a partner: outer joins keep rows of the stream, not those of relations.
    """
    return is_row_by_row(query) and all(map(_keeps_stream_rows, query.selects))


def _keeps_stream_rows(select: Select) -> bool:
    places = [number for number, o in enumerate(select.occurrences) if o.table.streaming]
    if not places:
        return False
    for number, join in enumerate(select.joins, 1):
        if (join.side.keeps_left and places[0] >= number) or (join.side.keeps_right and places[0] != number):
            return False
    return True


def conjunction(*conditions: Condition) -> Condition:
    """All conditions together."""
    found = tuple(each for condition in conditions for each in conjuncts(condition))
    return And(found) if len(found) > 1 else found[0] if found else TRUE


def conjuncts(condition: Condition) -> list[Condition]:
    """The operands of the topmost AND, flattened and without TRUE."""
    out: list[Condition] = []
    todo = [condition]
    while todo:
        c = todo.pop()
        if isinstance(c, And):
            todo.extend(reversed(c.operands))
        elif c != Truth(True):
            out.append(c)
    return out


# --- rewriting ---------------------------------------------------------------------------------------


def transform(node: _Tree, change: Callable[[Node], Node | None]) -> _Tree:
    """The tree with every node replaced for which ``change`` returns another one.

    ``change`` sees a node before those below it; below a node that it replaces nothing else changes.
    """
    rewritten: _Tree = _transform(node, change)
    return rewritten


def _transform(node: Any, change: Callable[[Node], Node | None]) -> Any:
    changed = change(node)
    if changed is not None:
        return changed
    match node:
        case Comparison() | Arithmetic():
            return replace(node, left=_transform(node.left, change), right=_transform(node.right, change))
        case Not() | IsNull() | Negation() | NotTrue():
            return replace(node, operand=_transform(node.operand, change))
        case And() | Or():
            return replace(node, operands=tuple(_transform(c, change) for c in node.operands))
        case Choice(condition=condition, chosen=chosen, otherwise=otherwise):
            return Choice(*(_transform(each, change) for each in (condition, chosen, otherwise)))
        case Aggregate(argument=argument) if argument is not None:
            others = tuple(_transform(each, change) for each in node.others)
            return replace(node, argument=_transform(argument, change), others=others)
    return node


def map_occurrences(select: Select, change: Callable[[Occurrence], Occurrence]) -> Select:
    """The select with every occurrence of FROM and of its EXISTS subqueries replaced."""
    exists = (replace(e, occurrences=tuple(map(change, e.occurrences))) for e in select.exists)
    return replace(select, occurrences=tuple(map(change, select.occurrences)), exists=tuple(exists))


def substitute(node: _Tree, columns: Mapping[Expr, Ref]) -> _Tree:
    """The tree with columns in place of the given expressions."""
    return transform(node, lambda each: columns.get(each))  # type: ignore[arg-type]


def rename_refs(node: _Tree, rename: Callable[[Ref], Ref]) -> _Tree:
    """The tree over other columns."""
    return transform(node, lambda each: rename(each) if isinstance(each, Ref) else None)


def renaming(old: str, new: str) -> Callable[[Ref], Ref]:
    """A function for ``rename_refs``: columns of occurrence ``old`` become those of ``new``."""
    return lambda ref: Ref(new, ref.column) if ref.occurrence == old else ref
