"""Splits the condition of a select into parts: conjunctions, each with its closure.

A disjunction over a single occurrence is only a filter and needs no memory: a part keeps it as it is and
adds to its closure what all branches imply (the *hull*).  A disjunction over several occurrences splits
the select into parts; if the select keeps duplicates, the parts must be disjoint, also under NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod

from millpond.query.closure import Closure, Difference, Disequality, Node, Range
from millpond.query.difference_bounds import Disjunction, comparison_facts, compute_hull, drop_absorbed
from millpond.query.expressions import (
    TRUE,
    And,
    Comparison,
    Condition,
    Expr,
    IsNull,
    Literal,
    NotTrue,
    Op,
    Or,
    Ref,
    Truth,
)
from millpond.query.finite_columns import find_anchors, find_distinguished_columns, find_limited_columns
from millpond.query.model import Select
from millpond.query.normalize import (
    MAX_PARTS,
    Branch,
    TooManyParts,
    expand_branches,
    find_non_null,
    make_disjoint,
    push_negations,
)
from millpond.query.number_line import Points
from millpond.query.trees import (
    aliases_in,
    conjuncts,
    item_refs,
    refs,
    rename_refs,
    renaming,
    walk,
)
from millpond.query.types import SqlType

# The alias of the virtual stream of MIN and MAX: is there a result beyond the value of its column?  If they
# are of a sum over several tables, there is one for each term, with a number after it.
THRESHOLD = "?"


def is_threshold(alias: str) -> bool:
    """Whether an occurrence is a virtual stream of MIN and MAX."""
    return alias.startswith(THRESHOLD)


@dataclass(frozen=True)
class StatedDifference:
    """A difference bound, and the user's own spelling of it."""

    difference: Difference
    text: str


@dataclass(frozen=True)
class Part:
    """One conjunction of a select's condition.

    ``condition`` is the exact condition on rows, ``closure`` what its comparisons imply for the columns
    that are not NULL.  ``nulls`` are the columns that must be NULL in a match, ``non_null`` those that
    cannot be.  ``choices`` are the disjunctions over one occurrence, ``allowed`` the ranges of a column
    that a disjunction over this column alone leaves.  ``derived`` are columns that stand for expressions
    over the columns of one occurrence, ``extras`` columns of the closure that the condition does not
    mention.  ``replaced`` are pairs of occurrences of which the second has replaced the first.
    """

    select: Select
    condition: Condition
    closure: Closure
    edges: tuple[StatedDifference, ...]
    differences: tuple[Difference, ...]
    apart: tuple[Disequality, ...]
    nulls: frozenset[Ref]
    non_null: frozenset[Ref]
    choices: tuple[Disjunction, ...]
    points: Points
    literals: Branch
    excluded: tuple[Condition, ...] = ()
    allowed: tuple[tuple[Ref, tuple[Range, ...]], ...] = ()
    derived: tuple[tuple[Ref, Expr], ...] = ()
    extras: tuple[tuple[Node, tuple[Difference, ...]], ...] = ()
    replaced: tuple[tuple[str, str], ...] = ()

    @cached_property
    def aliases(self) -> tuple[str, ...]:
        """The aliases of the select's occurrences."""
        return tuple(o.alias for o in self.select.occurrences)

    def can_be_null(self, ref: Ref) -> bool:
        """The column can be NULL in a match."""
        return ref not in self.non_null

    def rewrite_columns(self, columns: Iterable[Ref]) -> tuple[Ref, ...]:
        """The columns, with those of replaced occurrences rewritten."""
        return tuple(dict.fromkeys(r for column in columns for r in refs(self.rewrite(column))))

    def rewrite(self, expr: Expr) -> Expr:
        """The expression, with the columns of replaced occurrences rewritten."""
        for old, new in self.replaced:
            expr = rename_refs(expr, renaming(old, new))
        return expr


def string_constants(select: Select) -> list[str]:
    """The string constants of the condition, and of what is known of the rows of its tables."""
    places = [select.where, *(check for o in select.occurrences for check in o.table.checks)]
    places += collect_derived_facts(select)
    literals = (n for place in places for n in walk(place) if isinstance(n, Literal))
    return [literal.value for literal in literals if isinstance(literal.value, str)]


