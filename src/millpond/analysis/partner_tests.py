"""Decides whether rows with a partner, or without one, can be found in bounded memory.

A row is known to have no partner when none can come any more, so every partner must come at most a fixed time
after it.  Its partners can then be found in bounded memory if and only if it can be decided in bounded memory
whether there is a match at all.  What uses such rows is decided as if they were an ordinary stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from millpond.analysis.column_orders import TooManyOrders
from millpond.analysis.regions import JoinRegions
from millpond.analysis.time_criteria import decide_existence_join_in_time
from millpond.analysis.violations import Failure, Violation, ViolationCode
from millpond.plan.needs import Need, PartnerNeeds
from millpond.query.expressions import And, Condition, Ref
from millpond.query.implied import find_implied_conditions
from millpond.query.model import Item, NullRow, Occurrence, PartnerTest, Select, SemiJoin
from millpond.query.parts import Part, split_into_parts
from millpond.query.time_order import TimeOrder, find_time_column
from millpond.query.trees import aliases_in, conjuncts, refs, rename_refs, renaming


class NeverFinalError(Exception):
    """A row never gets to be one without partner: ``partner`` can come any time after it."""

    def __init__(self, alias: str, partner: str) -> None:
        super().__init__(f"{partner} after {alias}")
        self.alias = alias
        self.partner = partner


def add_implied_conditions(variant: Select) -> Select | None:
    """A variant in which the conditions of rows and those of their partner tests know of each other.

    What a match with a partner implies for a row is added to the conditions of the variant, and what the
    variant implies for a row is added to its tests; neither changes the results.  None if there are none.
    """
    tested = list(list_tested(variant))
    if not tested:
        return variant
    more: list[Condition] = []
    for block in tested:
        for test in block.tests:
            if test.present:
                parts = split_into_parts(build_test_select(variant, block, test), disjoint=False)
                if not parts:
                    return None
                more += _find_facts(parts, block.alias)
                more += [c for c in conjuncts(test.condition) if aliases_in(c) == {block.alias}]
    stronger = _require(variant, more)
    parts = split_into_parts(stronger, disjoint=False)
    if not parts:
        return None
    occurrences = []
    for o in stronger.occurrences:
        if isinstance(o.table.block, SemiJoin):
            facts = _find_facts(parts, o.alias)
            facts += [c for c in conjuncts(stronger.where) if aliases_in(c) == {o.alias} and c not in facts]
            tests = tuple(replace(t, condition=_conjoin(t.condition, facts)) for t in o.table.block.tests)
            o = Occurrence(o.alias, replace(o.table, block=replace(o.table.block, tests=tests)))
        occurrences.append(o)
    return replace(stronger, occurrences=tuple(occurrences))


def join_outer_relations(variant: Select) -> Select:
    """The variant, whose tests also join the relations with which it joins the tested rows.

    The results are the same, because a row without a match in these relations is in none; but the values of
    the relations bound the columns of partners.
    """
    occurrences = []
    for o in variant.occurrences:
        if isinstance(o.table.block, SemiJoin):
            copies, conditions = _copy_relations(variant, o.alias)
            tests = tuple(
                replace(t, partners=t.partners + copies, condition=_conjoin(t.condition, conditions))
                for t in o.table.block.tests
            )
            o = Occurrence(o.alias, replace(o.table, block=replace(o.table.block, tests=tests)))
        occurrences.append(o)
    return replace(variant, occurrences=tuple(occurrences))


def _copy_relations(variant: Select, alias: str) -> tuple[tuple[Occurrence, ...], list[Condition]]:
    """Copies of the relations that are joined with an occurrence, under other aliases, and the conditions."""
    copies: list[Occurrence] = []
    conditions: list[Condition] = []
    for o in variant.occurrences:
        if o.table.streaming or o.table.block is not None:
            continue
        own = [c for c in conjuncts(variant.where) if o.alias in aliases_in(c) <= {o.alias, alias}]
        if any(alias in aliases_in(c) for c in own):
            copy = f"{o.alias} of {alias}"
            copies.append(Occurrence(copy, o.table))
            conditions += [rename_refs(c, renaming(o.alias, copy)) for c in own]
    return tuple(copies), conditions


def find_partner_needs(variant: Select) -> tuple[list[PartnerNeeds], list[tuple[Select, Failure]]]:
    """The needs of every partner test of a variant, and the failures, each with a select to search a witness.

    Raises NeverFinalError.
    """
    found: list[PartnerNeeds] = []
    failures: list[tuple[Select, Failure]] = []
    for block in list_tested(variant):
        for test in block.tests:
            if any(each.decides(block.alias, test) for each in found):
                continue
            needs, failed = _find_test_needs(variant, block, test)
            found.append(needs)
            failures += failed
    return found, failures


def list_tested(variant: Select) -> Iterator[SemiJoin]:
    """The tables of a variant that hold only rows with, or only rows without, a partner."""
    return (o.table.block for o in variant.occurrences if isinstance(o.table.block, SemiJoin))


def _conjoin(condition: Condition, more: Sequence[Condition]) -> Condition:
    every = tuple(dict.fromkeys([*conjuncts(condition), *more]))
    return every[0] if len(every) == 1 else And(every)


def _require(variant: Select, more: Sequence[Condition]) -> Select:
    return replace(variant, where=_conjoin(variant.where, more)) if more else variant


def _find_facts(parts: Sequence[Part], alias: str) -> list[Condition]:
    """What all parts imply for an occurrence; nothing if there are several."""
    return list(find_implied_conditions(parts[0], alias)) if len(parts) == 1 else []


def build_test_select(variant: Select, block: SemiJoin, test: PartnerTest) -> Select:
    """The timestamps and columns of the rows that have a partner."""
    tested = Occurrence(block.alias, block.base)
    columns = sorted((r for r in refs(test.condition) if r.occurrence == block.alias), key=str)
    time = find_time_column(Select((tested,), ()), block.alias)
    shown = dict.fromkeys([*([time] if time is not None else []), *columns])
    items = tuple(Item(ref, f"c{i}") for i, ref in enumerate(shown))
    return Select((tested, *test.partners), items, test.condition, text=variant.text)


def _find_test_needs(
    variant: Select, block: SemiJoin, test: PartnerTest
) -> tuple[PartnerNeeds, list[tuple[Select, Failure]]]:
    select = build_test_select(variant, block, test)
    time = find_time_column(select, block.alias)
    shown = tuple(item.expression for item in select.items if isinstance(item.expression, Ref))
    lag, needs = 0, []
    failures: list[Failure] = []
    for part in split_into_parts(select, disjoint=False):
        lag = max(lag, _find_lag(part, block.alias))
        failed = find_existence_failures(part)
        failures += failed
        needs += [] if failed else [Need(part, part.aliases, False, shown)]
    columns = tuple(ref for ref in shown if ref != time)
    found = PartnerNeeds(block.alias, test, time, columns, lag, tuple(needs))
    if not failures:
        return found, []
    whole = _join_partners(variant, test)
    in_whole = [f for part in split_into_parts(whole, disjoint=False) for f in find_existence_failures(part)]
    return found, [*((whole, f) for f in in_whole), *((select, f) for f in failures)]


def _find_lag(part: Part, alias: str) -> int:
    """By how many microseconds a partner can be later at most; raises NeverFinalError."""
    order = TimeOrder(part)
    lags = [0]
    for partner in part.aliases:
        if partner == alias or partner in order.relations:
            continue
        lag = order.max_lag(partner, alias)
        if lag is None:
            raise NeverFinalError(alias, partner)
        lags.append(lag)
    if alias in order.relations:
        raise NeverFinalError(alias, alias)
    return max(lags)


def find_existence_failures(part: Part) -> list[Failure]:
    """The criteria that fail for the existence of a match; its rows may have any columns."""
    try:
        found = decide_existence_join_in_time(JoinRegions(part), (), ViolationCode.UNBOUNDED_PROJECTION, ())
    except TooManyOrders:
        unknown = Violation(ViolationCode.CONFLICTING_REFERENCES, part.aliases[0], (), (), ())
        return [Failure(part, unknown, alone=False, complete=False)]
    return [Failure(part, violation, alone=False) for violation in found]


def join_present_partners(variant: Select) -> Select | None:
    """The variant with the partners that its rows must have joined to them; None if there are none."""
    tests = [test for block in list_tested(variant) for test in block.tests if test.present]
    return _join_partners(variant, *tests) if tests else None


def _join_partners(variant: Select, *tests: PartnerTest) -> Select:
    """The variant with the partners of tests joined to it, over declared tables."""
    kept = [o for o in variant.occurrences if not isinstance(o.table.block, NullRow)]
    missing = {o.alias for o in variant.occurrences} - {o.alias for o in kept}
    where = [c for c in conjuncts(variant.where) if not aliases_in(c) & missing]
    occurrences = [Occurrence(o.alias, o.table.declared) for o in kept]
    occurrences += [o for test in tests for o in test.partners]
    where += [c for test in tests for c in conjuncts(test.condition)]
    return replace(variant, occurrences=tuple(occurrences), where=And(tuple(dict.fromkeys(where))))
