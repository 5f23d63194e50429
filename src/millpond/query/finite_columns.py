"""Columns with finitely many values that do not lie between constants.

Of *anchors* the values are known from the start, as those of a relation.  Of *limited* columns only their
number is: it is declared, or it follows from the form of an expression.
"""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction
from math import prod

from millpond.query.aggregate_functions import keeps_values
from millpond.query.buckets import find_time_function
from millpond.query.calendar import find_closing_unit
from millpond.query.closure import Closure
from millpond.query.expressions import Aggregate, Comparison, Condition, Expr, Literal, Op, Or, Ref
from millpond.query.model import PartnerTest, Select, SemiJoin, Subquery, Table, Windowed
from millpond.query.trees import aliases_in, conjuncts, find_aggregates, refs, walk
from millpond.query.types import Domain, Family, SqlType

# The number of characters of Unicode; strings that are longer than the limit count as if they had its length.
CHARACTERS = 1_112_064
_LONGEST = 64


def find_anchors(select: Select, closure: Closure) -> list[Ref]:
    """The columns with finitely many values that are not known.

    They are those of relations, also where a block shows them, those of streams whose timestamps are bounded
    above (only boundedly many rows come before any timestamp), and functions of time whose values return,
    such as a formatted hour.
    """
    ending = set()
    for o in select.occurrences:
        time = Ref(o.alias, o.table.time) if o.table.time else None
        if not o.table.streaming or (time in closure.index and closure.range(time).high is not None):
            ending.add(o.alias)
    return [
        n.ref
        for n in closure.nodes
        if n.ref.occurrence in ending
        or _has_returning_values(select, n.ref, closure)
        or is_of_relations(select.occurrence(n.ref.occurrence).table, n.ref.column)
    ]


def is_of_relations(table: Table, name: str) -> bool:
    """Whether all values of a column are those of relations, or are computed from such values."""
    column = table.column(name)
    if column.of_relations:
        return True
    if column.derivation is not None:
        arguments = column.derivation.arguments
        return bool(arguments) and all(is_of_relations(table, each) for each in arguments)
    match table.block:
        case SemiJoin() as block:
            return any(_equates_relation(block, test, name) for test in block.tests) or is_of_relations(
                block.base, name
            )
        case Windowed(base=base):
            return any(c.name == name for c in base.all_columns) and is_of_relations(base, name)
        case Subquery(query=query) if name in query.columns:
            place = query.columns.index(name)
            return all(_shows_relations(select, select.items[place].expression) for select in query.selects)
    return not table.streaming


def _equates_relation(block: SemiJoin, test: PartnerTest, name: str) -> bool:
    """Whether a row passes a test only if a relation has the value of a column."""
    relations = {o.alias for o in test.partners if not o.table.streaming}
    equal = _list_equal(test.condition, Ref(block.alias, name)) if test.present else []
    return any(ref.occurrence in relations for ref in equal)


def _shows_relations(select: Select, expression: Expr) -> bool:
    """Whether an item is a column of a relation, or is equal to one wherever there is a result."""
    if not isinstance(expression, Ref):
        return isinstance(expression, Literal)
    equal = [expression, *_list_equal(select.where, expression)]
    if any(is_of_relations(select.occurrence(ref.occurrence).table, ref.column) for ref in equal):
        return True
    for exists in select.exists:
        relations = {o.alias for o in exists.occurrences if not o.table.streaming}
        partners = [] if exists.negated else _list_equal(exists.condition, expression)
        if any(ref.occurrence in relations for ref in partners):
            return True
    return False


def _list_equal(condition: Condition, ref: Ref) -> list[Ref]:
    """The columns that a conjunction equates with a column."""
    found: list[Ref] = []
    for each in conjuncts(condition):
        match each:
            case Comparison(left=Ref() as left, operator=Op.EQ, right=Ref() as right) if ref in (left, right):
                found.append(right if left == ref else left)
    return found


