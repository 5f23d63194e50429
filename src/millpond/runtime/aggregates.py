"""GROUP BY, aggregates and HAVING, as SQL over the matches of a join."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from millpond.query.aggregate_functions import ORDERED, Memory, find_memory
from millpond.query.expressions import TRUE, Aggregate, And, Comparison, Condition, Expr, Literal, Op, Or, Ref
from millpond.query.model import Select
from millpond.query.trees import has_aggregate, substitute
from millpond.runtime.sql import ColumnSql, Dialect, all_of, condition_sql, expression_sql


def groups_sql(
    select: Select, aggregates: Sequence[tuple[Aggregate | None, Sequence[str]]], names: Sequence[str]
) -> str:
    """The groups of a select that pass HAVING: their keys ``g0 …`` and the select list under ``names``.

    Each aggregate comes with SQL for its matches, which have the group's keys, the value ``v`` of the
    argument where it is needed (``value_sql``), the number ``w`` of matches with a value, the sum ``t`` of
    the values and the sum ``q`` of their squares.
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


def value_sql(aggregate: Aggregate, render: Callable[[Expr], str]) -> str:
    """The value of an aggregate's arguments in a match; a struct if there are several columns."""
    columns = [render(each) for each in aggregate.arguments if not isinstance(each, Literal)]
    if len(columns) == 1:
        return columns[0]
    if aggregate.function in ORDERED:
        return f"CASE WHEN {columns[1]} IS NOT NULL THEN {{'o': {columns[1]}, 'v': {columns[0]}}} END"
    given = all_of([f"{each} IS NOT NULL" for each in columns])
    fields = ", ".join(f"'v{i}': {each}" for i, each in enumerate(columns))
    return f"CASE WHEN {given} THEN {{{fields}}} END"


def call_sql(aggregate: Aggregate, names: ColumnSql) -> str:
    """The call of an aggregate in Spark SQL."""
    arguments = [expression_sql(each, names, Dialect.SPARK) for each in aggregate.arguments]
    if aggregate.function == "PERCENTILE_DISC":
        return f"percentile_disc({arguments[1]}) WITHIN GROUP (ORDER BY {arguments[0]})"
    distinct = "DISTINCT " if aggregate.distinct else ""
    return f"{aggregate.function.lower()}({distinct}{', '.join(arguments) or '*'})"


def adds_values(aggregate: Aggregate | None) -> bool:
    """Whether an aggregate is computed from the sum of its values."""
    is_counted = aggregate is not None and find_memory(aggregate) is Memory.COUNTS
    return is_counted and aggregate is not None and aggregate.function != "COUNT"


def adds_squares(aggregate: Aggregate | None) -> bool:
    """Whether an aggregate is computed from the sum of the squares of its values."""
    return adds_values(aggregate) and aggregate is not None and aggregate.function not in ("SUM", "AVG")


def add_sums_sql(sums: Sequence[str]) -> str:
    """The total of several sums, of which those over no values are NULL."""
    return sums[0] if len(sums) == 1 else " + ".join(f"coalesce({each}, 0)" for each in sums)


def sum_squares_sql(column: str) -> str:
    """The sum of the squares of integers, as an aggregate of SQL."""
    return f"sum(CAST({column} AS HUGEINT) * CAST({column} AS HUGEINT))"


def _no_matches_sql(keys: Sequence[str]) -> str:
    columns = [*(f"NULL AS {k}" for k in keys), "NULL AS v", "CAST(0 AS HUGEINT) AS w", "0 AS t", "0 AS q"]
    return f"SELECT {', '.join(columns)} WHERE FALSE"


def _aggregate_sql(aggregate: Aggregate | None, keys: Sequence[str], table: str) -> str:
    """Each group with the ``value`` of the aggregate; the groups alone if there is no aggregate."""
    columns = "".join(f"{k}, " for k in keys)
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    if aggregate is None:
        return f"SELECT DISTINCT {', '.join(keys)} FROM {table}" if keys else f"SELECT 1 AS one FROM {table}"
    if find_memory(aggregate) is Memory.VALUES:
        return _percentile_sql(aggregate, keys, table)
    value = _set_sql(aggregate) if find_memory(aggregate) is Memory.SET else _folded_sql(aggregate)
    return f"SELECT {columns}{value} AS value FROM {table}{group}"


def _set_sql(aggregate: Aggregate) -> str:
    """An aggregate of the different values."""
    match aggregate.function:
        case "COUNT":
            return "count(DISTINCT v)"
        case "SUM":
            return "sum(DISTINCT v)"
        case "AVG":
            return "CAST(sum(DISTINCT v) AS DOUBLE) / nullif(count(DISTINCT v), 0)"
    raise ValueError(aggregate.function)


