"""Which rows are looked up by which key: from a query to the steps of its join."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.engines.lookup.declaration import find_lookup_tables, is_lookup
from millpond.errors import MillpondError, one_line
from millpond.query.model import (
    Arithmetic,
    Comparison,
    Condition,
    Expr,
    Literal,
    Occurrence,
    Op,
    Query,
    Ref,
    Select,
)
from millpond.query.trees import aliases_in, conjuncts, is_aggregate, walk
from millpond.query.types import Domain, Family, SqlType


@dataclass(frozen=True)
class KeyedLookup:
    """An occurrence of a relation, the columns of its key, and the expressions they equal."""

    occurrence: Occurrence
    columns: tuple[str, ...]
    asked: tuple[Expr, ...]


@dataclass(frozen=True)
class LookupPlan:
    """A select: what is joined first, then the look-ups in order, and the conditions before and after."""

    base: tuple[Occurrence, ...]
    steps: tuple[KeyedLookup, ...]
    before: tuple[Condition, ...]
    after: tuple[Condition, ...]
    needed: tuple[Ref, ...]  # the columns that are used after the look-ups, or by one


def plan_lookups(query: Query) -> tuple[LookupPlan, ...]:
    """The selects of a query with relations to be looked up; MillpondError where that cannot be done."""
    names = ", ".join(one_line(table.name) for table in find_lookup_tables(query))
    for term in query.terms:
        for select in term.selects:
            streams = sum(o.table.streaming for o in select.occurrences)
            if term.distinct or is_aggregate(select) or streams != 1:
                what = (
                    "DISTINCT"
                    if term.distinct
                    else "an aggregate"
                    if is_aggregate(select)
                    else _count(streams)
                )
                raise MillpondError(
                    f"{names} is looked up for each row of one stream, and the query has {what}",
                    select.position,
                    "ask for the joined rows, or have the relation read whole: USING jdbc",
                )
    return tuple(_planned(select) for select in query.selects)


def _count(streams: int) -> str:
    return "no stream" if streams == 0 else f"{streams} streams"


def _planned(select: Select) -> LookupPlan:
    base = tuple(o for o in select.occurrences if not is_lookup(o.table))
    left = [o for o in select.occurrences if is_lookup(o.table)]
    conditions = conjuncts(select.where)
    available = {o.alias for o in base}
    before = tuple(c for c in conditions if aliases_in(c) <= available)
    steps: list[KeyedLookup] = []
    while left:
        keyed = next((k for o in left if (k := _keyed(select, o, conditions, available))), None)
        if keyed is None:
            raise _unkeyed(select, left[0])
        steps.append(keyed)
        left.remove(keyed.occurrence)
        available.add(keyed.occurrence.alias)
    after = tuple(c for c in conditions if c not in before)
    used = [*(item.expression for item in select.items), *after]
    used += [e for step in steps for e in step.asked if isinstance(e, Ref)]
    needed = dict.fromkeys(ref for each in used for ref in walk(each) if isinstance(ref, Ref))
    return LookupPlan(base, tuple(steps), before, after, tuple(needed))


def _keyed(
    select: Select, occurrence: Occurrence, conditions: list[Condition], available: set[str]
) -> KeyedLookup | None:
    """The key by which the rows of an occurrence can be looked up once the others are there."""
    found: dict[str, Expr] = {}
    lookup_aliases = {o.alias for o in select.occurrences if is_lookup(o.table)}
    for condition in conditions:
        if not isinstance(condition, Comparison) or condition.operator is not Op.EQ:
            continue
        for own, other in ((condition.left, condition.right), (condition.right, condition.left)):
            if not isinstance(own, Ref) or own.occurrence != occurrence.alias or own.column in found:
                continue
            aliases = aliases_in(other)
            if not aliases or not aliases <= available:
                continue
            if aliases & lookup_aliases and not isinstance(other, Ref):
                continue  # what comes out of a look-up goes into the next as it is
            if _fits(select, other, select.type_of(own), bool(aliases & lookup_aliases)):
                found[own.column] = other
    return KeyedLookup(occurrence, tuple(found), tuple(found.values())) if found else None


def _fits(select: Select, expr: Expr, key: SqlType, as_it_is: bool) -> bool:
    """Whether values of the expression can be told from those of the key exactly."""
    nodes = list(walk(expr))
    if any(isinstance(n, Arithmetic) and n.operator == "/" for n in nodes):
        return False
    kinds = [select.type_of(n) for n in nodes if isinstance(n, Ref)]
    kinds += [n.type for n in nodes if isinstance(n, Literal) and n.type is not None]
    if as_it_is:
        return all(kind == key for kind in kinds) and not _inexact(key)
    return all(kind.family is key.family and not _inexact(kind) for kind in (*kinds, key))


def _inexact(kind: SqlType) -> bool:
    return kind.family is Family.NUMBER and kind.domain is Domain.DENSE


def _unkeyed(select: Select, occurrence: Occurrence) -> MillpondError:
    name = one_line(occurrence.alias)
    for condition in conjuncts(select.where):
        if isinstance(condition, Comparison) and condition.operator is Op.EQ:
            sides = [aliases_in(condition.left), aliases_in(condition.right)]
            if {occurrence.alias} in sides and all(sides):
                text = one_line(condition.text, 60)
                message = f"{name} cannot be looked up by {text}: the values are not compared exactly"
                remedy = "declare both sides as whole numbers, DECIMAL, STRING, DATE or TIMESTAMP"
                return MillpondError(message, condition.position, remedy)
    message = f"{name} is looked up by key, and no equality joins it with the stream"
    remedy = f"add one (… AND stream.column = {name}.column), or have it read whole: USING jdbc"
    return MillpondError(message, select.position, remedy)
