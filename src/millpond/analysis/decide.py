"""Decides whether a query can be evaluated in bounded memory.

text → parse → Query → needs of every select.  If no criterion fails, the plan of what is kept makes the query
*bounded*.  If one fails and brute force confirms a witness, it is *unbounded*.  Otherwise the query is
*undetermined*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from millpond.analysis.assumptions import declare_opaque, find_opaque, list_assumptions, list_opaque
from millpond.analysis.blocks import decide_blocks, decide_limit, has_blocks
from millpond.analysis.current_time import decide_at_current_time
from millpond.analysis.decide_over import decide_over, has_window_functions
from millpond.analysis.derive_synopses import derive_plan
from millpond.analysis.paper_verdict import describe_published_verdict
from millpond.analysis.partner_tests import NeverFinalError
from millpond.analysis.prove_by_samples import prove_by_samples
from millpond.analysis.reasons import (
    describe_partner_gap,
    describe_undetermined,
    describe_violation,
    remove_redundant,
)
from millpond.analysis.regions import JoinRegions
from millpond.analysis.relation_groups import decide_relation_groups
from millpond.analysis.select_needs import find_select_needs
from millpond.analysis.self_joins import has_self_join
from millpond.analysis.sessions import find_session_failures
from millpond.analysis.simplify_over import simplify_over
from millpond.analysis.verdict import (
    BOUNDED,
    UNBOUNDED,
    UNDETERMINED,
    Reason,
    UndeterminedCode,
    Verdict,
)
from millpond.analysis.violations import Failure
from millpond.analysis.witness.effort import limit_effort
from millpond.analysis.witness.model import WitnessTemplate
from millpond.analysis.witness.search import SearchBudget, find_witness
from millpond.analysis.witness.source import WitnessSource, find_having_constants
from millpond.errors import WitnessSizeError, require
from millpond.frontend.parse import parse
from millpond.plan.classes import NoPlanError
from millpond.plan.needs import SelectNeeds, TimedPlan
from millpond.plan.open_sessions import compute_session_state
from millpond.plan.partial_match_bound import compute_timed_state
from millpond.plan.state import State
from millpond.plan.synopsis_bound import compute_exact_state
from millpond.query.aggregate_functions import Memory, find_memory
from millpond.query.buckets import find_time_function
from millpond.query.calendar import find_closing_unit
from millpond.query.current_time import depends_on_current_time
from millpond.query.expressions import TRUE, Aggregate, Ref
from millpond.query.model import Query, Select
from millpond.query.normalize import TooManyParts
from millpond.query.parts import Part
from millpond.query.time_order import find_result_keys, find_time_columns, is_timed
from millpond.query.trees import aliases_in, find_aggregates, is_aggregate, keeps_no_rows, refs
from millpond.query.types import Domain
from millpond.query.variants import NoVariantsError, join_subqueries

# The number of optional rows of the witness that is confirmed before a query is called unbounded.  It is
# larger if a self-join, HAVING or another part of a union could hide the effect of more rows.
CONFIRMED_ROWS = 3
CONFIRMED_ROWS_DOUBTFUL = 6
CONFIRMED_ROWS_OPAQUE = 40
_MAX_CONFIRMED_ROWS = 40
# Failures for which a witness is searched; if the first few have none, the others rarely do.
_MAX_FAILURES = 6
# Rows of all candidates that are tried; a search of this size takes one to four seconds.
_MAX_CANDIDATE_ROWS = 25_000
# If expressions are computed for the candidates, before and after samples of values are tried.
_FEW_CANDIDATE_ROWS = 1_800
_MAX_COMPUTED_ROWS = 6_000
# Rows that a candidate counts more if expressions are computed for it.
_COMPUTED_ROWS = 300


def check(text: str) -> Verdict | list[Verdict]:
    """Decide every query of a text; returns a list if the text has several.

    >>> catalog = "CREATE STREAMING TABLE S (A INT, B INT); CREATE STREAMING TABLE T (D INT);"
    >>> check(catalog + "SELECT DISTINCT A FROM S, T WHERE B < D AND A = 10").outcome
    'bounded'
    >>> check(catalog + "SELECT A FROM S, T WHERE B < D AND A = 10").outcome
    'unbounded'
    """
    require(isinstance(text, str), "text", "SQL text", text)
    verdicts = [decide(query) for query in parse(text)]
    return verdicts[0] if len(verdicts) == 1 else verdicts


def decide(query: Query, prove: bool = True) -> Verdict:
    """The verdict on one query.

    Unless it is to ``prove`` it, a query that is unbounded is undetermined: no witness is searched, which
    takes most of the time.
    """
    if depends_on_current_time(query):
        return decide_at_current_time(query, partial(_decide_rows, prove=False))
    with limit_effort():
        return _decide_rows(query, prove)


def _decide_rows(query: Query, prove: bool) -> Verdict:
    """The verdict on a query whose answer changes only when rows arrive."""
    decide_inner = partial(decide, prove=prove)
    if query.limit is not None:
        return decide_limit(query, decide_inner)
    if has_window_functions(query):
        query = simplify_over(query)
    if has_window_functions(query):
        return decide_over(query, decide_inner, prove)
    if has_blocks(query):
        return decide_blocks(query, decide_inner, prove)
    if any(select.session is not None for select in query.selects):
        return _decide_sessions(query, prove)
    unsupported = _find_unsupported(query)
    if unsupported is not None:
        return _build_undetermined(query, (describe_undetermined(unsupported),))
    try:
        needs, failures = analyse(query)
    except TooManyParts:
        return _build_undetermined(query, (describe_undetermined(UndeterminedCode.TOO_MANY_ALTERNATIVES),))
    except (NoVariantsError, NeverFinalError) as gap:
        if keeps_no_rows(query):
            return _decide_row_by_row(query)
        grouped = decide_relation_groups(query, decide_inner)
        if grouped is not None:
            return grouped
        reason = describe_partner_gap(query, gap)
        return _decide_without_variants(query, reason) if prove else _build_undetermined(query, (reason,))
    if not failures:
        try:
            return _decide_bounded(query, needs)
        except NoPlanError as gap:
            if keeps_no_rows(query):
                return _decide_row_by_row(query)
            return _build_undetermined(
                query, (describe_undetermined(UndeterminedCode.NO_SYNOPSIS, str(gap)),)
            )
    if keeps_no_rows(query):
        return _decide_row_by_row(query)
    if not prove:
        return _build_unconfirmed(query, failures)
    verdict = _decide_by_witness(query, failures)
    if verdict.outcome == UNDETERMINED:
        verdict = _decide_by_template(query, verdict)
    is_sampled = _computes(query) or _has_conditions_on_groups(query)
    if verdict.outcome == UNDETERMINED and not is_sampled and _can_sample(query, failures):
        verdict = prove_by_samples(query, verdict, failures)
    if verdict.outcome == UNBOUNDED:
        return replace(verdict, published=_describe_published(query, needs, bounded=False))
    return verdict


def analyse(query: Query) -> tuple[list[SelectNeeds], list[tuple[Select, Failure]]]:
    """The needs of every select and the criteria that fail, without plan or witness."""
    every: list[SelectNeeds] = []
    failures: list[tuple[Select, Failure]] = []
    for term in query.terms:
        for select in term.selects:
            found, partners, failed = find_select_needs(select, term.distinct)
            every.append(SelectNeeds(select, term.distinct, tuple(found), tuple(partners)))
            alone = len(query.selects) == len(found) == 1
            failures += [(source, replace(f, alone=f.alone and alone)) for source, f in failed]
    return every, failures


def _decide_bounded(query: Query, needs: list[SelectNeeds]) -> Verdict:
    """The bounded verdict with its plan; raises NoPlanError if no synopsis is known."""
    in_time = any(_is_timed_part(each, part) for each in needs for part, wanted in each.parts if wanted)
    if in_time or any(each.partners or each.waits for each in needs):
        timed = TimedPlan(query, tuple(needs))
        state = compute_timed_state(timed)
        published = _describe_published(query, needs, bounded=True)
        return Verdict(BOUNDED, (), state, query, timed=timed, published=published)
    plan = derive_plan(query, needs)
    return Verdict(BOUNDED, (), compute_exact_state(plan), query, plan=plan)


def _decide_row_by_row(query: Query) -> Verdict:
    """The verdict on a query in which relations are joined with each row of a stream: nothing is kept."""
    needs = tuple(SelectNeeds(select, False, ()) for select in query.selects)
    return Verdict(BOUNDED, (), State(0, 0), query, timed=TimedPlan(query, needs))


def plan_in_order(verdict: Verdict) -> Verdict:
    """The verdict on a bounded query, with a plan that writes the rows in the order of time."""
    if verdict.plan is None:
        return verdict
    needs, _ = analyse(verdict.query)
    return replace(verdict, plan=None, timed=TimedPlan(verdict.query, tuple(needs)))


def _decide_sessions(query: Query, prove: bool) -> Verdict:
    """The verdict on a query that groups by ``session_window``."""
    try:
        state = compute_session_state(query)
        failures = [(query.selects[0], failure) for failure in find_session_failures(query.selects[0])]
        if failures:
            return _decide_by_witness(query, failures) if prove else _build_unconfirmed(query, failures)
    except NoPlanError as gap:
        reason = describe_undetermined(UndeterminedCode.NO_SYNOPSIS, str(gap))
        return _build_undetermined(query, (reason,))
    except TooManyParts:
        return _build_undetermined(query, (describe_undetermined(UndeterminedCode.TOO_MANY_ALTERNATIVES),))
    needs = tuple(SelectNeeds(select, False, ()) for select in query.selects)
    return Verdict(BOUNDED, (), state, query, timed=TimedPlan(query, needs))


def _is_timed_part(needs: SelectNeeds, part: Part) -> bool:
    return is_timed(part, find_result_keys(needs.select, needs.distinct))


def _decide_without_variants(query: Query, reason: Reason) -> Verdict:
    """The verdict on a query whose rows with or without partner are not known how to find.

    The query with all its tables joined compares the same columns; a witness may show that it is unbounded.
    """
    failures: list[tuple[Select, Failure]] = []
    for term in query.terms:
        for select in term.selects:
            joined = join_subqueries(select)
            failures += [(joined, replace(f, alone=False)) for _, f in _find_failures(joined, term.distinct)]
    verdict = _decide_by_witness(query, failures)
    return verdict if verdict.outcome == UNBOUNDED else _build_undetermined(query, (reason,))


def _find_failures(select: Select, distinct: bool) -> list[tuple[Select, Failure]]:
    try:
        return find_select_needs(select, distinct)[2]
    except TooManyParts:
        return []


def _decide_by_witness(query: Query, failures: list[tuple[Select, Failure]]) -> Verdict:
    """The verdict if a criterion fails: unbounded if a witness is confirmed, undetermined otherwise."""
    computes = _computes(query)
    template = _find_template(query) if query.projection else None
    if template is not None:
        found = remove_redundant(describe_violation(select, failure) for select, failure in failures)
        assumed = template.assumptions
        return Verdict(
            UNBOUNDED, tuple(found), State(None, None), query, template=template, assumptions=assumed
        )
    if (computes or _has_conditions_on_groups(query)) and _can_sample(query, failures):
        quick = SearchBudget(_FEW_CANDIDATE_ROWS, _COMPUTED_ROWS * computes)
        verdict = _search_witness(query, failures, quick, free=False)
        if verdict.outcome == UNDETERMINED:
            verdict = prove_by_samples(query, verdict, failures)
        if verdict.outcome == UNBOUNDED:
            return verdict
    budget = SearchBudget(_MAX_COMPUTED_ROWS if computes else _MAX_CANDIDATE_ROWS, _COMPUTED_ROWS * computes)
    return _search_witness(query, failures, budget)


def _search_witness(
    query: Query, failures: list[tuple[Select, Failure]], budget: SearchBudget, free: bool = True
) -> Verdict:
    """Unbounded if a witness of one of the failures is confirmed within a budget, else undetermined.

    ``free``: it may have free values in place of expressions.
    """
    for select, failure in failures[:_MAX_FAILURES]:
        source = WitnessSource(select, JoinRegions(failure.part), failure.violation, failure.aggregate)
        rows = _rows_to_confirm(query, select, failure)
        if rows > _MAX_CONFIRMED_ROWS or _has_recurring_values(select, failure) or _may_close(select):
            continue
        freed = _find_confirmed(query, source, rows, budget, free)
        if freed is not None:
            every = [(s, f) for s, f in [(select, failure), *failures] if not f.unsplit]
            reasons = remove_redundant(describe_violation(s, f) for s, f in every)
            assumed = list_assumptions(query, select, failure, freed)
            return Verdict(
                UNBOUNDED,
                tuple(reasons),
                State(None, None),
                query,
                witness_source=source,
                assumptions=assumed,
            )
    return _build_unconfirmed(query, failures)


def _build_unconfirmed(query: Query, failures: list[tuple[Select, Failure]]) -> Verdict:
    """The verdict if criteria fail, but no witness is known."""
    reasons = []
    for select, failure in ((s, f) for s, f in failures if not f.unsplit):
        code = UndeterminedCode.UNCONFIRMED if failure.complete else UndeterminedCode.TOO_MANY_ORDERS
        cause = describe_violation(select, failure) if failure.violation.columns else None
        reasons.append(describe_undetermined(code, cause=cause))
    return _build_undetermined(query, remove_redundant(reasons))


def _find_template(query: Query) -> WitnessTemplate | None:
    """A template of witnesses that DuckDB confirms, with all that the query computes from its results."""
    from millpond.analysis.witness.find_whole import find_whole_template  # here, as it imports DuckDB

    return find_whole_template(query)


def _has_joint_aggregates(query: Query) -> bool:
    return any(len(aliases_in(each)) > 1 for select in query.selects for each in find_aggregates(select))


def _decide_by_template(query: Query, verdict: Verdict) -> Verdict:
    """Unbounded if a witness of another form is confirmed, in which rows have the constants of HAVING.

    For aggregates over several tables, the values of rows differ in two columns only.
    """
    template: WitnessTemplate | None = None
    if _has_joint_aggregates(query):
        from millpond.analysis.witness.cross_templates import find_cross_template  # it imports DuckDB

        template = find_cross_template(query)
    elif _has_conditions_on_groups(query):
        from millpond.analysis.witness.templates import find_template  # it imports DuckDB

        template = find_template(query)
    if template is None:
        return verdict
    reasons = tuple(each.cause or each for each in verdict.reasons)
    return replace(verdict, outcome=UNBOUNDED, reasons=reasons, template=template)


def _find_confirmed(
    query: Query, source: WitnessSource, rows: int, budget: SearchBudget, free: bool
) -> bool | None:
    """Whether a confirmed witness has free values in place of expressions; None if there is no witness."""
    try:
        # Most candidates fail with few rows already.
        sizes = [rows] if rows <= CONFIRMED_ROWS_DOUBTFUL else [CONFIRMED_ROWS_DOUBTFUL, rows]
        if all(find_witness(query, source, size, budget) is not None for size in sizes):
            return False
        declared = declare_opaque(query, source.select) if free else None
        if declared is None:
            return None
        freed, select = declared
        found = find_witness(freed, replace(source, select=select), CONFIRMED_ROWS_DOUBTFUL, budget)
        return True if found is not None else None
    except WitnessSizeError:
        return None


def _has_recurring_values(select: Select, failure: Failure) -> bool:
    """A column of the violation is a function of time with finitely many values, such as the time of day."""
    moving = [ref for moved in failure.violation.moving for ref in moved.columns]
    derived = {Ref(o.alias, column.name) for o in select.occurrences for column in o.table.derived}
    functions = (find_time_function(select, ref) for ref in derived & {*failure.violation.columns, *moving})
    return any(each is not None and find_closing_unit([each]) is None for each in functions)


def _may_close(select: Select) -> bool:
    """A group column is computed from the time of a stream in a way that is not known.

    If its values never return, the groups close and need not be kept.  Witnesses do not show that they do.
    """
    for ref in select.group_by or ():
        table, column = select.occurrence(ref.occurrence).table, find_opaque(select, ref)
        derivation = column.derivation if column is not None else None
        if derivation is not None and table.streaming and table.time in derivation.arguments:
            return True
    return False


def _computes(query: Query) -> bool:
    """Whether a witness is confirmed with values of expressions that DuckDB computes."""
    return query.filter is not None or any(map(list_opaque, query.selects))


def _has_conditions_on_groups(query: Query) -> bool:
    return any(select.having != TRUE for select in query.selects)


def _can_sample(query: Query, failures: list[tuple[Select, Failure]]) -> bool:
    """Whether a witness with samples of values would show that the query is unbounded."""
    recurs = any(_has_recurring_values(select, failure) for select, failure in failures)
    return bool(failures) and not recurs and not any(map(_may_close, query.selects))


def _rows_to_confirm(query: Query, select: Select, failure: Failure) -> int:
    """The number of optional rows that a witness needs to be convincing."""
    if select.having != TRUE and _is_set(failure.aggregate):
        return max(CONFIRMED_ROWS_DOUBTFUL, max(find_having_constants(select), default=0) + CONFIRMED_ROWS)
    if query.filter is not None or list_opaque(select):  # an expression may have a few values only
        return CONFIRMED_ROWS_OPAQUE
    doubtful = select.having != TRUE or has_self_join(failure.part) or not failure.alone
    return CONFIRMED_ROWS_DOUBTFUL if doubtful else CONFIRMED_ROWS


def _is_set(aggregate: Aggregate | None) -> bool:
    return aggregate is not None and find_memory(aggregate) is Memory.SET


def _build_undetermined(query: Query, reasons: Sequence[Reason]) -> Verdict:
    return Verdict(UNDETERMINED, tuple(reasons), State(None, None), query)


def _describe_published(query: Query, needs: list[SelectNeeds], bounded: bool) -> str | None:
    """Where paper 2, as published, differs on a query that has a single part."""
    if len(query.selects) > 1 or len(needs[0].parts) != 1 or needs[0].partners or needs[0].waits:
        return None
    (part, _) = needs[0].parts[0]
    if not is_timed(part):
        return None
    return describe_published_verdict(needs[0].select, part, needs[0].distinct, bounded)


def _find_unsupported(query: Query) -> UndeterminedCode | None:
    """What the analysis does not support: no stream, and some uses of timestamps."""
    for term in query.terms:
        for select in map(join_subqueries, term.selects):
            if not any(o.table.streaming for o in select.occurrences):
                return UndeterminedCode.NO_STREAM
            plain = sum(o.table.streaming for o in select.occurrences) == 1 and not is_aggregate(select)
            if plain and not term.distinct:
                continue  # each row is answered on its own, whatever it contains
            compared = {r for r in refs(select.where) if _is_stream_timestamp(select, r)}
            others = compared - set(find_time_columns(select).values())
            if any(find_time_function(select, ref) is None for ref in others):
                return UndeterminedCode.SECOND_TIMESTAMP
    return None


def _is_stream_timestamp(select: Select, ref: Ref) -> bool:
    """The column is a timestamp of a stream, or a function of its time column without a bound."""
    function = find_time_function(select, ref)
    is_time = select.type_of(ref).domain is Domain.TIME or (
        function is not None and find_closing_unit([function]) is not None
    )
    return is_time and select.occurrence(ref.occurrence).table.streaming
