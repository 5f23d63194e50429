"""Plans a query on a budget: a left-deep tree of binary joins, with one more stream at each level.

Rows of a stream are joined with relations as they arrive.  A condition is tested at the lowest level that has
all of its columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

from millpond.errors import MillpondError
from millpond.query.aggregate_functions import keeps_values
from millpond.query.expressions import (
    TRUE,
    And,
    Arithmetic,
    Comparison,
    Condition,
    Expr,
    IsNull,
    Literal,
    Not,
    Op,
    Ref,
)
from millpond.query.model import Occurrence, Query, Select
from millpond.query.trees import aliases_in, conjuncts, find_aggregates, is_aggregate, refs
from millpond.query.types import Domain, Family, SqlType

_AGGREGATES = ("COUNT", "SUM", "AVG", "MIN", "MAX")


@dataclass(frozen=True)
class Leaf:
    """A stream, the relations that its rows are joined with as they arrive, and the condition on them."""

    stream: Occurrence
    relations: tuple[Occurrence, ...]
    condition: Condition

    @property
    def aliases(self) -> frozenset[str]:
        return frozenset(o.alias for o in (self.stream, *self.relations))


@dataclass(frozen=True)
class Band:
    """Partners of a number x on the left have a number from x + ``low`` to x + ``high`` on the right.

    None means no limit.  For integers, strict limits are turned into inclusive ones; for other numbers, the
    band includes its limits, which only affects scores.
    """

    left: Ref
    right: Ref
    low: Fraction | None
    high: Fraction | None


@dataclass(frozen=True)
class Level:
    """The join of the levels below (left) with one more leaf (right).

    ``condition`` is the whole join condition, and ``equal`` its equalities between a column of either side.
    Without equalities, ``band`` is the band of matching numbers, if the condition has one.  With equalities,
    such a band is the ``window``: a sliding window if its columns rise with the streams.
    """

    right: Leaf
    condition: Condition
    equal: tuple[tuple[Ref, Ref], ...]
    band: Band | None
    window: Band | None
    exact: bool  # the equalities are the whole condition


@dataclass(frozen=True)
class JoinTree:
    """The join tree of a select: its first leaf, and the levels above it.

    ``shard_columns`` are the columns of each leaf that assign its rows to shards.  None where rows that must
    meet cannot be sent to the same shard by their values.
    """

    select: Select
    first: Leaf
    levels: tuple[Level, ...]
    shard_columns: tuple[tuple[Ref, ...], ...] | None

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return (self.first, *(level.right for level in self.levels))

    @property
    def needed(self) -> frozenset[Ref]:
        """The columns that levels, the select list, GROUP BY or HAVING need."""
        found = {r for level in self.levels for r in refs(level.condition)}
        found |= {r for item in self.select.items for r in refs(item.expression)}
        found |= set(self.select.group_by or ()) | refs(self.select.having)
        return frozenset(found)


@dataclass(frozen=True)
class BudgetedTerm:
    """A term of the query: one select, or several if their rows are ``distinct`` together."""

    selects: tuple[JoinTree, ...]
    distinct: bool


@dataclass(frozen=True)
class BudgetedPlan:
    """A query as join trees, one for each select."""

    query: Query
    terms: tuple[BudgetedTerm, ...]

    @property
    def selects(self) -> tuple[JoinTree, ...]:
        return tuple(select for term in self.terms for select in term.selects)

    @property
    def is_shardable(self) -> bool:
        """Whether the rows can be divided among shards by their values."""
        return all(len(term.selects) == 1 for term in self.terms) and all(
            select.shard_columns is not None for select in self.selects
        )


def plan_budgeted(query: Query) -> BudgetedPlan:
    """The plan of a query on a budget; raises MillpondError for aggregates that a budget cannot serve."""
    terms = []
    for term in query.terms:
        for select in term.selects:
            _refuse_unsupported(select, term.distinct)
        terms.append(BudgetedTerm(tuple(_build_tree(s, term.distinct) for s in term.selects), term.distinct))
    return BudgetedPlan(query, tuple(terms))


def _refuse_unsupported(select: Select, distinct: bool) -> None:
    for aggregate in find_aggregates(select):
        if aggregate.distinct or aggregate.function not in _AGGREGATES:
            why = "needs every value and " if keeps_values(aggregate) else ""
            raise MillpondError(
                f"{aggregate.text or aggregate.function} {why}cannot run on a memory budget",
                remedy="use COUNT, SUM, AVG, MIN or MAX, or bound the column so that no budget is needed",
            )
    if distinct and is_aggregate(select):
        raise MillpondError(
            "DISTINCT or UNION over groups cannot run on a memory budget",
            remedy="remove DISTINCT, or write UNION ALL",
        )
    if select.joins or select.exists:
        what = "an outer join" if select.joins else "EXISTS or IN (SELECT …)"
        raise MillpondError(
            f"{what} cannot run on a memory budget: shed tuples would look like missing partners",
            select.position,
            "leave out --memory if the query is bounded",
        )
    if any(column.type.family is Family.INTERVAL for o in select.occurrences for column in o.table.derived):
        raise MillpondError("a query that computes lengths of time cannot run on a memory budget")
    if not any(o.table.streaming for o in select.occurrences):
        raise MillpondError(
            "a SELECT without a stream cannot run on a memory budget", remedy="add a stream to FROM"
        )


# --- the tree ----------------------------------------------------------------------------------------


def _build_tree(select: Select, distinct: bool) -> JoinTree:
    conditions = conjuncts(select.where)
    remaining = _build_leaves(select, conditions)
    first = remaining.pop(0)
    joined, levels = first.aliases, []
    while remaining:
        right = max(remaining, key=lambda leaf: _closeness(joined, leaf.aliases, conditions))
        remaining.remove(right)
        levels.append(_build_level(select, joined, right, conditions))
        joined |= right.aliases
    plan = JoinTree(select, first, tuple(levels), None)
    return JoinTree(select, first, tuple(levels), _find_shard_columns(plan, distinct))


def _build_leaves(select: Select, conditions: Sequence[Condition]) -> list[Leaf]:
    """A leaf for each stream; a relation joins the first stream that it is compared with."""
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
        # A row with NULL in a column that is compared with another leaf has no partners.
        compared = {
            r
            for c in conditions
            if isinstance(c, Comparison) and not aliases_in(c) <= aliases
            for r in refs(c)
            if r.occurrence in aliases
        }
        present = [Not(IsNull(r)) for r in sorted(compared, key=str)]
        leaves.append(Leaf(stream, tuple(relations[stream.alias]), And((*own, *present))))
    return leaves


def _closeness(joined: frozenset[str], aliases: frozenset[str], conditions: Iterable[Condition]) -> int:
    """2 if an equality joins the two sides, 1 if another condition does, else 0."""
    found = 0
    for condition in conditions:
        names = aliases_in(condition)
        if names & joined and names & aliases and names <= joined | aliases:
            is_equality = isinstance(condition, Comparison) and condition.operator is Op.EQ
            found = max(found, 2 if is_equality else 1)
    return found


def _build_level(
    select: Select, joined: frozenset[str], right: Leaf, conditions: Sequence[Condition]
) -> Level:
    across = [
        c
        for c in conditions
        if aliases_in(c) & right.aliases and aliases_in(c) & joined
        and aliases_in(c) <= joined | right.aliases
    ]  # fmt: skip
    equal = [pair for c in across if (pair := _equality_of(c, joined)) is not None]
    found = _find_band(select, joined, across)
    band, window = (None, found) if equal else (found, None)
    condition = And(tuple(across)) if across else TRUE
    return Level(right, condition, tuple(equal), band, window, exact=len(equal) == len(across))


def _equality_of(condition: Condition, joined: frozenset[str]) -> tuple[Ref, Ref] | None:
    """The columns that the condition equates: one of the left, one of the right."""
    match condition:
        case Comparison(left=Ref() as a, operator=Op.EQ, right=Ref() as b):
            return (a, b) if a.occurrence in joined else (b, a)
    return None


# --- bands -------------------------------------------------------------------------------------------


def _find_band(select: Select, joined: frozenset[str], conditions: Iterable[Condition]) -> Band | None:
    """The band between the first pair of columns that is compared with constant distances."""
    band: Band | None = None
    for condition in conditions:
        if _equality_of(condition, joined) is not None:
            continue
        limit = _limit_of(select, condition, joined)
        if limit is None or (band is not None and (band.left, band.right) != (limit.left, limit.right)):
            continue
        if band is None:
            band = limit
        else:
            low = max((x for x in (band.low, limit.low) if x is not None), default=None)
            high = min((x for x in (band.high, limit.high) if x is not None), default=None)
            band = Band(band.left, band.right, low, high)
    return band


def _limit_of(select: Select, condition: Condition, joined: frozenset[str]) -> Band | None:
    """The comparison ``left + a OP right + b`` as a limit on right - left."""
    if not isinstance(condition, Comparison) or condition.operator is Op.NE:
        return None
    one, other = _column_and_offset(condition.left), _column_and_offset(condition.right)
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


def _column_and_offset(expr: Expr) -> tuple[Ref, Fraction] | None:
    """A column and the constant added to it."""
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
    """Whether values of the type are numbers, or dates and timestamps that count as numbers."""
    return type_.family in (Family.NUMBER, Family.DATE) or type_.domain is Domain.TIME


def is_integer(type_: SqlType) -> bool:
    """Whether values of the type are integers, or dates and timestamps that count as integers."""
    return is_number(type_) and type_.step == 1


# --- shards ------------------------------------------------------------------------------------------


def _find_shard_columns(plan: JoinTree, distinct: bool) -> tuple[tuple[Ref, ...], ...] | None:
    """Columns that send matching tuples, and equal result rows or groups, to the same shard."""
    select = plan.select
    kept = [item.expression for item in select.items] if distinct else list(select.group_by or ())
    merges_rows = distinct or is_aggregate(select)
    if not plan.levels:
        named = tuple(dict.fromkeys(e for e in kept if isinstance(e, Ref)))
        return (named,) if named else None
    for group in _equal_columns(plan):
        columns = [
            next((ref for ref in sorted(group, key=str) if ref.occurrence in leaf.aliases), None)
            for leaf in plan.leaves
        ]
        if None not in columns and (not merges_rows or any(ref in group for ref in kept)):
            return tuple((ref,) for ref in columns if ref is not None)
    return None


def _equal_columns(plan: JoinTree) -> list[set[Ref]]:
    """The sets of columns that the equalities of the levels make equal."""
    groups: list[set[Ref]] = []
    for level in plan.levels:
        for pair in level.equal:
            touched = [g for g in groups if g & set(pair)]
            groups = [g for g in groups if g not in touched] + [set(pair).union(*touched)]
    return groups
