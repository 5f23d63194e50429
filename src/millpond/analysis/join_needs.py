"""Finds what a join needs: to be counted (how often it matches) or its existence (whether it matches).

Both functions choose the criterion, paper 1's or, where timestamps matter, paper 2's, and return the need if
the criterion holds and the failures if not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from millpond.analysis.column_orders import TooManyOrders
from millpond.analysis.join_criteria import decide_counted_join, decide_existence_join
from millpond.analysis.regions import JoinRegions
from millpond.analysis.self_joins import (
    has_self_join,
    remove_covered_occurrences,
    split_into_bounded_pieces,
)
from millpond.analysis.time_criteria import decide_counted_join_in_time, decide_existence_join_in_time
from millpond.analysis.violations import Failure, Violation, ViolationCode
from millpond.plan.needs import Need
from millpond.query.expressions import Ref
from millpond.query.parts import Part
from millpond.query.time_order import is_timed

# The needs that were found, and the criteria that failed.
Findings = tuple[list[Need], list[Failure]]
# The needs of a part.
PartNeeds = tuple[Part, tuple[Need, ...]]


def find_counted_need(
    part: Part,
    projected: Sequence[Ref],
    code: ViolationCode,
    scope: Sequence[str] | None = None,
    outer_columns: Sequence[Ref] = (),
    keys: Collection[Ref] | None = None,
) -> Findings:
    """The need to count matches (Theorem 5.6 of paper 1, Theorem 1 of paper 2); self-joins change nothing.

    ``scope`` restricts the join to some occurrences, which are compared with ``outer_columns`` of the others.
    ``keys`` are the columns by which matches are grouped; None if they are written and not remembered.
    """
    names = tuple(scope or part.aliases)
    regions = JoinRegions(part, names, outer_columns)
    if is_timed(part, keys or ()):
        found = decide_counted_join_in_time(regions, projected, code, keys)
    else:
        found = decide_counted_join(regions, projected, code)
    if found:
        return [], [Failure(part, v) for v in found]
    return [Need(part, names, True, tuple(projected), tuple(outer_columns))], []


def find_existence_need(
    part: Part,
    projected: Sequence[Ref],
    code: ViolationCode,
    scope: Sequence[str] | None = None,
    outer_columns: Sequence[Ref] = (),
    keys: Collection[Ref] = (),
) -> Findings:
    """The need to know which matches exist (Theorem 5.10 of paper 1, Theorem 2 of paper 2).

    ``keys`` are the columns that tell results apart: if they contain a timestamp, results may close.  If the
    criterion fails for a self-join, covered occurrences are removed (section 8.1 of paper 1).
    """
    names = tuple(scope or part.aliases)
    if is_timed(part, keys):
        return find_existence_need_in_time(part, projected, code, keys)

    def decide(piece: Part, columns: Sequence[Ref]) -> list[Violation]:
        return decide_existence_join(JoinRegions(piece, names, outer_columns), columns, code)

    found = decide(part, projected)
    if not found:
        return [Need(part, names, False, tuple(projected), tuple(outer_columns))], []
    if not has_self_join(part) or scope is not None:
        return [], [Failure(part, v) for v in found]
    reduced, kept = remove_covered_occurrences(part, projected)
    if not decide(reduced, kept):
        return [Need(reduced, _remaining_aliases(names, reduced), False, kept)], []
    split = split_into_bounded_pieces(part, projected, decide)
    if split.failing:
        return [], [Failure(p, v, complete=split.complete) for p, v in split.failing]
    return [Need(p, _remaining_aliases(names, p), False, r) for p, r in split.bounded], []


def find_existence_need_in_time(
    part: Part, projected: Sequence[Ref], code: ViolationCode, keys: Collection[Ref]
) -> Findings:
    """The need to know which matches exist, where timestamps matter (Theorem 2 of paper 2, corrected).

    If the criterion fails for a self-join, covered occurrences are removed; the row that replaces another has
    arrived, because it belongs to the same match.
    """
    failures: list[Failure]
    try:
        found = decide_existence_join_in_time(JoinRegions(part), projected, code, keys)
        failures = [Failure(part, v) for v in found]
    except TooManyOrders:
        unknown = Violation(ViolationCode.CONFLICTING_REFERENCES, part.aliases[0], (), (), ())
        failures = [Failure(part, unknown, complete=False)]
    if not failures:
        return [Need(part, part.aliases, False, tuple(projected))], []
    if has_self_join(part):
        reduced, _ = remove_covered_occurrences(part, (*projected, *keys))
        if len(reduced.aliases) < len(part.aliases):
            columns, tell_apart = reduced.rewrite_columns(projected), reduced.rewrite_columns(keys)
            needs, failed = find_existence_need(reduced, columns, code, keys=tell_apart)
            return (needs, []) if not failed else ([], failures)
    return [], failures


def _remaining_aliases(names: Iterable[str], part: Part) -> tuple[str, ...]:
    return tuple(a for a in part.aliases if a in names)