def split_into_parts(select: Select, disjoint: bool) -> list[Part]:
    """The satisfiable parts of a select; with ``disjoint``, no match belongs to two of them.

    Raises TooManyParts if there are more than MAX_PARTS.
    """
    points = Points.with_strings(string_constants(select))
    literals: list[Condition] = []
    choices: list[Disjunction] = []
    crossing: list[tuple[Branch, ...]] = []
    for conjunct in conjuncts(push_negations(select.where)):
        if not isinstance(conjunct, Or):
            literals.append(conjunct)
        elif len(aliases_in(conjunct)) <= 1:
            choices.append(Disjunction(conjunct, expand_branches(conjunct)))
        else:
            crossing.append(expand_branches(conjunct))
    choices += _list_value_choices(select)
    if Truth(False) in literals or Truth(None) in literals:
        return []
    crossing = [drop_absorbed(select, points, branches) for branches in crossing]
    non_null = find_non_null(literals) | _find_not_null_columns(select)
    try:
        split = [make_disjoint(branches, non_null, filters_only=not disjoint) for branches in crossing]
        _check_part_limit(split)
    except TooManyParts:
        if disjoint:
            raise
        split = crossing  # parts may overlap
        _check_part_limit(split)
    parts = []
    for combination in product(*split):
        chosen = tuple(literals) + tuple(literal for branch in combination for literal in branch)
        part = close_part(select, points, chosen, tuple(choices), ())
        if part is not None:
            parts.append(part)
    return parts


def _list_value_choices(select: Select) -> list[Disjunction]:
    """The values that a CHECK or the form of an expression lists for columns that are told apart.

    They are left out where there would be too many parts.  Discrete types need them less: ranges bound them.
    """
    shown = item_refs(select.items) | set(select.group_by or ())
    lists = [fact for fact in collect_derived_facts(select) if refs(fact) <= shown]
    apart = find_distinguished_columns(select)
    lists += [check for check in collect_checks(select) if _is_list_of_dense_values(select, check, apart)]
    choices: list[Disjunction] = []
    parts = 1
    for fact in lists:
        if isinstance(fact, Or):
            listed = Or((*fact.operands, *(IsNull(ref) for ref in refs(fact))))
            branches = expand_branches(listed)
            parts *= len(branches)
            if parts <= MAX_PARTS:
                choices.append(Disjunction(listed, branches))
    return choices


def _is_list_of_dense_values(select: Select, check: Condition, told_apart: set[Ref]) -> bool:
    """The check is ``x IN (…)``, and x a column of a dense type that is told apart."""
    if not isinstance(check, Or) or len(refs(check)) != 1 or not refs(check) <= told_apart:
        return False
    (ref,) = refs(check)
    is_list = all(
        isinstance(each, Comparison) and each.operator is Op.EQ and isinstance(each.right, Literal)
        for each in check.operands
    )
    return is_list and not select.type_of(ref).step


def split_disjunctions(part: Part) -> list[Part]:
    """Split a part by the branches of its disjunctions into disjoint parts, each a pure conjunction."""
    _check_part_limit([choice.branches for choice in part.choices])
    out = []
    for picks in product(*(range(len(c.branches)) for c in part.choices)):
        literals = list(part.literals)
        excluded: list[Condition] = []
        for choice, pick in zip(part.choices, picks, strict=True):
            literals += choice.branches[pick]
            excluded += [NotTrue(And(branch)) for branch in choice.branches[:pick]]
        finer = close_part(part.select, part.points, tuple(literals), (), tuple(excluded))
        if finer is not None:
            out.append(finer)
    return out


def _check_part_limit(choices: Sequence[Sequence[Branch]]) -> None:
    """Raise TooManyParts if there are more combinations of branches than MAX_PARTS."""
    if prod(len(branches) for branches in choices) > MAX_PARTS:
        raise TooManyParts


