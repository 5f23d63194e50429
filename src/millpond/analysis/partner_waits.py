"""EXISTS with duplicates, where the partner of a row may come any time: a match waits for its first partner.

The matches that wait are divided into classes, by what the result shows of a match and by what its partners
are compared with.  If there are finitely many classes, the matches of each are counted, and the first partner
releases all of them.  Of partners that may also come any time before, it is enough to know which exist.
"""

from __future__ import annotations

from dataclasses import replace

from millpond.analysis.aggregates import find_aggregate_needs, find_count_needs
from millpond.analysis.join_needs import PartNeeds, find_counted_need
from millpond.analysis.partner_tests import (
    build_test_select,
    find_existence_failures,
    join_present_partners,
    list_tested,
)
from millpond.analysis.violations import ViolationCode
from millpond.plan.classes import NoPlanError
from millpond.plan.needs import Need, PartnerWait
from millpond.plan.partner_waits import find_compared_classes
from millpond.query.aggregate_functions import Memory, find_memory, ignores_duplicates
from millpond.query.buckets import find_time_function
from millpond.query.expressions import TRUE, And, Condition, Ref
from millpond.query.model import Occurrence, PartnerTest, Select, SemiJoin
from millpond.query.parts import Part, split_into_parts
from millpond.query.time_order import TimeOrder, find_time_column
from millpond.query.trees import aliases_in, conjuncts, find_aggregates, is_aggregate, item_refs, refs


def split_wait(variant: Select) -> tuple[Select, PartnerWait | None]:
    """The variant without the partners of one test that may come any time, and the wait for these.

    The variant as it is, and None, if there is no such test or it is not known how to wait.
    """
    for block in list_tested(variant):
        for test in block.tests:
            if not test.present:
                continue
            wait = _find_wait(variant, block, test)
            if wait is not None:
                return _replace_test(variant, block, test), wait
            in_time, late = _split_by_time(variant, block, test)
            wait = _find_wait(variant, block, late) if in_time is not None and late is not None else None
            if wait is not None:
                return _replace_test(variant, block, test, in_time), wait
    return variant, None


def find_waiting_needs(select: Select, part: Part, wait: PartnerWait) -> list[Need] | None:
    """The needs of a part whose matches wait for a partner; None if they have infinitely many classes.

    Without the needs of aggregates that ignore duplicates: these need not wait.
    """
    order = TimeOrder(part)
    streams = [group for group in order.groups if group != order.relations]
    if wait.lags and len(streams) > 1:
        return None  # the timestamp of the row would be part of partial matches
    shown = tuple(select.group_by or ()) if is_aggregate(select) else tuple(item_refs(select.items))
    exact = [each.column for each in wait.classes if not each.below and not each.above]
    if any(not _has_finitely_many_values(part, ref) for ref in (*shown, *exact)):
        return None
    # No partial match contains the row before it is complete, if all streams come within a window.
    compared = exact if len(streams) == 1 else [each.column for each in wait.classes]
    projected = tuple(dict.fromkeys((*shown, *compared)))
    needs: list[Need] = []
    if not is_aggregate(select):
        if len(part.aliases) == 1:
            return [Need(part, part.aliases, True, (), wait=wait)]
        needs, failures = find_counted_need(part, projected, ViolationCode.UNBOUNDED_PROJECTION)
        return None if failures else [replace(need, wait=wait) for need in needs]
    for aggregate in find_aggregates(select):
        if ignores_duplicates(aggregate):
            continue
        if find_memory(aggregate) is Memory.LIST:
            return None
        found, failures = find_count_needs(part, aggregate, projected, may_close=False)
        if failures or not all(need.counted for need in found):
            return None
        needs += [replace(need, aggregate=aggregate, wait=wait) for need in found]
    return needs


def find_joined_needs(select: Select, variant: Select) -> list[PartNeeds] | None:
    """The needs of aggregates that ignore duplicates: for them, the partners are simply joined.

    None if a criterion fails, or if rows of the variant must be tested for other partners, too.
    """
    aggregates = [a for a in find_aggregates(select) if ignores_duplicates(a)]
    if not aggregates:
        return []
    tests = [test for block in list_tested(variant) for test in block.tests]
    joined = join_present_partners(variant)
    if joined is None or len(tests) > 1:
        return None
    found: list[PartNeeds] = []
    for part in split_into_parts(joined, disjoint=False):
        needs: list[Need] = []
        for aggregate in aggregates:
            more, failures = find_aggregate_needs(part, aggregate, select.group_by or (), only_part=False)
            if failures:
                return None
            needs += more
        found.append((part, tuple(needs)))
    return found


def _has_finitely_many_values(part: Part, ref: Ref) -> bool:
    return ref in part.nulls or (ref in part.closure.index and part.closure.is_bounded(ref))


def _replace_test(
    variant: Select, block: SemiJoin, test: PartnerTest, by: PartnerTest | None = None
) -> Select:
    """The variant with another test in place of a test, or without it."""
    tests = [by if each is test else each for each in block.tests]
    rest = tuple(each for each in tests if each is not None)
    table = replace(block.base, block=replace(block, tests=rest)) if rest else block.base
    occurrences = (Occurrence(o.alias, table) if o.alias == block.alias else o for o in variant.occurrences)
    return replace(variant, occurrences=tuple(occurrences))


