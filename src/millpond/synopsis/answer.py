"""A query's answer on its synopses, as SQL: ``Q(streams) = Q(synopses)``.

A kept row stands for its class, with the number of rows in the class as its weight.  What a batch adds
to a bag of matches is telescoped over the streams: what is new in one, with what was there before in
those after it and what is there now in those before it.  Sets and aggregates are compared as wholes,
before the batch and after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millpond.query.evaluate import conjuncts, refs, substituted, substituted_condition
from millpond.query.model import (
    TRUE,
    Aggregate,
    And,
    Comparison,
    Condition,
    Expr,
    Literal,
    Op,
    Or,
    Ref,
    Select,
    walk,
)
from millpond.query.parts import Part
from millpond.synopsis.slots import Slot
from millpond.synopsis.sqltext import Dialect, all_of, condition_sql, expression_sql

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
        return expression_sql(self.part.standing_for(expr), self.name, Dialect.DUCKDB)

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


def groups_sql(
    select: Select, aggregates: Sequence[tuple[Aggregate | None, Sequence[str]]], names: Sequence[str]
) -> str:
    """The same, given each aggregate's matches by group: values ``v`` where they are known, their number
    ``w`` and their sum ``t``."""
    keys = [f"g{i}" for i in range(len(select.group_by or ()))]
    tables = []
    for i, (aggregate, matches) in enumerate(aggregates):
        tables.append(f"m{i} AS ({' UNION ALL '.join(matches) or _nothing(keys)})")
        tables.append(f"a{i} AS ({_finished(aggregate, keys, f'm{i}')})")
    if keys:
        columns = ", ".join(keys)
        groups = " UNION ".join(f"SELECT {columns} FROM a{i}" for i in range(len(aggregates)))
    else:
        groups = "SELECT 1 AS one"
    tables.append(f"groups AS ({groups})")
    joined = "groups"
    for i in range(len(aggregates)):
        same = all_of([f"groups.{k} IS NOT DISTINCT FROM a{i}.{k}" for k in keys])
        joined += f" LEFT JOIN a{i} ON {same}"
    stand_in: dict[Expr, Ref] = {
        aggregate: Ref("", f"a{i}") for i, (aggregate, _) in enumerate(aggregates) if aggregate is not None
    }
    stand_in |= {ref: Ref("", f"g{i}") for i, ref in enumerate(select.group_by or ())}

    def spelled(ref: Ref) -> str:
        if ref.column.startswith("g"):
            return f"groups.{ref.column}"
        aggregate = aggregates[int(ref.column[1:])][0]
        value = f"{ref.column}.value"
        return f"coalesce({value}, 0)" if aggregate is not None and aggregate.function == "COUNT" else value

    items = [
        f"{expression_sql(substituted(item.expression, stand_in), spelled, Dialect.DUCKDB)} AS {name}"
        for item, name in zip(select.items, names, strict=True)
    ]
    having = condition_sql(substituted_condition(select.having, stand_in), spelled, Dialect.DUCKDB)
    selected = ", ".join([*(f"groups.{k}" for k in keys), *items])
    return f"WITH {', '.join(tables)} SELECT {selected} FROM {joined} WHERE {having}"


def _nothing(keys: Sequence[str]) -> str:
    columns = ", ".join([*(f"NULL AS {k}" for k in keys), "NULL AS v", "CAST(0 AS HUGEINT) AS w", "0 AS t"])
    return f"SELECT {columns} WHERE FALSE"


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


def _finished(aggregate: Aggregate | None, keys: Sequence[str], table: str) -> str:
    """group → value of the aggregate."""
    columns = "".join(f"{k}, " for k in keys)
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    if aggregate is None:
        return f"SELECT DISTINCT {', '.join(keys)} FROM {table}" if keys else f"SELECT 1 AS one FROM {table}"
    known = f"{table} WHERE v IS NOT NULL"
    match aggregate.function:
        case "COUNT" if aggregate.distinct:
            return f"SELECT {columns}count(DISTINCT v) AS value FROM {table}{group}"
        case "COUNT":
            return f"SELECT {columns}sum(w) AS value FROM {table}{group}"
        case "SUM":
            return f"SELECT {columns}CASE WHEN sum(w) > 0 THEN sum(t) END AS value FROM {table}{group}"
        case "AVG":
            ratio = "CAST(sum(t) AS DOUBLE) / CAST(nullif(sum(w), 0) AS DOUBLE)"
            return f"SELECT {columns}{ratio} AS value FROM {table}{group}"
        case "MIN" | "MAX":
            return f"SELECT {columns}{aggregate.function.lower()}(v) AS value FROM {table}{group}"
        case "MEDIAN":
            part = f"PARTITION BY {', '.join(keys)} " if keys else ""
            ranked = (
                f"SELECT {columns}v, sum(w) OVER ({part}ORDER BY v) AS upto, "
                f"sum(w) OVER ({part}) AS amount "
                f"FROM (SELECT {columns}v, sum(w) AS w FROM {known} GROUP BY {columns}v)"
            )
            low, high = (
                f"min(v) FILTER (WHERE upto > {rank})" for rank in ("(amount - 1) // 2", "amount // 2")
            )
            middle = f"(CAST({low} AS DOUBLE) + CAST({high} AS DOUBLE)) / 2"
            found = f"SELECT {columns}{middle} AS value FROM ({ranked}){group}"
            if not keys:
                return found
            return (
                f"SELECT {', '.join(f'every.{k}' for k in keys)}, found.value FROM "
                f"(SELECT DISTINCT {', '.join(keys)} FROM {table}) every LEFT JOIN ({found}) found ON "
                + all_of([f"every.{k} IS NOT DISTINCT FROM found.{k}" for k in keys])
            )
    raise ValueError(aggregate.function)


# --- what can be taken back --------------------------------------------------------------------------


def only_grows(select: Select) -> bool:
    """Once a group passes HAVING it always will."""
    return _grows(select.having)


def _grows(cond: Condition) -> bool:
    match cond:
        case And(operands=operands) | Or(operands=operands):
            return all(_grows(c) for c in operands)
        case Comparison(left=Aggregate() as aggregate, operator=operator, right=Literal()):
            if aggregate.function in ("COUNT", "MAX"):
                return operator in (Op.GT, Op.GE)
            return aggregate.function == "MIN" and operator in (Op.LT, Op.LE)
        case Comparison(left=left, right=right):
            return not any(_has_aggregate(side) for side in (left, right))
    return cond == TRUE


def _has_aggregate(expr: Expr) -> bool:
    return any(isinstance(node, Aggregate) for node in walk(expr))
