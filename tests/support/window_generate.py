"""Random queries whose streams are joined within windows of time, and rows that keep windows busy.

``random_window_case`` takes a query of ``time_generate``, moves its time conditions apart by INTERVALs,
closes some to windows, and shows or groups by timestamps or functions of them, so that
``window_definition.decide`` can judge it.
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
class TimeFunctions:
    """Functions of a timestamp ``{}``, as Spark writes them and as the oracle does.

    ``closes``: their joint value never returns after a while.  ``width``: for how many seconds it stays the
    same.  ``starts``: the starts of the sliding windows that contain the timestamp, for the oracle.
    """

    spark: tuple[str, ...]
    oracle: tuple[str, ...]
    closes: bool
    width: int
    starts: str | None = None


def _same(*texts: str, closes: bool, width: int) -> TimeFunctions:
    return TimeFunctions(texts, texts, closes, width)


_DAY = 86_400
TUMBLING = TimeFunctions(
    ("window({}, '10 seconds')",), ("time_bucket(INTERVAL '10' SECONDS, {})",), closes=True, width=10
)
SLIDING = TimeFunctions(
    ("window({}, '10 seconds', '5 seconds')",),
    ("w",),
    closes=True,
    width=10,
    starts="ARRAY(time_bucket(INTERVAL '5' SECONDS, {0}), time_bucket(INTERVAL '5' SECONDS, {0}) "
    "- INTERVAL '5' SECONDS)",
)
BUCKETS = (
    TUMBLING,
    TUMBLING,
    SLIDING,
    _same("date_trunc('minute', {})", closes=True, width=60),
    _same("date_trunc('month', {})", closes=True, width=31 * _DAY),
    _same("CAST({} AS DATE)", closes=True, width=_DAY),
    _same("year({})", closes=True, width=366 * _DAY),
    _same("year({})", "month({})", closes=True, width=31 * _DAY),
    _same("CAST({} AS DATE)", "hour({})", closes=True, width=3_600),
    _same("date_format({}, 'yyyy-MM-dd HH')", closes=True, width=3_600),
)
FIELDS = (
    _same("hour({})", closes=False, width=3_600),
    _same("month({})", closes=False, width=31 * _DAY),
    _same("dayofweek({})", closes=False, width=_DAY),
    _same("month({})", "hour({})", closes=False, width=3_600),
    _same("date_format({}, 'HH:mm')", closes=False, width=60),
)
# Functions whose equality joins streams.
JOINED = (
    TUMBLING,
    _same("date_trunc('minute', {})", closes=True, width=60),
    _same("hour({})", closes=False, width=3_600),
    _same("dayofweek({})", closes=False, width=_DAY),
    _same("CAST({} AS DATE)", closes=True, width=_DAY),
    _same("year({})", closes=True, width=366 * _DAY),
)
# an occurrence and functions of its timestamp; two occurrences and functions that are equal
ShownFunctions = tuple[str, TimeFunctions]
EqualFunctions = tuple[str, str, TimeFunctions]


@dataclass(frozen=True)
class WindowCase:
    """A query as text and as structure: ``WHERE`` is the conjunction of ``atoms`` and ``windows``.

    ``shown`` are the occurrences whose timestamps are in the select list or, with an aggregate, in GROUP BY,
    ``functions`` those of which functions are.  ``oracle`` is the text that DuckDB understands.
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
    functions: tuple[ShownFunctions, ...] = ()
    equal: tuple[EqualFunctions, ...] = ()
    oracle: str = ""

    @property
    def closing(self) -> tuple[str, ...]:
        """The occurrences of which the result contains a timestamp or a time bucket."""
        return (*self.shown, *(alias for alias, function in self.functions if function.closes))

    @property
    def catalog(self) -> Catalog:
        """Every stream's columns with their types."""
        return {
            name: [*((column, "INT") for column in columns), (self.times[name], "TIMESTAMP")]
            for name, columns in self.streams.items()
        }