def _split_by_time(
    variant: Select, block: SemiJoin, test: PartnerTest
) -> tuple[PartnerTest | None, PartnerTest | None]:
    """The test for partners that come in time, and the test for independent ones that may come any time.

    A row passes a test if it passes both; None if there are no such partners.
    """
    in_time: list[frozenset[str]] = []
    late: list[frozenset[str]] = []
    for aliases in _find_connected(test):
        own = _restrict(test, aliases)
        parts = split_into_parts(build_test_select(variant, block, own), disjoint=False)
        orders = [TimeOrder(part) for part in parts]
        can_be_late = any(_can_be_late(order, block.alias, own) for order in orders)
        (late if can_be_late else in_time).append(aliases)
    together = (frozenset[str]().union(*each) for each in (in_time, late))
    first, second = (_restrict(test, aliases) if aliases else None for aliases in together)
    return first, second


def _can_be_late(order: TimeOrder, alias: str, test: PartnerTest) -> bool:
    return any(order.max_lag(o.alias, alias) is None for o in test.partners if o.table.streaming)


def _find_connected(test: PartnerTest) -> list[frozenset[str]]:
    """The partners by sets that the condition does not compare with each other."""
    sets = [frozenset({o.alias}) for o in test.partners]
    for each in conjuncts(test.condition):
        joined = [aliases for aliases in sets if aliases & aliases_in(each)]
        if len(joined) > 1:
            sets = [aliases for aliases in sets if aliases not in joined] + [frozenset().union(*joined)]
    return sets


def _restrict(test: PartnerTest, aliases: frozenset[str]) -> PartnerTest:
    """The test for some of the partners only, with the conditions that do not mention others."""
    partners = tuple(o for o in test.partners if o.alias in aliases)
    others = {o.alias for o in test.partners} - aliases
    kept = tuple(c for c in conjuncts(test.condition) if not aliases_in(c) & others)
    return replace(test, partners=partners, condition=And(kept) if kept else TRUE)


def _find_wait(variant: Select, block: SemiJoin, test: PartnerTest) -> PartnerWait | None:
    """The wait for a partner that may come any time; None if it may not, or if no way to wait is known."""
    whole = build_test_select(variant, block, test)
    parts = split_into_parts(whole, disjoint=False)
    if len(parts) != 1 or not block.base.streaming:
        return None
    order, partners = TimeOrder(parts[0]), [o.alias for o in test.partners if o.table.streaming]
    if not _can_be_late(order, block.alias, test):
        return None
    found = {partner: order.max_lag(block.alias, partner) for partner in partners}
    lags = {partner: lag for partner, lag in found.items() if lag is not None}
    is_limited = any(order.max_lag(partner, block.alias) is not None for partner in partners)
    if is_limited or (lags and not _are_last(order, tuple(lags), partners)):
        return None
    time = find_time_column(whole, block.alias)
    if any(time in (d.left, d.right) for d in parts[0].apart) or find_existence_failures(parts[0]):
        return None
    condition = _without_time(whole, test.condition, time) if lags else test.condition
    if condition is None:
        return None
    (apart,) = split_into_parts(replace(whole, where=condition), disjoint=False)
    need = Need(apart, tuple(o.alias for o in test.partners), False, ())
    if find_existence_failures(apart):
        return None
    try:
        classes = find_compared_classes(need, block.alias)
    except NoPlanError:
        return None
    if not lags:
        return PartnerWait(block.alias, need, classes)
    known = tuple((order.time_columns[partner], lag) for partner, lag in lags.items())
    return PartnerWait(block.alias, need, classes, time, known, _find_slack(order, lags))


def _are_last(order: TimeOrder, chosen: tuple[str, ...], partners: list[str]) -> bool:
    """Whether the chosen partners share a window, and no others come any time after them."""
    last = order.group_of(chosen[0])
    others = (order.group_of(partner) for partner in partners)
    return {*last} == {*chosen} and all(each == last or order.is_not_after(each, last) for each in others)


def _without_time(whole: Select, condition: Condition, time: Ref | None) -> Condition | None:
    """The condition without comparisons of the row's timestamp; None if what remains depends on it, too."""
    kept: list[Condition] = []
    for each in conjuncts(condition):
        if time not in refs(each):
            kept.append(each)
        elif not all(find_time_column(whole, ref.occurrence) == ref for ref in refs(each)):
            return None
    alias = whole.occurrences[0].alias
    own = {ref for each in kept for ref in refs(each) if ref.occurrence == alias}
    if any(find_time_function(whole, ref) is not None for ref in own):
        return None
    return And(tuple(kept)) if kept else TRUE


def _find_slack(order: TimeOrder, lags: dict[str, int]) -> int:
    """How much older than the last timestamp of a partner a row is at most, if it is too late for it."""
    distances = [
        (order.max_lag(last, partner) or 0) - lag if last != partner else -lag
        for partner, lag in lags.items()
        for last in lags
    ]
    return max(0, *distances)