def add_column(part: Part, node: Node, differences: Sequence[Difference], select: Select) -> Part:
    """Add a column and its difference bounds to a part, which becomes a part of ``select``.

    Other columns of the bounds are added to the closure as well.
    """
    known = (*part.differences, *differences)
    nodes = {n.ref: n for n in (*part.closure.nodes, node)}
    for ref in (end for d in differences for end in (d.left, d.right) if end is not None):
        nodes.setdefault(ref, Node(ref, select.type_of(ref)))
    return replace(
        part,
        select=select,
        closure=Closure.of(list(nodes.values()), known, part.apart).with_anchors(
            part.closure.anchors, part.closure.limited
        ),
        differences=known,
        extras=(*part.extras, (node, tuple(differences))),
    )


def add_literal(part: Part, literal: Condition) -> Part | None:
    """Add a literal to a part; None if the result is not satisfiable."""
    closed = close_part(part.select, part.points, (*part.literals, literal), part.choices, part.excluded)
    return _carry_extras(closed, part, lambda ref: ref)


def replace_occurrence(part: Part, old: str, new: str, select: Select) -> Part | None:
    """Replace occurrence ``old`` by ``new`` in a part, which becomes a part of ``select``."""

    rename = renaming(old, new)

    def swap(condition: Condition) -> Condition:
        return rename_refs(condition, rename)

    choices = tuple(
        Disjunction(swap(c.original), tuple(tuple(swap(x) for x in b) for b in c.branches))
        for c in part.choices
    )
    literals = tuple(dict.fromkeys(map(swap, part.literals)))
    closed = close_part(
        select, part.points, literals, tuple(dict.fromkeys(choices)), tuple(map(swap, part.excluded))
    )
    carried = _carry_extras(closed, part, rename)
    return replace(carried, replaced=(*part.replaced, (old, new))) if carried is not None else None


def _carry_extras(closed: Part | None, part: Part, rename: Callable[[Ref], Ref]) -> Part | None:
    """Add the extra and derived columns of ``part`` to ``closed``, which was made from it."""
    if closed is None:
        return None
    for node, differences in part.extras:
        known = [
            replace(
                d,
                left=rename(d.left) if d.left else None,
                right=rename(d.right) if d.right else None,
            )
            for d in differences
        ]
        closed = add_column(closed, replace(node, ref=rename(node.ref)), known, closed.select)
    derived = tuple((rename(ref), rename_refs(expr, rename)) for ref, expr in part.derived)
    carried = replace(closed, derived=derived, replaced=part.replaced)
    return carried if carried.closure.satisfiable else None


# --- closing a part ---------------------------------------------------------------------------------


def _find_not_null_columns(select: Select) -> frozenset[Ref]:
    return frozenset(
        Ref(o.alias, c.name) for o in select.occurrences for c in o.table.all_columns if not c.nullable
    )


def collect_checks(select: Select) -> list[Condition]:
    """The CHECK constraints of all occurrences, as conjuncts whose NOTs are at the literals."""
    out: list[Condition] = []
    for o in select.occurrences:
        for check in o.table.checks:
            out += conjuncts(push_negations(rename_refs(check, renaming(o.table.name, o.alias))))
    return out


def collect_derived_facts(select: Select) -> list[Condition]:
    """What always holds for the derived columns that the select uses, as conjuncts."""
    out: list[Condition] = []
    pending, seen = list(_find_used_columns(select)), set()
    tables = {o.alias: o.table for o in select.occurrences}
    while pending:
        ref = pending.pop()
        table = tables.get(ref.occurrence)
        if table is None:  # an occurrence that the part has been restricted from
            continue
        column = next((c for c in table.derived if c.name == ref.column), None)
        if column is None or column.derivation is None or ref in seen:
            continue
        seen.add(ref)
        for fact in column.derivation.facts:
            about = rename_refs(fact, renaming(table.name, ref.occurrence))
            pending += refs(about)
            out.append(about)
    return out