def window_case_from(
    case: TimeCase,
    windows: Sequence[WindowAtom],
    shown: Sequence[str] = (),
    functions: Sequence[ShownFunctions] = (),
    equal: Sequence[EqualFunctions] = (),
) -> WindowCase:
    """The columns and conditions of a case with windows in the place of its time conditions."""
    ddl = [
        f"CREATE STREAMING TABLE {n} ({', '.join(f'{c} INT' for c in cols)}, {case.times[n]} TIMESTAMP);"
        for n, cols in case.streams.items()
    ]
    spark, oracle = (
        "\n".join([*ddl, _write(case, windows, shown, functions, equal, is_spark) + ";"])
        for is_spark in (True, False)
    )
    return WindowCase(
        sql=spark,
        streams=case.streams,
        times=case.times,
        occurrences=case.occurrences,
        atoms=case.atoms,
        windows=tuple(windows),
        projection=tuple(case.group_by if case.aggregate else case.projection),
        shown=tuple(shown),
        distinct=case.distinct,
        aggregate=case.aggregate,
        functions=tuple(functions),
        equal=tuple(equal),
        oracle=oracle,
    )


def _write(
    case: TimeCase,
    windows: Sequence[WindowAtom],
    shown: Sequence[str],
    functions: Sequence[ShownFunctions],
    equal: Sequence[EqualFunctions],
    is_spark: bool,
) -> str:
    time = {alias: f"{alias}.{case.times[stream]}" for alias, stream in case.occurrences.items()}
    columns = case.group_by if case.aggregate else case.projection
    keys = [f"{alias}.{column}" for alias, column in columns]
    keys += [time[alias] for alias in shown]
    sliding: dict[str, str] = {}
    for alias, function in functions:
        for text in function.spark if is_spark else function.oracle:
            keys.append(f"{alias}.w" if text == "w" else text.format(time[alias]))
        if function.starts and not is_spark:
            sliding[alias] = function.starts.format(case.times[case.occurrences[alias]])
    items = [f"{key}{'.start' if key.startswith('window') else ''} AS c{i}" for i, key in enumerate(keys)]
    if case.aggregate:
        name, unique, argument = case.aggregate
        inner = "*" if argument is None else ("DISTINCT " if unique else "") + ".".join(argument)
        items.append(f"{name}({inner}) AS result")
    tables = {
        a: f"(SELECT *, EXPLODE({sliding[a]}) AS w FROM {stream})" if a in sliding else stream
        for a, stream in case.occurrences.items()
    }
    sources = ", ".join(a if a == table else f"{table} {a}" for a, table in tables.items())
    text = f"SELECT {'DISTINCT ' if case.distinct else ''}{', '.join(items) or '1'} FROM {sources}"
    where = [
        f"{'.'.join(left)} {operator} {right if isinstance(right, int) else '.'.join(right)}"
        for left, operator, right in case.atoms
    ]
    for alias, operator, other, seconds in windows:
        sign = "-" if seconds < 0 else "+"
        after = f" {sign} INTERVAL {abs(seconds)} SECONDS" if seconds else ""
        where.append(f"{time[alias]} {operator} {time[other]}{after}")
    for alias, other, function in equal:
        for call in function.spark if is_spark else function.oracle:
            where.append(f"{call.format(time[alias])} = {call.format(time[other])}")
    text += " WHERE " + " AND ".join(where) if where else ""
    return text + (" GROUP BY " + ", ".join(keys) if case.aggregate and keys else "")


def random_window_case(
    rng: random.Random,
    *,
    closed: float = 0.6,
    times: float = 0.35,
    extremes: float = 0.3,
    functions: float = 0.0,
    self_join: float = 0.0,
) -> WindowCase:
    """A random query.

    ``closed``: a time condition is a window; ``times``: timestamps in the result; ``extremes``: MIN and MAX
    are those of a timestamp; ``functions``: functions of timestamps in the result and in conditions.
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
    shown = list(dict.fromkeys(shown))
    used: list[ShownFunctions] = []
    equal: list[EqualFunctions] = []
    if rng.random() < functions:
        used = [(alias, rng.choice(BUCKETS)) for alias in shown if rng.random() < 0.8]
        shown = [alias for alias in shown if alias not in dict(used)]
        if sum("window" in text for _, function in used for text in function.spark) > 1:
            used = used[:1]  # Spark takes one window
        if rng.random() < 0.2:
            used.append((rng.choice(sorted(case.occurrences)), rng.choice(FIELDS)))
        if rng.random() < 0.2:
            one, other = rng.sample(sorted(case.occurrences), 2)
            equal.append((one, other, rng.choice(JOINED)))
    return window_case_from(case, list(dict.fromkeys(windows)), shown, used, equal)


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
