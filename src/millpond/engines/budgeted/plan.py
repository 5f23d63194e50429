"""From a query to what is kept for it: a tree of binary joins, one more stream at each level.

A relation is joined to the rows of a stream as they arrive.  Conditions are tested as soon as all their
columns are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

from millpond.errors import MillpondError
from millpond.query.model import (
    TRUE,
    And,
    Arithmetic,
    Comparison,
    Condition,
    Expr,
    IsNull,
    Literal,
    Not,
    Occurrence,
    Op,
    Query,
    Ref,
    Select,
)
from millpond.query.trees import aliases_in, conjuncts, find_aggregates, is_aggregate, refs
from millpond.query.types import Domain, Family, SqlType


@dataclass(frozen=True)
class Leaf:
    """A stream, and the relations that its rows are joined with as they arrive."""

    stream: Occurrence
    relations: tuple[Occurrence, ...]
    condition: Condition

    @property
    def aliases(self) -> frozenset[str]:
        return frozenset(o.alias for o in (self.stream, *self.relations))


@dataclass(frozen=True)
class Band:
    """Partners of a number x on the left have a number from x + ``low`` to x + ``high`` on the right.

    None: no limit.  Where neither number is whole, a strict limit is as good as one that is not.
    """

    left: Ref
    right: Ref
    low: Fraction | None
    high: Fraction | None


@dataclass(frozen=True)
class Level:
    """The join of what came before (the left) with one more leaf (the right).

    ``condition`` is all that must hold between them, of which ``equal`` are equalities between a column of
    either side; without any, ``band`` may tell which numbers match.  Beside equalities, ``window`` is a band
    too: where its columns rise with the streams, it is a sliding window.
    """

    right: Leaf
    condition: Condition
    equal: tuple[tuple[Ref, Ref], ...]
    band: Band | None
    window: Band | None
    exact: bool  # the equalities are all of the condition


@dataclass(frozen=True)
class JoinTree:
    """A select: its first leaf, the levels above it, and what makes rows that must meet meet.

    ``together`` are the columns of each leaf by whose values the work may be divided; without them it is not.
    """

    select: Select
    first: Leaf
    levels: tuple[Level, ...]
    together: tuple[tuple[Ref, ...], ...] | None

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return (self.first, *(level.right for level in self.levels))

    @property
    def needed(self) -> frozenset[Ref]:
        """Columns that are used after the rows have arrived."""
        found = {r for level in self.levels for r in refs(level.condition)}
        found |= {r for item in self.select.items for r in refs(item.expression)}
        found |= set(self.select.group_by or ()) | refs(self.select.having)
        return frozenset(found)


@dataclass(frozen=True)
class BudgetedTerm:
    """The bag of a select's rows, or the set of the rows of several."""

    selects: tuple[JoinTree, ...]
    distinct: bool


@dataclass(frozen=True)
class BudgetedPlan:
    query: Query
    terms: tuple[BudgetedTerm, ...]

    @property
    def selects(self) -> tuple[JoinTree, ...]:
        return tuple(select for term in self.terms for select in term.selects)

    @property
    def divisible(self) -> bool:
        """Whether the work can be divided by the values of columns."""
        return all(len(term.selects) == 1 for term in self.terms) and all(
            select.together is not None for select in self.selects
        )


def plan_budgeted(query: Query) -> BudgetedPlan:
    """How the query is run under a budget; MillpondError where it cannot be."""
    terms = []
    for term in query.terms:
        for select in term.selects:
            _refuse(select, term.distinct)
        terms.append(BudgetedTerm(tuple(_planned(s, term.distinct) for s in term.selects), term.distinct))
    return BudgetedPlan(query, tuple(terms))


def _refuse(select: Select, distinct: bool) -> None:
    for aggregate in find_aggregates(select):
        if aggregate.distinct or aggregate.function == "MEDIAN":
            raise MillpondError(
                f"{aggregate.text or aggregate.function} needs every value, and is not run under a budget",
                remedy="use COUNT, SUM, AVG, MIN or MAX, or bound the column so that no budget is needed",
            )
    if distinct and is_aggregate(select):
        raise MillpondError(
            "DISTINCT (or UNION) over groups is not run under a budget",
            remedy="leave DISTINCT out, or write UNION ALL",
        )
    if not any(o.table.streaming for o in select.occurrences):
        raise MillpondError("a select without a stream is not run under a budget", remedy="name a stream")


# --- the tree ----------------------------------------------------------------------------------------


def _planned(select: Select, distinct: bool) -> JoinTree:
    conditions = conjuncts(select.where)
    waiting = _leaves(select, conditions)
    first = waiting.pop(0)
    joined, levels = first.aliases, []
    while waiting:
        right = max(waiting, key=lambda leaf: _closeness(joined, leaf.aliases, conditions))
        waiting.remove(right)
        levels.append(_level(select, joined, right, conditions))
        joined |= right.aliases
    plan = JoinTree(select, first, tuple(levels), None)
    return JoinTree(select, first, tuple(levels), _together(plan, distinct))


def _leaves(select: Select, conditions: Sequence[Condition]) -> list[Leaf]:
    """A leaf for each stream; each relation goes to the first stream that it is compared with."""
    streams = [o for o in select.occurrences if o.table.streaming]
    relations: dict[str, list[Occurrence]] = {o.alias: [] for o in streams}
    for relation in (o for o in select.occurrences if not o.table.streaming):
        joined = [c for c in conditions if relation.alias in aliases_in(c)]
        home = next((s for s in streams if any(s.alias in aliases_in(c) for c in joined)), streams[0])
        relations[home.alias].append(relation)
    leaves = []
    for stream in streams:
        aliases = {stream.alias, *(r.alias for r in relations[stream.alias])}
        own = [c for c in conditions if aliases_in(c) <= aliases]
        # A column that is compared with another leaf's is of no use without a value.
        known = {
            r
            for c in conditions
            if isinstance(c, Comparison) and not aliases_in(c) <= aliases
            for r in refs(c)
            if r.occurrence in aliases
        }
        present = [Not(IsNull(r)) for r in sorted(known, key=str)]
        leaves.append(Leaf(stream, tuple(relations[stream.alias]), And((*own, *present))))
    return leaves


