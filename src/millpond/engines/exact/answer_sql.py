"""A query's answer on its synopses, as SQL: ``Q(streams) = Q(synopses)``.

A row of a slot represents its class; its weight is the number of stream rows in the class.  What a
micro-batch adds to a bag of matches is a telescoping sum over the occurrences: the new rows of one, joined
with the rows after the micro-batch of the occurrences to its left, and those before it of the occurrences to
its right.  Sets and aggregates are computed before and after the micro-batch, and compared.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from millpond.engines.exact.slots import Slot
from millpond.plan.needs import Measure, MeasuredProduct, list_measures
from millpond.query.aggregate_functions import Memory, find_memory
from millpond.query.expressions import Aggregate, Expr, Ref
from millpond.query.model import Select
from millpond.query.parts import Part
from millpond.query.trees import aliases_in, conjuncts
from millpond.runtime.aggregates import add_sums_sql, adds_squares, adds_values, groups_sql, value_sql
from millpond.runtime.sql import Dialect, all_of, condition_sql, expression_sql
from millpond.runtime.terms import Version

_SUMS = "sum(w) AS w, sum(t) AS t, sum(q) AS q"


@dataclass(frozen=True)
class SlotJoin:
    """A join of occurrences of a part, each with its slot; only ``counted`` slots have weights."""

    part: Part
    slots: tuple[tuple[str, Slot], ...]
    counted: tuple[bool, ...]

    @property
    def scope(self) -> tuple[str, ...]:
        return tuple(alias for alias, _ in self.slots)

    def column_sql(self, ref: Ref) -> str:
        position = self.scope.index(ref.occurrence)
        return self.slots[position][1].read(ref, f"x{position}")

    def sql(self, expr: Expr) -> str:
        """An expression over the columns of the occurrences."""
        return expression_sql(self.part.rewrite(expr), self.column_sql, Dialect.DUCKDB)

    def from_sql(self, versions: Sequence[Version]) -> str:
        """FROM and WHERE, with a version of each slot's table."""
        tables = ", ".join(
            f"{version.of(slot.name)} x{i}"
            for i, ((_, slot), version) in enumerate(zip(self.slots, versions, strict=True))
        )
        crossing = [
            condition_sql(c, self.column_sql, Dialect.DUCKDB)
            for c in conjuncts(self.part.condition)
            if aliases_in(c) <= set(self.scope) and len(aliases_in(c)) != 1
        ]
        return f"FROM {tables} WHERE {all_of(crossing)}"

    def weight(self, without: Collection[int] = ()) -> str:
        """The number of matches that a match of slot rows represents, ``without`` those of some slots."""
        factors = [
            f"CAST(x{i}.n AS HUGEINT)"
            for i, counted in enumerate(self.counted)
            if counted and i not in without
        ]
        return " * ".join(factors) or "CAST(1 AS HUGEINT)"

    def multiply(self, column: str, places: Sequence[tuple[int, int]]) -> str:
        """The product of a measure of some slots (``filled`` or ``total``) and the weights of the others."""
        factors = [f"x{position}.{column}{number}" for position, number in places]
        if column == "filled":
            factors = [f"CAST({factor} AS HUGEINT)" for factor in factors]
        return f"{' * '.join(factors)} * {self.weight(without=[position for position, _ in places])}"


# --- selects without aggregates ----------------------------------------------------------------------


def added_sql(select: Select, joins: Sequence[SlotJoin], names: Sequence[str]) -> str:
    """The rows that a micro-batch adds to the bag of a select, with their multiplicity ``w``."""
    texts = []
    for join in joins:
        items = _select_list(select, join, names)
        for i in range(len(join.slots)):
            right = len(join.slots) - i - 1
            versions = [Version.AFTER] * i + [Version.ADDED] + [Version.BEFORE] * right
            texts.append(f"SELECT {items}, {join.weight()} AS w {join.from_sql(versions)}")
    columns = ", ".join(names)
    return f"SELECT {columns}, sum(w) AS w FROM ({' UNION ALL '.join(texts)}) GROUP BY {columns}"


def set_sql(select: Select, joins: Sequence[SlotJoin], names: Sequence[str], version: Version) -> str:
    """The set of a select's rows."""
    texts = [
        f"SELECT DISTINCT {_select_list(select, join, names)} {join.from_sql([version] * len(join.slots))}"
        for join in joins
    ]
    return " UNION ".join(texts)


def _select_list(select: Select, join: SlotJoin, names: Sequence[str]) -> str:
    return ", ".join(
        f"{join.sql(item.expression)} AS {name}" for item, name in zip(select.items, names, strict=True)
    )


# --- aggregates --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AggregateJoins:
    """The joins of one aggregate, one for each part; without an aggregate, they find the groups."""

    aggregate: Aggregate | None
    joins: tuple[SlotJoin, ...]


