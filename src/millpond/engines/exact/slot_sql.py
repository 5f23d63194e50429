"""How rows become the table of a slot, and how tables are merged, as SQL for DuckDB.

A counted slot adds up counts and measures.  An existence slot keeps the rows with the weakest requirements:
the *best* rows, by a *rank* (section 7.2 of paper 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations

from millpond.engines.exact.slots import Slot
from millpond.plan.synopses import AMONG, UNDER, Extreme
from millpond.query.expressions import Ref
from millpond.query.types import Family
from millpond.runtime.aggregates import sum_squares_sql
from millpond.runtime.sql import Dialect, all_of, number_sql

# The column with the number of the extreme that a row is kept for.
_FOR = "extreme"


def reduce_sql(slot: Slot, batch: str) -> str:
    """A table of the slot from ingested rows; rows with a NULL key belong to other slots."""
    rows = f"SELECT * FROM {batch} WHERE {slot.key[0]} IS NOT NULL"
    return _count_rows(slot, rows) if slot.plan.counted else _select_best(slot, _candidates(slot, rows))


def merge_sql(slot: Slot, tables: str) -> str:
    """A table of the slot from the rows of several tables."""
    rows = f"SELECT * FROM {tables}"
    return _add_counts(slot, rows) if slot.plan.counted else _select_best(slot, rows)


# --- counts and sums ---------------------------------------------------------------------------------


def _count_rows(slot: Slot, rows: str) -> str:
    kept = [f"min({_struct(slot)}) AS row"] if slot.carried else []
    kept.append("count(*) AS n")
    for i, measure in enumerate(slot.plan.measures):
        column = slot.measure_name(i)
        total = f"sum({column})" if measure.summed else "0"
        total = sum_squares_sql(column) if measure.squared else total
        kept += [f"count({column}) AS filled{i}", f"{total} AS total{i}"]
    return _group_by_class(slot, kept, rows)


def _add_counts(slot: Slot, rows: str) -> str:
    kept = ["min(row) AS row"] if slot.carried else []
    kept.append("CAST(sum(n) AS BIGINT) AS n")
    for i in range(len(slot.plan.measures)):
        kept += [f"CAST(sum(filled{i}) AS BIGINT) AS filled{i}", f"sum(total{i}) AS total{i}"]
    return _group_by_class(slot, kept, rows)


def _group_by_class(slot: Slot, kept: Sequence[str], rows: str) -> str:
    keys = ", ".join(slot.grouping)
    return f"SELECT {keys}, {', '.join(kept)} FROM ({rows}) GROUP BY {keys}"


def _struct(slot: Slot) -> str:
    fields = [f"'v{i}': {slot.carried_name(i)}" for i in range(len(slot.carried))]
    return "{" + ", ".join(fields or ["'v': 0"]) + "}"


# --- rows with the weakest requirements --------------------------------------------------------------


def _extremes(slot: Slot) -> list[tuple[tuple[int, ...], Extreme | None]]:
    """Every extreme of every pattern of zones; None where it only matters that there is a row."""
    return [(p.zones, extreme) for p in slot.plan.patterns for extreme in p.extremes or (None,)]


def _candidates(slot: Slot, rows: str) -> str:
    """Each row once for every extreme that it may be kept for."""
    keys = ", ".join(slot.grouping)
    texts = []
    for number, (zones, _) in enumerate(_extremes(slot)):
        here = all_of([_in_zone(slot, i, zone) for i, zone in enumerate(zones)])
        texts.append(f"SELECT {keys}, {number} AS {_FOR}, row FROM held WHERE {here}")
    held = f"SELECT {keys}, {_struct(slot)} AS row FROM ({rows})"
    return f"WITH held AS ({held}) {' UNION ALL '.join(texts)}"


def _in_zone(slot: Slot, position: int, zone: int) -> str:
    code = slot.class_code(slot.plan.zoned[position])
    x = slot.read_carried(code.classes.column, "row")
    below, above = code.is_below_sql(x, Dialect.DUCKDB), code.is_above_sql(x, Dialect.DUCKDB)
    if zone == AMONG:
        return f"(NOT ({below}) AND NOT ({above}))"
    return f"({below})" if zone == UNDER else f"({above})"


def _select_best(slot: Slot, rows: str) -> str:
    texts = [
        f"({_best_for_extreme(slot, number, extreme)})" for number, (_, extreme) in enumerate(_extremes(slot))
    ]
    return f"WITH candidates AS ({rows}) SELECT * FROM ({' UNION ALL '.join(texts)})"


def _best_for_extreme(slot: Slot, number: int, extreme: Extreme | None) -> str:
    """The best candidates for an extreme, and the best that differ from them in columns of ``<>`` joins."""
    pick, order = "min", "{'row': row}"
    spread: list[str] = []
    if extreme is not None:
        rank, spread = _rank_and_spread(slot, extreme)
        # A row with a NULL rank is worse than every other.
        pick, known = ("min", "IS NULL") if extreme.smallest else ("max", "IS NOT NULL")
        order = f"{{'known': ({rank}) {known}, 'rank': {rank}, 'row': row}}"
    keys = [*slot.grouping, *(f"p{i}" for i in range(len(spread)))]
    spreads = "".join(f"{text} AS p{i}, " for i, text in enumerate(spread))
    steps = [
        f"ranked AS (SELECT {', '.join(slot.grouping)}, {spreads}{order} AS best "
        f"FROM candidates WHERE {_FOR} = {number})"
    ]
    # b0 is the best row; for each path, another CTE has the best row that differs from those before it.
    nodes: dict[tuple[Ref, ...], str] = {}
    for path in _paths(slot.plan.differing):
        joins, differ = "", []
        for depth, ref in enumerate(path):
            better = nodes[path[:depth]]
            joins += f" JOIN {better} ON " + " AND ".join(
                f"r.{k} IS NOT DISTINCT FROM {better}.{k}" for k in keys
            )
            mine, other = slot.read_carried(ref, "r.best.row"), slot.read_carried(ref, f"{better}.best.row")
            differ.append(f"{mine} IS DISTINCT FROM {other}")
        nodes[path] = f"b{len(nodes)}"
        own = ", ".join(f"r.{k}" for k in keys)
        steps.append(
            f"{nodes[path]} AS (SELECT {own}, {pick}(r.best) AS best FROM ranked r{joins} "
            f"WHERE {all_of(differ)} GROUP BY {own})"
        )
    kept = " UNION ".join(f"SELECT {', '.join(keys)}, best FROM {name}" for name in nodes.values())
    return (
        f"WITH {', '.join(steps)} "
        f"SELECT {', '.join(slot.grouping)}, {number} AS {_FOR}, best.row AS row FROM ({kept})"
    )


def _paths(columns: Sequence[Ref]) -> list[tuple[Ref, ...]]:
    """Sequences of columns in which a row differs from better ones, shorter sequences first."""
    return [path for k in range(len(columns) + 1) for path in permutations(columns, k)]


def _rank_and_spread(slot: Slot, extreme: Extreme) -> tuple[str, list[str]]:
    """The requirement on the first partner, and how the requirements on the others differ from it."""
    requirements = [_requirement(slot, extreme, row) for row in extreme.slacks]
    rank = requirements[0][0]
    if extreme.spreads == 1:
        return rank, []
    spread = []
    for (value, flag), row in zip(requirements, extreme.slacks, strict=True):
        if [slack for slack, _ in row] != [slack for slack, _ in extreme.slacks[0]]:
            spread.append(f"({value} - {rank})")
        spread.append(flag)
    return rank, spread


def _requirement(slot: Slot, extreme: Extreme, slacks: Sequence[tuple[Fraction, bool]]) -> tuple[str, str]:
    """The strongest requirement on a partner, and whether it is a strict one."""
    sign = "-" if extreme.smallest else "+"
    shifted = any(slack for row in extreme.slacks for slack, _ in row)
    texts = []
    for ref, (slack, _) in zip(extreme.columns, slacks, strict=True):
        x = slot.read_carried(ref, "row")
        texts.append(f"({_widen_for_slack(slot, ref, x)} {sign} ({number_sql(slack)}))" if shifted else x)
    strongest = texts[0]
    if len(texts) > 1:
        absent = " OR ".join(f"{t} IS NULL" for t in texts)
        choice = "greatest" if extreme.smallest else "least"
        strongest = f"CASE WHEN {absent} THEN NULL ELSE {choice}({', '.join(texts)}) END"
    strict = [f"({t} = {strongest})" for t, (_, is_strict) in zip(texts, slacks, strict=True) if is_strict]
    return strongest, f"({' OR '.join(strict)})" if strict else "FALSE"


def _widen_for_slack(slot: Slot, ref: Ref, x: str) -> str:
    """A value in a type in which adding a slack cannot overflow."""
    kind = slot.type_of(ref)
    if kind.family is Family.DATE:
        return Dialect.DUCKDB.days(x)
    if kind.family is Family.TIME:
        return f"CAST({Dialect.DUCKDB.micros(x)} AS HUGEINT)"
    return f"CAST({x} AS HUGEINT)" if kind.step == 1 else x
