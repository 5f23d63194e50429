"""Turns comparisons and disjunctions into difference bounds, the input of the closure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from millpond.query.closure import Closure, Difference, Disequality, Node, Range
from millpond.query.expressions import Arithmetic, Comparison, Condition, Expr, IsNull, Literal, Op, Ref
from millpond.query.model import Select
from millpond.query.normalize import Branch, find_non_null
from millpond.query.number_line import Points
from millpond.query.trees import refs


@dataclass(frozen=True)
class Disjunction:
    """A disjunction over one occurrence: the condition itself (``original``) and its branches."""

    original: Condition
    branches: tuple[Branch, ...]


def to_column_and_shift(expr: Expr, points: Points) -> tuple[Ref | None, Fraction]:
    """Split ``column + constant``, the only form that a side of a comparison in WHERE has."""
    match expr:
        case Ref():
            return expr, Fraction(0)
        case Literal(value=value):
            return None, points.of(value)
        case Arithmetic(operator="+" | "-" as op, left=Ref() as ref, right=Literal(value=value)):
            return ref, points.of(value) * (1 if op == "+" else -1)
    raise ValueError(f"not a column plus a constant: {expr}")


def comparison_facts(literal: Comparison, points: Points) -> tuple[list[Difference], list[Disequality]]:
    """The difference bounds and the disequalities that a comparison states."""
    (left, a), (right, b) = (
        to_column_and_shift(literal.left, points),
        to_column_and_shift(literal.right, points),
    )
    shift = b - a  # left - right OP shift
    if left is None:
        raise ValueError("a comparison has its column on the left")
    match literal.operator:
        case Op.LT | Op.LE:
            return [Difference(left, right, shift, literal.operator is Op.LT)], []
        case Op.GT | Op.GE:
            return [Difference(right, left, -shift, literal.operator is Op.GT)], []
        case Op.EQ:
            return [Difference(left, right, shift), Difference(right, left, -shift)], []
        case Op.NE if left == right:  # A <> A is never true, A <> A + 1 always
            return ([Difference(left, left, Fraction(0), strict=True)] if shift == 0 else []), []
        case Op.NE:
            return [], [Disequality(left, right, shift)]


def drop_absorbed(select: Select, points: Points, branches: tuple[Branch, ...]) -> tuple[Branch, ...]:
    """Drop branches that imply another one: ``A <= B OR A = B`` is ``A <= B``."""
    kept = list(dict.fromkeys(branches))
    for branch in reversed(kept[:]):
        columns = sorted(find_non_null(branch), key=str)
        differences, apart = _find_branch_bounds(branch, set(columns), points) or ([], [])
        closure = Closure.of([Node(ref, select.type_of(ref)) for ref in columns], differences, apart)
        others = [b for b in kept if b is not branch]
        if any(_implies(closure, apart, branch, other, points) for other in others):
            kept.remove(branch)
    return tuple(kept)


def _implies(
    closure: Closure, apart: Sequence[Disequality], branch: Branch, other: Branch, points: Points
) -> bool:
    """``branch``, whose closure is given, implies ``other``."""
    for literal in other:
        if literal in branch:
            continue
        if not isinstance(literal, Comparison) or not refs(literal) <= closure.index.keys():
            return False
        differences, different = comparison_facts(literal, points)
        for d in differences:
            bound = closure.bound(d.left, d.right)
            if bound is None or (bound[0], not bound[1]) > (d.bound, not d.strict):
                return False
        if any(d not in apart and not closure.keeps_apart(d.left, d.right, d.value) for d in different):
            return False
    return True


def compute_hull(
    choice: Disjunction,
    nodes: Sequence[Node],
    differences: Sequence[Difference],
    points: Points,
    non_null: frozenset[Ref],
) -> tuple[list[Difference], list[tuple[Ref, tuple[Range, ...]]]] | None:
    """The difference bounds that all satisfiable branches of a disjunction imply; None if there is none.

    If the disjunction is about a single column, also the ranges that it leaves.
    """
    mentioned = {ref for branch in choice.branches for literal in branch for ref in refs(literal)}
    aliases = {ref.occurrence for ref in mentioned}
    local = [n for n in nodes if n.ref in mentioned or (len(mentioned) > 1 and n.ref.occurrence in aliases)]
    names = {n.ref for n in local}
    base = [d for d in differences if {d.left, d.right} <= names | {None}]
    branches = []
    for branch in choice.branches:
        facts = _find_branch_bounds(branch, names, points)
        if facts is None:
            continue
        closure = Closure.of(local, base + facts[0], facts[1])
        if closure.satisfiable:
            absent = {r for literal in branch if isinstance(literal, IsNull) for r in refs(literal.operand)}
            branches.append((closure, find_non_null(branch) | non_null, absent))
    if not branches:
        return None
    out: list[Difference] = []
    ends: list[Ref | None] = [*(n.ref for n in local), None]
    for left, right in product(ends, repeat=2):
        pair = {x for x in (left, right) if x is not None}
        if left == right or (len(pair) == 2 and not _have_same_family(local, pair)):
            continue
        if len(pair) == 2 and any(not pair <= shown for _, shown, _ in branches):
            continue  # a branch that allows NULL in a column does not bound a difference
        bounds = [closure.bound(left, right) for closure, _, absent in branches if not pair & absent]
        if bounds and all(b is not None for b in bounds):
            value, loose = max((b[0], not b[1]) for b in bounds if b is not None)
            out.append(Difference(left, right, value, strict=not loose))
    ranges = [
        (ref, tuple(c.range(ref) for c, _, absent in branches if ref not in absent))
        for ref in mentioned & names
    ]
    return out, ranges if len(mentioned) == 1 else []


def _find_branch_bounds(
    branch: Branch, names: set[Ref], points: Points
) -> tuple[list[Difference], list[Disequality]] | None:
    differences: list[Difference] = []
    apart: list[Disequality] = []
    for literal in branch:
        if isinstance(literal, Comparison):
            if not refs(literal) <= names:
                return None  # it compares a column that is NULL in this part
            more, different = comparison_facts(literal, points)
            differences += more
            apart += different
    return differences, apart


def _have_same_family(nodes: Sequence[Node], pair: set[Ref]) -> bool:
    return len({n.type.family for n in nodes if n.ref in pair}) == 1
