"""An evaluator that keeps only what the plan of a bounded verdict says.

Rows are added to synopses, and answers are computed from them.  It is slow and simple on purpose; tests
compare it with brute force after every row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from millpond.plan.classes import BELOW
from millpond.plan.needs import Need
from millpond.plan.synopses import (
    AMONG,
    OVER,
    UNDER,
    ExactPlan,
    ExactSelectPlan,
    Extreme,
    StreamPlan,
    SynopsisPlan,
    sharing_key,
)
from millpond.query.aggregate_functions import aggregate_values
from millpond.query.evaluate import (
    Matcher,
    Row,
    compile_condition,
    compile_expression,
    compile_result_row,
)
from millpond.query.expressions import TRUE, Aggregate, And, Condition, Expr, Ref
from millpond.query.parts import THRESHOLD, Part
from millpond.query.trees import conjuncts, find_aggregates, is_aggregate, refs

Answer = Counter[tuple[Any, ...]]


def within(cond: Condition, aliases: Sequence[str]) -> Condition:
    """The conjuncts that mention only the given occurrences."""
    kept = [c for c in conjuncts(cond) if {r.occurrence for r in refs(c)} <= set(aliases)]
    return And(tuple(kept)) if kept else TRUE


class StreamSynopsis:
    """The rows, counts and sums kept of one occurrence."""

    def __init__(self, need: Need, plan: StreamPlan) -> None:
        self.plan = plan
        self.part: Part = need.part
        self._filter = compile_condition(within(self.part.condition, [plan.alias]), {plan.alias: 0})
        self._measures = [
            (m.summed, compile_expression(m.expression, {plan.alias: 0})) for m in plan.measures
        ]
        self._derived = {
            r: compile_expression(e, {plan.alias: 0})
            for r, e in self.part.derived
            if r.occurrence == plan.alias
        }
        self._own = [n.ref for n in self.part.closure.nodes if n.ref.occurrence == plan.alias]
        self.counts: dict[Any, list[Any]] = {}  # class → [first row, count, (non-null, sum) of each]
        self.rows: dict[Any, list[Row]] = {}  # class → rows kept

    def entries(self) -> int:
        return len(self.counts) if self.plan.counted else sum(len(r) for r in self.rows.values())

    def list_kept(self) -> tuple[Any, ...]:
        """What is kept, by class, without measures."""
        return {key: (row, count) for key, (row, count, _) in self.counts.items()}, self.rows

    def add(self, row: Row) -> None:
        points = {ref: self._point(ref, row) for ref in self._own}
        if self._filter((row,)) is not True or not self._alive(points):
            return
        row = dict(row)  # rows are distinguished by identity
        if not all(c.admits(self._of(c.column, row, points)) for c in (*self.plan.classes, *self.plan.zoned)):
            return
        key = tuple(code.of(self._of(code.column, row, points)) for code in self.plan.classes)
        if self.plan.counted:
            entry = self.counts.setdefault(key, [row, 0, [[0, 0] for _ in self._measures]])
            entry[1] += 1
            for total, (summed, measure) in zip(entry[2], self._measures, strict=True):
                value = measure((row,))
                if value is not None:
                    total[0] += 1
                    total[1] += value if summed else 0
            return
        self._keep(key, row, points)

    def _of(self, ref: Ref, row: Row, points: Mapping[Ref, Fraction | None]) -> Fraction | None:
        return points[ref] if ref in points else self._point(ref, row)

    def _point(self, ref: Ref, row: Row) -> Fraction | None:
        value = self._derived[ref]((row,)) if ref in self._derived else row[ref.column]
        return None if value is None else self.part.points.of(value)

    def _alive(self, points: Mapping[Ref, Fraction | None]) -> bool:
        """The row satisfies what the closure implies for this stream's columns alone."""
        closure = self.part.closure
        for a in points:
            x = points[a]
            if x is None:
                if not self.part.can_be_null(a):
                    return False
                continue
            if x not in closure.range(a):
                return False
            for b in points:
                y = points[b]
                if a == b or y is None or a not in self.part.non_null or b not in self.part.non_null:
                    continue
                if closure.origin[closure.index[a]] != closure.origin[closure.index[b]]:
                    continue
                bound = closure.bound(a, b)
                if bound is not None and (x - y > bound[0] or (bound[1] and x - y == bound[0])):
                    return False
        return True

    def _keep(self, key: tuple[Any, ...], row: Row, points: Mapping[Ref, Fraction | None]) -> None:
        classes = [code.of(points[code.column]) for code in self.plan.zoned]
        zones = tuple(UNDER if c == BELOW else AMONG if isinstance(c, Fraction) else OVER for c in classes)
        pattern = next((p for p in self.plan.patterns if p.zones == zones), None)
        assert pattern is not None, f"no pattern for zones {zones} of {self.plan}"
        if not pattern.extremes:
            self._select((key, tuple(classes)), row, None)
        for number, extreme in enumerate(pattern.extremes):
            requirements = self._requirements(extreme, row)
            spread: Any = ()
            if extreme.spreads > 1:
                assert requirements is not None, "columns of several requirements are compared, so never NULL"
                spread = tuple((d[0] - requirements[0][0], d[1]) for d in requirements)
            self._select((key, tuple(classes), number, spread), row, extreme)

    def _requirements(self, extreme: Extreme, row: Row) -> tuple[tuple[Fraction, bool], ...] | None:
        points = [self._point(c, row) for c in extreme.columns]
        if any(p is None for p in points):
            return None
        return extreme.requirements([p for p in points if p is not None])

    def _select(self, key: Any, row: Row, extreme: Extreme | None) -> None:
        """Keep the best row and, recursively, the best that differs from it in each ``<>`` column."""
        rows = [*self.rows.get(key, []), row]
        # A row whose ranked column is NULL is worse than every other.
        absent = [r for r in rows if extreme and self._requirements(extreme, r) is None]
        rows = [r for r in rows if not any(r is a for a in absent)] or absent[:1]
        rows.sort(key=lambda r: self._rank(extreme, r))
        kept: list[Row] = []
        self._tree(rows, list(self.plan.differing), kept)
        self.rows[key] = kept

    def _rank(self, extreme: Extreme | None, row: Row) -> Any:
        requirements = self._requirements(extreme, row) if extreme else None
        first = requirements[0][0] if requirements else Fraction(0)
        rank = first if extreme is None or extreme.smallest else -first
        return (rank, tuple(str(row[r.column]) for r in self.plan.differing))

    def _tree(self, rows: list[Row], columns: list[Ref], kept: list[Row]) -> None:
        if not rows:
            return
        best = rows[0]
        if not any(best is k for k in kept):
            kept.append(best)
        for column in columns:
            rest = [c for c in columns if c != column]
            self._tree([r for r in rows if r[column.column] != best[column.column]], rest, kept)

    def contents(self) -> list[tuple[Row, int, list[list[Any]]]]:
        if self.plan.counted:
            return [(row, count, sums) for row, count, sums in self.counts.values()]
        return [(row, 1, []) for rows in self.rows.values() for row in rows]


