"""GROUP BY, aggregates and HAVING, as SQL over the matches of a join."""

from __future__ import annotations

from collections.abc import Sequence

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
)
from millpond.query.trees import has_aggregate, substitute
from millpond.runtime.sql import Dialect, all_of, condition_sql, expression_sql


def groups_sql(
    select: Select, aggregates: Sequence[tuple[Aggregate | None, Sequence[str]]], names: Sequence[str]
) -> str:
    """The groups of a select that pass HAVING: their keys ``g0 …`` and the select list under ``names``.

    Each aggregate comes with SQL for its matches, which have the group's keys, the value ``v`` of the
    argument where it is needed, the number ``w`` of matches with a value, and the sum ``t`` of the values.
    """
    keys = [f"g{i}" for i in range(len(select.group_by or ()))]
    tables = []
    for i, (aggregate, matches) in enumerate(aggregates):
        tables.append(f"m{i} AS ({' UNION ALL '.join(matches) or _no_matches_sql(keys)})")
        tables.append(f"a{i} AS ({_aggregate_sql(aggregate, keys, f'm{i}')})")
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

    def column(ref: Ref) -> str:
        if ref.column.startswith("g"):
            return f"groups.{ref.column}"
        aggregate = aggregates[int(ref.column[1:])][0]
        value = f"{ref.column}.value"
        return f"coalesce({value}, 0)" if aggregate is not None and aggregate.function == "COUNT" else value

    items = [
        f"{expression_sql(substitute(item.expression, stand_in), column, Dialect.DUCKDB)} AS {name}"
        for item, name in zip(select.items, names, strict=True)
    ]
    having = condition_sql(substitute(select.having, stand_in), column, Dialect.DUCKDB)
    selected = ", ".join([*(f"groups.{k}" for k in keys), *items])
    return f"WITH {', '.join(tables)} SELECT {selected} FROM {joined} WHERE {having}"


def _no_matches_sql(keys: Sequence[str]) -> str:
    columns = ", ".join([*(f"NULL AS {k}" for k in keys), "NULL AS v", "CAST(0 AS HUGEINT) AS w", "0 AS t"])
    return f"SELECT {columns} WHERE FALSE"


def _aggregate_sql(aggregate: Aggregate | None, keys: Sequence[str], table: str) -> str:
    """Each group with the ``value`` of the aggregate; the groups alone if there is no aggregate."""
    columns = "".join(f"{k}, " for k in keys)
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    if aggregate is None:
        return f"SELECT DISTINCT {', '.join(keys)} FROM {table}" if keys else f"SELECT 1 AS one FROM {table}"
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
            return _median_sql(keys, table)
    raise ValueError(aggregate.function)


def _median_sql(keys: Sequence[str], table: str) -> str:
    """The mean of the two middle values, each value occurring ``w`` times; NULL for a group without any."""
    columns = "".join(f"{k}, " for k in keys)
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    partition = f"PARTITION BY {', '.join(keys)} " if keys else ""
    ranked = (
        f"SELECT {columns}v, sum(w) OVER ({partition}ORDER BY v) AS upto, "
        f"sum(w) OVER ({partition}) AS amount "
        f"FROM (SELECT {columns}v, sum(w) AS w FROM {table} WHERE v IS NOT NULL GROUP BY {columns}v)"
    )
    low, high = (f"min(v) FILTER (WHERE upto > {rank})" for rank in ("(amount - 1) // 2", "amount // 2"))
    middle = f"(CAST({low} AS DOUBLE) + CAST({high} AS DOUBLE)) / 2"
    found = f"SELECT {columns}{middle} AS value FROM ({ranked}){group}"
    if not keys:
        return found
    return (
        f"SELECT {', '.join(f'every.{k}' for k in keys)}, found.value FROM "
        f"(SELECT DISTINCT {', '.join(keys)} FROM {table}) every LEFT JOIN ({found}) found ON "
        + all_of([f"every.{k} IS NOT DISTINCT FROM found.{k}" for k in keys])
    )


def has_monotone_having(select: Select) -> bool:
    """Whether a group that passes HAVING passes it forever: its aggregates only move in one direction."""
    return _is_monotone(select.having)


def _is_monotone(cond: Condition) -> bool:
    match cond:
        case And(operands=operands) | Or(operands=operands):
            return all(_is_monotone(c) for c in operands)
        case Comparison(left=Aggregate() as aggregate, operator=operator, right=Literal()):
            if aggregate.function in ("COUNT", "MAX"):
                return operator in (Op.GT, Op.GE)
            return aggregate.function == "MIN" and operator in (Op.LT, Op.LE)
        case Comparison(left=left, right=right):
            return not any(has_aggregate(side) for side in (left, right))
    return cond == TRUE
