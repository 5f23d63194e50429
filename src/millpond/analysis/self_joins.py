"""Duplicate-eliminating self-joins: removes covered occurrences (section 8.1 of paper 1).

An occurrence is covered by another of the same stream if every condition on it also holds for the other, so
DISTINCT results do not change without it.  Paper 1 removes covered occurrences from each derived LTO query
over all columns, which calls some bounded queries unbounded.  Here they are removed from the query first.
Only if the criterion still fails is the query split by the order of its columns, as often as needed, and
covered occurrences are removed from each piece.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from millpond.analysis.violations import Violation
from millpond.query.closure import Closure
from millpond.query.expressions import Comparison, Condition, Literal, Op, Ref
from millpond.query.parts import Part, add_literal, replace_occurrence

# Pieces tried before giving up; their number is exponential in the number of columns.
MAX_PIECES = 100


def has_self_join(part: Part) -> bool:
    """Some stream occurs more than once."""
    names = [o.table.name for o in part.select.occurrences]
    return len(set(names)) < len(names)


def remove_covered_occurrences(part: Part, projected: Sequence[Ref]) -> tuple[Part, tuple[Ref, ...]]:
    """Apply Definition 8.2 of paper 1 until no occurrence is covered; returns the projected columns, too.

    Columns projected from a removed occurrence are replaced by those of the occurrence that covers it.
    """
    refs = tuple(projected)
    while True:
        pair = _find_covered_pair(part, refs)
        if pair is None:
            return part, refs
        old, new = pair
        keep = tuple(o for o in part.select.occurrences if o.alias != old)
        reduced = replace_occurrence(part, old, new, replace(part.select, occurrences=keep))
        if reduced is None:
            return part, refs
        part = reduced
        refs = tuple(dict.fromkeys(Ref(new, r.column) if r.occurrence == old else r for r in refs))


def _find_covered_pair(part: Part, projected: Sequence[Ref]) -> tuple[str, str] | None:
    """A covered occurrence and the one that covers it."""
    occurrences = part.select.occurrences
    for old in occurrences:
        for new in occurrences:
            if (
                old is not new
                and old.table == new.table
                and _is_covered(part, old.alias, new.alias, projected)
            ):
                return old.alias, new.alias
    return None


def _is_covered(part: Part, old: str, new: str, projected: Sequence[Ref]) -> bool:
    """Every condition on ``old`` also holds for ``new``, and their projected columns are equal."""
    closure = part.closure
    mine = [n.ref for n in closure.nodes if n.ref.occurrence == old]
    rest: list[Ref | None] = [*(n.ref for n in closure.nodes if n.ref.occurrence != old), None]
    for ref in projected:
        if ref.occurrence == old and not _is_equal(part, ref, Ref(new, ref.column)):
            return False
    if not _has_same_filters(part, old, new):
        return False
    ends: list[Ref | None] = [*mine, *rest]
    for left in ends:
        for right in ends:
            touches = [r for r in (left, right) if r is not None and r.occurrence == old]
            if not touches or left == right:
                continue
            if not _is_implied(closure, left, right, old, new):
                return False
    return all(_is_disequality_implied(part, i, old, new) for i in range(len(part.apart)))


def _rename(ref: Ref | None, old: str, new: str) -> Ref | None:
    return Ref(new, ref.column) if ref is not None and ref.occurrence == old else ref


def _is_equal(part: Part, a: Ref, b: Ref) -> bool:
    """The two columns have the same value in every match, or both are NULL."""
    closure = part.closure
    if a in part.nulls or b in part.nulls:
        return a in part.nulls and b in part.nulls
    return b in closure.index and closure.bound(a, b) == closure.bound(b, a) == (Fraction(0), False)


def _is_implied(closure: Closure, left: Ref | None, right: Ref | None, old: str, new: str) -> bool:
    """The bound on ``left - right`` also holds after renaming ``old`` to ``new``."""
    families = [closure.nodes[closure.index[r]].type.family for r in (left, right) if r is not None]
    if len(set(families)) > 1:
        return True
    bound = closure.bound(left, right)
    if bound is None:
        return True
    a, b = _rename(left, old, new), _rename(right, old, new)
    if a == b:
        return bound[0] > 0 or (bound[0] == 0 and not bound[1])
    if any(r is not None and r not in closure.index for r in (a, b)):
        return _is_type_bound(closure, left, right, bound)
    other = closure.bound(a, b)
    return other is not None and (other[0], not other[1]) <= (bound[0], not bound[1])


def _is_type_bound(
    closure: Closure, left: Ref | None, right: Ref | None, bound: tuple[Fraction, bool]
) -> bool:
    """The bound follows from the column's type, so it holds for a column that no condition mentions."""
    ref = left or right
    assert ref is not None
    type_ = closure.nodes[closure.index[ref]].type
    if (left is not None and right is not None) or type_.domain.value != "bounded":
        return False
    return bound == ((type_.high, False) if left is not None else (-(type_.low or 0), False))


