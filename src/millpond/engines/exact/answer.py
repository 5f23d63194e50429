"""A query's answer on its synopses, as SQL: ``Q(streams) = Q(synopses)``.

A kept row stands for its class, with the number of rows in the class as its weight.  What a batch adds
to a bag of matches is telescoped over the streams: what is new in one, with what was there before in
those after it and what is there now in those before it.  Sets and aggregates are compared as wholes,
before the batch and after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millpond.engines.exact.slots import Slot
from millpond.query.model import (
    Aggregate,
    Expr,
    Ref,
    Select,
)
from millpond.query.parts import Part
from millpond.query.trees import conjuncts, refs
from millpond.runtime.aggregates import groups_sql
from millpond.runtime.sql import Dialect, all_of, condition_sql, expression_sql

# A slot's table before the batch, in the batch, and after it.
OLD, NEW, NOW = "old", "new", "now"


@dataclass(frozen=True)
class Join:
    """Occurrences of a part that are joined, each with its slot; ``counted`` ones have weights."""

    part: Part
    slots: tuple[tuple[str, Slot], ...]
    counted: tuple[bool, ...]

    @property
    def scope(self) -> tuple[str, ...]:
        return tuple(alias for alias, _ in self.slots)

    def name(self, ref: Ref) -> str:
        place = self.scope.index(ref.occurrence)
        return self.slots[place][1].read(ref, f"x{place}")

    def sql(self, expr: Expr) -> str:
        return expression_sql(self.part.rewrite(expr), self.name, Dialect.DUCKDB)

    def source(self, versions: Sequence[str]) -> str:
        """FROM and WHERE."""
        tables = ", ".join(
            f"{slot.name}_{version} x{i}"
            for i, ((_, slot), version) in enumerate(zip(self.slots, versions, strict=True))
        )
        crossing = [
            condition_sql(c, self.name, Dialect.DUCKDB)
            for c in conjuncts(self.part.condition)
            if {r.occurrence for r in refs(c)} <= set(self.scope)
            and len({r.occurrence for r in refs(c)}) != 1
        ]
        return f"FROM {tables} WHERE {all_of(crossing)}"

    def weight(self, without: int | None = None) -> str:
        """The number of matches that a match of kept rows stands for."""
        factors = [
            f"CAST(x{i}.n AS HUGEINT)" for i, counted in enumerate(self.counted) if counted and i != without
        ]
        return " * ".join(factors) or "CAST(1 AS HUGEINT)"


# --- selects without aggregates ----------------------------------------------------------------------


def added_sql(select: Select, joins: Sequence[Join], names: Sequence[str]) -> str:
    """What a batch adds to the bag of a select's rows: its columns, and ``w``, how often each."""
    texts = []
    for join in joins:
        items = _items(select, join, names)
        for i in range(len(join.slots)):
            versions = [NOW] * i + [NEW] + [OLD] * (len(join.slots) - i - 1)
            texts.append(f"SELECT {items}, {join.weight()} AS w {join.source(versions)}")
    columns = ", ".join(names)
    return f"SELECT {columns}, sum(w) AS w FROM ({' UNION ALL '.join(texts)}) GROUP BY {columns}"


def set_sql(select: Select, joins: Sequence[Join], names: Sequence[str], version: str) -> str:
    """The set of a select's rows."""
    texts = [
        f"SELECT DISTINCT {_items(select, join, names)} {join.source([version] * len(join.slots))}"
        for join in joins
    ]
    return " UNION ".join(texts)


def _items(select: Select, join: Join, names: Sequence[str]) -> str:
    return ", ".join(
        f"{join.sql(item.expression)} AS {name}" for item, name in zip(select.items, names, strict=True)
    )


# --- aggregates --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AggregateJoins:
    """The joins of one aggregate (None: of the groups alone), a list a part."""

    aggregate: Aggregate | None
    joins: tuple[Join, ...]


def grouped_sql(
    select: Select, aggregates: Sequence[AggregateJoins], names: Sequence[str], version: str
) -> str:
    """A select's groups: their keys ``g0 …``, and the columns of their rows."""
    matches = [
        (one.aggregate, [_matches_sql(select, one.aggregate, j, version) for j in one.joins])
        for one in aggregates
    ]
    return groups_sql(select, matches, names)


def _matches_sql(select: Select, aggregate: Aggregate | None, join: Join, version: str) -> str:
    """Of a part's matches, by group: values ``v`` of the argument where they are known, their number ``w``
    and their sum ``t``."""
    keys = [f"{join.sql(ref)} AS g{i}" for i, ref in enumerate(select.group_by or ())]
    source = join.source([version] * len(join.slots))
    names = [f"g{i}" for i in range(len(keys))]
    argument = aggregate.argument if aggregate is not None else None
    sums = aggregate is not None and aggregate.function in ("SUM", "AVG")
    carrier = _carrier(join, aggregate, sums)
    if carrier is not None:
        place, number = carrier
        table, others = f"x{place}", join.weight(without=place)
        values = [
            "NULL AS v",
            f"CAST({table}.filled{number} AS HUGEINT) * {others} AS w",
            f"{table}.total{number} * {others} AS t",
        ]
    else:
        value = join.sql(argument) if argument is not None else "NULL"
        values = [f"{value} AS v", f"{join.weight()} AS w", "0 AS t"]
    weighed = any(join.counted)
    ids = [
        f"x{i}.{key} AS i{i}_{key}"
        for i, ((_, slot), counted) in enumerate(zip(join.slots, join.counted, strict=True))
        if counted
        for key in slot.key
    ]
    # Streams without weights only have to match at all.
    unique = "DISTINCT " if not all(join.counted) else ""
    inner = f"SELECT {unique}{', '.join([*keys, *values, *(ids if weighed else [])])} {source}"
    if carrier is not None or argument is None:
        if not weighed:
            inner = f"SELECT DISTINCT {', '.join([*keys, *values])} {source}"
        return _summed(names, inner)
    total = "v * w AS t" if sums else "0 AS t"
    columns = ", ".join([*names, "v"])
    counted = f"SELECT {columns}, sum(w) AS w FROM ({inner}) GROUP BY {columns}"
    nonnull = "CASE WHEN v IS NULL THEN CAST(0 AS HUGEINT) ELSE w END AS w"
    return f"SELECT {columns}, {nonnull}, {total} FROM ({counted})"


def _summed(names: Sequence[str], inner: str) -> str:
    if not names:
        return f"SELECT NULL AS v, sum(w) AS w, sum(t) AS t FROM ({inner}) HAVING count(*) > 0"
    columns = ", ".join(names)
    return f"SELECT {columns}, NULL AS v, sum(w) AS w, sum(t) AS t FROM ({inner}) GROUP BY {columns}"


def _carrier(join: Join, aggregate: Aggregate | None, sums: bool) -> tuple[int, int] | None:
    """The occurrence whose slot counts the argument, or adds it up, and the number of the measure.

    None where the values themselves are asked for, though another aggregate may have a measure of them.
    """
    if aggregate is None or aggregate.argument is None:
        return None
    if not sums and (aggregate.function != "COUNT" or aggregate.distinct):
        return None
    for i, ((_, slot), counted) in enumerate(zip(join.slots, join.counted, strict=True)):
        for number, measure in enumerate(slot.plan.measures):
            if counted and measure.expression == aggregate.argument and (measure.summed or not sums):
                return i, number
    return None


# --- what can be taken back --------------------------------------------------------------------------
