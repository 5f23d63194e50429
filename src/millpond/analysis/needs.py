"""What a select needs to be answered: joins whose matches are counted, or only looked for.

Each aggregate of paper 1's section 8.2 comes down to such joins (with the corrections of Theorem 8.6),
and each join to the conditions of ``spj``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from millpond.analysis.derived_orders import TooManyOrders
from millpond.analysis.join_criteria import (
    Violation,
    duplicate_eliminating,
    duplicate_preserving,
    unbounded_projection,
)
from millpond.analysis.regions import Ordering
from millpond.analysis.self_joins import bounded_pieces, has_self_join, without_covered
from millpond.analysis.time_criteria import counted_in_time, looked_for_in_time
from millpond.plan.needs import THRESHOLD, Measure, Need
from millpond.query.closure import Difference, Node
from millpond.query.difference_bounds import to_column_and_shift
from millpond.query.model import (
    Aggregate,
    Arithmetic,
    Column,
    Expr,
    Literal,
    Negation,
    Occurrence,
    Ref,
    Select,
    Table,
)
from millpond.query.parts import Part, add_column
from millpond.query.split_parts import split_unconnected
from millpond.query.time_order import is_timed
from millpond.query.trees import find_aggregates, is_aggregate, refs, sorted_refs
from millpond.query.types import BIGINT

PROJECTED = "unbounded-projection"
GROUPED = "unbounded-group"
HOLISTIC = "holistic-aggregate"


@dataclass(frozen=True)
class Failure:
    """A condition that does not hold, for the whole select (None) or for one aggregate.

    ``alone``: its part is the whole query, so that no other part can hide what it shows.  ``complete`` is
    False where the search for a bound was given up for its size.
    """

    part: Part
    violation: Violation
    aggregate: Aggregate | None = None
    alone: bool = True
    complete: bool = True


Findings = tuple[list[Need], list[Failure]]


def needs_of(select: Select, part: Part, distinct: bool, only_part: bool) -> Findings:
    """The needs of one part of a select, and the failures among them.

    ``only_part``: the part is all there is, so that ratios such as AVG may be taken within it.
    """
    if not is_aggregate(select):
        projected = tuple(dict.fromkeys(ref for item in select.items for ref in sorted_refs(item.expression)))
        if distinct:
            return looked_for(part, projected, PROJECTED)
        if len(part.aliases) == 1:
            return [Need(part, part.aliases, True, ())], []
        return counted(part, projected, PROJECTED)
    groups = tuple(select.group_by or ())
    needs: list[Need] = []
    failures: list[Failure] = []
    aggregates = find_aggregates(select)
    findings = [aggregate_needs(part, a, groups, only_part) for a in aggregates]
    if not aggregates:
        findings = [looked_for(part, groups, GROUPED)]
    for more, failed in findings:
        needs += more
        failures += failed
    return needs, failures


def counted(
    part: Part,
    projected: Sequence[Ref],
    code: str,
    scope: Sequence[str] | None = None,
    outer_columns: Sequence[Ref] = (),
) -> Findings:
    """Theorem 5.6; self-joins change nothing."""
    names = tuple(scope or part.aliases)
    ordering = Ordering(part, names, outer_columns)
    if is_timed(part):
        found = counted_in_time(ordering, projected, code, answered_at_once=code == PROJECTED)
    else:
        found = duplicate_preserving(ordering, projected, code)
    if found:
        return [], [Failure(part, v) for v in found]
    return [Need(part, names, True, tuple(projected), tuple(outer_columns))], []


def looked_for(
    part: Part,
    projected: Sequence[Ref],
    code: str,
    scope: Sequence[str] | None = None,
    outer_columns: Sequence[Ref] = (),
) -> Findings:
    """Theorem 5.10, with covered occurrences of self-joins removed."""
    names = tuple(scope or part.aliases)
    if is_timed(part):
        return _looked_for_in_time(part, projected, code)

    def violations(piece: Part, kept: Sequence[Ref]) -> list[Violation]:
        return duplicate_eliminating(Ordering(piece, names, outer_columns), kept, code)

    found = violations(part, projected)
    if not found:
        return [Need(part, names, False, tuple(projected), tuple(outer_columns))], []
    if not has_self_join(part) or scope is not None:
        return [], [Failure(part, v) for v in found]
    reduced, kept = without_covered(part, projected)
    if not violations(reduced, kept):
        return [Need(reduced, _remaining(names, reduced), False, kept)], []
    pieces = bounded_pieces(part, projected, violations)
    if pieces.failing:
        return [], [Failure(p, v, complete=pieces.complete) for p, v in pieces.failing]
    return [Need(p, _remaining(names, p), False, r) for p, r in pieces.bounded], []


def _looked_for_in_time(part: Part, projected: Sequence[Ref], code: str) -> Findings:
    try:
        found = looked_for_in_time(Ordering(part), projected, code)
    except TooManyOrders:
        keeper = part.aliases[0]
        unknown = Violation("conflicting-references", keeper, (), (), ())
        return [], [Failure(part, unknown, complete=False)]
    if found:
        return [], [Failure(part, v) for v in found]
    return [Need(part, part.aliases, False, tuple(projected))], []


def _remaining(names: Iterable[str], part: Part) -> tuple[str, ...]:
    return tuple(a for a in part.aliases if a in names)


# --- aggregates ------------------------------------------------------------------------------------


def aggregate_needs(part: Part, aggregate: Aggregate, groups: Sequence[Ref], only_part: bool) -> Findings:
    """Theorems 8.5 and 8.6, corrected: one aggregate at a time."""
    match aggregate.function:
        case "COUNT" if aggregate.distinct:
            findings = _value_needs(part, aggregate, groups)
        case "COUNT" | "SUM":
            findings = _count_needs(part, aggregate, groups)
        case "AVG" | "MEDIAN" if only_part:
            findings = _ratio_needs(part, aggregate, groups)
        case "AVG" | "MEDIAN":
            findings = _count_needs(part, aggregate, groups)
        case _:
            findings = _extreme_needs(part, aggregate, groups)
    needs, failures = findings
    return [replace(n, aggregate=aggregate) for n in needs], [
        replace(f, aggregate=aggregate) for f in failures
    ]


def _argument_refs(aggregate: Aggregate) -> tuple[Ref, ...]:
    return sorted_refs(aggregate.argument) if aggregate.argument is not None else ()


def _value_needs(part: Part, aggregate: Aggregate, groups: Sequence[Ref]) -> Findings:
    """COUNT(DISTINCT x): the distinct results of the group columns and x."""
    columns = tuple(dict.fromkeys((*groups, *_argument_refs(aggregate))))
    needs, failures = looked_for(part, columns, GROUPED)
    grouped = {g.column for g in groups}
    return needs, [
        _holistic(f) if not grouped & {r.column for r in f.violation.columns} else f for f in failures
    ]


def _holistic(failure: Failure) -> Failure:
    """Not a group column, but the aggregated one, is unbounded."""
    if failure.violation.code != GROUPED:
        return failure
    return replace(failure, violation=replace(failure.violation, code=HOLISTIC))


def _count_needs(part: Part, aggregate: Aggregate, groups: Sequence[Ref]) -> Findings:
    """COUNT and SUM, pushed below the join: a count and a sum for each class.

    A SUM over a column that is always 0 tells only whether there was a row.
    """
    if aggregate.function == "SUM" and _always_zero(part, aggregate.argument):
        return looked_for(part, tuple(dict.fromkeys((*groups, *_argument_refs(aggregate)))), GROUPED)
    projected = tuple(groups)
    if aggregate.function == "MEDIAN":
        holistic = unbounded_projection(Ordering(part), _argument_refs(aggregate), HOLISTIC)
        if holistic:
            return [], [Failure(part, v) for v in holistic]
        projected = tuple(dict.fromkeys((*groups, *_argument_refs(aggregate))))
    needs, failures = counted(part, projected, GROUPED)
    return [_with_measure(n, aggregate) for n in needs], failures


def _with_measure(need: Need, aggregate: Aggregate) -> Need:
    if aggregate.argument is None or aggregate.function == "MEDIAN":
        return need
    return replace(need, measures=(Measure(aggregate.argument, aggregate.function != "COUNT"),))


def _always_zero(part: Part, argument: Expr | None) -> bool:
    if not isinstance(argument, Ref) or argument not in part.closure.index:
        return False
    r = part.closure.range(argument)
    return r.low == r.high == 0


def _ratio_needs(part: Part, aggregate: Aggregate, groups: Sequence[Ref]) -> Findings:
    """AVG and MEDIAN do not change when every result is repeated equally often.

    So only the streams joined with the aggregated column are counted; of the others, and of all where
    the column is constant within a group, it matters only whether they match at all.  Within a group
    its columns are constants, and what is joined only through them is not joined.
    """
    ordering = Ordering(part)
    if _constant_in_group(part, aggregate.argument, groups):
        return looked_for(part, tuple(dict.fromkeys((*groups, *_argument_refs(aggregate)))), GROUPED)
    if is_timed(part):
        return _ratio_needs_in_time(part, aggregate, groups)
    home = {ref.occurrence for ref in _argument_refs(aggregate)}
    needs: list[Need] = []
    failures: list[Failure] = []
    for component in components(ordering, groups):
        mine = tuple(g for g in groups if g.occurrence in component)
        if home & set(component) or (not home and component[0] == part.aliases[0]):
            if aggregate.function == "MEDIAN":
                holistic = unbounded_projection(ordering, _argument_refs(aggregate), HOLISTIC)
                if holistic:
                    failures += [Failure(part, v) for v in holistic]
                    continue
                mine = tuple(dict.fromkeys((*mine, *_argument_refs(aggregate))))
            more, failed = counted(part, mine, GROUPED, component, groups)
            needs += [_with_measure(n, aggregate) for n in more]
        else:
            more, failed = looked_for(part, mine, GROUPED, component, groups)
            needs += more
        failures += failed
    return needs, failures


def _ratio_needs_in_time(part: Part, aggregate: Aggregate, groups: Sequence[Ref]) -> Findings:
    """All streams counted together, or else those that no comparison connects on their own.

    Where neither will do, whether a group is there at all may need memory too, and shows more plainly.
    """
    needs, failures = _count_needs(part, aggregate, groups)
    if not failures:
        return needs, []
    home = {ref.occurrence for ref in _argument_refs(aggregate)}
    separate: list[Need] = []
    unfit: list[Failure] = []
    for piece in split_unconnected(part):
        mine = tuple(g for g in groups if g.occurrence in piece.aliases)
        if home & set(piece.aliases):
            more, failed = _count_needs(piece, aggregate, mine)
        else:
            more, failed = _looked_for_in_time(piece, mine, GROUPED)
        separate += more
        unfit += failed
    if not unfit:
        return separate, []
    return [], [*failures, *looked_for(part, tuple(groups), GROUPED)[1]]


def _constant_in_group(part: Part, argument: Expr | None, groups: Sequence[Ref]) -> bool:
    if not isinstance(argument, Ref) or argument not in part.closure.index:
        return not sorted_refs(argument) if argument is not None else False
    values = part.closure.range(argument)  # one of finitely many, as of a relation, is no constant
    if values.low is not None and values.low == values.high:
        return not part.can_be_null(argument)
    return argument in groups or any(
        g in part.closure.index and part.closure.has_fixed_difference(argument, g) for g in groups
    )


def components(ordering: Ordering, groups: Sequence[Ref]) -> list[tuple[str, ...]]:
    """The occurrences by connection: joined in a way that constants and group columns do not imply."""
    aliases = ordering.part.aliases
    closure = ordering.closure
    linked = np.zeros((len(aliases), len(aliases)), dtype=bool)
    joins = ordering.joins.copy()
    for group in groups:
        if group in closure.index:
            joins &= ~closure.through(closure.index[group])
    for i, j in np.argwhere(joins):
        linked[ordering.owner[i], ordering.owner[j]] = linked[ordering.owner[j], ordering.owner[i]] = True
    place = {alias: i for i, alias in enumerate(aliases)}
    for d in ordering.part.apart:
        if d.right is not None and not {d.left, d.right} & set(groups):
            a, b = place[d.left.occurrence], place[d.right.occurrence]
            linked[a, b] = linked[b, a] = True
    left = list(range(len(aliases)))
    out = []
    while left:
        members, todo = [], [left[0]]
        while todo:
            s = todo.pop()
            if s in left:
                left.remove(s)
                members.append(s)
                todo += [int(t) for t in np.flatnonzero(linked[s])]
        out.append(tuple(aliases[s] for s in sorted(members)))
    return out


def _extreme_needs(part: Part, aggregate: Aggregate, groups: Sequence[Ref]) -> Findings:
    """MIN and MAX over an unbounded column: is there a result beyond x, for every x?

    A virtual stream asks; then Theorem 5.10 decides.  This corrects C3 of Theorem 8.6.
    """
    argument = aggregate.argument
    assert argument is not None
    arguments = _argument_refs(aggregate)
    if all(r in part.nulls or part.closure.is_bounded(r) for r in arguments):
        return looked_for(part, tuple(dict.fromkeys((*groups, *arguments))), GROUPED)
    failures = looked_for(part, tuple(groups), GROUPED)[1]
    if failures:
        return [], failures
    return looked_for(asked_beyond(part, argument, aggregate.function == "MAX"), tuple(groups), GROUPED)


def asked_beyond(part: Part, argument: Expr, largest: bool) -> Part:
    """The part with the virtual stream that asks for results beyond a value of ``argument``."""
    monotone = _monotone(argument, part)
    if monotone is None:
        column, part = _derived(part, argument)
        rising = True
    else:
        column, rising = monotone
    type_ = part.closure.nodes[part.closure.index[column]].type
    question = Ref(THRESHOLD, "x")
    table = Table(THRESHOLD, (Column("x", type_, nullable=False),), streaming=True)
    select = replace(part.select, occurrences=(*part.select.occurrences, Occurrence(THRESHOLD, table)))
    wants_large = largest == rising
    beyond = Difference(question, column, Fraction(0), strict=True)
    if not wants_large:
        beyond = Difference(column, question, Fraction(0), strict=True)
    return add_column(part, Node(question, type_), [beyond], select)


def _monotone(argument: Expr, part: Part) -> tuple[Ref, bool] | None:
    """The column that the argument follows, and whether it rises with it."""
    match argument:
        case Ref():
            return argument, True
        case Negation(operand=Ref() as ref):
            return ref, False
        case Arithmetic(operator="+" | "-", left=Ref(), right=Literal()):
            column, _ = to_column_and_shift(argument, part.points)
            return (column, True) if column is not None else None
    return None


def _derived(part: Part, argument: Expr) -> tuple[Ref, Part]:
    """A column that stands for an expression: nothing is known of its order."""
    home = next(iter(refs(argument))).occurrence
    column = Ref(home, f"({len(part.derived)})")
    occurrences = tuple(
        replace(o, table=replace(o.table, columns=(*o.table.columns, Column(column.column, BIGINT))))
        if o.alias == home
        else o
        for o in part.select.occurrences
    )
    extended = add_column(part, Node(column, BIGINT), [], replace(part.select, occurrences=occurrences))
    return column, replace(extended, derived=(*part.derived, (column, argument)))