def _folded_sql(aggregate: Aggregate) -> str:
    """An aggregate of counts, sums and extremes."""
    match aggregate.function:
        case "COUNT":
            return "sum(w)"
        case "SUM":
            return "CASE WHEN sum(w) > 0 THEN sum(t) END"
        case "AVG":
            return "CAST(sum(t) AS DOUBLE) / CAST(nullif(sum(w), 0) AS DOUBLE)"
        case "MIN" | "MAX":
            return f"{aggregate.function.lower()}(v)"
        case "MIN_BY" | "MAX_BY":
            return f"struct_extract({aggregate.function[:3].lower()}(v), 'v')"
        case "VAR_POP" | "VAR_SAMP" | "STDDEV_POP" | "STDDEV_SAMP":
            return _variance_sql(aggregate.function)
    raise ValueError(aggregate.function)


def _variance_sql(function: str) -> str:
    """The variance from the number n, the sum s and the sum q of squares of integers.

    With s = a n + r, the sum of squared distances from the mean is q - a (a n + 2 r) - r² / n, of which all
    but the last is a whole number.  So nothing cancels, and no product is larger than q.
    """
    n, s, q = (f"CAST(sum({column}) AS HUGEINT)" for column in "wtq")
    a, r = f"({s} // nullif({n}, 0))", f"({s} % nullif({n}, 0))"
    whole = f"CAST({q} - {a} * ({a} * {n} + 2 * {r}) AS DOUBLE)"
    spread = f"({whole} - CAST({r} * {r} AS DOUBLE) / {n})"
    divisor = f"nullif({n} - 1, 0)" if function.endswith("_SAMP") else n
    value = f"greatest({spread}, 0) / {divisor}"
    value = f"sqrt({value})" if function.startswith("STDDEV") else value
    return f"CASE WHEN sum(w) > 0 THEN {value} END"


def _percentile_sql(aggregate: Aggregate, keys: Sequence[str], table: str) -> str:
    """A value by its rank, each value occurring ``w`` times; NULL for a group without any.

    MEDIAN and PERCENTILE interpolate between two values, in Spark's own steps.
    """
    columns = "".join(f"{k}, " for k in keys)
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    partition = f"PARTITION BY {', '.join(keys)} " if keys else ""
    ranked = (
        f"SELECT {columns}v, sum(w) OVER ({partition}ORDER BY v) AS upto, "
        f"sum(w) OVER ({partition}) AS amount "
        f"FROM (SELECT {columns}v, sum(w) AS w FROM {table} WHERE v IS NOT NULL GROUP BY {columns}v)"
    )
    found = f"SELECT {columns}{_ranked_value_sql(aggregate)} AS value FROM ({ranked}){group}"
    if not keys:
        return found
    return (
        f"SELECT {', '.join(f'every.{k}' for k in keys)}, found.value FROM "
        f"(SELECT DISTINCT {', '.join(keys)} FROM {table}) every LEFT JOIN ({found}) found ON "
        + all_of([f"every.{k} IS NOT DISTINCT FROM found.{k}" for k in keys])
    )


def _ranked_value_sql(aggregate: Aggregate) -> str:
    def at(rank: str) -> str:
        return f"min(v) FILTER (WHERE upto > {rank})"

    if aggregate.function == "MEDIAN":
        low, high = at("(amount - 1) // 2"), at("amount // 2")
        return f"(CAST({low} AS DOUBLE) + CAST({high} AS DOUBLE)) / 2"
    fraction = aggregate.others[0]
    assert isinstance(fraction, Literal)
    share = f"CAST({fraction.value} AS DOUBLE)"
    if aggregate.function != "PERCENTILE":
        return at(f"greatest(ceil({share} * amount) - 1, 0)")
    place = f"({share} * (amount - 1))"
    low, high = (f"CAST({at(f'{side}({place})')} AS DOUBLE)" for side in ("floor", "ceil"))
    exact = f"any_value({place})"
    between = f"(ceil({exact}) - {exact}) * {low} + ({exact} - floor({exact})) * {high}"
    return f"CASE WHEN {low} = {high} THEN {low} ELSE {between} END"


def has_monotone_having(select: Select) -> bool:
    """Whether a group that passes HAVING passes it forever: its aggregates only move in one direction."""
    return _is_monotone(select.having)


def _is_monotone(cond: Condition) -> bool:
    match cond:
        case And(operands=operands) | Or(operands=operands):
            return all(_is_monotone(c) for c in operands)
        case Comparison(left=Aggregate() as aggregate, operator=operator, right=Literal()):
            if aggregate.function in ("COUNT", "MAX"):  # of a set as well
                return operator in (Op.GT, Op.GE)
            return aggregate.function == "MIN" and operator in (Op.LT, Op.LE)
        case Comparison(left=left, right=right):
            return not any(has_aggregate(side) for side in (left, right))
    return cond == TRUE