class NeedSynopsis:
    def __init__(self, plan: SynopsisPlan) -> None:
        self.need = plan.need
        self.scope = [a for a in plan.need.scope if a != THRESHOLD]
        self.streams = {s.alias: StreamSynopsis(plan.need, s) for s in plan.streams}
        self.tables = {o.alias: o.table.name for o in plan.need.part.select.occurrences}

    def add(self, stream: str, row: Row) -> None:
        for alias, synopsis in self.streams.items():
            if self.tables[alias] == stream:
                synopsis.add(row)


class NaiveSelect:
    """One select, answered from its synopses."""

    def __init__(self, plan: ExactSelectPlan) -> None:
        self.plan = plan
        self.select = plan.select
        self.needs = [NeedSynopsis(n) for n in plan.needs]
        self.aggregate = is_aggregate(plan.select)
        self.passed: Answer = Counter()  # results of rows that are answered on their own and not kept

    def add(self, stream: str, row: Row) -> None:
        for need in self.needs:
            need.add(stream, row)
            if not need.streams:
                self._pass(need, stream, row)

    def _pass(self, need: NeedSynopsis, stream: str, row: Row) -> None:
        (alias,) = need.scope
        if need.tables[alias] != stream:
            return
        matcher = Matcher([alias], need.need.part.condition)
        part = need.need.part
        items = [compile_expression(part.rewrite(i.expression), matcher.slots) for i in self.select.items]
        for match in matcher.matches([[row]]):
            self.passed[tuple(i(match) for i in items)] += 1

    def entries(self) -> int:
        remembered = len(self.answer()) if self.plan.results else 0
        return remembered + sum(synopsis.entries() for synopsis in self._merged())

    def _merged(self) -> list[StreamSynopsis]:
        """Needs that share the synopsis of a stream hold it once; their own copies must be equal."""
        seen: dict[Any, StreamSynopsis] = {}
        for synopsis in (each for need in self.needs for each in need.streams.values()):
            shared = seen.setdefault(sharing_key(synopsis.part, synopsis.plan), synopsis)
            assert shared.list_kept() == synopsis.list_kept()
        return list(seen.values())

    def answer(self) -> Answer:
        if self.aggregate:
            return self._grouped()
        out: Answer = Counter(self.passed)
        for need in self.needs:
            if not need.streams:
                continue
            slots = {a: i for i, a in enumerate(need.scope)}
            items = [
                compile_expression(need.need.part.rewrite(i.expression), slots) for i in self.select.items
            ]
            for match, weight in matches(need):
                out[tuple(i(match) for i in items)] += weight
        return Counter(dict.fromkeys(out, 1)) if self.plan.distinct else out

    # --- aggregates --------------------------------------------------------------------------------

    def _grouped(self) -> Answer:
        aggregates = find_aggregates(self.select)
        finish = compile_result_row(self.select, aggregates)
        tables = [self._one(a) for a in aggregates] or [self._groups()]
        keys = {key for table in tables for key in table}
        if self.select.group_by is None:
            keys.add(())
        out: Answer = Counter()
        for key in keys:
            values = [t.get(key, _empty(a)) for t, a in zip(tables, aggregates, strict=False)]
            row = finish(key, values)
            if row is not None:
                out[row] += 1
        return out

    def _groups(self) -> dict[tuple[Any, ...], Any]:
        return {key: None for need in self.needs for key, _, _ in self._joined([need])}

    def _one(self, aggregate: Aggregate) -> dict[tuple[Any, ...], Any]:
        """group → value of one aggregate."""
        parts: dict[int, list[NeedSynopsis]] = {}
        for n in self.needs:
            if n.need.aggregate == aggregate:
                parts.setdefault(_part_key(n.need), []).append(n)
        counts: dict[tuple[Any, ...], list[Any]] = {}
        for needs in parts.values():
            for key, values, (count, total) in self._joined(needs, aggregate):
                entry = counts.setdefault(key, [Counter(), 0, 0])
                entry[0].update(values)
                entry[1] += count
                entry[2] += total
        return {key: _finish(aggregate, *entry) for key, entry in counts.items()}

    def _joined(
        self, needs: list[NeedSynopsis], aggregate: Aggregate | None = None
    ) -> Iterator[tuple[tuple[Any, ...], Counter[Any], tuple[int, Any]]]:
        """For each group: the multiset of argument values where known, and count and sum."""
        part = needs[0].need.part
        scope = [a for n in needs for a in n.scope]
        slots = {a: i for i, a in enumerate(scope)}
        groups = [compile_expression(part.rewrite(g), slots) for g in self.select.group_by or ()]
        argument = aggregate.argument if aggregate else None
        value_of = compile_expression(part.rewrite(argument), slots) if argument is not None else None
        condition_ = within(part.condition, scope)
        contents = [s.contents() for n in needs for s in n.streams.values()]
        weighted = [n.need.counted for n in needs for _ in n.streams]
        index = {id(row): (w, sums) for rows in contents for row, w, sums in rows}
        plans = [n.streams[a].plan for n in needs for a in n.scope]
        carriers = [i for i, plan in enumerate(plans) if plan.measures]
        seen: set[Any] = set()
        for match in Matcher(scope, condition_).matches([[r for r, _, _ in rows] for rows in contents]):
            key = tuple(g(match) for g in groups)
            counted = tuple(id(r) for r, w in zip(match, weighted, strict=True) if w)
            if any(weighted):
                if (key, counted) in seen:  # of the uncounted streams only existence matters
                    continue
                seen.add((key, counted))
            weight = 1
            for r, w in zip(match, weighted, strict=True):
                weight *= index[id(r)][0] if w else 1
            values: Counter[Any] = Counter()
            count, total = weight, 0
            if argument is not None:
                if carriers and any(weighted):
                    carrier = carriers[0]
                    own = index[id(match[carrier])]
                    place = _carried(needs, scope[carrier], argument)
                    nonnull, summed = own[1][place]
                    others = weight // own[0]
                    count, total = nonnull * others, summed * others
                else:
                    value = value_of(match) if value_of else None
                    if value is not None:
                        values[value] += weight
                    count = weight if value is not None else 0
                    total = value * weight if value is not None and not isinstance(value, str) else 0
            yield key, values, (count, total)


