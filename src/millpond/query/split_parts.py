"""Splits parts: by occurrences that no condition connects, or by the values of some columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import prod

from millpond.query.difference_bounds import comparison_facts
from millpond.query.expressions import Comparison, Condition, Literal, Op, Ref
from millpond.query.parts import Part, add_literal, close_part
from millpond.query.trees import aliases_in, conjuncts, refs
from millpond.query.types import Family

# The most combinations of values into which a part is split.
MAX_VALUES = 64


def split_unconnected(part: Part) -> list[Part]:
    """Split a part into connected components of occurrences; its matches are their Cartesian product.

    Every component has a stream: relations without a condition go to the smallest component.
    """
    left = [{alias} for alias in part.aliases]
    for conjunct in conjuncts(part.condition):
        mentioned = aliases_in(conjunct)
        if _is_implied_by_constants(part, conjunct):
            continue
        connected = [s for s in left if s & mentioned]
        left = [s for s in left if not s & mentioned] + ([set().union(*connected)] if connected else [])
    streams = {o.alias for o in part.select.occurrences if o.table.streaming}
    alone = [s for s in left if not s & streams]
    pieces = sorted((s for s in left if s & streams), key=len)
    pieces[0] = pieces[0].union(*alone)
    return [_restrict(part, members) for members in pieces]


def split_by_values(part: Part, columns: Sequence[Ref]) -> list[Part]:
    """Split a part by the values of those of the columns that are compared across occurrences.

    The result is empty if there are no such columns, or too many values.
    """
    crossing = {r for c in part.literals if len(aliases_in(c)) > 1 for r in refs(c)}
    cut = [ref for ref in columns if ref in crossing and _find_single_value(part, ref) is None]
    values = [_list_values(part, ref) for ref in cut]
    if not cut or not 0 < prod(map(len, values)) <= MAX_VALUES:
        return []
    found: list[Part] = []
    for combination in product(*values):
        piece: Part | None = part
        for ref, value in zip(cut, combination, strict=True):
            piece = add_literal(piece, Comparison(ref, Op.EQ, value)) if piece is not None else None
        found += [piece] if piece is not None else []
    return found


def _list_values(part: Part, ref: Ref) -> list[Literal]:
    """Every value that a bounded column can have; empty if they are unknown or too many."""
    type_ = part.select.type_of(ref)
    r = part.closure.range(ref)
    if r.low is None or r.high is None or not type_.step or (r.high - r.low) / type_.step >= MAX_VALUES:
        return []
    count = int((r.high - r.low) / type_.step) + 1
    return [_literal(part, ref, r.low + i * type_.step) for i in range(count)]


def _restrict(part: Part, aliases: Collection[str]) -> Part:
    """The part over some occurrences; conditions with others become the bounds that constants imply."""
    select = replace(part.select, occurrences=tuple(o for o in part.select.occurrences if o.alias in aliases))
    elsewhere = {o.alias for o in part.select.occurrences} - set(aliases)

    def here(condition: Condition) -> bool:
        return not elsewhere & aliases_in(condition)

    crossing = [c for c in part.literals if not here(c) and aliases_in(c) & set(aliases)]
    implied = [fact for c in crossing for fact in _find_implied_bounds(part, c) if here(fact)]
    closed = close_part(
        select,
        part.points,
        (*(c for c in part.literals if here(c)), *dict.fromkeys(implied)),
        tuple(c for c in part.choices if here(c.original)),
        tuple(c for c in part.excluded if here(c)),
    )
    assert closed is not None, "a satisfiable part splits into satisfiable parts"
    return closed


def _is_implied_by_constants(part: Part, condition: Condition) -> bool:
    """The constant bounds of the columns, each by itself, already imply the condition."""
    if not isinstance(condition, Comparison) or len(aliases_in(condition)) < 2:
        return False
    if not all(_has_exact_points(part, ref) for ref in refs(condition)):
        return False
    differences, apart = comparison_facts(condition, part.points)
    return all(part.closure.is_implied_by_constants(d.left, d.right) for d in differences) and all(
        _find_single_value(part, d.left) is not None or _find_single_value(part, d.right) is not None
        for d in apart
    )


def _find_implied_bounds(part: Part, condition: Condition) -> Iterator[Condition]:
    """The bounds of each column from which a condition that constants imply follows."""
    assert isinstance(condition, Comparison)
    for ref in refs(condition):
        r = part.closure.range(ref)
        if r.low is not None:
            yield Comparison(ref, Op.GT if r.low_strict else Op.GE, _literal(part, ref, r.low))
        if r.high is not None:
            yield Comparison(ref, Op.LT if r.high_strict else Op.LE, _literal(part, ref, r.high))
    for d in comparison_facts(condition, part.points)[1]:
        left, right = _find_single_value(part, d.left), _find_single_value(part, d.right)
        if left is not None and d.right is not None:
            yield Comparison(d.right, Op.NE, _literal(part, d.right, left - d.value))
        if right is not None:
            yield Comparison(d.left, Op.NE, _literal(part, d.left, right + d.value))


def _literal(part: Part, ref: Ref, point: Fraction) -> Literal:
    type_ = part.select.type_of(ref)
    return Literal(part.points.value(point, type_), type_)


def _find_single_value(part: Part, ref: Ref | None) -> Fraction | None:
    """The only value that a column can have; None if there are several."""
    if ref is None or ref not in part.closure.index:
        return None
    r = part.closure.range(ref)
    return r.low if r.low == r.high else None


def _has_exact_points(part: Part, ref: Ref) -> bool:
    return part.select.type_of(ref).family not in (Family.STRING, Family.TIME, Family.INTERVAL)
