"""One criterion for each kind of aggregate: Theorems 8.5 and 8.6 of paper 1, corrected.

``CRITERIA`` maps what an aggregate has to remember to the function that finds its needs; a criterion reduces
the aggregate to joins that are counted, or of which only the existence matters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from math import ceil, log2

import numpy as np

from millpond.analysis.join_criteria import find_unbounded_projections
from millpond.analysis.join_needs import (
    Findings,
    find_counted_need,
    find_existence_need,
    find_existence_need_in_time,
)
from millpond.analysis.regions import JoinRegions
from millpond.analysis.violations import Failure, Violation, ViolationCode
from millpond.plan.computed_aggregates import count_digits
from millpond.plan.needs import Need, list_measures
from millpond.query.aggregate_functions import (
    ORDERED,
    Memory,
    find_memory,
    is_ratio,
    is_tuple,
    keeps_values,
)
from millpond.query.closure import Difference, Node
from millpond.query.difference_bounds import to_column_and_shift
from millpond.query.expressions import Aggregate, Arithmetic, Expr, Literal, Negation, Ref
from millpond.query.model import Column, Occurrence, Table
from millpond.query.parts import THRESHOLD, Part, add_column, type_of
from millpond.query.split_parts import split_unconnected
from millpond.query.split_products import list_terms
from millpond.query.time_order import TimeOrder, is_timed
from millpond.query.trees import aliases_in, refs, sorted_refs, walk
from millpond.query.types import BIGINT, DOUBLE, MAX_PRECISION, TIME_VALUE, Domain, Family, SqlType, decimal

_GROUP = ViolationCode.UNBOUNDED_GROUP
_HOLISTIC = ViolationCode.HOLISTIC_AGGREGATE

# The registers of the sketch of APPROX_COUNT_DISTINCT, for Spark's default error of 5 percent.
SKETCH_REGISTERS = 512
# The accuracy of PERCENTILE_APPROX in Spark, if none is given: the reciprocal of its error.
DEFAULT_ACCURACY = 10_000

Criterion = Callable[[Part, Aggregate, Sequence[Ref]], Findings]


def find_aggregate_needs(
    part: Part, aggregate: Aggregate, groups: Sequence[Ref], only_part: bool
) -> Findings:
    """The needs of one aggregate over a part, grouped by ``groups``.

    ``only_part``: the part is the whole query, so a ratio such as AVG can be taken within it.
    """
    criterion = CRITERIA[find_memory(aggregate)]
    if is_ratio(aggregate) and only_part:
        criterion = find_ratio_needs
    needs, failures = criterion(part, aggregate, groups)
    return (
        [replace(need, aggregate=aggregate) for need in needs],
        [replace(failure, aggregate=aggregate) for failure in failures],
    )


# --- COUNT and SUM -----------------------------------------------------------------------------------


def find_count_needs(
    part: Part, aggregate: Aggregate, groups: Sequence[Ref], may_close: bool = True
) -> Findings:
    """COUNT, SUM, VARIANCE: each class of rows has counts and sums, so the join is counted (Theorem 5.6).

    So is that of MEDIAN and PERCENTILE, for each value of the argument.  A SUM over a column that is always 0
    only tells whether there was a row.  ``may_close`` is False if rows
    of other streams, which the part does not contain, can change a group at any time.
    """
    keys = groups if may_close else ()
    if aggregate.function == "SUM" and _is_always_zero(part, aggregate.argument):
        return find_existence_need(part, _with_arguments(groups, aggregate), _GROUP, keys=keys)
    projected = tuple(groups)
    if keeps_values(aggregate):
        counted = TimeOrder(part).find_remembered_columns(_argument_refs(aggregate), keys)
        holistic = find_unbounded_projections(JoinRegions(part), counted, _HOLISTIC)
        if holistic and aggregate.function == "PERCENTILE_APPROX":
            return _find_summary_needs(part, aggregate, groups, keys)
        if holistic:
            return [], [Failure(part, v) for v in holistic]
        projected = _with_arguments(groups, aggregate)
    needs, failures = find_counted_need(part, projected, _GROUP, keys=keys)
    return [_with_measure(n, aggregate) for n in needs], failures


def _find_summary_needs(
    part: Part, aggregate: Aggregate, groups: Sequence[Ref], keys: Sequence[Ref]
) -> Findings:
    """PERCENTILE_APPROX(x): a summary of each class of rows, whose entries count the values near them."""
    values = count_summary_entries(aggregate)
    column, extended = _add_column_of_few(part, aggregate, values)
    needs, failures = find_counted_need(extended, (*groups, column), _GROUP, keys=keys)
    return [replace(need, values=values) for need in needs], failures


def count_summary_entries(aggregate: Aggregate) -> int:
    """The most entries of the summary of PERCENTILE_APPROX (Greenwald and Khanna 2001).

    With an error of e, the summary of n values has at most 11 / 2e * log2(2en) entries.  As a counter does,
    it grows with the logarithm of the number of rows; 2**63 rows are the most that can be counted.
    """
    given = [each.value for each in aggregate.others if isinstance(each, Literal)][1:]
    accuracy = int(given[0]) if given and isinstance(given[0], int | float | Decimal) else DEFAULT_ACCURACY
    accuracy = max(accuracy, 1)  # Spark refuses others
    return ceil(11 / 2 * accuracy * log2(max(2**64 / accuracy, 2)))


def _is_always_zero(part: Part, argument: Expr | None) -> bool:
    if not isinstance(argument, Ref) or argument not in part.closure.index:
        return False
    r = part.closure.range(argument)
    return r.low == r.high == 0


def _with_measure(need: Need, aggregate: Aggregate) -> Need:
    """The need with what is added up for an aggregate."""
    if aggregate.argument is None or keeps_values(aggregate):
        return need
    return replace(need, measures=list_measures(aggregate))


def find_list_needs(part: Part, aggregate: Aggregate, groups: Sequence[Ref]) -> Findings:
    """COLLECT_LIST: all values, so the groups must close."""
    if TimeOrder(part).find_closing_columns(groups):
        return find_count_needs(part, aggregate, groups)
    columns = _argument_refs(aggregate)
    found = find_unbounded_projections(JoinRegions(part), columns, _HOLISTIC)
    if not found:  # few values, but any number of them
        found = [Violation(_HOLISTIC, columns[0].occurrence, columns, (), ())]
    return [], [Failure(part, each) for each in found]


# --- COUNT(DISTINCT) ---------------------------------------------------------------------------------


def find_set_needs(part: Part, aggregate: Aggregate, groups: Sequence[Ref]) -> Findings:
    """COUNT(DISTINCT x): the existence of each combination of group columns and x (Theorem 5.10)."""
    needs, failures = find_existence_need(part, _with_arguments(groups, aggregate), _GROUP, keys=groups)
    grouped = {g.column for g in groups}
    return needs, [
        _as_holistic(f) if not grouped & {r.column for r in f.violation.columns} else f for f in failures
    ]


def _as_holistic(failure: Failure) -> Failure:
    """The failure of an unbounded column, attributed to the aggregated column instead of a group column."""
    if failure.violation.code is not _GROUP:
        return failure
    return replace(failure, violation=replace(failure.violation, code=_HOLISTIC))


def find_sketch_needs(part: Part, aggregate: Aggregate, groups: Sequence[Ref]) -> Findings:
    """APPROX_COUNT_DISTINCT(x): COUNT(DISTINCT h(x)) of a hash h with a fixed number of values."""
    return _find_needs_of_few(part, aggregate, groups, SKETCH_REGISTERS)


def find_capped_needs(part: Part, aggregate: Aggregate, groups: Sequence[Ref], limit: int) -> Findings | None:
    """COUNT(DISTINCT x) that is only compared with constants up to ``limit``: one more value is enough.

    If the join can be counted, there are finitely many classes of rows that match alike, and of each it is
    enough to keep ``limit`` + 1 values of x.  None if it cannot be counted.
    """
    if find_counted_need(part, tuple(groups), _GROUP, keys=groups)[1]:
        return None
    needs, failures = _find_needs_of_few(part, aggregate, groups, limit + 1)
    return None if failures else ([replace(need, aggregate=aggregate) for need in needs], [])


def _find_needs_of_few(part: Part, aggregate: Aggregate, groups: Sequence[Ref], values: int) -> Findings:
    """The needs of a COUNT(DISTINCT) that tells only so many values of its argument apart."""
    column, extended = _add_column_of_few(part, aggregate, values)
    needs, failures = find_existence_need(extended, (*groups, column), _GROUP, keys=groups)
    return [replace(need, values=values) for need in needs], failures


def _add_column_of_few(part: Part, aggregate: Aggregate, values: int) -> tuple[Ref, Part]:
    """A column with so many values, computed from the argument of an aggregate, and the part with it."""
    assert aggregate.argument is not None
    few = SqlType("INT", Family.NUMBER, Domain.BOUNDED, Fraction(1), Fraction(1), Fraction(values))
    return _add_derived_column(part, aggregate.argument, few, f"value of {aggregate.text}")


# --- AVG and MEDIAN ----------------------------------------------------------------------------------


def find_ratio_needs(part: Part, aggregate: Aggregate, groups: Sequence[Ref]) -> Findings:
    """AVG and MEDIAN do not change if every result is repeated equally often.

    So only the streams joined with the aggregated column are counted; of the others it only matters whether
    they match.  If the column is constant within a group, that holds for all streams.  Within a group, group
    columns are constants, so streams that are joined only through them are not joined.
    """
    regions = JoinRegions(part)
    if not is_tuple(aggregate) and _is_constant_in_group(part, aggregate.argument, groups):
        return find_existence_need(part, _with_arguments(groups, aggregate), _GROUP, keys=groups)
    if is_timed(part, groups):
        return _find_ratio_needs_in_time(part, aggregate, groups)
    home = {ref.occurrence for ref in _argument_refs(aggregate)}
    needs: list[Need] = []
    failures: list[Failure] = []
    for component in _unite_components(find_components(regions, groups), home):
        mine = tuple(g for g in groups if g.occurrence in component)
        if home & set(component) or (not home and component[0] == part.aliases[0]):
            if keeps_values(aggregate):
                holistic = find_unbounded_projections(regions, _argument_refs(aggregate), _HOLISTIC)
                if holistic:
                    failures += [Failure(part, v) for v in holistic]
                    continue
                mine = _with_arguments(mine, aggregate)
            more, failed = find_counted_need(part, mine, _GROUP, component, groups)
            needs += [_with_measure(n, aggregate) for n in more]
        else:
            more, failed = find_existence_need(part, mine, _GROUP, component, groups)
            needs += more
        failures += failed
    return needs, failures


def _unite_components(components: Sequence[tuple[str, ...]], home: set[str]) -> list[tuple[str, ...]]:
    """The components, with those that an argument over several tables belongs to as one."""
    own = [each for each in components if home & set(each)]
    if len(own) < 2:
        return list(components)
    return [tuple(alias for each in own for alias in each), *(c for c in components if c not in own)]


def _find_ratio_needs_in_time(part: Part, aggregate: Aggregate, groups: Sequence[Ref]) -> Findings:
    """All streams counted together or, if that is unbounded, unconnected streams on their own.

    If both are unbounded, the failures include those of the existence of a group, whose witness is simpler.
    """
    needs, failures = find_count_needs(part, aggregate, groups)
    if not failures:
        return needs, []
    if TimeOrder(part).find_closing_columns(groups):
        return [], [*failures, *find_existence_need(part, tuple(groups), _GROUP, keys=groups)[1]]
    home = {ref.occurrence for ref in _argument_refs(aggregate)}
    separate: list[Need] = []
    failed_alone: list[Failure] = []
    pieces = split_unconnected(part)
    if sum(bool(home & set(piece.aliases)) for piece in pieces) > 1:
        return [], failures
    for piece in pieces:
        mine = tuple(g for g in groups if g.occurrence in piece.aliases)
        if home & set(piece.aliases):
            more, failed = find_count_needs(piece, aggregate, mine, may_close=False)
        else:
            more, failed = find_existence_need_in_time(piece, mine, _GROUP, ())
        separate += more
        failed_alone += failed
    if not failed_alone:
        return separate, []
    return [], [*failures, *find_existence_need(part, tuple(groups), _GROUP, keys=groups)[1]]


def _is_constant_in_group(part: Part, argument: Expr | None, groups: Sequence[Ref]) -> bool:
    if not isinstance(argument, Ref) or argument not in part.closure.index:
        return not sorted_refs(argument) if argument is not None else False
    values = part.closure.range(argument)  # one of finitely many, as of a relation, is no constant
    if values.low is not None and values.low == values.high:
        return not part.can_be_null(argument)
    return argument in groups or any(
        g in part.closure.index and part.closure.has_fixed_difference(argument, g) for g in groups
    )


def find_components(regions: JoinRegions, groups: Sequence[Ref]) -> list[tuple[str, ...]]:
    """The occurrences by connected component, without joins that constants and group columns imply."""
    aliases = regions.part.aliases
    closure = regions.closure
    linked = np.zeros((len(aliases), len(aliases)), dtype=bool)
    joins = regions.joins.copy()
    for group in groups:
        if group in closure.index:
            joins &= ~closure.through(closure.index[group])
    for i, j in np.argwhere(joins):
        linked[regions.owner[i], regions.owner[j]] = linked[regions.owner[j], regions.owner[i]] = True
    place = {alias: i for i, alias in enumerate(aliases)}
    for d in regions.part.apart:
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


# --- MIN and MAX -------------------------------------------------------------------------------------


def find_extreme_needs(part: Part, aggregate: Aggregate, groups: Sequence[Ref]) -> Findings:
    """MIN and MAX over an unbounded column: is there a result beyond x, for every x?

    MIN_BY and MAX_BY keep a value of another column with it, of a row with the least or greatest value.
    The extremes of a sum over several tables are those of its terms, where all terms can have theirs at once.
    A virtual stream of thresholds x is joined, and Theorem 5.10 decides.  This corrects C3 of Theorem 8.6.
    """
    argument = aggregate.others[0] if aggregate.function in ORDERED else aggregate.argument
    assert argument is not None
    closing = TimeOrder(part).find_closing_columns(groups)
    if all(r in part.nulls or part.closure.is_bounded(r) for r in refs(argument)):
        columns = tuple(dict.fromkeys((*groups, *sorted_refs(argument))))
        return find_existence_need(part, columns, _GROUP, keys=groups)
    failures = find_existence_need(part, tuple(groups), _GROUP, keys=groups)[1]
    if failures:
        return [], failures
    terms = list_terms(argument) if len(aliases_in(argument)) > 1 else ((None, argument),)
    assert terms is not None, "other arguments over several tables are columns of a block"
    beyond = part
    for number, (_, term) in enumerate(terms):
        virtual = f"{THRESHOLD}{number or ''}"
        beyond = _add_threshold_stream(beyond, virtual, term, aggregate.function.startswith("MAX"))
    if not closing:
        return find_existence_need(beyond, tuple(groups), _GROUP)
    # The question is asked when the group closes, so it has the timestamp of the group.
    asked = _add_threshold_time(beyond, closing[0])
    needs, failures = find_existence_need(asked, tuple(groups), _GROUP, keys=groups)
    return [replace(need, part=beyond) for need in needs], failures


def _add_threshold_stream(part: Part, virtual: str, argument: Expr, largest: bool) -> Part:
    """The part joined with a virtual stream of thresholds that ``argument`` must exceed (for MIN: stay
    below)."""
    monotone = _find_monotone_column(argument, part)
    if monotone is None:
        column, part = _add_derived_column(part, argument, _find_value_type(part, argument))
        rising = True
    elif part.select.type_of(monotone[0]).domain is Domain.TIME:
        # As a value it is compared with thresholds only, not with other timestamps.
        column, part = _add_derived_column(part, argument, TIME_VALUE)
        rising = True
    else:
        column, rising = monotone
    type_ = part.closure.nodes[part.closure.index[column]].type
    threshold = Ref(virtual, "x")
    table = Table(virtual, (Column("x", type_, nullable=False),), streaming=True)
    select = replace(part.select, occurrences=(*part.select.occurrences, Occurrence(virtual, table)))
    wants_large = largest == rising
    beyond = Difference(threshold, column, Fraction(0), strict=True)
    if not wants_large:
        beyond = Difference(column, threshold, Fraction(0), strict=True)
    return add_column(part, Node(threshold, type_), [beyond], select)


def _add_threshold_time(part: Part, time_column: Ref) -> Part:
    """The part whose threshold stream has the timestamps of ``time_column``."""
    mine = Ref(THRESHOLD, "ts")
    type_ = part.select.type_of(time_column)
    occurrences = tuple(
        replace(o, table=replace(o.table, columns=(*o.table.columns, Column("ts", type_)), time="ts"))
        if o.alias == THRESHOLD
        else o
        for o in part.select.occurrences
    )
    equal = [Difference(mine, time_column, Fraction(0)), Difference(time_column, mine, Fraction(0))]
    return add_column(part, Node(mine, type_), equal, replace(part.select, occurrences=occurrences))


def _find_monotone_column(argument: Expr, part: Part) -> tuple[Ref, bool] | None:
    """The column that orders the argument's values, and whether the argument rises with it."""
    match argument:
        case Ref():
            return argument, True
        case Negation(operand=Ref() as ref):
            return ref, False
        case Arithmetic(operator="+" | "-", left=Ref(), right=Literal()):
            column, _ = to_column_and_shift(argument, part.points)
            return (column, True) if column is not None else None
    return None