def _closeness(joined: frozenset[str], aliases: frozenset[str], conditions: Iterable[Condition]) -> int:
    """Whether two sides are joined by an equality (2), by some other condition (1) or not at all."""
    found = 0
    for condition in conditions:
        names = aliases_in(condition)
        if names & joined and names & aliases and names <= joined | aliases:
            is_equality = isinstance(condition, Comparison) and condition.operator is Op.EQ
            found = max(found, 2 if is_equality else 1)
    return found


def _level(select: Select, joined: frozenset[str], right: Leaf, conditions: Sequence[Condition]) -> Level:
    across = [
        c
        for c in conditions
        if aliases_in(c) & right.aliases and aliases_in(c) & joined
        and aliases_in(c) <= joined | right.aliases
    ]  # fmt: skip
    equal = [pair for c in across if (pair := _equal_columns(c, joined)) is not None]
    found = _band(select, joined, across)
    band, window = (None, found) if equal else (found, None)
    condition = And(tuple(across)) if across else TRUE
    return Level(right, condition, tuple(equal), band, window, exact=len(equal) == len(across))


def _equal_columns(condition: Condition, joined: frozenset[str]) -> tuple[Ref, Ref] | None:
    match condition:
        case Comparison(left=Ref() as a, operator=Op.EQ, right=Ref() as b):
            return (a, b) if a.occurrence in joined else (b, a)
    return None


# --- bands -------------------------------------------------------------------------------------------


def _band(select: Select, joined: frozenset[str], conditions: Iterable[Condition]) -> Band | None:
    """The limits that comparisons of the first pair of columns set."""
    band: Band | None = None
    for condition in conditions:
        if _equal_columns(condition, joined) is not None:
            continue
        limit = _limit(select, condition, joined)
        if limit is None or (band is not None and (band.left, band.right) != (limit.left, limit.right)):
            continue
        if band is None:
            band = limit
        else:
            low = max((x for x in (band.low, limit.low) if x is not None), default=None)
            high = min((x for x in (band.high, limit.high) if x is not None), default=None)
            band = Band(band.left, band.right, low, high)
    return band


def _limit(select: Select, condition: Condition, joined: frozenset[str]) -> Band | None:
    """``left + a OP right + b`` as a limit on right - left."""
    if not isinstance(condition, Comparison) or condition.operator is Op.NE:
        return None
    one, other = _shifted(condition.left), _shifted(condition.right)
    if one is None or other is None:
        return None
    operator: Op = condition.operator
    if one[0].occurrence not in joined:
        one, other, operator = other, one, operator.mirrored
    (left, a), (right, b) = one, other
    types = select.type_of(left), select.type_of(right)
    if not all(is_number(t) for t in types):
        return None
    step = Fraction(1) if all(t.step == 1 for t in types) else Fraction(0)
    distance = a - b  # left + a OP right + b: right - left MIRRORED(OP) a - b
    match operator:
        case Op.LT:
            return Band(left, right, distance + step, None)
        case Op.LE:
            return Band(left, right, distance, None)
        case Op.GT:
            return Band(left, right, None, distance - step)
        case Op.GE:
            return Band(left, right, None, distance)
        case _:
            return Band(left, right, distance, distance)


def _shifted(expr: Expr) -> tuple[Ref, Fraction] | None:
    """A column and what is added to it."""
    match expr:
        case Ref():
            return expr, Fraction(0)
        case Arithmetic(operator="+" | "-" as op, left=Ref() as ref, right=Literal(value=value)):
            if isinstance(value, timedelta):
                value = value // timedelta(microseconds=1)
            if isinstance(value, int | float | Decimal):
                return ref, Fraction(value) if op == "+" else -Fraction(value)
        case Arithmetic(operator="+", left=Literal(value=value), right=Ref() as ref):
            if isinstance(value, int | float | Decimal):
                return ref, Fraction(value)
    return None


def is_number(type_: SqlType) -> bool:
    """Values that a model, or a distribution, can be made of."""
    return type_.family in (Family.NUMBER, Family.DATE) or type_.domain is Domain.TIME


def is_whole(type_: SqlType) -> bool:
    return is_number(type_) and type_.step == 1


# --- what may be divided -----------------------------------------------------------------------------


def _together(plan: JoinTree, distinct: bool) -> tuple[tuple[Ref, ...], ...] | None:
    select = plan.select
    kept = [item.expression for item in select.items] if distinct else list(select.group_by or ())
    on_top = distinct or is_aggregate(select)
    if not plan.levels:
        named = tuple(dict.fromkeys(e for e in kept if isinstance(e, Ref)))
        return (named,) if named else None
    for group in _classes(plan):
        columns = [
            next((ref for ref in sorted(group, key=str) if ref.occurrence in leaf.aliases), None)
            for leaf in plan.leaves
        ]
        if None not in columns and (not on_top or any(ref in group for ref in kept)):
            return tuple((ref,) for ref in columns if ref is not None)
    return None


def _classes(plan: JoinTree) -> list[set[Ref]]:
    """Columns that the levels' equalities make equal."""
    groups: list[set[Ref]] = []
    for level in plan.levels:
        for pair in level.equal:
            touched = [g for g in groups if g & set(pair)]
            groups = [g for g in groups if g not in touched] + [set(pair).union(*touched)]
    return groups