def _has_same_filters(part: Part, old: str, new: str) -> bool:
    """NULL tests and disjunctions on ``old`` are also stated, word for word, on ``new``."""
    if any(r.occurrence == old and Ref(new, r.column) not in part.nulls for r in part.nulls):
        return False
    if any(r.occurrence == old and Ref(new, r.column) not in part.non_null for r in part.non_null):
        return False
    if part.excluded:
        return False
    probe = replace_occurrence(part, old, new, part.select)
    return probe is not None and set(probe.choices) <= set(part.choices)


def _is_disequality_implied(part: Part, i: int, old: str, new: str) -> bool:
    d = part.apart[i]
    if old not in (d.left.occurrence, d.right.occurrence if d.right else None):
        return True
    left, right = _rename(d.left, old, new), _rename(d.right, old, new)
    assert left is not None
    stated = {(x.left, x.right, x.value) for x in part.apart}
    stated |= {(x.right, x.left, -x.value) for x in part.apart if x.right is not None}
    if (left, right, d.value) in stated:
        return True
    if left == right or any(r is not None and r not in part.closure.index for r in (left, right)):
        return left == right and d.value != 0
    return part.closure.keeps_apart(left, right, d.value)


# --- splitting by order ----------------------------------------------------------------------------


@dataclass(frozen=True)
class PieceSplit:
    """Bounded pieces whose union is the part, or the violations of a piece that fails.

    ``complete`` is False if there were too many pieces to try them all.
    """

    bounded: tuple[tuple[Part, tuple[Ref, ...]], ...]
    failing: tuple[tuple[Part, Violation], ...]
    complete: bool = True


def split_into_bounded_pieces(
    part: Part, projected: Sequence[Ref], decide: Callable[[Part, Sequence[Ref]], list[Violation]]
) -> PieceSplit:
    """Split a part by the order of its columns until every piece is bounded (Theorem 5.3 for self-joins).

    The search stops at a piece that is totally ordered and still fails.
    """
    done: list[tuple[Part, tuple[Ref, ...]]] = []
    todo: list[Part] = [part]
    tried = 0
    while todo:
        piece = todo.pop()
        tried += 1
        reduced, refs = remove_covered_occurrences(piece, projected)
        found = decide(reduced, refs)
        if not found:
            done.append((reduced, refs))
            continue
        split = _find_undecided_order(piece)
        if split is None or tried > MAX_PIECES:
            return PieceSplit((), tuple((reduced, v) for v in found), complete=split is None)
        todo += [p for p in (add_literal(piece, literal) for literal in split) if p is not None]
    return PieceSplit(tuple(done), ())


def _find_undecided_order(part: Part) -> list[Condition] | None:
    """The three possible orders of two columns of one occurrence, or of a column and a constant."""
    closure = part.closure
    constants = sorted({v for v in map(_find_constant, part.literals) if v is not None}, key=str)
    for i, left in enumerate(closure.nodes):
        if left.ref not in part.non_null:
            continue
        for right in closure.nodes[i + 1 :]:
            if (
                right.ref.occurrence == left.ref.occurrence
                and right.ref in part.non_null
                and right.type.family is left.type.family
                and not _is_ordered(closure, left.ref, right.ref, Fraction(0))
            ):
                return [Comparison(left.ref, op, right.ref) for op in (Op.LT, Op.EQ, Op.GT)]
        for family, constant in constants:
            if family == left.type.family and not _is_ordered(
                closure, left.ref, None, part.points.of(constant.value)
            ):
                return [Comparison(left.ref, op, constant) for op in (Op.LT, Op.EQ, Op.GT)]
    return None


def _find_constant(literal: Condition) -> tuple[object, Literal] | None:
    match literal:
        case Comparison(right=Literal(type=type_) as constant) if type_ is not None:
            return type_.family, constant
    return None


def _is_ordered(closure: Closure, left: Ref, right: Ref | None, at: Fraction) -> bool:
    """``left - right`` is known to be below, equal to, or above a value."""
    over, under = closure.bound(left, right), closure.bound(right, left)
    fixed = over == (at, False) and under == (-at, False)
    return fixed or closure.keeps_apart(left, right, at)