def _find_value_type(part: Part, argument: Expr) -> SqlType:
    """A type that holds all values of an expression."""
    types = [type_of(part, ref) for ref in refs(argument)]
    numbers = [each for each in types if each.family is Family.NUMBER]
    if any(not each.step for each in numbers):
        return DOUBLE
    digits = count_digits(part, argument)
    if digits is not None and digits[1]:
        return decimal(MAX_PRECISION, min(digits[1], MAX_PRECISION))
    is_divided = any(isinstance(n, Arithmetic) and n.operator == "/" for n in walk(argument))
    return DOUBLE if is_divided and len(numbers) == len(types) else BIGINT


def _add_derived_column(
    part: Part, argument: Expr, type_: SqlType, name: str | None = None
) -> tuple[Ref, Part]:
    """A new column that stands for an expression, about whose order nothing is known."""
    home = next(iter(refs(argument))).occurrence
    column = Ref(home, name or f"({len(part.derived)})")
    occurrences = tuple(
        replace(o, table=replace(o.table, columns=(*o.table.columns, Column(column.column, type_))))
        if o.alias == home
        else o
        for o in part.select.occurrences
    )
    extended = add_column(part, Node(column, type_), [], replace(part.select, occurrences=occurrences))
    return column, replace(extended, derived=(*part.derived, (column, argument)))


# --- the table ---------------------------------------------------------------------------------------

CRITERIA: dict[Memory, Criterion] = {
    Memory.COUNTS: find_count_needs,
    Memory.VALUES: find_count_needs,
    Memory.EXTREME: find_extreme_needs,
    Memory.SET: find_set_needs,
    Memory.SKETCH: find_sketch_needs,
    Memory.LIST: find_list_needs,
}


def _argument_refs(aggregate: Aggregate) -> tuple[Ref, ...]:
    return sorted_refs(aggregate)


def _with_arguments(columns: Sequence[Ref], aggregate: Aggregate) -> tuple[Ref, ...]:
    return tuple(dict.fromkeys((*columns, *_argument_refs(aggregate))))