def _carried(needs: list[NeedSynopsis], alias: str, argument: Expr) -> int:
    for n in needs:
        if alias in n.streams:
            return [m.expression for m in n.streams[alias].plan.measures].index(argument)
    raise KeyError(alias)


def _part_key(need: Need) -> int:
    return hash(need.part.condition)


def _finish(aggregate: Aggregate, values: Counter[Any], count: int, total: Any) -> Any:
    match aggregate.function:
        case "COUNT" if not aggregate.distinct:
            return count
        case "SUM" if values or count:
            return total
        case "AVG" if count:
            return float(Fraction(total) / count)
    return aggregate_values(aggregate, values)


def _empty(aggregate: Aggregate) -> Any:
    return aggregate_values(aggregate, {})


class Naive:
    """A whole query, answered from the synopses of its plan."""

    def __init__(self, plan: ExactPlan) -> None:
        self.query = plan.query
        self.selects = [NaiveSelect(s) for s in plan.selects]

    def add(self, stream: str, row: Row) -> None:
        for select in self.selects:
            select.add(stream, row)

    def entries(self) -> int:
        return sum(s.entries() for s in self.selects)

    def answer(self) -> Answer:
        selects = iter(self.selects)
        total: Answer = Counter()
        for term in self.query.terms:
            rows: Answer = Counter()
            for _ in term.selects:
                rows.update(next(selects).answer())
            total.update(Counter(dict.fromkeys(rows, 1)) if term.distinct else rows)
        return total


def matches(need: NeedSynopsis) -> Iterator[tuple[tuple[Row, ...], int]]:
    """The matches of the kept rows, with the number of matches that they represent."""
    contents = [need.streams[a].contents() for a in need.scope]
    weight = {id(row): w for rows in contents for row, w, _ in rows}
    found = Matcher(need.scope, within(need.need.part.condition, need.scope))
    for match in found.matches([[r for r, _, _ in rows] for rows in contents]):
        product = 1
        for row in match:
            product *= weight[id(row)]
        yield match, product
