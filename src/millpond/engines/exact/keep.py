"""What a slot keeps of the rows it takes in, as SQL for DuckDB: counts and sums, or the best rows.

Both work on ingested rows and, to merge tables, on rows of the tables themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations

from millpond.engines.exact.slots import Slot
from millpond.plan.synopses import AMONG, UNDER, Extreme
from millpond.query.model import Ref
from millpond.query.types import Family
from millpond.runtime.sql import Dialect, all_of, number_sql

# The column with the number of the extreme that a row is kept for.
_FOR = "extreme"


def reduce_sql(slot: Slot, batch: str) -> str:
    """A table of the slot from ingested rows; those with a NULL key are not for this slot."""
    rows = f"SELECT * FROM {batch} WHERE {slot.key[0]} IS NOT NULL"
    return _counted(slot, rows) if slot.plan.counted else _best(slot, _candidates(slot, rows))


def merge_sql(slot: Slot, tables: str) -> str:
    """A table of the slot from the rows of several."""
    rows = f"SELECT * FROM {tables}"
    return _added_up(slot, rows) if slot.plan.counted else _best(slot, rows)


# --- counts and sums ---------------------------------------------------------------------------------


def _counted(slot: Slot, rows: str) -> str:
    kept = [f"min({_struct(slot)}) AS row"] if slot.carried else []
    kept.append("count(*) AS n")
    for i, measure in enumerate(slot.plan.measures):
        column = slot.measure_name(i)
        total = f"sum({column})" if measure.summed else "0"
        kept += [f"count({column}) AS filled{i}", f"{total} AS total{i}"]
    return _by_class(slot, kept, rows)


def _added_up(slot: Slot, rows: str) -> str:
    kept = ["min(row) AS row"] if slot.carried else []
    kept.append("CAST(sum(n) AS BIGINT) AS n")
    for i in range(len(slot.plan.measures)):
        kept += [f"CAST(sum(filled{i}) AS BIGINT) AS filled{i}", f"sum(total{i}) AS total{i}"]
    return _by_class(slot, kept, rows)


def _by_class(slot: Slot, kept: Sequence[str], rows: str) -> str:
    keys = ", ".join(slot.grouped)
    return f"SELECT {keys}, {', '.join(kept)} FROM ({rows}) GROUP BY {keys}"


def _struct(slot: Slot) -> str:
    fields = [f"'v{i}': {slot.carried_name(i)}" for i in range(len(slot.carried))]
    return "{" + ", ".join(fields or ["'v': 0"]) + "}"


# --- the rows that demand least ----------------------------------------------------------------------


def _extremes(slot: Slot) -> list[tuple[tuple[int, ...], Extreme | None]]:
    """Every extreme of every pattern of zones; None where the presence of a row is all that counts."""
    return [(p.zones, extreme) for p in slot.plan.patterns for extreme in p.extremes or (None,)]


def _candidates(slot: Slot, rows: str) -> str:
    """Each row once for every extreme that it may be kept for."""
    keys = ", ".join(slot.grouped)
    texts = []
    for number, (zones, _) in enumerate(_extremes(slot)):
        here = all_of([_in_zone(slot, i, zone) for i, zone in enumerate(zones)])
        texts.append(f"SELECT {keys}, {number} AS {_FOR}, row FROM held WHERE {here}")
    held = f"SELECT {keys}, {_struct(slot)} AS row FROM ({rows})"
    return f"WITH held AS ({held}) {' UNION ALL '.join(texts)}"


def _in_zone(slot: Slot, position: int, zone: int) -> str:
    digit = slot.digit(slot.plan.zoned[position])
    x = slot.of_row(digit.code.column, "row")
    below, above = digit.below(x, Dialect.DUCKDB), digit.above(x, Dialect.DUCKDB)
    if zone == AMONG:
        return f"(NOT ({below}) AND NOT ({above}))"
    return f"({below})" if zone == UNDER else f"({above})"


def _best(slot: Slot, rows: str) -> str:
    texts = [f"({_best_for(slot, number, extreme)})" for number, (_, extreme) in enumerate(_extremes(slot))]
    return f"WITH candidates AS ({rows}) SELECT * FROM ({' UNION ALL '.join(texts)})"


def _best_for(slot: Slot, number: int, extreme: Extreme | None) -> str:
    """Of the candidates for an extreme the best, and the best that differ from it where ``<>`` may ask."""
    pick, order = "min", "{'row': row}"
    spread: list[str] = []
    if extreme is not None:
        rank, spread = _rank_and_spread(slot, extreme)
        # A row whose rank is NULL is worse than every other.
        pick, known = ("min", "IS NULL") if extreme.smallest else ("max", "IS NOT NULL")
        order = f"{{'known': ({rank}) {known}, 'rank': {rank}, 'row': row}}"
    keys = [*slot.grouped, *(f"p{i}" for i in range(len(spread)))]
    spreads = "".join(f"{text} AS p{i}, " for i, text in enumerate(spread))
    steps = [
        f"ranked AS (SELECT {', '.join(slot.grouped)}, {spreads}{order} AS best "
        f"FROM candidates WHERE {_FOR} = {number})"
    ]
    nodes: dict[tuple[Ref, ...], str] = {}
    for path in _paths(slot.plan.differing):
        joins, differ = "", []
        for depth, ref in enumerate(path):
            better = nodes[path[:depth]]
            joins += f" JOIN {better} ON " + " AND ".join(
                f"r.{k} IS NOT DISTINCT FROM {better}.{k}" for k in keys
            )
            mine, other = slot.of_row(ref, "r.best.row"), slot.of_row(ref, f"{better}.best.row")
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
        f"SELECT {', '.join(slot.grouped)}, {number} AS {_FOR}, best.row AS row FROM ({kept})"
    )


def _paths(columns: Sequence[Ref]) -> list[tuple[Ref, ...]]:
    """Sequences of columns in which a row may have to differ from better ones, shorter ones first."""
    return [path for k in range(len(columns) + 1) for path in permutations(columns, k)]


def _rank_and_spread(slot: Slot, extreme: Extreme) -> tuple[str, list[str]]:
    """What a row demands of its first partner, and how its other demands differ from that."""
    demands = [_demand(slot, extreme, row) for row in extreme.slacks]
    rank = demands[0][0]
    if extreme.spreads == 1:
        return rank, []
    spread = []
    for (value, flag), row in zip(demands, extreme.slacks, strict=True):
        if [slack for slack, _ in row] != [slack for slack, _ in extreme.slacks[0]]:
            spread.append(f"({value} - {rank})")
        spread.append(flag)
    return rank, spread


def _demand(slot: Slot, extreme: Extreme, slacks: Sequence[tuple[Fraction, bool]]) -> tuple[str, str]:
    """The hardest demand on a partner, and whether one that hard is strict."""
    sign = "-" if extreme.smallest else "+"
    shifted = any(slack for row in extreme.slacks for slack, _ in row)
    texts = []
    for ref, (slack, _) in zip(extreme.columns, slacks, strict=True):
        x = slot.of_row(ref, "row")
        texts.append(f"({_roomy(slot, ref, x)} {sign} ({number_sql(slack)}))" if shifted else x)
    hardest = texts[0]
    if len(texts) > 1:
        absent = " OR ".join(f"{t} IS NULL" for t in texts)
        choice = "greatest" if extreme.smallest else "least"
        hardest = f"CASE WHEN {absent} THEN NULL ELSE {choice}({', '.join(texts)}) END"
    strict = [f"({t} = {hardest})" for t, (_, is_strict) in zip(texts, slacks, strict=True) if is_strict]
    return hardest, f"({' OR '.join(strict)})" if strict else "FALSE"


def _roomy(slot: Slot, ref: Ref, x: str) -> str:
    """A value with room for a slack."""
    kind = slot.type_of(ref)
    if kind.family is Family.DATE:
        return Dialect.DUCKDB.days(x)
    return f"CAST({x} AS HUGEINT)" if kind.step == 1 else x
