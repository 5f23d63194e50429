"""The reference semantics: evaluates a query on finite streams by trying every combination of rows.

Conditions are three-valued as in SQL.  Witnesses are verified against it; it is meant for small inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from millpond.query.aggregate_functions import aggregate_values, drop_nulls, is_tuple
from millpond.query.expressions import (
    Aggregate,
    And,
    Arithmetic,
    Choice,
    Comparison,
    Condition,
    Expr,
    IsNull,
    Literal,
    Negation,
    Not,
    NotTrue,
    Op,
    Or,
    Ref,
    Truth,
)
from millpond.query.model import Query, Select
from millpond.query.trees import (
    conjuncts,
    find_aggregates,
    is_aggregate,
    refs,
    substitute,
)

Row = Mapping[str, Any]
Match = tuple[Row, ...]
Data = Mapping[str, Sequence[Row]]
Value = Any
Valuer = Callable[[Sequence[Row]], Value]
Truther = Callable[[Sequence[Row]], bool | None]


def compile_expression(expr: Expr, slots: Mapping[str, int]) -> Valuer:
    """Compile an expression to a function of a match (one row for each occurrence)."""
    match expr:
        case Literal(value=value):
            return lambda _: value
        case Ref(occurrence=alias, column=column):
            slot = slots[alias]
            return lambda rows: rows[slot].get(column)
        case Negation(operand=operand):
            inner = compile_expression(operand, slots)
            return lambda rows: None if (v := inner(rows)) is None else -v
        case Arithmetic(operator=op, left=left, right=right):
            a, b = compile_expression(left, slots), compile_expression(right, slots)
            return lambda rows: _arithmetic(op, a(rows), b(rows))
        case Choice():
            parts = (expr.condition, expr.chosen, expr.otherwise)
            test, chosen, otherwise = (compile_expression(each, slots) for each in parts)
            return lambda rows: chosen(rows) if test(rows) else otherwise(rows)
        case Aggregate():
            raise ValueError("an aggregate has no value in a single match")


def _arithmetic(op: str, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    if isinstance(right, timedelta):  # a timestamp and a duration
        return left + right if op == "+" else left - right
    if hasattr(left, "toordinal"):  # a date and a number of days
        return type(left).fromordinal(left.toordinal() + (right if op == "+" else -right))
    if {type(left), type(right)} == {float, Decimal}:
        left, right = float(left), float(right)
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return None if right == 0 else left / right
        case "%":
            return None if right == 0 else _remainder(left, right)
    raise ValueError(op)


def _remainder(left: Any, right: Any) -> Any:
    """The remainder has the sign of the dividend."""
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def compile_condition(cond: Condition, slots: Mapping[str, int]) -> Truther:
    """Compile a condition to a function from a match to True, False or None (unknown)."""
    match cond:
        case Truth(value=value):
            return lambda _: value
        case Comparison(left=Ref() as left, operator=op, right=Ref() as right):
            return _compile_ref_comparison(left, op, right, slots)
        case Comparison(left=left, operator=op, right=right):
            a, b, compare = compile_expression(left, slots), compile_expression(right, slots), op.function

            def compare_values(rows: Sequence[Row]) -> bool | None:
                x, y = a(rows), b(rows)
                return None if x is None or y is None else compare(x, y)

            return compare_values
        case IsNull(operand=operand):
            inner = compile_expression(operand, slots)
            return lambda rows: inner(rows) is None
        case Not(operand=negated):
            truth = compile_condition(negated, slots)
            return lambda rows: None if (t := truth(rows)) is None else not t
        case NotTrue(operand=denied):
            truth = compile_condition(denied, slots)
            return lambda rows: truth(rows) is not True
        case And(operands=operands):
            return _compile_connective([compile_condition(c, slots) for c in operands], decisive=False)
        case Or(operands=operands):
            return _compile_connective([compile_condition(c, slots) for c in operands], decisive=True)


def _compile_ref_comparison(left: Ref, op: Op, right: Ref, slots: Mapping[str, int]) -> Truther:
    """A comparison of two columns, the condition that a join tests most often."""
    compare = op.function
    (i, x), (j, y) = ((slots[ref.occurrence], ref.column) for ref in (left, right))

    def compare_columns(rows: Sequence[Row]) -> bool | None:
        a, b = rows[i].get(x), rows[j].get(y)
        return None if a is None or b is None else compare(a, b)

    return compare_columns


def _compile_connective(parts: list[Truther], decisive: bool) -> Truther:
    def connect(rows: Sequence[Row]) -> bool | None:
        unknown = False
        for part in parts:
            truth = part(rows)
            if truth is decisive:
                return decisive
            unknown = unknown or truth is None
        return None if unknown else not decisive

    return connect


def compile_argument(aggregate: Aggregate, slots: Mapping[str, int]) -> Valuer:
    """Compile the arguments of an aggregate to a function of a match; None if it ignores the match."""
    columns = [each for each in aggregate.arguments if not isinstance(each, Literal)]
    values = [compile_expression(each, slots) for each in columns]
    if not values:
        return lambda _: 1
    if not is_tuple(aggregate):
        return values[0]
    return lambda rows: drop_nulls(aggregate, tuple(value(rows) for value in values))


class TooManyStepsError(Exception):
    """An evaluation has tried more rows than it may."""


@dataclass
class StepLimit:
    """How many rows evaluations may still try in all; a join tries many for each row that it has."""

    steps: int

    def spend(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise TooManyStepsError


class Matcher:
    """Finds the matches of a condition: one row for each occurrence such that the condition is true.

    It binds occurrence ``first`` first, and then always the one with the most conditions to test.  Conditions
    on one occurrence are tested first.
    """

    def __init__(
        self, aliases: Sequence[str], cond: Condition, first: int = 0, limit: StepLimit | None = None
    ) -> None:
        self._limit = limit
        self.slots = {alias: i for i, alias in enumerate(aliases)}
        self._possible = True
        waiting: list[tuple[frozenset[int], Truther]] = []
        for part in conjuncts(cond):
            used = frozenset(self.slots[r.occurrence] for r in refs(part))
            truth = compile_condition(part, self.slots)
            if used:
                waiting.append((used, truth))
            elif truth(()) is not True:
                self._possible = False
        self._alone = [[truth for used, truth in waiting if used == {i}] for i in range(len(aliases))]
        waiting = [(used, truth) for used, truth in waiting if len(used) > 1]
        self._levels: list[tuple[int, list[Truther]]] = []
        bound: frozenset[int] = frozenset()
        left = list(range(len(aliases)))
        while left:
            ready: dict[int, list[Truther]] = {slot: [] for slot in left}
            for used, truth in waiting:
                if len(missing := used - bound) == 1:
                    ready[next(iter(missing))].append(truth)
            slot = max(left, key=lambda s: (not bound and s == first, len(ready[s]), -s))
            bound |= {slot}
            left.remove(slot)
            waiting = [(used, truth) for used, truth in waiting if not used <= bound]
            self._levels.append((slot, ready[slot]))

    def matches(self, rows: Sequence[Sequence[Row]]) -> Iterator[Match]:
        """All matches; ``rows`` are the rows of each occurrence, in order."""
        if not self._possible:
            return
        nothing: Row = {}
        if not rows:
            yield ()
            return
        match = [nothing] * len(rows)
        yield from self._extend(match, 0, [self._filter(match, slot, each) for slot, each in enumerate(rows)])

    def _filter(self, match: list[Row], slot: int, rows: Sequence[Row]) -> Sequence[Row]:
        """The rows of an occurrence that pass the conditions on it alone."""
        if not self._alone[slot]:
            return rows
        kept = []
        for row in rows:
            match[slot] = row
            if all(test(match) is True for test in self._alone[slot]):
                kept.append(row)
        return kept

    def _extend(self, match: list[Row], level: int, rows: Sequence[Sequence[Row]]) -> Iterator[Match]:
        slot, tests = self._levels[level]
        if self._limit is not None:
            self._limit.spend(len(rows[slot]))
        for row in rows[slot]:
            match[slot] = row
            for test in tests:
                if test(match) is not True:
                    break
            else:
                if level + 1 < len(rows):
                    yield from self._extend(match, level + 1, rows)
                else:
                    yield tuple(match)


def answer(query: Query, data: Data) -> Counter[tuple[Value, ...]]:
    """The multiset of result rows; ``data`` are the rows of each table, by name."""
    evaluation = Evaluation(query)
    evaluation.feed(data)
    return evaluation.answer()


class Evaluation:
    """An incremental evaluation: earlier matches are kept, and only new rows are tried.

    It raises TooManyStepsError when the ``limit`` is reached, if there is one.
    """

    def __init__(self, query: Query, limit: StepLimit | None = None) -> None:
        self._terms = [
            (term.distinct, [_build_matches(s, limit) for s in term.selects]) for term in query.terms
        ]

    def copy(self) -> Evaluation:
        """An independent copy of the state."""
        twin = copy(self)
        twin._terms = [(distinct, [m.copy() for m in selects]) for distinct, selects in self._terms]
        return twin

    def feed(self, rows: Data) -> None:
        """Add rows, by stream name."""
        for _, selects in self._terms:
            for matched in selects:
                matched.feed(rows)

    def answer(self) -> Counter[tuple[Value, ...]]:
        """The multiset of result rows on all rows fed so far."""
        total: Counter[tuple[Value, ...]] = Counter()
        for distinct, selects in self._terms:
            rows: Counter[tuple[Value, ...]] = Counter()
            for matched in selects:
                rows.update(matched.answer())
            total.update(dict.fromkeys(rows, 1) if distinct else rows)
        return total


class _SelectMatches:
    """The rows of each occurrence of a select, and the values that the answer needs of their matches."""

    def __init__(self, select: Select, limit: StepLimit | None) -> None:
        self._select = select
        aliases = [o.alias for o in select.occurrences]
        self._matchers = [Matcher(aliases, select.where, first, limit) for first in range(len(aliases))]
        self._rows: list[list[Row]] = [[] for _ in aliases]
        self._aggregates = find_aggregates(select)
        wanted = [item.expression for item in select.items]
        if is_aggregate(select):
            wanted = [*_find_group_columns(select)]
        slots = self._matchers[0].slots
        self._wanted = [compile_expression(e, slots) for e in wanted]
        self._wanted += [compile_argument(a, slots) for a in self._aggregates]
        self._found: Counter[tuple[Value, ...]] = Counter()

    def copy(self) -> _SelectMatches:
        twin = copy(self)
        twin._rows, twin._found = [list(rows) for rows in self._rows], Counter(self._found)
        return twin

    def feed(self, rows: Data) -> None:
        """Add the matches with a new row, once for each occurrence that can be the first with a new row."""
        old = [list(known) for known in self._rows]
        new = [rows.get(o.table.name, ()) for o in self._select.occurrences]
        for known, more in zip(self._rows, new, strict=True):
            known.extend(more)
        for first, matcher in enumerate(self._matchers):
            if new[first]:
                matches = matcher.matches([*old[:first], new[first], *self._rows[first + 1 :]])
                self._found.update(tuple(value(match) for value in self._wanted) for match in matches)

    def answer(self) -> Counter[tuple[Value, ...]]:
        return self._group() if is_aggregate(self._select) else self._found

    def _group(self) -> Counter[tuple[Value, ...]]:
        keys = len(_find_group_columns(self._select))
        found_rows = self._found if self._select.session is None else _merge_sessions(self._found, keys)
        groups: dict[tuple[Value, ...], list[Counter[Value]]] = {}
        if self._select.group_by is None:
            groups[()] = [Counter() for _ in self._aggregates]
        for found, count in found_rows.items():
            group = groups.setdefault(found[:keys], [Counter() for _ in self._aggregates])
            for values, value in zip(group, found[keys:], strict=True):
                if value is not None:
                    values[value] += count
        finish = compile_result_row(self._select, self._aggregates)
        out: Counter[tuple[Value, ...]] = Counter()
        for key, group in groups.items():
            row = finish(key, [aggregate_values(*pair) for pair in zip(self._aggregates, group, strict=True)])
            if row is not None:
                out[row] += 1
        return out


def _find_group_columns(select: Select) -> tuple[Ref, ...]:
    """The columns of GROUP BY; the last two are the start and the end of a session, if there is one."""
    edges = (select.session.start, select.session.end) if select.session is not None else ()
    return (*(select.group_by or ()), *edges)


def _merge_sessions(found: Mapping[tuple[Value, ...], int], keys: int) -> Counter[tuple[Value, ...]]:
    """The matches with the edges of their session, instead of those of a session of one row.

    ``keys`` is the number of group columns; the last two are the edges.  A row that comes no later than the
    end of a session belongs to it.
    """
    merged: Counter[tuple[Value, ...]] = Counter()
    by_group: dict[tuple[Value, ...], list[tuple[Value, ...]]] = {}
    for row in found:
        if row[keys - 2] is not None:
            by_group.setdefault(row[: keys - 2], []).append(row)
    for group, rows in by_group.items():
        rows.sort(key=lambda row: row[keys - 2])
        sessions: list[list[tuple[Value, ...]]] = []
        for row in rows:
            if sessions and row[keys - 2] <= sessions[-1][-1][keys - 1]:
                sessions[-1].append(row)
            else:
                sessions.append([row])
        for session in sessions:
            edges = session[0][keys - 2], session[-1][keys - 1]
            for row in session:
                merged[(*group, *edges, *row[keys:])] += found[row]
    return merged


class _JoinedMatches(_SelectMatches):
    """A select with outer joins or EXISTS.  A new row can end matches, so all are found again."""

    def __init__(self, select: Select, limit: StepLimit | None) -> None:
        super().__init__(select, limit)
        self._data: dict[str, list[Row]] = {o.table.name: [] for o in select.every_occurrence}
        self._ons = [compile_condition(join.on, self._matchers[0].slots) for join in select.joins]
        self._where = compile_condition(select.where, self._matchers[0].slots)
        aliases = [o.alias for o in select.occurrences]
        self._tests = [
            (Matcher([*aliases, *(o.alias for o in each.occurrences)], each.condition), each)
            for each in select.exists
        ]

    def copy(self) -> _JoinedMatches:
        twin = copy(self)
        twin._data = {name: list(rows) for name, rows in self._data.items()}
        return twin

    def feed(self, rows: Data) -> None:
        for name, known in self._data.items():
            known.extend(rows.get(name, ()))

    def answer(self) -> Counter[tuple[Value, ...]]:
        matches = (match for match in self._joined() if self._passes(match))
        self._found = Counter(tuple(value(match) for value in self._wanted) for match in matches)
        return super().answer()

    def _passes(self, match: Match) -> bool:
        """Whether WHERE is true for the match, with its EXISTS."""
        if self._where(match) is not True:
            return False
        for matcher, test in self._tests:
            rows = [[row] for row in match] + [self._data[o.table.name] for o in test.occurrences]
            if (next(matcher.matches(rows), None) is not None) == test.negated:
                return False
        return True

    def _joined(self) -> Iterator[Match]:
        """The matches of FROM, from left to right; a row of NULLs stands for a partner that is missing."""
        rows = [self._data[o.table.name] for o in self._select.occurrences]
        if not self._select.joins:
            yield from self._matchers[0].matches(rows)
            return
        found: list[Match] = [(row,) for row in rows[0]]
        for width, (join, on, right) in enumerate(
            zip(self._select.joins, self._ons, rows[1:], strict=True), 1
        ):
            pairs = [
                (i, j)
                for i, left in enumerate(found)
                for j, row in enumerate(right)
                if on((*left, row)) is True
            ]
            joined = [(*found[i], right[j]) for i, j in pairs]
            nothing: Row = {}
            if join.side.keeps_left:
                matched = {i for i, _ in pairs}
                joined += [(*left, nothing) for i, left in enumerate(found) if i not in matched]
            if join.side.keeps_right:
                matched = {j for _, j in pairs}
                joined += [((nothing,) * width) + (row,) for j, row in enumerate(right) if j not in matched]
            found = joined
        yield from found


def _build_matches(select: Select, limit: StepLimit | None) -> _SelectMatches:
    kind = _JoinedMatches if select.joins or select.exists else _SelectMatches
    return kind(select, limit)


def compile_result_row(
    select: Select, aggregates: Sequence[Aggregate]
) -> Callable[[Sequence[Value], Sequence[Value]], tuple[Value, ...] | None]:
    """A function from a group's key and aggregates to its result row; None if HAVING excludes the group."""
    stand_in: dict[Expr, Ref] = {a: Ref("", f"a{i}") for i, a in enumerate(aggregates)}
    stand_in |= {ref: Ref("", f"g{i}") for i, ref in enumerate(_find_group_columns(select))}
    slots = {"": 0}
    columns = [compile_expression(substitute(item.expression, stand_in), slots) for item in select.items]
    having = compile_condition(substitute(select.having, stand_in), slots)

    def finish(group: Sequence[Value], values: Sequence[Value]) -> tuple[Value, ...] | None:
        row = {f"a{i}": v for i, v in enumerate(values)} | {f"g{i}": v for i, v in enumerate(group)}
        return tuple(column((row,)) for column in columns) if having((row,)) is True else None

    return finish
