"""Plans the lookups of a query: in which order its relations are looked up, and by which keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.engines.lookup.declaration import find_lookup_tables, is_lookup, read_declaration
from millpond.errors import MillpondError, one_line
from millpond.query.expressions import Arithmetic, Comparison, Condition, Expr, Literal, Op, Ref
from millpond.query.model import Occurrence, Query, Select
from millpond.query.trees import aliases_in, conjuncts, is_aggregate, walk
from millpond.query.types import Domain, Family, SqlType

if TYPE_CHECKING:
    from millpond.engines.lookup.database import DatabaseTable


@dataclass(frozen=True)
class KeyedLookup:
    """A lookup of an occurrence: the columns of its key, and the expressions that they equal."""

    occurrence: Occurrence
    columns: tuple[str, ...]
    values: tuple[Expr, ...]


@dataclass(frozen=True)
class SelectLookups:
    """The lookups of a select, in order.

    They start from the join of the occurrences ``base``.  The conditions ``before`` need no lookup; the
    conditions ``after`` are tested on the joined rows.  ``needed`` are the columns that lookups, conditions
    ``after`` and the select list use.
    """

    base: tuple[Occurrence, ...]
    steps: tuple[KeyedLookup, ...]
    before: tuple[Condition, ...]
    after: tuple[Condition, ...]
    needed: tuple[Ref, ...]


@dataclass(frozen=True)
class LookupPlan:
    """The lookups of each select, and the tables of the lookup relations by name; empty for other queries."""

    selects: tuple[SelectLookups, ...] = ()
    tables: Mapping[str, DatabaseTable] = field(default_factory=dict)


def plan_lookups(
    query: Query, memory: int | None = None, policy: str | None = None, folder: Path | None = None
) -> LookupPlan:
    """Plans the lookups of a query, and finds its lookup relations in their databases.

    ``memory`` and ``policy`` apply to relations whose declaration names none; paths are relative to
    ``folder``.
    """
    tables = find_lookup_tables(query)
    if not tables:
        return LookupPlan()
    from millpond.engines.lookup.database import find_table  # here, as it imports SQLAlchemy

    selects = plan_selects(query)  # refuses a query before it connects to a database
    found = {table.name: find_table(read_declaration(table, memory, policy, folder)) for table in tables}
    return LookupPlan(selects, found)


def plan_selects(query: Query) -> tuple[SelectLookups, ...]:
    """The lookups of each select; raises MillpondError where rows cannot be answered one by one."""
    names = ", ".join(one_line(table.name) for table in find_lookup_tables(query))
    for term in query.terms:
        for select in term.selects:
            if unsupported := _find_unsupported(select, term.distinct):
                raise MillpondError(
                    f"{names}: lookups need one stream, inner joins, and no DISTINCT or aggregate, "
                    f"but the query has {unsupported}",
                    select.position,
                    "select the joined rows, or read the relation whole: USING jdbc",
                )
    return tuple(_plan_select(select) for select in query.selects)


def _find_unsupported(select: Select, distinct: bool) -> str | None:
    """What a select has that lookups do not support."""
    if distinct:
        return "DISTINCT"
    if is_aggregate(select):
        return "an aggregate"
    if select.joins or select.exists:
        return "an outer join" if select.joins else "EXISTS or IN (SELECT …)"
    streams = sum(o.table.streaming for o in select.occurrences)
    if streams != 1:
        return f"{streams} streams" if streams else "no stream"
    return None


def _plan_select(select: Select) -> SelectLookups:
    base = tuple(o for o in select.occurrences if not is_lookup(o.table))
    remaining = [o for o in select.occurrences if is_lookup(o.table)]
    conditions = conjuncts(select.where)
    available = {o.alias for o in base}
    before = tuple(c for c in conditions if aliases_in(c) <= available)
    steps: list[KeyedLookup] = []
    while remaining:
        step = next((s for o in remaining if (s := _find_key(select, o, conditions, available))), None)
        if step is None:
            raise _missing_key(select, remaining[0])
        steps.append(step)
        remaining.remove(step.occurrence)
        available.add(step.occurrence.alias)
    after = tuple(c for c in conditions if c not in before)
    used = [*(item.expression for item in select.items), *after]
    used += [value for step in steps for value in step.values if isinstance(value, Ref)]
    needed = dict.fromkeys(ref for each in used for ref in walk(each) if isinstance(ref, Ref))
    _refuse_computed(select, [*needed])
    return SelectLookups(base, tuple(steps), before, after, tuple(needed))


def _refuse_computed(select: Select, needed: Sequence[Ref]) -> None:
    """Refuse expressions over a relation that is looked up: its rows have the columns of the database."""
    for ref in needed:
        table = select.occurrence(ref.occurrence).table
        if is_lookup(table) and table.column(ref.column).derivation is not None:
            message = f"{one_line(str(ref), 60)} is computed from a relation that is looked up: not supported"
            remedy = "compute it in a view of the database, or read the relation whole: USING jdbc"
            raise MillpondError(message, select.position, remedy)


def _find_key(
    select: Select, occurrence: Occurrence, conditions: Sequence[Condition], available: set[str]
) -> KeyedLookup | None:
    """The key by which an occurrence can be looked up, given the rows of the ``available`` ones."""
    found: dict[str, Expr] = {}
    lookup_aliases = {o.alias for o in select.occurrences if is_lookup(o.table)}
    for condition in conditions:
        if not isinstance(condition, Comparison) or condition.operator is not Op.EQ:
            continue
        for own, other in ((condition.left, condition.right), (condition.right, condition.left)):
            if not isinstance(own, Ref) or own.occurrence != occurrence.alias or own.column in found:
                continue
            if occurrence.table.column(own.column).derivation is not None:
                continue  # the database has no such column
            aliases = aliases_in(other)
            if not aliases or not aliases <= available:
                continue
            from_lookup = bool(aliases & lookup_aliases)
            if from_lookup and not isinstance(other, Ref):
                continue  # columns of a lookup enter the next key without computation
            if _is_comparable(select, other, select.type_of(own), from_lookup):
                found[own.column] = other
    return KeyedLookup(occurrence, tuple(found), tuple(found.values())) if found else None


def _is_comparable(select: Select, expr: Expr, key: SqlType, from_lookup: bool) -> bool:
    """Whether values of the expression compare exactly with those of the key.

    Values from a lookup are not cast, so they must have the type of the key.
    """
    nodes = list(walk(expr))
    if any(isinstance(n, Arithmetic) and n.operator == "/" for n in nodes):
        return False
    kinds = [select.type_of(n) for n in nodes if isinstance(n, Ref)]
    kinds += [n.type for n in nodes if isinstance(n, Literal) and n.type is not None]
    if from_lookup:
        return all(kind == key for kind in kinds) and not _is_floating(key)
    return all(kind.family is key.family and not _is_floating(kind) for kind in (*kinds, key))


def _is_floating(kind: SqlType) -> bool:
    return kind.family is Family.NUMBER and kind.domain is Domain.DENSE


def _missing_key(select: Select, occurrence: Occurrence) -> MillpondError:
    """The error for an occurrence that cannot be looked up."""
    name = one_line(occurrence.alias)
    for condition in conjuncts(select.where):
        if isinstance(condition, Comparison) and condition.operator is Op.EQ:
            sides = [aliases_in(condition.left), aliases_in(condition.right)]
            if {occurrence.alias} in sides and all(sides):
                text = one_line(condition.text, 60)
                message = f"{name} cannot be looked up by {text}: these values cannot be compared exactly"
                remedy = (
                    "declare both sides as integers, DECIMAL, STRING, DATE or TIMESTAMP, of the same kind"
                )
                return MillpondError(message, condition.position, remedy)
    message = f"{name} cannot be looked up: no equality joins it with the stream"
    remedy = f"add AND stream.column = {name}.column to WHERE, or read it whole: USING jdbc"
    return MillpondError(message, select.position, remedy)
