"""Finds the needs of a select, part by part: what has to be known of its joins to answer it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from millpond.analysis.aggregates import find_aggregate_needs, find_capped_needs
from millpond.analysis.join_needs import Findings, PartNeeds, find_counted_need, find_existence_need
from millpond.analysis.partner_tests import (
    add_implied_conditions,
    find_partner_needs,
    join_outer_relations,
    join_present_partners,
)
from millpond.analysis.partner_waits import find_joined_needs, find_waiting_needs, split_wait
from millpond.analysis.violations import Failure, ViolationCode
from millpond.plan.needs import Need, PartnerNeeds
from millpond.query.expressions import Aggregate, Comparison, IsNull, Literal
from millpond.query.model import Select
from millpond.query.parts import Part, split_disjunctions, split_into_parts
from millpond.query.split_parts import split_by_values
from millpond.query.time_order import find_result_keys, is_timed
from millpond.query.trees import find_aggregates, is_aggregate, sorted_refs, walk
from millpond.query.variants import list_variants


def find_select_needs(
    select: Select, distinct: bool
) -> tuple[list[PartNeeds], list[PartnerNeeds], list[tuple[Select, Failure]]]:
    """The needs of every part of a select, those of its partner tests, and the failures.

    A failure comes with the select whose occurrences it is about.  Raises NoVariantsError and
    NeverFinalError.
    """
    variants = [v for v in map(add_implied_conditions, list_variants(select, distinct)) if v is not None]
    waiting = _find_waiting_needs(select, variants)
    if waiting is not None:
        partners, more = _find_partners([variant for variant, _ in waiting])
        if not more:
            return [part for _, parts in waiting for part in parts], partners, []
    first = _find_needs_of_variants(select, variants, distinct)
    with_relations = [join_outer_relations(variant) for variant in variants]
    if first[2] and with_relations != variants:
        second = _find_needs_of_variants(select, with_relations, distinct)
        return first if second[2] else second
    return first


def _find_needs_of_variants(
    select: Select, variants: Sequence[Select], distinct: bool
) -> tuple[list[PartNeeds], list[PartnerNeeds], list[tuple[Select, Failure]]]:
    """The needs of the variants of a select, of their partner tests, and the failures."""
    found, failed = _find_needs_by_part(select, variants, distinct)
    failures = [(_find_rows_select(select, failure.part), failure) for failure in failed]
    if failures:
        failures = [*_find_joined_failures(select, variants, distinct), *failures]
    partners, more = _find_partners(variants)
    return found, partners, [*failures, *more]


def _find_partners(variants: Sequence[Select]) -> tuple[list[PartnerNeeds], list[tuple[Select, Failure]]]:
    """The needs of the partner tests of all variants, and the failures."""
    partners: list[PartnerNeeds] = []
    failures: list[tuple[Select, Failure]] = []
    for variant in variants:
        needs, more = find_partner_needs(variant)
        partners += [n for n in needs if not any(known.decides(n.alias, n.test) for known in partners)]
        failures += more
    return partners, failures


def _find_waiting_needs(
    select: Select, variants: Sequence[Select]
) -> list[tuple[Select, list[PartNeeds]]] | None:
    """The needs of variants all of whose matches wait for a partner that may come any time.

    Each variant comes without the test for that partner.  None if a variant has no such test, or if it is not
    known how to wait.
    """
    every = []
    for whole in variants:
        variant, wait = split_wait(whole)
        found = find_joined_needs(select, whole) if wait is not None else None
        if wait is None or found is None:
            return None
        for part in split_into_parts(variant, disjoint=True):
            needs = find_waiting_needs(select, part, wait)
            if needs is None:
                return None
            found.append((part, tuple(needs)))
        every.append((variant, found))
    return every or None


def _find_rows_select(select: Select, part: Part) -> Select:
    """The select whose occurrences a witness of a failure in ``part`` has rows of."""
    if not select.joins and not select.exists:
        return select
    known = {o.alias: o for o in part.select.occurrences}
    occurrences = [o for o in select.every_occurrence if o.alias in known]
    return replace(select, occurrences=tuple(occurrences), joins=(), exists=())


def _find_joined_failures(
    select: Select, variants: Sequence[Select], distinct: bool
) -> list[tuple[Select, Failure]]:
    """The failures of variants whose rows must have partners, with the partners joined to them.

    A witness of them has rows of the partners, too.
    """
    joined = [v for v in map(join_present_partners, variants) if v is not None]
    return [
        (f.part.select, replace(f, alone=False)) for f in _find_needs_by_part(select, joined, distinct)[1]
    ]


def _find_needs_by_part(
    select: Select, variants: Sequence[Select], distinct: bool
) -> tuple[list[PartNeeds], list[Failure]]:
    """The needs of every part of the variants of a select, and the failures.

    A part that fails is split, by its groups or by its disjunctive filters, and tried again.
    """
    disjoint = is_aggregate(select) or not distinct
    parts = [part for variant in variants for part in split_into_parts(variant, disjoint)]
    found: list[PartNeeds] = []
    failures: list[Failure] = []
    for part in parts:
        needs, failed = find_part_needs(select, part, distinct, only_part=len(parts) == 1)
        if failed and len(parts) == 1 and is_timed(part) and (pieces := _find_needs_by_group(select, part)):
            found += pieces
        elif failed and part.choices:
            finer = split_disjunctions(part)
            alone = len(parts) == 1 and len(finer) == 1
            tried = [(piece, *find_part_needs(select, piece, distinct, alone)) for piece in finer]
            found += [(piece, tuple(n)) for piece, n, _ in tried]
            still = [f for _, _, fs in tried for f in fs]
            if still:  # a witness may need values of several pieces
                failures += [*still, *(replace(each, unsplit=True) for each in failed)]
        else:
            found.append((part, tuple(needs)))
            failures += failed
    return found, failures


def find_part_needs(select: Select, part: Part, distinct: bool, only_part: bool) -> Findings:
    """The needs of one part of a select, and the failures.

    ``only_part``: the part is the whole query, so a ratio such as AVG can be taken within it.
    """
    if not is_aggregate(select):
        projected = tuple(dict.fromkeys(r for item in select.items for r in sorted_refs(item.expression)))
        if distinct:
            keys = find_result_keys(select, distinct)
            return find_existence_need(part, projected, ViolationCode.UNBOUNDED_PROJECTION, keys=keys)
        if len(part.aliases) == 1:
            return [Need(part, part.aliases, True, ())], []
        return find_counted_need(part, projected, ViolationCode.UNBOUNDED_PROJECTION)
    groups = tuple(select.group_by or ())
    aggregates = find_aggregates(select)
    if not aggregates:
        return find_existence_need(part, groups, ViolationCode.UNBOUNDED_GROUP, keys=groups)
    needs: list[Need] = []
    failures: list[Failure] = []
    for aggregate in aggregates:
        more, failed = find_aggregate_needs(part, aggregate, groups, only_part)
        limit = _find_highest_limit(select, aggregate) if failed else None
        if limit is not None:
            more, failed = find_capped_needs(part, aggregate, groups, limit) or (more, failed)
        needs += more
        failures += failed
    return needs, failures


def _find_highest_limit(select: Select, aggregate: Aggregate) -> int | None:
    """The greatest constant that HAVING compares a COUNT(DISTINCT) with; None if it is used otherwise."""
    if aggregate.function != "COUNT" or not aggregate.distinct:
        return None
    if any(aggregate in walk(item.expression) for item in select.items):
        return None
    limits = []
    for node in walk(select.having):
        if isinstance(node, Comparison) and aggregate in (*walk(node.left), *walk(node.right)):
            literal = node.right.value if isinstance(node.right, Literal) else None
            if node.left != aggregate or not isinstance(literal, int | float | Decimal):
                return None
            limits.append(max(int(literal), 0))
        elif isinstance(node, IsNull) and aggregate in walk(node.operand):
            return None
    return max(limits, default=None)


def _find_needs_by_group(select: Select, part: Part) -> list[PartNeeds]:
    """The needs of each group on its own, or nothing if one fails.

    Within a group its columns are constants, so streams that are joined only through them are not joined.
    """
    found = []
    for piece in split_by_values(part, select.group_by or ()):
        needs, failed = find_part_needs(select, piece, distinct=False, only_part=True)
        if failed:
            return []
        found.append((piece, tuple(needs)))
    return found