def find_limited_columns(select: Select, closure: Closure, listed: Collection[Ref]) -> list[Ref]:
    """The columns of which only the number of values is known, if it matters.

    Columns whose values a disjunction lists are not among them: the part can be split by these.
    """
    distinguished = find_distinguished_columns(select) - set(listed)
    return [
        n.ref
        for n in closure.nodes
        if n.ref in distinguished
        and not closure.is_bounded(n.ref)
        and count_finite_values(select, n.ref, closure) is not None
    ]


def find_distinguished_columns(select: Select) -> set[Ref]:
    """The columns by which results, values of aggregates or matches are told apart."""
    found = set(select.group_by or ())
    for item in select.items:
        inside = {ref for a in walk(item.expression) if isinstance(a, Aggregate) for ref in refs(a)}
        found |= refs(item.expression) - inside
    for aggregate in find_aggregates(select):
        if keeps_values(aggregate):
            found |= refs(aggregate)
    for condition in walk(select.where):
        if isinstance(condition, Comparison) and len(aliases_in(condition)) > 1:
            found |= refs(condition)
    return found


def count_finite_values(select: Select, ref: Ref, closure: Closure) -> int | None:
    """The most values of a column besides NULL, by its cardinality or by what limits it; None if unknown."""
    table = select.occurrence(ref.occurrence).table
    column = table.column(ref.column)
    counts = [] if column.cardinality is None else [column.cardinality]
    for other in table.derived:
        place = Ref(ref.occurrence, other.name)
        if other.derivation is not None and other.derivation.limits == ref.column and place in closure.index:
            high = closure.range(place).high
            if high is not None:
                counts.append(count_values_up_to(column.type, int(high)))
    arguments = column.derivation.arguments if column.derivation is not None else ()
    if column.derivation is not None and column.derivation.rate is not None:
        argument = Ref(ref.occurrence, arguments[0])
        values = closure.range(argument) if argument in closure.index else None
        if values is not None and values.low is not None and values.high is not None:
            counts.append(count_steps(values.high - values.low, column.derivation.rate))
    if arguments and not counts:
        found = [_count_argument(select, Ref(ref.occurrence, name), closure) for name in arguments]
        if None not in found:
            counts.append(prod(count + 1 for count in found if count is not None))  # also of NULL
    return min(counts, default=None)


def count_steps(length: Fraction, rate: Fraction) -> int:
    """The most values of a rounded number whose argument is in a range of this length.

    One more at each end allows for rounding errors of what is rounded.
    """
    return max(int(length * rate) + 3, 0)


def _count_argument(select: Select, ref: Ref, closure: Closure) -> int | None:
    """The most values of a column that an expression is computed from, in the rows that pass WHERE."""
    type_, counts = select.type_of(ref), list[int]()
    if type_.domain is Domain.BOUNDED and type_.low is not None and type_.high is not None:
        counts.append(int(type_.high - type_.low) + 1)
    if ref in closure.index:
        values = closure.range(ref)
        if values.low is not None and values.high is not None and type_.domain is Domain.DISCRETE:
            counts.append(max(int((values.high - values.low) / type_.step) + 1, 0))
    for condition in conjuncts(select.where):
        members = condition.operands if isinstance(condition, Or) else (condition,)
        if all(_is_equality(each, ref) for each in members):
            counts.append(len(members))
    limit = count_finite_values(select, ref, closure)
    return min([*counts, *([limit] if limit is not None else [])], default=None)


def _is_equality(condition: Condition, ref: Ref) -> bool:
    """Whether a condition is ``ref = constant``."""
    match condition:
        case Comparison(left=left, operator=Op.EQ, right=Literal()):
            return left == ref
    return False


def count_values_up_to(type_: SqlType, limit: int) -> int:
    """The number of strings of at most this length, or of integers of at most this absolute value."""
    if type_.family is not Family.STRING:
        return 2 * max(limit, -1) + 1 if limit >= 0 else 0
    return sum(CHARACTERS**length for length in range(min(limit, _LONGEST) + 1))


def _has_returning_values(select: Select, ref: Ref, closure: Closure) -> bool:
    """Whether the column is a function of time with finitely many values, whose range is not known."""
    function = find_time_function(select, ref)
    if function is None or find_closing_unit([function]) is not None:
        return False
    values = closure.range(ref)
    return values.low is None or values.high is None