def _find_used_columns(select: Select) -> set[Ref]:
    """The columns that the condition or the result mentions."""
    used: set[Ref] = set(refs(select.where))
    for item in select.items:
        used |= refs(item.expression)
    used |= refs(select.having)
    used.update(select.group_by or ())
    return used


def _find_relevant_columns(select: Select, facts: Iterable[Condition]) -> list[Ref]:
    """The columns that the condition, the result or a fact mentions, in the order of FROM."""
    used = _find_used_columns(select)
    for fact in facts:
        used |= refs(fact)
    return [
        Ref(o.alias, c.name)
        for o in select.occurrences
        for c in o.table.all_columns
        if Ref(o.alias, c.name) in used
    ]


def close_part(
    select: Select,
    points: Points,
    literals: Branch,
    choices: tuple[Disjunction, ...],
    excluded: tuple[Condition, ...],
) -> Part | None:
    """Build the part of a conjunction; None if it is not satisfiable."""
    nulls: set[Ref] = set()
    for literal in literals:
        if isinstance(literal, IsNull):
            nulls |= refs(literal.operand)
    non_null = find_non_null(literals) | _find_not_null_columns(select)
    for choice in choices:
        shown = [find_non_null(branch) for branch in choice.branches]
        non_null |= frozenset.intersection(*shown) if shown else frozenset()
    if nulls & non_null or Truth(False) in literals or Truth(None) in literals:
        return None
    checks, derived = collect_checks(select), collect_derived_facts(select)
    nodes = [
        Node(ref, select.type_of(ref))
        for ref in _find_relevant_columns(select, [*checks, *derived])
        if ref not in nulls
    ]
    known = {node.ref for node in nodes}
    # A derived column is NULL exactly if its argument is, so what holds between the two is always usable.
    facts = [f for f in checks if _is_usable(f, non_null, known)] + [f for f in derived if refs(f) <= known]
    edges: list[StatedDifference] = []
    apart: list[Disequality] = []
    disjunctions = list(choices)
    for conjunct in [*literals, *facts]:
        if isinstance(conjunct, Comparison):
            if {r for r in refs(conjunct)} <= known:
                differences, different = comparison_facts(conjunct, points)
                edges += [StatedDifference(d, conjunct.text) for d in differences]
                apart += different
        elif isinstance(conjunct, Or):
            disjunctions.append(Disjunction(conjunct, expand_branches(conjunct)))
        elif conjunct in (Truth(False), Truth(None)):
            return None
    differences = [e.difference for e in edges]
    allowed: list[tuple[Ref, tuple[Range, ...]]] = []
    for choice in disjunctions:
        hull = compute_hull(choice, nodes, differences, points, frozenset(non_null))
        if hull is None:
            return None
        differences = differences + hull[0]
        allowed += hull[1]
    closure = Closure.of(nodes, differences, apart)
    if not closure.satisfiable:
        return None
    listed = [ref for choice in choices for ref in refs(choice.original)]
    anchors = find_anchors(select, closure)
    closure = closure.with_anchors(anchors)
    closure = closure.with_anchors(anchors, find_limited_columns(select, closure, listed))
    where = tuple(literals) + tuple(c.original for c in choices) + excluded
    return Part(
        select=select,
        condition=And(where) if where else TRUE,
        closure=closure,
        edges=tuple(edges),
        differences=tuple(differences),
        apart=tuple(apart),
        nulls=frozenset(nulls),
        non_null=frozenset(non_null),
        choices=tuple(choices),
        points=points,
        literals=literals,
        excluded=excluded,
        allowed=tuple(allowed),
    )


def _is_usable(fact: Condition, non_null: frozenset[Ref], known: set[Ref]) -> bool:
    """The check is about one column, or about columns that cannot be NULL in this part.

    If one of several columns is NULL, a check on them is unknown and implies nothing.
    """
    mentioned = refs(fact)
    return mentioned <= known and (len(mentioned) == 1 or mentioned <= non_null)


def type_of(part: Part, ref: Ref) -> SqlType:
    """The type of a column of the part, which may be a derived one."""
    closure = part.closure
    return closure.nodes[closure.index[ref]].type if ref in closure.index else part.select.type_of(ref)
