"""Can a query be evaluated in bounded memory?  The decision, with a certificate either way.

text → parse → Query → parts → needs → no failure: a plan of what is kept, *bounded*;
a failure whose certificate brute force confirms: *unbounded*; otherwise *undetermined*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from millpond.analysis.derive_synopses import plan_of
from millpond.analysis.explain import essential, undetermined_reason, violation_reason
from millpond.analysis.needs import Failure, needs_of
from millpond.analysis.paper_verdict import published_verdict
from millpond.analysis.regions import Ordering
from millpond.analysis.self_joins import has_self_join
from millpond.analysis.verdict import BOUNDED, UNBOUNDED, UNDETERMINED, Reason, Verdict
from millpond.analysis.witness.candidates import Clue, having_constants
from millpond.analysis.witness.search import find_witness
from millpond.errors import WitnessSizeError
from millpond.frontend.parse import parse
from millpond.plan.classes import NoPlanError
from millpond.plan.needs import Need, SelectNeeds, TimedPlan
from millpond.plan.partial_match_bound import timed_state
from millpond.plan.state import State
from millpond.plan.synopsis_bound import state_of
from millpond.query.model import TRUE, Literal, Query, Ref, Select
from millpond.query.normalize import TooManyParts
from millpond.query.parts import Part, split_disjunctions, split_into_parts
from millpond.query.split_parts import split_by_values
from millpond.query.time_order import find_time_columns, is_timed
from millpond.query.trees import is_aggregate, item_refs, refs, walk
from millpond.query.types import INTERVAL, Domain

# Optional rows of the certificate that is confirmed before a query is called unbounded.  A self-joined row
# plays several parts at once, HAVING compares with thresholds, and the parts of a union may hide each
# other, so that what holds for a few rows need not hold for more.
CONFIRMED_ROWS = 3
CONFIRMED_ROWS_DOUBTFUL = 6
_MAX_CONFIRMED_ROWS = 40
# Failures for which a certificate is sought; what one of them does not show, the next few rarely do.
_MAX_CLUES = 6


def check(text: str) -> Verdict | list[Verdict]:
    """Decide every query of a text; a list where it holds several.

    >>> catalog = "CREATE STREAMING TABLE S (A INT, B INT); CREATE STREAMING TABLE T (D INT);"
    >>> check(catalog + "SELECT DISTINCT A FROM S, T WHERE B < D AND A = 10").outcome
    'bounded'
    >>> check(catalog + "SELECT A FROM S, T WHERE B < D AND A = 10").outcome
    'unbounded'
    """
    verdicts = [decide(query) for query in parse(text)]
    return verdicts[0] if len(verdicts) == 1 else verdicts


def decide(query: Query) -> Verdict:
    """The verdict on one query."""
    outside = _not_analysed(query)
    if outside is not None:
        return _undetermined(query, (outside,))
    try:
        needs, failures = analyse(query)
    except TooManyParts:
        return _undetermined(query, (undetermined_reason("too-many-alternatives"),))
    if not failures:
        try:
            if any(is_timed(part) for each in needs for part, wanted in each.parts if wanted):
                timed = TimedPlan(query, tuple(needs))
                told = _published(query, needs, bounded=True)
                return Verdict(BOUNDED, (), timed_state(timed), query, timed=timed, published=told)
            plan = plan_of(query, needs)
        except NoPlanError as gap:
            return _undetermined(query, (undetermined_reason("no-synopsis", str(gap)),))
        return Verdict(BOUNDED, (), state_of(plan), query, plan=plan)
    verdict = _unbounded_or_undetermined(query, failures)
    if verdict.outcome == UNBOUNDED:
        return replace(verdict, published=_published(query, needs, bounded=False))
    return verdict


def _published(query: Query, needs: list[SelectNeeds], bounded: bool) -> str | None:
    """What paper 2 says of a query that is a single part."""
    if len(query.selects) > 1 or len(needs[0].parts) != 1:
        return None
    (part, _) = needs[0].parts[0]
    return published_verdict(needs[0].select, part, needs[0].distinct, bounded) if is_timed(part) else None


def analyse(query: Query) -> tuple[list[SelectNeeds], list[tuple[Select, Failure]]]:
    """The decision without its certificate: what is needed, and which conditions fail."""
    every: list[SelectNeeds] = []
    failures: list[tuple[Select, Failure]] = []
    for term in query.terms:
        for select in term.selects:
            found, failed = _analyse_select(select, term.distinct)
            every.append(SelectNeeds(select, term.distinct, tuple(found)))
            alone = len(query.selects) == len(found) == 1
            failures += [(select, replace(f, alone=alone)) for f in failed]
    return every, failures


def _analyse_select(
    select: Select, distinct: bool
) -> tuple[list[tuple[Part, tuple[Need, ...]]], list[Failure]]:
    """Part by part; one that fails is cut by its groups, or by its disjunctive filters, and tried again."""
    parts = split_into_parts(select, disjoint=is_aggregate(select) or not distinct)
    found: list[tuple[Part, tuple[Need, ...]]] = []
    failures: list[Failure] = []
    for part in parts:
        needs, failed = needs_of(select, part, distinct, only_part=len(parts) == 1)
        if failed and len(parts) == 1 and is_timed(part) and (pieces := _by_groups(select, part)):
            found += pieces
        elif failed and part.choices:
            finer = split_disjunctions(part)
            alone = len(parts) == 1 and len(finer) == 1
            tried = [(piece, *needs_of(select, piece, distinct, alone)) for piece in finer]
            found += [(piece, tuple(n)) for piece, n, _ in tried]
            still = [f for _, _, fs in tried for f in fs]
            failures += [*still, *failed] if still else []  # a proof may need values of several pieces
        else:
            found.append((part, tuple(needs)))
            failures += failed
    return found, failures


def _by_groups(select: Select, part: Part) -> list[tuple[Part, tuple[Need, ...]]]:
    """The part group by group, where that is bounded: within a group its columns are constants, and streams
    that are joined only through them are not joined."""
    found = []
    for piece in split_by_values(part, select.group_by or ()):
        needs, failed = needs_of(select, piece, distinct=False, only_part=True)
        if failed:
            return []
        found.append((piece, tuple(needs)))
    return found


def _unbounded_or_undetermined(query: Query, failures: list[tuple[Select, Failure]]) -> Verdict:
    for select, failure in failures[:_MAX_CLUES]:
        clue = Clue(select, Ordering(failure.part), failure.violation, failure.aggregate)
        rows = _confirmed_rows(select, failure)
        if rows > _MAX_CONFIRMED_ROWS:
            continue
        try:
            witness = find_witness(query, clue, rows)
        except WitnessSizeError:
            continue
        if witness is not None:
            reasons = essential(violation_reason(s, f) for s, f in [(select, failure), *failures])
            return Verdict(UNBOUNDED, tuple(reasons), State(None, None), query, clue=clue)
    reasons = []
    for select, failure in failures:
        code = "unconfirmed" if failure.complete else "too-many-orders"
        cause = violation_reason(select, failure) if failure.violation.columns else None
        reasons.append(undetermined_reason(code, cause=cause))
    return _undetermined(query, essential(reasons))


def _confirmed_rows(select: Select, failure: Failure) -> int:
    """How large a certificate must be to be believed."""
    if select.having != TRUE and failure.aggregate is not None and failure.aggregate.distinct:
        return max(CONFIRMED_ROWS_DOUBTFUL, max(having_constants(select), default=0) + CONFIRMED_ROWS)
    doubtful = select.having != TRUE or has_self_join(failure.part) or not failure.alone
    return CONFIRMED_ROWS_DOUBTFUL if doubtful else CONFIRMED_ROWS


def _undetermined(query: Query, reasons: Sequence[Reason]) -> Verdict:
    return Verdict(UNDETERMINED, tuple(reasons), State(None, None), query)


def _not_analysed(query: Query) -> Reason | None:
    """What is outside this analysis: queries without streams, windows, timestamps in results or as values."""
    for select in query.selects:
        if not any(o.table.streaming for o in select.occurrences):
            return undetermined_reason("no-stream")
        plain = sum(o.table.streaming for o in select.occurrences) == 1 and not is_aggregate(select)
        if plain and not any(t.distinct for t in query.terms):
            continue  # each row is answered by itself, whatever it holds
        if any(isinstance(n, Literal) and n.type is INTERVAL for n in walk(select.where)):
            return undetermined_reason("window")
        shown = item_refs(select.items) | set(select.group_by or ())
        clocks = set(find_time_columns(select).values())
        if any(_is_time(select, ref) and _in_stream(select, ref) for ref in shown):
            return undetermined_reason("time-in-result")
        values = {r for r in refs(select.where) if _is_time(select, r) and _in_stream(select, r)} - clocks
        if values:
            return undetermined_reason("second-timestamp")
    return None


def _is_time(select: Select, ref: Ref) -> bool:
    return select.type_of(ref).domain is Domain.TIME


def _in_stream(select: Select, ref: Ref) -> bool:
    return select.occurrence(ref.occurrence).table.streaming
