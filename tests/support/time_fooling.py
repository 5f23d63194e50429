"""Brute force for queries over application time: confirms witnesses, and watches Pareto fronts for growth.

``confirm_time_witness`` checks a witness with DuckDB, and the order of its timestamps.  ``ReferenceFronts``
answers a query step by step from partial matches alone: plain dictionaries, exact for every query, small only
if the query is bounded.  ``front_sizes`` feeds it streams that are meant to make it grow.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import combinations, pairwise, product
from math import inf
from typing import Any

from tests.support.definition import HALF, _query, _satisfiable, _tighten
from tests.support.generate import Catalog, case_from
from tests.support.oracle import confirm_witness
from tests.support.time_definition import VIRTUAL, ticks, time_order
from tests.support.time_generate import TimeCase, TimeRow, at_second, time_case_from

SAME_TIMESTAMP = 3  # rows of one stream that may share a timestamp in a witness
LARGEST_FRONT = 300  # entries, at which feeding ends

Group = frozenset[str]  # occurrences
Values = dict[int, int]  # node → value


# --- witnesses --------------------------------------------------------------------------------------


def confirm_time_witness(sql: str, catalog: Catalog, witness: Mapping[str, Any]) -> str | None:
    """None if the witness holds for every subset of its universe and is in time order, else what is wrong.

    Setup, universe and each probe are in the order of their timestamps.  Feeding follows the timestamps:
    setup rows may lie between rows of the universe, but no row of a probe lies before any of either.  At
    most ``SAME_TIMESTAMP`` rows of a stream share a timestamp.  A relation has rows in the setup only.
    """
    time_columns = _time_columns(sql, catalog)
    parts = {"setup": witness["setup"], "universe": witness["universe"]}
    parts |= {f"probe {k}": probe for k, probe in enumerate(witness["probes"])}
    read: dict[str, list[dict[str, Any]]] = {}
    for part, entries in parts.items():
        read[part] = [_read(catalog, entry) for entry in entries]
        for entry in read[part]:
            if entry["stream"] not in time_columns and part != "setup":
                return f"The relation {entry['stream']} changes in {part}."
    timestamps = {part: _timestamps(entries, time_columns) for part, entries in read.items()}
    for part, seen in timestamps.items():
        if any(b < a for (_, a), (_, b) in pairwise(seen)):
            return f"The timestamps of {part} decrease."
    known = [*timestamps["setup"], *timestamps["universe"]]
    latest = max((at for _, at in known), default=datetime.min)
    for part in list(parts)[2:]:
        if any(at < latest for _, at in timestamps[part]):
            return f"A row of {part} lies before a row that was fed already."
        for (stream, at), count in Counter([*known, *timestamps[part]]).items():
            if count > SAME_TIMESTAMP:
                return f"{count} rows of {stream} share the timestamp {at}."
    typed = {
        "setup": read["setup"],
        "universe": read["universe"],
        "probes": [read[part] for part in list(parts)[2:]],
        "compare": witness["compare"],
    }
    return confirm_witness(sql, catalog, typed, time_columns)


def _time_columns(sql: str, catalog: Catalog) -> dict[str, str | None]:
    """The time column of every stream, None where it has none; relations are left out."""
    time_columns: dict[str, str | None] = {}
    statements = sql.split(";")
    for name, columns in catalog.items():
        pattern = rf"(?is)\bCREATE\s+STREAMING\s+TABLE\s+{re.escape(name)}\b"
        declared = [s for s in statements if re.search(pattern, s)]
        if declared:
            chosen = re.search(r"(?is)TBLPROPERTIES\s*\(.*?'time'\s*=\s*'(\w+)'", declared[0])
            times = [c for c, kind in columns if kind.upper() == "TIMESTAMP"]
            if chosen:
                times = [c for c in times if c.lower() == chosen[1].lower()]
            time_columns[name] = times[0] if times else None
    return time_columns


def _read(catalog: Catalog, entry: Mapping[str, Any]) -> dict[str, Any]:
    """The row with timestamps written as text made timestamps."""
    kinds = dict(catalog.get(entry["stream"], ()))
    row = {
        c: datetime.fromisoformat(v) if isinstance(v, str) and kinds.get(c, "").upper() == "TIMESTAMP" else v
        for c, v in entry["row"].items()
    }
    return {"stream": entry["stream"], "row": row}


def _timestamps(
    entries: Sequence[Mapping[str, Any]], time_columns: Mapping[str, str | None]
) -> list[tuple[str, datetime]]:
    found = []
    for entry in entries:
        time_column = time_columns.get(entry["stream"])
        if time_column is not None:
            found.append((str(entry["stream"]), entry["row"][time_column]))
    return found


# --- fronts -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """What later rows can distinguish of a partial match.

    The output values that are known, by place; for every column still to come the least and the largest
    value that can complete the match, and values that cannot.
    """

    outputs: tuple[tuple[int, Any], ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    excluded: tuple[frozenset[int], ...]


class ReferenceFronts:
    """A query answered from the entries of its partial matches, one time step after the other.

    For each set D of occurrences that can have arrived while the rest is to come it holds the entries of
    the matches on D: with duplicates how many matches each has, with DISTINCT only those that no other
    entries make superfluous.  No timestamp and no row is kept.
    """

    def __init__(self, case: TimeCase) -> None:
        self.case = case
        condition = case_from(case.streams, case.occurrences, case.atoms, case.projection)
        query = _query(condition)
        order = time_order(case)
        self._possible = order is not None and _satisfiable(query)
        if self._possible:
            query = replace(query, base=_tighten(query.base[None], query.unequal)[0])
        self._latest = order.latest if order else {}
        self._columns = query.columns
        self._compared = {x for x, column in enumerate(query.columns) if x and _is_compared(case, column)}
        self._bound = [[inf if c > HALF else int(c) for c in row] for row in query.base]
        self._unequal = query.unequal
        everything = frozenset(case.occurrences)
        self._everything = everything
        sets = [frozenset(c) for r in range(len(everything) + 1) for c in combinations(sorted(everything), r)]
        downs = [d for d in sets if self._in_order(everything - d, d)]
        self._ways = [
            (down, down - new, tuple(sorted(new)))
            for down in downs
            for new in sets
            if new and new <= down and down - new in downs and self._at_once(new)
            if self._in_order(new, down - new)
        ]
        self._nodes = {a: [x for x, c in enumerate(query.columns) if c and c[0] == a] for a in everything}
        self.held: dict[Group, dict[Entry, int]] = {d: {} for d in downs if d != everything}
        if frozenset() in self.held and self._possible:
            self.held[frozenset()] = {self._start(): 1}
        self.emitted: Counter[tuple[Any, ...]] = Counter()

    def copy(self) -> ReferenceFronts:
        """The same state, to be fed on by itself."""
        twin = copy(self)
        twin.held, twin.emitted = dict(self.held), Counter(self.emitted)
        return twin

    def size(self) -> int:
        """How many entries are held, the rows already written among them where they must be known."""
        kept = sum(len(entries) for group, entries in self.held.items() if group)
        return kept + (len(self.emitted) if self.case.distinct else 0)

    def step(self, batch: Mapping[str, Sequence[TimeRow]]) -> Counter[tuple[Any, ...]]:
        """Take all rows of one time step, return the rows that it adds to the answer."""
        if not self._possible:
            return Counter()
        arrived = {
            alias: [values for row in batch.get(stream, ()) if (values := self._passing(alias, row))]
            for alias, stream in self.case.occurrences.items()
        }
        found: dict[Group, Counter[Entry]] = {}
        for down, old, new in self._ways:
            for entry, count in self.held[old].items():
                for rows in product(*(arrived[alias] for alias in new)):
                    grown = self._grown(entry, down, rows)
                    if grown is not None:
                        found.setdefault(down, Counter())[grown] += count
        emitted = self._emit(found.pop(self._everything, Counter()))
        for down, entries in found.items():
            self._hold(down, entries)
        now = [row[self.case.times[stream]] for stream, rows in batch.items() for row in rows]
        ended = {alias for alias, last in self._latest.items() if now and last <= ticks(now[0])}
        for down in self.held:
            if not ended <= down:
                self.held[down] = {}
        return emitted

    def _emit(self, complete: Counter[Entry]) -> Counter[tuple[Any, ...]]:
        rows: Counter[tuple[Any, ...]] = Counter()
        for entry, count in complete.items():
            row = tuple(value for _, value in sorted(entry.outputs, key=lambda o: o[0])) or (1,)
            if self.case.distinct:
                rows[row] = 0 if row in self.emitted else 1
            else:
                rows[row] += count
        rows = +rows
        self.emitted.update(rows)
        return rows

    def _hold(self, down: Group, entries: Counter[Entry]) -> None:
        held = dict(self.held[down])
        for entry, count in entries.items():
            held[entry] = held.get(entry, 0) + count
        self.held[down] = dict.fromkeys(_needed(list(held)), 1) if self.case.distinct else held

    # --- time ---------------------------------------------------------------------------------------

    def _at_once(self, new: Group) -> bool:
        """Whether these occurrences can share a timestamp."""
        return all(
            operator in ("=", "<=", ">=")
            for a, operator, b in self.case.time_atoms
            if isinstance(b, str) and {a, b} <= new
        )

    def _in_order(self, later: Group, earlier: Group) -> bool:
        """Whether all of the one can be later than all of the other."""
        for a, operator, b in self.case.time_atoms:
            if isinstance(b, str):
                if a in later and b in earlier and operator not in (">", ">=", "<>"):
                    return False
                if a in earlier and b in later and operator not in ("<", "<=", "<>"):
                    return False
        return True

    def _on_time(self, alias: str, at: datetime) -> bool:
        for a, operator, constant in self.case.time_atoms:
            if a == alias and isinstance(constant, datetime) and not _holds(at, operator, constant):
                return False
        return ticks(at) <= self._latest.get(alias, inf)

    # --- values -------------------------------------------------------------------------------------

    def _passing(self, alias: str, row: TimeRow) -> dict[int, Any] | None:
        """The row by nodes; None if no result can hold it."""
        if not self._on_time(alias, row[self.case.times[self.case.occurrences[alias]]]):
            return None
        values = {x: row[_column(self._columns[x])] for x in self._nodes[alias]}
        if any(values[x] is None for x in self._compared & values.keys()):
            return None
        known = {0: 0} | {x: v for x, v in values.items() if x in self._compared}
        for x, v in known.items():
            if any(v - w > self._bound[x][y] for y, w in known.items()):
                return None
        if any(x in known and y in known and known[x] - known[y] == c for x, y, c in self._unequal):
            return None
        return values

    def _start(self) -> Entry:
        return self._narrowed(Entry((), *self._requirements({0: 0})), frozenset())

    def _requirements(
        self, known: Values
    ) -> tuple[tuple[float, ...], tuple[float, ...], tuple[frozenset[int], ...]]:
        """What the known values require of every column."""
        nodes = range(len(self._columns))
        low = tuple(max(v - self._bound[x][w] for x, v in known.items()) for w in nodes)
        high = tuple(min(v + self._bound[w][x] for x, v in known.items()) for w in nodes)
        excluded: list[set[int]] = [set() for _ in nodes]
        for x, y, c in self._unequal:
            if x in known:
                excluded[y].add(known[x] - c)
            if y in known:
                excluded[x].add(known[y] + c)
        return low, high, tuple(frozenset(values) for values in excluded)

    def _grown(self, entry: Entry, down: Group, rows: Sequence[dict[int, Any]]) -> Entry | None:
        """The entry on ``down`` of the match with these rows, None if they do not match."""
        for values in rows:
            known = {x: v for x, v in values.items() if x in self._compared}
            if any(
                not entry.low[x] <= v <= entry.high[x] or v in entry.excluded[x] for x, v in known.items()
            ):
                return None
            if known:
                low, high, excluded = self._requirements(known)
                entry = Entry(
                    entry.outputs,
                    tuple(map(max, entry.low, low)),
                    tuple(map(min, entry.high, high)),
                    tuple(a | b for a, b in zip(entry.excluded, excluded, strict=True)),
                )
            shown = [
                (i, values[self._columns.index(column)])
                for i, column in enumerate(self.case.projection)
                if self._columns.index(column) in values
            ]
            entry = replace(entry, outputs=tuple(sorted((*entry.outputs, *shown), key=lambda o: o[0])))
        entry = self._narrowed(entry, down)
        dead = any(a > b for a, b in zip(entry.low, entry.high, strict=True))
        return None if dead else entry

    def _narrowed(self, entry: Entry, down: Group) -> Entry:
        """Only what is to come, and of the excluded values only those that could come otherwise."""
        low, high, excluded = list(entry.low), list(entry.high), list(entry.excluded)
        for x, column in enumerate(self._columns):
            if column is None or column[0] in down or x not in self._compared:
                low[x], high[x], excluded[x] = -inf, inf, frozenset()
                continue
            while low[x] in excluded[x]:
                low[x] += 1
            while high[x] in excluded[x]:
                high[x] -= 1
            excluded[x] = frozenset(v for v in excluded[x] if low[x] < v < high[x])
        return Entry(entry.outputs, tuple(low), tuple(high), tuple(excluded))


def _column(column: tuple[str, str] | None) -> str:
    assert column is not None
    return column[1]


def _is_compared(case: TimeCase, column: tuple[str, str] | None) -> bool:
    return any(column in (left, right) for left, _, right in case.atoms)


def _holds(a: datetime, operator: str, b: datetime) -> bool:
    match operator:
        case "<":
            return a < b
        case "<=":
            return a <= b
        case "=":
            return a == b
        case ">=":
            return a >= b
        case ">":
            return a > b
    return a != b


def _needed(entries: list[Entry]) -> list[Entry]:
    """Entries that complete to all results of the given ones; none of them is superfluous."""
    kept: dict[tuple[tuple[int, Any], ...], list[Entry]] = {}
    for entry in entries:
        kept.setdefault(entry.outputs, []).append(entry)
    for outputs, group in kept.items():
        for entry in list(group):
            better = [other for other in group if other is not entry and _is_wider(other, entry)]
            if better and not _escapes(entry, better, {}):
                group = [other for other in group if other is not entry]
        kept[outputs] = group
    return [entry for group in kept.values() for entry in group]


def _is_wider(a: Entry, b: Entry) -> bool:
    """Whether ``a`` requires no more than ``b``, except for excluded values."""
    return all(x <= y for x, y in zip(a.low, b.low, strict=True)) and all(
        x >= y for x, y in zip(a.high, b.high, strict=True)
    )


def _escapes(entry: Entry, wider: Sequence[Entry], chosen: Values) -> bool:
    """Whether values still to come can complete the entry but, being excluded, none of the wider ones."""
    open_ = [other for other in wider if not any(v in other.excluded[x] for x, v in chosen.items())]
    if not open_:
        return True
    for x, excluded in enumerate(open_[0].excluded):
        if x not in chosen:
            for v in excluded - entry.excluded[x]:
                if entry.low[x] <= v <= entry.high[x] and _escapes(entry, open_[1:], {**chosen, x: v}):
                    return True
    return False


# --- streams that let fronts grow -------------------------------------------------------------------


def without_aggregate(case: TimeCase) -> TimeCase:
    """The query without an aggregate whose entries an aggregate needs.

    MIN and MAX: DISTINCT, with a stream that never sends and asks for more; COUNT(DISTINCT x): DISTINCT with
    x among the outputs; else the groups with duplicates.
    """
    if case.aggregate is None:
        return case
    function, unique, argument = case.aggregate
    streams, atoms, projection = dict(case.streams), list(case.atoms), list(case.group_by)
    times, occurrences = dict(case.times), dict(case.occurrences)
    if unique or function == "MEDIAN":
        assert argument is not None
        projection.append(argument)
    if function in ("MIN", "MAX"):
        assert argument is not None
        streams[VIRTUAL], times[VIRTUAL], occurrences[VIRTUAL] = ("x",), "at", VIRTUAL
        atoms.append((argument, ">" if function == "MAX" else "<", (VIRTUAL, "x")))
    return time_case_from(
        streams,
        atoms,
        case.time_atoms,
        projection,
        times=times,
        occurrences=occurrences,
        distinct=unique or function in ("MIN", "MAX"),
    )


def front_sizes(case: TimeCase, rng: random.Random, steps: int) -> list[int]:
    """The number of entries held after each of so many time steps, of streams that rise, fall and swing.

    Every column follows a pattern of its own, inside the range that the query allows it; columns
    that must be equal follow the same.  The answer of an aggregate is held too.  Feeding ends early
    where ``LARGEST_FRONT`` is reached.
    """
    plain = without_aggregate(case)
    fronts = ReferenceFronts(plain)
    sizes: list[int] = []
    for batch in adversarial_steps(plain, rng, steps):
        fronts.step(batch)
        sizes.append(_with_answer(case, fronts))
        if sizes[-1] > LARGEST_FRONT:
            break
    return sizes


def _with_answer(case: TimeCase, fronts: ReferenceFronts) -> int:
    answer = case.aggregate is not None and not fronts.case.distinct
    return fronts.size() + (len(fronts.emitted) if answer else 0)


def adversarial_steps(case: TimeCase, rng: random.Random, steps: int) -> Iterator[dict[str, list[TimeRow]]]:
    """Time steps of streams whose columns rise, fall or swing, in rounds or at random."""
    names = [name for name in case.streams if name != VIRTUAL]
    patterns: dict[tuple[str, str], list[int]] = {}
    for place, (like, low, high) in _ranges(case).items():
        patterns[place] = patterns[like] if like in patterns else _pattern(rng, low, high, steps)
    rounds = _round(rng, case, names)
    style = rng.choice(["rounds", "rounds", "random", "together"])
    for step in range(steps):
        senders = names
        if style == "rounds":
            senders = rounds[step % len(rounds)]
        elif style == "random":
            senders = rng.choices(names, k=rng.randint(1, 2))
        at = step // len(rounds) if style == "rounds" else step
        batch: dict[str, list[TimeRow]] = {name: [] for name in case.streams}
        for name in senders:
            row: TimeRow = {column: patterns[name, column][at] for column in case.streams[name]}
            batch[name].append({**row, case.times[name]: at_second(step)})
        yield batch


def _ranges(case: TimeCase) -> dict[tuple[str, str], tuple[tuple[str, str], float, float]]:
    """For every column of every stream the first column that it must equal, and the values it may have.

    Of a stream that occurs several times, the first occurrence says.  Finite streams, whose values bound
    others, have values close together.
    """
    order = time_order(case)
    query = _query(case_from(case.streams, case.occurrences, case.atoms))
    places = [c and (case.occurrences[c[0]], c[1]) for c in query.columns]
    found: dict[tuple[str, str], tuple[tuple[str, str], float, float]] = {}
    for x, (column, place) in enumerate(zip(query.columns, places, strict=True)):
        if column is None or place is None:
            continue
        d = query.base
        equal = [p for y, p in enumerate(places) if p and (x == y or d[x, y] == d[y, x] == 0)]
        low = -inf if d[0, x] > HALF else -int(d[0, x])
        high = inf if d[x, 0] > HALF else int(d[x, 0])
        if order is not None and column[0] in order.latest:
            high = min(high, max(low, -2) + 4)
            low = max(low, high - 4)
        found.setdefault(place, (equal[0], low, high))
    return found


def _round(rng: random.Random, case: TimeCase, names: Sequence[str]) -> list[list[str]]:
    """Each stream once, the earlier ones of the time order mostly first, those of equal time together."""
    order = time_order(case)
    before = order.before if order else frozenset()
    aliases = {stream: alias for alias, stream in case.occurrences.items()}
    mixed = rng.sample(list(names), len(names))
    if rng.random() < 0.8:
        mixed.sort(key=lambda n: sum((alias, aliases[n]) in before for alias in case.occurrences))
    rounds: list[list[str]] = []
    for name in mixed:
        equal = [
            r for r in rounds if {(aliases[r[0]], aliases[name]), (aliases[name], aliases[r[0]])} <= before
        ]
        if equal:
            equal[0].append(name)
        elif rounds and rng.random() < 0.2:
            rounds[-1].append(name)
        else:
            rounds.append([name])
    return rounds


def _pattern(rng: random.Random, low: float, high: float, steps: int) -> list[int]:
    """The values of a column, step by step, from its range."""
    if low > -inf and high < inf:
        cycle = [rng.randint(int(low), max(int(low), int(high))) for _ in range(rng.choice([1, 1, 2]))]
        return [cycle[i % len(cycle)] for i in range(steps)]
    slope = rng.choice([1, 1, 2, 3])
    kind = rng.choice(["rising", "rising", "falling", "falling", "swinging", "saw", "steady"])
    length = slope * steps
    shape = {
        "rising": [slope * i for i in range(steps)],
        "falling": [length - slope * i for i in range(steps)],
        "swinging": [length // 2 + (i if i % 2 else -i) * slope // 2 for i in range(steps)],
        "saw": [slope * (i % 5) for i in range(steps)],
        "steady": [length // 2] * steps,
    }[kind]
    shift = rng.choice([0, 0, 1, 2, length]) + rng.choice([0, 1])
    if low > -inf:
        return [int(low) + v + shift for v in shape]
    if high < inf:
        return [int(high) - v - shift for v in shape]
    shift = shift if rng.random() < 0.5 else -shift
    return [v - length // 2 + shift for v in shape]


def greedy_sizes(case: TimeCase, rng: random.Random, steps: int, *, tries: int = 5) -> list[int]:
    """As ``front_sizes``, but each time step is the one of several random ones that leaves most entries."""
    plain = without_aggregate(case)
    fronts = ReferenceFronts(plain)
    names = [name for name in plain.streams if name != VIRTUAL]
    ranges = _ranges(plain)
    sizes: list[int] = []
    for step in range(steps):
        best: ReferenceFronts | None = None
        for _ in range(tries):
            batch: dict[str, list[TimeRow]] = {name: [] for name in plain.streams}
            drawn: dict[tuple[str, str], int] = {}
            for place, (like, low, high) in ranges.items():
                drawn[place] = drawn[like] if like in drawn else _anywhere(rng, low, high, steps)
            for name in rng.sample(names, min(len(names), rng.choice([1, 1, 2, 4]))):
                row: TimeRow = {c: drawn[name, c] for c in plain.streams[name]}
                batch[name].append({**row, plain.times[name]: at_second(step)})
            trial = fronts.copy()
            trial.step(batch)
            if best is None or _with_answer(case, trial) > _with_answer(case, best):
                best = trial
        assert best is not None
        fronts = best
        sizes.append(_with_answer(case, fronts))
        if sizes[-1] > LARGEST_FRONT:
            break
    return sizes


def _anywhere(rng: random.Random, low: float, high: float, width: int) -> int:
    """A value of the range, within a distance of its ends that leaves room for so many different ones."""
    if low > -inf and high < inf:
        return rng.randint(int(low), max(int(low), int(high)))
    if low > -inf:
        return int(low) + rng.randint(0, 2 * width)
    return (int(high) - width if high < inf else 0) + rng.randint(-width, width)


def growing_run(case: TimeCase, rng: random.Random, *, runs: int, steps: int) -> list[int] | None:
    """The sizes of a run in which the fronts keep growing, None if there is none among so many.

    The same run made three times as long must grow as well, and further, so that a front which fills late
    is not taken for one without a bound.
    """
    for _ in range(runs):
        seed = rng.random()
        sizes = front_sizes(case, random.Random(seed), steps)
        if _still_rising(sizes):
            longer = front_sizes(case, random.Random(seed), 3 * steps)
            if _still_rising(longer) and max(longer) > max(sizes) + 2:
                return longer
    return None


def _still_rising(sizes: Sequence[int]) -> bool:
    """Whether the last third reaches a new height at least three times."""
    top = max(sizes[: 2 * len(sizes) // 3], default=0)
    heights = {size for size in sizes[2 * len(sizes) // 3 :] if size > top}
    return len(heights) >= 3 or (bool(sizes) and sizes[-1] > LARGEST_FRONT)
