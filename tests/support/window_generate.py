"""Random queries whose streams are joined within windows of time, and rows that keep windows busy.

``random_window_case`` takes a query of ``time_generate``, moves its time conditions apart by INTERVALs,
closes some to windows, and shows or groups by timestamps, so that ``window_definition.decide`` can judge it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tests.support.generate import Aggregate, Atom, Catalog, Column
from tests.support.time_generate import TimeCase, TimeRow, at_second, random_time_case

# alias, operator, other alias, seconds that are added to the other's timestamp
WindowAtom = tuple[str, str, str, int]


@dataclass(frozen=True)
class WindowCase:
    """A query as text and as structure: ``WHERE`` is the conjunction of ``atoms`` and ``windows``.

    ``shown`` are the occurrences whose timestamps are in the select list or, with an aggregate, in GROUP BY.
    """

    sql: str
    streams: Mapping[str, tuple[str, ...]]
    times: Mapping[str, str]
    occurrences: Mapping[str, str]
    atoms: tuple[Atom, ...]
    windows: tuple[WindowAtom, ...]
    projection: tuple[Column, ...]
    shown: tuple[str, ...]
    distinct: bool
    aggregate: Aggregate | None = None

    @property
    def catalog(self) -> Catalog:
        """Every stream's columns with their types."""
        return {
            name: [*((column, "INT") for column in columns), (self.times[name], "TIMESTAMP")]
            for name, columns in self.streams.items()
        }


def window_case_from(case: TimeCase, windows: Sequence[WindowAtom], shown: Sequence[str] = ()) -> WindowCase:
    """The columns and conditions of a case with windows in the place of its time conditions."""
    time = {alias: f"{alias}.{case.times[stream]}" for alias, stream in case.occurrences.items()}
    columns = case.group_by if case.aggregate else case.projection
    keys = [f"{alias}.{column}" for alias, column in columns]
    keys += [time[alias] for alias in shown]
    items = [f"{key} AS c{i}" for i, key in enumerate(keys)]
    if case.aggregate:
        function, unique, argument = case.aggregate
        inner = "*" if argument is None else ("DISTINCT " if unique else "") + ".".join(argument)
        items.append(f"{function}({inner}) AS result")
    sources = ", ".join(a if a == stream else f"{stream} {a}" for a, stream in case.occurrences.items())
    text = f"SELECT {'DISTINCT ' if case.distinct else ''}{', '.join(items) or '1'} FROM {sources}"
    where = [
        f"{'.'.join(left)} {operator} {right if isinstance(right, int) else '.'.join(right)}"
        for left, operator, right in case.atoms
    ]
    for alias, operator, other, seconds in windows:
        sign = "-" if seconds < 0 else "+"
        after = f" {sign} INTERVAL {abs(seconds)} SECONDS" if seconds else ""
        where.append(f"{time[alias]} {operator} {time[other]}{after}")
    text += " WHERE " + " AND ".join(where) if where else ""
    text += " GROUP BY " + ", ".join(keys) if case.aggregate and keys else ""
    ddl = [
        f"CREATE STREAMING TABLE {n} ({', '.join(f'{c} INT' for c in cols)}, {case.times[n]} TIMESTAMP);"
        for n, cols in case.streams.items()
    ]
    return WindowCase(
        sql="\n".join([*ddl, text + ";"]),
        streams=case.streams,
        times=case.times,
        occurrences=case.occurrences,
        atoms=case.atoms,
        windows=tuple(windows),
        projection=tuple(columns),
        shown=tuple(shown),
        distinct=case.distinct,
        aggregate=case.aggregate,
    )


def random_window_case(
    rng: random.Random,
    *,
    closed: float = 0.6,
    times: float = 0.35,
    extremes: float = 0.3,
    self_join: float = 0.0,
) -> WindowCase:
    """A random query.

    ``closed``: a time condition is a window; ``times``: timestamps in the result; ``extremes``: MIN and MAX
    are those of a timestamp.
    """
    case = random_time_case(rng, time_constants=0, time_unequal=0, cyclic=0, merged=0, self_join=self_join)
    windows: list[WindowAtom] = []
    for alias, operator, other in case.time_atoms:
        assert isinstance(other, str)
        if operator[0] == ">":
            alias, operator, other = other, operator.replace(">", "<"), alias
        seconds = rng.choice([-2, -1, 0, 0, 1, 2, 3])
        windows.append((alias, operator, other, seconds))
        if rng.random() < closed:
            width = rng.choice([0, 1, 2, 3, 4])
            windows.append((other, rng.choice(["<=", "<=", "<"]), alias, width - seconds))
    shown: list[str] = []
    if rng.random() < times:
        shown += rng.choices(sorted(case.occurrences), k=rng.choice([1, 1, 1, 2]))
    if case.aggregate and case.aggregate[0] in ("MIN", "MAX") and rng.random() < extremes:
        alias = rng.choice(sorted(case.occurrences))
        case = replace(case, aggregate=(*case.aggregate[:2], (alias, case.times[case.occurrences[alias]])))
    return window_case_from(case, list(dict.fromkeys(windows)), list(dict.fromkeys(shown)))


def random_window_rows(
    rng: random.Random,
    case: WindowCase,
    count: int,
    *,
    nulls: float = 0.0,
    far: float = 0.1,
    stop: float = 0.1,
) -> list[tuple[str, TimeRow]]:
    """``count`` rows in time order; with probability ``stop`` a row comes after a long pause."""
    named = [right for _, _, right in case.atoms if isinstance(right, int)]
    low, high = min(named, default=0) - 2, max(named, default=2) + 2

    def value() -> int | None:
        if rng.random() < nulls:
            return None
        return rng.randint(-100, 100) if rng.random() < far else rng.randint(low, high)

    rows: list[tuple[str, TimeRow]] = []
    second = 0
    for _ in range(count):
        if rng.random() < stop:
            second += rng.choice([5, 10, 45, 70])
        elif rng.random() < 0.5:
            second += rng.choice([1, 1, 2])
        stream = rng.choice(sorted(case.streams))
        row: TimeRow = {column: value() for column in case.streams[stream]}
        rows.append((stream, {**row, case.times[stream]: at_second(second)}))
    return rows
