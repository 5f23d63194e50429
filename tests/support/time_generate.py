"""Random queries over streams with application time, and random rows in time order.

``random_time_case`` yields conjunctive queries over integers and timestamps together with their
structure, so that ``time_definition.decide`` can decide them; everything is reproducible from a
``random.Random``.  The distribution is biased: time orders come in shapes (chains, trees, a stream with
two successors), joins often run along three streams, and the columns that have to be bounded often are,
so that bounded and unbounded queries are both frequent.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from millpond.query.model import Query, Select, Table
from millpond.query.trees import map_occurrences
from tests.support.definition import _query, _satisfiable
from tests.support.generate import AGGREGATES, OPERATORS, Aggregate, Atom, Catalog, Column, case_from

TimeAtom = tuple[str, str, str | datetime]  # alias, operator, alias or timestamp
TimeRow = dict[str, Any]  # column → int, None or datetime
Edge = tuple[str, str]  # the first is before the second

START = datetime(2020, 1, 1)
NAMES = ("S", "T", "U", "V")
TIMES = ("I", "J", "K", "L")
LETTERS = ("ABC", "DEF", "GHM", "NOP")
_MIRROR = {"<": ">", "<=": ">=", "=": "=", ">=": "<=", ">": "<", "<>": "<>"}


@dataclass(frozen=True)
class TimeCase:
    """A query as text and as structure: ``WHERE`` is the conjunction of ``atoms`` and ``time_atoms``.

    ``streams`` holds the INT columns of every stream and ``times`` its TIMESTAMP column.  An empty
    projection without an aggregate is ``SELECT 1``.  With an aggregate the projection is the grouping
    columns and the select list is the grouping columns followed by the aggregate.
    """

    sql: str
    streams: Mapping[str, tuple[str, ...]]
    times: Mapping[str, str]
    occurrences: Mapping[str, str]
    atoms: tuple[Atom, ...]
    time_atoms: tuple[TimeAtom, ...]
    projection: tuple[Column, ...]
    distinct: bool
    aggregate: Aggregate | None = None
    group_by: tuple[Column, ...] = ()

    @property
    def catalog(self) -> Catalog:
        return {
            name: [*((column, "INT") for column in columns), (self.times[name], "TIMESTAMP")]
            for name, columns in self.streams.items()
        }


def at_second(seconds: int) -> datetime:
    """The timestamp so many seconds after the start of all random streams."""
    return START + timedelta(seconds=seconds)


def time_case_from(
    streams: Mapping[str, Sequence[str] | str],
    atoms: Sequence[Atom],
    time_atoms: Sequence[TimeAtom],
    projection: Sequence[Column] = (),
    *,
    times: Mapping[str, str] | None = None,
    occurrences: Mapping[str, str] | None = None,
    distinct: bool = False,
    aggregate: Aggregate | None = None,
    group_by: Sequence[Column] = (),
) -> TimeCase:
    """A case from its structure; the time columns are I, J, K, L unless named, each stream occurs once."""
    tables = {name: tuple(columns) for name, columns in streams.items()}
    clocks = dict(times) if times else dict(zip(tables, TIMES, strict=False))
    places = dict(occurrences) if occurrences else {name: name for name in tables}
    columns = tuple(group_by) if aggregate else tuple(projection)
    items = [f"{alias}.{column}" for alias, column in columns]
    if aggregate:
        function, unique, argument = aggregate
        inner = "*" if argument is None else ("DISTINCT " if unique else "") + ".".join(argument)
        items.append(f"{function}({inner})")
    sources = ", ".join(alias if alias == stream else f"{stream} {alias}" for alias, stream in places.items())
    text = f"SELECT {'DISTINCT ' if distinct else ''}{', '.join(items) or '1'} FROM {sources}"
    where = [
        f"{'.'.join(left)} {operator} {right if isinstance(right, int) else '.'.join(right)}"
        for left, operator, right in atoms
    ]
    for alias, operator, other in time_atoms:
        after = f"{other}.{clocks[places[other]]}" if isinstance(other, str) else f"TIMESTAMP '{other}'"
        where.append(f"{alias}.{clocks[places[alias]]} {operator} {after}")
    if where:
        text += " WHERE " + " AND ".join(where)
    if group_by:
        text += " GROUP BY " + ", ".join(f"{alias}.{column}" for alias, column in group_by)
    ddl = [
        f"CREATE STREAMING TABLE {n} ({', '.join(f'{c} INT' for c in cols)}, {clocks[n]} TIMESTAMP);"
        for n, cols in tables.items()
    ]
    return TimeCase(
        sql="\n".join([*ddl, text + ";"]),
        streams=tables,
        times=clocks,
        occurrences=places,
        atoms=tuple(atoms),
        time_atoms=tuple(time_atoms),
        projection=columns,
        distinct=distinct,
        aggregate=aggregate,
        group_by=tuple(group_by),
    )


# --- random queries ---------------------------------------------------------------------------------


def random_time_case(
    rng: random.Random,
    *,
    max_streams: int = 4,
    max_columns: int = 3,
    max_joins: int = 4,
    constants: Sequence[int] = tuple(range(-1, 4)),
    max_constants: int = 2,
    operators: Sequence[str] = OPERATORS,
    distinct: float = 0.5,
    self_join: float = 0.0,
    aggregate: float = 0.25,
    aggregates: Sequence[tuple[str, bool]] = AGGREGATES,
    max_group: int = 2,
    weak: float = 0.4,
    merged: float = 0.08,
    time_constants: float = 0.12,
    time_unequal: float = 0.06,
    cyclic: float = 0.02,
    unequal: float = 0.08,
    equal: float = 0.08,
    bound: float = 0.75,
    tame: float = 0.55,
    contradictory: float = 0.03,
) -> TimeCase:
    """A random query of 2 to ``max_streams`` occurrences; the float knobs are probabilities.

    ``weak``, ``merged``: of a time constraint to be ``<=``, ``=``.  ``unequal``, ``equal``: of a join to be
    ``<>``, ``=``.  ``bound``: of an output column to be bounded.  ``tame``: of a query in which all
    matches count to have its joined columns bounded.  ``cyclic``, ``contradictory``: of a time order, of a
    condition on integers, that may contradict itself.
    """
    width = rng.choices(range(2, max_streams + 1), weights=[5, 6, 3][: max_streams - 1])[0]
    streams = {
        NAMES[i]: tuple(
            LETTERS[i][: rng.choices(range(1, max_columns + 1), weights=[4, 4, 2][:max_columns])[0]]
        )
        for i in range(width)
    }
    occurrences = {name: name for name in streams}
    if rng.random() < self_join:
        doubled = rng.choice(sorted(streams))
        dropped = rng.choice([n for n in streams if n != doubled])
        streams = {n: c for n, c in streams.items() if n != dropped}
        occurrences = {f"{doubled}1": doubled, f"{doubled}2": doubled} | {
            n: n for n in streams if n != doubled
        }
    aliases = list(occurrences)
    columns = [(alias, c) for alias, stream in occurrences.items() for c in streams[stream]]
    values = sorted(rng.sample(list(constants), rng.randint(0, min(max_constants, len(constants)))))

    edges = _time_order(rng, aliases, cyclic)
    time_atoms = [_time_atom(rng, edge, weak=weak, merged=merged) for edge in edges]
    if rng.random() < time_unequal:
        a, b = rng.sample(aliases, 2)
        time_atoms.append((a, "<>", b))
    if rng.random() < time_constants:
        operator = rng.choice(["<", "<=", "=", ">", ">=", "<=", "<", "<>"])
        time_atoms.append((rng.choice(aliases), operator, at_second(rng.randint(1, 6))))

    function: Aggregate | None = None
    group: list[Column] = []
    projection: list[Column] = []
    if rng.random() < aggregate:
        name, unique = rng.choice(list(aggregates))
        star = name == "COUNT" and not unique and rng.random() < 0.5
        function = (name, unique, None if star else rng.choice(columns))
        sizes = rng.choices(range(max_group + 1), weights=[4, 3, 1][: max_group + 1])[0]
        group = rng.sample(columns, min(sizes, len(columns)))
    else:
        projection = rng.sample(columns, min(rng.choices([0, 1, 2], weights=[4, 5, 2])[0], len(columns)))
    unique_rows = function is None and rng.random() < distinct

    atoms: list[Atom] = []
    careless = rng.random() < contradictory

    def add(more: Sequence[Atom]) -> None:
        if careless or _can_hold(streams, occurrences, [*atoms, *more]):
            atoms.extend(more)

    for _ in range(rng.choices(range(max_joins + 1), weights=[1, 3, 5, 4, 2][: max_joins + 1])[0]):
        add(_joins(rng, aliases, columns, edges, operators, unequal=unequal, equal=equal))
    joined = sorted({c for left, _, right in atoms for c in (left, right) if not isinstance(c, int)})
    last = {b for _, b in edges} - {a for a, _ in edges}
    counted = not unique_rows and (function is None or function[0] not in ("MIN", "MAX"))
    if counted and rng.random() < tame:
        for column in joined:
            if rng.random() < 0.9:
                add(_bounding(rng, column, values or [0, 2], operators))
    for column in [*group, *projection, *([function[2]] if function and function[2] else [])]:
        needed = column in group or unique_rows or column[0] not in last
        if rng.random() < (bound if needed else 0.3):
            add(_bounding(rng, column, values or [1], operators))
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        add(_filter(rng, columns, values, operators))
    unique_atoms = list(dict.fromkeys(atoms))
    rng.shuffle(unique_atoms)
    return time_case_from(
        streams,
        unique_atoms,
        list(dict.fromkeys(time_atoms)),
        projection,
        times={name: TIMES[NAMES.index(name)] for name in streams},
        occurrences=occurrences,
        distinct=unique_rows,
        aggregate=function,
        group_by=group,
    )


def _can_hold(
    streams: Mapping[str, tuple[str, ...]], occurrences: Mapping[str, str], atoms: Sequence[Atom]
) -> bool:
    return _satisfiable(_query(case_from(streams, occurrences, atoms)))


def _time_order(rng: random.Random, aliases: Sequence[str], cyclic: float) -> list[Edge]:
    """What is before what: one of several shapes over the streams in random order."""
    order = rng.sample(list(aliases), len(aliases))
    size = len(order)
    shape = rng.choices(
        ["none", "one", "chain", "last", "first", "tree", "any"], weights=[2, 3, 6, 3, 2, 3, 3]
    )[0]
    edges: list[Edge] = []
    if shape == "one":
        edges = [(order[0], order[1])]
    elif shape == "chain":
        edges = [(order[i], order[i + 1]) for i in range(size - 1)]
        if size > 3 and rng.random() < 0.4:
            edges.remove(rng.choice(edges))
    elif shape == "last":
        edges = [(alias, order[-1]) for alias in order[:-1]]
    elif shape == "first":
        edges = [(order[0], alias) for alias in order[1:]]
    elif shape == "tree":  # every stream but the last has one successor
        edges = [(order[i], rng.choice(order[i + 1 :])) for i in range(size - 1)]
    elif shape == "any":
        pairs = [(order[i], order[j]) for i in range(size) for j in range(i + 1, size)]
        edges = [pair for pair in pairs if rng.random() < 0.45]
    if edges and rng.random() < cyclic:
        a, b = rng.choice(edges)
        edges.append((b, a))
    return edges


def _time_atom(rng: random.Random, edge: Edge, *, weak: float, merged: float) -> TimeAtom:
    kind = rng.random()
    operator = "=" if kind < merged else "<=" if kind < merged + weak else "<"
    a, b = edge
    return (a, operator, b) if rng.random() < 0.5 else (b, _MIRROR[operator], a)


def _joins(
    rng: random.Random,
    aliases: Sequence[str],
    columns: Sequence[Column],
    edges: Sequence[Edge],
    operators: Sequence[str],
    *,
    unequal: float,
    equal: float,
) -> list[Atom]:
    """One join, often along the time order, or a chain through three streams."""

    def of(alias: str) -> Column:
        return rng.choice([c for c in columns if c[0] == alias])

    order = [o for o in operators if o in ("<", "<=", ">", ">=")] or list(operators)
    kind = rng.random()
    if kind < 0.2 and len(aliases) > 2:
        one, two, three = rng.sample(list(aliases), 3)
        direction = [o for o in order if o[0] == rng.choice("<>")] or order
        middle = of(two)
        return [(of(one), rng.choice(direction), middle), (middle, rng.choice(direction), of(three))]
    a, b = rng.choice(list(edges)) if edges and kind < 0.5 else rng.sample(list(aliases), 2)
    draw = rng.random()
    if draw < unequal and "<>" in operators:
        return [(of(a), "<>", of(b))]
    if draw < unequal + equal and "=" in operators:
        return [(of(a), "=", of(b))]
    return [(of(a), rng.choice(order), of(b))]


def _bounding(
    rng: random.Random, column: Column, values: Sequence[int], operators: Sequence[str]
) -> list[Atom]:
    """Atoms that bound the column: a pin or a range."""
    low, high = min(values), max(values)
    if "=" in operators and (rng.random() < 0.3 or low == high):
        return [(column, "=", rng.choice(list(values)))]
    lower = rng.choice([o for o in (">", ">=") if o in operators] or [">="])
    upper = rng.choice([o for o in ("<", "<=") if o in operators] or ["<="])
    return [(column, lower, low - (lower == ">")), (column, upper, high + (upper == "<"))]


def _filter(
    rng: random.Random, columns: Sequence[Column], values: Sequence[int], operators: Sequence[str]
) -> list[Atom]:
    """A column against a constant, or against another of its stream."""
    x = rng.choice(list(columns))
    same = [c for c in columns if c[0] == x[0] and c != x]
    if same and rng.random() < 0.35:
        return [(x, rng.choice(list(operators)), rng.choice(same))]
    return [(x, rng.choice(list(operators)), rng.choice(list(values)))] if values else []


# --- rows -------------------------------------------------------------------------------------------


def random_time_rows(
    rng: random.Random,
    case: TimeCase,
    count: int,
    *,
    nulls: float = 0.0,
    far: float = 0.1,
    spread: int = 2,
    together: float = 0.6,
) -> list[tuple[str, TimeRow]]:
    """``count`` rows of all streams in time order.

    ``together`` is the probability that a row has the timestamp of the row before it, of whatever
    stream.  Timestamps are whole seconds from ``START`` on and never NULL; integers lie near the query's
    constants, sometimes far out, and are NULL with probability ``nulls``.
    """
    named = [right for _, _, right in case.atoms if isinstance(right, int)]
    low, high = min(named, default=0) - spread, max(named, default=2) + spread

    def value() -> int | None:
        if rng.random() < nulls:
            return None
        return rng.randint(-100, 100) if rng.random() < far else rng.randint(low, high)

    rows: list[tuple[str, TimeRow]] = []
    second = 0
    for _ in range(count):
        if rows and rng.random() >= together:
            second += rng.choice([1, 1, 2])
        stream = rng.choice(sorted(case.streams))
        row: TimeRow = {column: value() for column in case.streams[stream]}
        rows.append((stream, {**row, case.times[stream]: at_second(second)}))
    return rows


def time_steps(case: TimeCase, rows: Sequence[tuple[str, TimeRow]]) -> list[dict[str, list[TimeRow]]]:
    """The rows cut into time steps: for each timestamp, in order, the rows of every stream."""
    steps: list[dict[str, list[TimeRow]]] = []
    before: datetime | None = None
    for stream, row in rows:
        now = row[case.times[stream]]
        if now != before:
            steps.append({name: [] for name in case.streams})
            before = now
        steps[-1][stream].append(row)
    return steps


# --- rows out of order ---------------------------------------------------------------------------------


def order_by_arrival(
    rng: random.Random, times: Mapping[str, str], rows: Sequence[tuple[str, TimeRow]], seconds: int
) -> list[tuple[str, TimeRow]]:
    """The rows in a random order of arrival, late by at most so many seconds; ``times``: the time columns."""

    def arrival(row: tuple[str, TimeRow]) -> Any:
        return row[1][times[row[0]]] + timedelta(seconds=rng.uniform(0, seconds))

    return sorted(rows, key=arrival) if seconds else list(rows)


def add_watermarks(query: Query, seconds: int) -> Query:
    """The query over streams whose rows may be late by so many seconds."""

    def delayed(table: Table) -> Table:
        return replace(table, properties={"watermark": f"{seconds} seconds"})

    def delay(select: Select) -> Select:
        return map_occurrences(select, lambda o: replace(o, table=delayed(o.table)))

    terms = tuple(replace(term, selects=tuple(map(delay, term.selects))) for term in query.terms)
    return replace(query, terms=terms)