def grouped_sql(
    select: Select, aggregates: Sequence[AggregateJoins], names: Sequence[str], version: Version
) -> str:
    """The groups of a select: their keys ``g0 …`` and the columns of their rows."""
    matches = [
        (one.aggregate, [_matches_sql(select, one.aggregate, j, version) for j in one.joins])
        for one in aggregates
    ]
    return groups_sql(select, matches, names)


def _matches_sql(select: Select, aggregate: Aggregate | None, join: SlotJoin, version: Version) -> str:
    """The matches of a part for ``groups_sql``: ``v``, ``w``, ``t`` and ``q`` by group.

    Where a slot has a measure of the argument, ``w``, ``t`` and ``q`` come from it, and ``v`` is NULL.
    """
    keys = [f"{join.sql(ref)} AS g{i}" for i, ref in enumerate(select.group_by or ())]
    source = join.from_sql([version] * len(join.slots))
    names = [f"g{i}" for i in range(len(keys))]
    argument = aggregate.argument if aggregate is not None else None
    sums = adds_values(aggregate)
    measured = _find_measures(join, aggregate)
    if measured:
        counts = [join.multiply("filled", each.places) for each in measured if each.product.leads]
        plain = [each.places for each in measured if not each.product.squared]
        plain = plain[:1] if adds_squares(aggregate) else plain
        squared = [join.multiply("total", each.places) for each in measured if each.product.squared]
        totals = [join.multiply("total", places) for places in plain]
        values = [
            "NULL AS v",
            f"{' + '.join(counts)} AS w",
            f"{add_sums_sql(totals)} AS t",
            f"{squared[0] if squared else '0'} AS q",
        ]
    else:
        value = "NULL" if aggregate is None or argument is None else value_sql(aggregate, join.sql)
        values = [f"{value} AS v", f"{join.weight()} AS w", "0 AS t", "0 AS q"]
    weighed = any(join.counted)
    ids = [
        f"x{i}.{key} AS i{i}_{key}"
        for i, ((_, slot), counted) in enumerate(zip(join.slots, join.counted, strict=True))
        if counted
        for key in slot.key
    ]
    # Of slots without weights it only matters whether they match.
    unique = "DISTINCT " if not all(join.counted) else ""
    inner = f"SELECT {unique}{', '.join([*keys, *values, *(ids if weighed else [])])} {source}"
    if measured or argument is None:
        if not weighed:
            inner = f"SELECT DISTINCT {', '.join([*keys, *values])} {source}"
        return _sum_matches(names, inner)
    total = "v * w AS t" if sums else "0 AS t"
    squares = "CAST(v AS HUGEINT) * v * w AS q" if adds_squares(aggregate) else "0 AS q"
    columns = ", ".join([*names, "v"])
    counted = f"SELECT {columns}, sum(w) AS w FROM ({inner}) GROUP BY {columns}"
    nonnull = "CASE WHEN v IS NULL THEN CAST(0 AS HUGEINT) ELSE w END AS w"
    return f"SELECT {columns}, {nonnull}, {total}, {squares} FROM ({counted})"


def _sum_matches(names: Sequence[str], inner: str) -> str:
    if not names:
        return f"SELECT NULL AS v, {_SUMS} FROM ({inner}) HAVING count(*) > 0"
    columns = ", ".join(names)
    return f"SELECT {columns}, NULL AS v, {_SUMS} FROM ({inner}) GROUP BY {columns}"


class _Measured(NamedTuple):
    """A product of measures, and where its factors are: the position of a slot, the number of a measure."""

    product: MeasuredProduct
    places: list[tuple[int, int]]


def _find_measures(join: SlotJoin, aggregate: Aggregate | None) -> list[_Measured]:
    """Where the slots have what is added up for an aggregate.

    Empty if the aggregate needs the values themselves, even if there is a measure for another aggregate.
    """
    if aggregate is None or aggregate.argument is None or find_memory(aggregate) is not Memory.COUNTS:
        return []
    found = []
    for product in list_measures(aggregate):
        places = [_find_place(join, alias, measure) for alias, measure in product.factors]
        if None in places:
            return []
        found.append(_Measured(product, [place for place in places if place is not None]))
    return found


def _find_place(join: SlotJoin, alias: str, measure: Measure) -> tuple[int, int] | None:
    """The position of the slot that has a measure of an occurrence, and the measure's number."""
    for i, ((own, slot), counted) in enumerate(zip(join.slots, join.counted, strict=True)):
        for number, kept in enumerate(slot.plan.measures):
            is_kept = kept.summed >= measure.summed and replace(kept, summed=measure.summed) == measure
            if own == alias and counted and is_kept:
                return i, number
    return None
