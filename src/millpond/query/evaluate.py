"""What a query means: its answer on finite streams, by trying every combination of rows.

Conditions are three-valued as in SQL.  This is the definition against which certificates are
confirmed; it is made for small inputs, not for speed.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from millpond.query.model import (
    Aggregate,
    And,
    Arithmetic,
    Comparison,
    Condition,
    Expr,
    IsNull,
    Item,
    Literal,
    Negation,
    Not,
    NotTrue,
    Op,
    Or,
    Query,
    Ref,
    Select,
    Truth,
    walk,
)

Row = Mapping[str, Any]
Match = tuple[Row, ...]
Data = Mapping[str, Sequence[Row]]
Value = Any
Valuer = Callable[[Match], Value]
Truther = Callable[[Match], bool | None]

_COMPARE: dict[Op, Callable[[Any, Any], bool]] = {
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.EQ: operator.eq,
    Op.GE: operator.ge,
    Op.GT: operator.gt,
    Op.NE: operator.ne,
}


def expression(expr: Expr, slots: Mapping[str, int]) -> Valuer:
    """A function from a match (one row an occurrence) to the value of ``expr``."""
    match expr:
        case Literal(value=value):
            return lambda _: value
        case Ref(occurrence=alias, column=column):
            slot = slots[alias]
            return lambda rows: rows[slot].get(column)
        case Negation(operand=operand):
            inner = expression(operand, slots)
            return lambda rows: None if (v := inner(rows)) is None else -v
        case Arithmetic(operator=op, left=left, right=right):
            a, b = expression(left, slots), expression(right, slots)
            return lambda rows: _arithmetic(op, a(rows), b(rows))
        case Aggregate():
            raise ValueError("an aggregate has no value in a single match")


def _arithmetic(op: str, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    if isinstance(right, timedelta):  # a moment and a length of time
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


def condition(cond: Condition, slots: Mapping[str, int]) -> Truther:
    """A function from a match to True, False or None (unknown)."""
    match cond:
        case Truth(value=value):
            return lambda _: value
        case Comparison(left=left, operator=op, right=right):
            a, b, compare = expression(left, slots), expression(right, slots), _COMPARE[op]

            def compared(rows: Match) -> bool | None:
                x, y = a(rows), b(rows)
                return None if x is None or y is None else compare(x, y)

            return compared
        case IsNull(operand=operand):
            inner = expression(operand, slots)
            return lambda rows: inner(rows) is None
        case Not(operand=negated):
            truth = condition(negated, slots)
            return lambda rows: None if (t := truth(rows)) is None else not t
        case NotTrue(operand=denied):
            truth = condition(denied, slots)
            return lambda rows: truth(rows) is not True
        case And(operands=operands):
            return _connective([condition(c, slots) for c in operands], decisive=False)
        case Or(operands=operands):
            return _connective([condition(c, slots) for c in operands], decisive=True)


def _connective(parts: list[Truther], decisive: bool) -> Truther:
    def connected(rows: Match) -> bool | None:
        unknown = False
        for part in parts:
            truth = part(rows)
            if truth is decisive:
                return decisive
            unknown = unknown or truth is None
        return None if unknown else not decisive

    return connected


def conjuncts(cond: Condition) -> list[Condition]:
    """The operands of the topmost AND, flattened."""
    out: list[Condition] = []
    todo = [cond]
    while todo:
        c = todo.pop()
        if isinstance(c, And):
            todo.extend(reversed(c.operands))
        elif c != Truth(True):
            out.append(c)
    return out


def refs(node: Expr | Condition) -> frozenset[Ref]:
    """Every column that an expression or condition mentions."""
    return frozenset(n for n in walk(node) if isinstance(n, Ref))


class Matcher:
    """Finds the matches of a conjunction: one row an occurrence such that the condition is true."""

    def __init__(self, aliases: Sequence[str], cond: Condition) -> None:
        self.slots = {alias: i for i, alias in enumerate(aliases)}
        self._tests: list[list[Truther]] = [[] for _ in aliases]
        self._possible = True
        for part in conjuncts(cond):
            used = [self.slots[r.occurrence] for r in refs(part)]
            truth = condition(part, self.slots)
            if used:
                self._tests[max(used)].append(truth)
            elif truth(()) is not True:
                self._possible = False

    def matches(self, rows: Sequence[Sequence[Row]]) -> Iterator[Match]:
        """All matches, ``rows`` holding the rows of each occurrence in order."""
        if not self._possible:
            return
        yield from self._extend((), rows)

    def _extend(self, match: Match, rows: Sequence[Sequence[Row]]) -> Iterator[Match]:
        level = len(match)
        if level == len(rows):
            yield match
            return
        tests = self._tests[level]
        for row in rows[level]:
            longer = (*match, row)
            if all(test(longer) is True for test in tests):
                yield from self._extend(longer, rows)


def aggregates_of(select: Select) -> list[Aggregate]:
    """The aggregates of the select list and of HAVING, each once, in order."""
    places = [*(item.expression for item in select.items), select.having]
    return list(dict.fromkeys(n for place in places for n in walk(place) if isinstance(n, Aggregate)))


def is_aggregate(select: Select) -> bool:
    """The select groups its rows, explicitly or by an aggregate."""
    return select.group_by is not None or bool(aggregates_of(select))


def answer(query: Query, data: Data) -> Counter[tuple[Value, ...]]:
    """The multiset of result rows on the rows seen so far (``data`` by stream name)."""
    return Evaluator(query).answer(data)


class Evaluator:
    """A query made ready to be answered on many inputs."""

    def __init__(self, query: Query) -> None:
        self._terms = [(term.distinct, [_SelectEvaluator(s) for s in term.selects]) for term in query.terms]

    def answer(self, data: Data) -> Counter[tuple[Value, ...]]:
        total: Counter[tuple[Value, ...]] = Counter()
        for distinct, selects in self._terms:
            rows: Counter[tuple[Value, ...]] = Counter()
            for select in selects:
                rows.update(select.answer(data))
            total.update(dict.fromkeys(rows, 1) if distinct else rows)
        return total


class _SelectEvaluator:
    def __init__(self, select: Select) -> None:
        self._select = select
        self._matcher = Matcher([o.alias for o in select.occurrences], select.where)
        self._grouped = is_aggregate(select)
        if not self._grouped:
            self._columns = [expression(item.expression, self._matcher.slots) for item in select.items]

    def answer(self, data: Data) -> Counter[tuple[Value, ...]]:
        matches = self._matcher.matches([data.get(o.table.name, ()) for o in self._select.occurrences])
        if self._grouped:
            return _grouped(self._select, self._matcher.slots, matches)
        return Counter(tuple(column(match) for column in self._columns) for match in matches)


def _grouped(
    select: Select, slots: Mapping[str, int], matches: Iterator[Match]
) -> Counter[tuple[Value, ...]]:
    keys = [expression(ref, slots) for ref in select.group_by or ()]
    groups: dict[tuple[Value, ...], list[Match]] = {} if select.group_by is not None else {(): []}
    for match in matches:
        groups.setdefault(tuple(key(match) for key in keys), []).append(match)
    aggregates = aggregates_of(select)
    finish = result_row(select, aggregates)
    out: Counter[tuple[Value, ...]] = Counter()
    for group, members in groups.items():
        values = [aggregate_value(a, members, slots) for a in aggregates]
        row = finish(group, values)
        if row is not None:
            out[row] += 1
    return out


def result_row(
    select: Select, aggregates: Sequence[Aggregate]
) -> Callable[[Sequence[Value], Sequence[Value]], tuple[Value, ...] | None]:
    """From a group's key and its aggregates' values to its result row; None where HAVING refuses it."""
    stand_in: dict[Expr, Ref] = {a: Ref("", f"a{i}") for i, a in enumerate(aggregates)}
    stand_in |= {ref: Ref("", f"g{i}") for i, ref in enumerate(select.group_by or ())}
    slots = {"": 0}
    columns = [expression(substituted(item.expression, stand_in), slots) for item in select.items]
    having = condition(substituted_condition(select.having, stand_in), slots)

    def finish(group: Sequence[Value], values: Sequence[Value]) -> tuple[Value, ...] | None:
        row = {f"a{i}": v for i, v in enumerate(values)} | {f"g{i}": v for i, v in enumerate(group)}
        return tuple(column((row,)) for column in columns) if having((row,)) is True else None

    return finish


def substituted(expr: Expr, by: Mapping[Expr, Ref]) -> Expr:
    """The expression with columns in place of the given sub-expressions."""
    if expr in by:
        return by[expr]
    match expr:
        case Arithmetic(operator=op, left=left, right=right):
            return Arithmetic(op, substituted(left, by), substituted(right, by))
        case Negation(operand=operand):
            return Negation(substituted(operand, by))
        case _:
            return expr


def substituted_condition(cond: Condition, by: Mapping[Expr, Ref]) -> Condition:
    match cond:
        case Comparison(left=left, operator=op, right=right):
            return Comparison(substituted(left, by), op, substituted(right, by))
        case IsNull(operand=operand):
            return IsNull(substituted(operand, by))
        case Not(operand=operand):
            return Not(substituted_condition(operand, by))
        case NotTrue(operand=operand):
            return NotTrue(substituted_condition(operand, by))
        case And(operands=operands):
            return And(tuple(substituted_condition(c, by) for c in operands))
        case Or(operands=operands):
            return Or(tuple(substituted_condition(c, by) for c in operands))
        case Truth():
            return cond


def aggregate_value(aggregate: Aggregate, members: Sequence[Match], slots: Mapping[str, int]) -> Value:
    if aggregate.argument is None:
        return len(members)
    argument = expression(aggregate.argument, slots)
    values = [v for v in map(argument, members) if v is not None]
    return summarise(aggregate, Counter(values))


def summarise(aggregate: Aggregate, values: Mapping[Value, int]) -> Value:
    """The aggregate of a multiset of non-null values, with Spark's results on the empty one."""
    count = sum(values.values())
    if aggregate.function == "COUNT":
        return len(values) if aggregate.distinct else count
    if not count:
        return None
    match aggregate.function:
        case "SUM":
            return sum(v * n for v, n in values.items())
        case "AVG":
            return float(Fraction(sum(Fraction(v) * n for v, n in values.items())) / count)
        case "MIN":
            return min(values)
        case "MAX":
            return max(values)
        case "MEDIAN":
            return _median(values, count)
    raise ValueError(aggregate.function)


def _median(values: Mapping[Value, int], count: int) -> float:
    """The middle value, or the mean of the two in the middle."""
    middle = []
    for rank in ((count - 1) // 2, count // 2):
        for value in sorted(values):
            rank -= values[value]
            if rank < 0:
                middle.append(Fraction(value))
                break
    return float((middle[0] + middle[1]) / 2)


def item_refs(items: Sequence[Item]) -> frozenset[Ref]:
    return frozenset(ref for item in items for ref in refs(item.expression))
