"""The verdict on a query with window functions.

Bounded if every function is, and the consumer is: one that answers each row by itself, one over finitely
many rows (a limited rank with bounded partitions), or one that is bounded over a stream of final rows.
Unbounded if a witness of the whole query is confirmed.  Undetermined otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from millpond.analysis.blocks import add_states, has_finite_answer, open_blocks, open_table
from millpond.analysis.over import (
    OverCode,
    OverFailure,
    WindowedSource,
    count_partitions,
    find_needs,
    list_windowed,
)
from millpond.analysis.reasons import describe_undetermined, join_words
from millpond.analysis.split_over import is_plain_over, split_over
from millpond.analysis.top_groups import compute_top_groups
from millpond.analysis.verdict import (
    BOUNDED,
    UNBOUNDED,
    UNDETERMINED,
    Reason,
    UndeterminedCode,
    Verdict,
)
from millpond.plan.over import FunctionNeed, OverPlan, compute_over_state, find_over_delay
from millpond.plan.state import State
from millpond.query.expressions import Ref
from millpond.query.model import Item, Occurrence, Query, Select, Subquery, Term
from millpond.query.normalize import TooManyParts
from millpond.query.result_times import is_revised
from millpond.query.trees import is_aggregate, is_projection, map_occurrences
from millpond.query.types import TIME_VALUE

_MESSAGES = {
    OverCode.UNBOUNDED_PARTITION: (
        "each partition needs a state of its own, and {columns} can take infinitely many values"
    ),
    OverCode.REVISED_ROWS: "a later row can change the results of any number of earlier rows",
    OverCode.UNBOUNDED_TIES: "any number of rows can have the same rank, and they differ in {columns}",
    OverCode.HOLISTIC_FRAME: "{columns} can take infinitely many values, and all of them matter",
}


def has_window_functions(query: Query) -> bool:
    """Whether a table of the query, outside of subqueries, has window functions."""
    return any(True for select in query.selects for _ in list_windowed(select))


def decide_over(query: Query, decide: Callable[[Query], Verdict], prove: bool = True) -> Verdict:
    """The verdict on a query with window functions; ``decide`` is that on one without.

    It is unbounded only if it is to ``prove`` that.
    """
    try:
        query, (plan, failures, gap, below) = _find_split_plan(query, decide)
    except TooManyParts:
        return _build_undetermined(query, [describe_undetermined(UndeterminedCode.TOO_MANY_ALTERNATIVES)])
    if not failures and not is_plain_over(query):
        split = split_over(query)
        verdict = _decide_as_blocks(split, decide)
        if verdict is None and plan is not None and plan.below is None:
            verdict = _decide_finite(split, decide)
        if verdict is not None:
            return verdict
    if plan is not None:
        own = Verdict(BOUNDED, (), compute_over_state(plan), query, over=plan)
        if plan.below is None:
            return own
        blocks = plan.below.blocks or {"rows": plan.below}
        return replace(own, state=add_states([*blocks.values(), own]), blocks=blocks)
    kept = compute_top_groups(query)
    if kept is not None:
        return Verdict(BOUNDED, (), kept, query)
    from millpond.analysis.witness.find_whole import find_whole_template  # here, as it imports DuckDB

    known = [below.template] if below is not None else []
    template = find_whole_template(query, known) if prove else None
    reasons = [describe_failure(each) for each in failures]
    if template is not None:
        if not reasons and below is not None and below.outcome == UNBOUNDED:
            reasons = [*below.reasons]  # why the rows below are not bounded
        shown = f"later results depend on any number of earlier rows, as the witness shows: {gap}"
        found = tuple(reasons) or (Reason(OverCode.REVISED_ROWS, (), None, shown),)
        assumed = template.assumptions
        return Verdict(UNBOUNDED, found, State(None, None), query, template=template, assumptions=assumed)
    if not reasons:
        return _build_undetermined(query, [describe_undetermined(UndeterminedCode.NO_SYNOPSIS, gap)])
    code = UndeterminedCode.UNCONFIRMED
    return _build_undetermined(query, [describe_undetermined(code, cause=each) for each in reasons])


def _decide_as_blocks(query: Query, decide: Callable[[Query], Verdict]) -> Verdict | None:
    """The verdict on a query that reads rows with window functions as subqueries, if it is bounded.

    That is so if none of these rows is ever taken back, and the query is bounded over them.
    """
    tables = {n: t for n, t in query.tables.items() if isinstance(t.block, Subquery) and t.streaming}
    blocks: dict[str, Verdict] = {}
    for name, table in tables.items():
        assert isinstance(table.block, Subquery)
        block = blocks[name] = decide(table.block.query)
        if block.outcome != BOUNDED or is_revised(table.block.query):
            return None
        if block.over is not None and find_over_delay(block.over) is None:
            if table.derived or any(need.revised for need in block.over.needs):
                return None
            query = _forget_time(query, name)
    own = decide(open_blocks(query))
    if own.outcome != BOUNDED:
        return None
    return replace(own, query=query, state=add_states([*blocks.values(), own]), blocks=blocks)


def _decide_finite(query: Query, decide: Callable[[Query], Verdict]) -> Verdict | None:
    """The verdict on a query over limited ranks: the rows that pass are finitely many, and are all kept."""
    blocks: dict[str, Verdict] = {}
    for name, table in query.tables.items():
        if not isinstance(table.block, Subquery):
            return None
        block = blocks[name] = decide(table.block.query)
        needs = () if block.over is None else block.over.needs
        if not any(need.limit is not None and need.is_per_partition for need in needs):
            return None
    return Verdict(BOUNDED, (), add_states(blocks.values()), query, blocks=blocks)


def _forget_time(query: Query, name: str) -> Query:
    """The query over rows of a table that do not come in the order of time."""

    def forget(occurrence: Occurrence) -> Occurrence:
        table = occurrence.table
        if table.name != name:
            return occurrence
        columns = tuple(replace(c, type=TIME_VALUE) if c.name == table.time else c for c in table.columns)
        return replace(occurrence, table=replace(table, time=None, columns=columns))

    terms = (
        replace(term, selects=tuple(map_occurrences(select, forget) for select in term.selects))
        for term in query.terms
    )
    return replace(query, terms=tuple(terms))


def describe_failure(failure: OverFailure) -> Reason:
    """The reason of a rule that fails."""
    columns = join_words(list(failure.columns)) if failure.columns else "its columns"
    message = _MESSAGES[failure.code].format(columns=columns)
    return Reason(
        failure.code.value, failure.columns, failure.function.text or failure.function.name, message
    )


def _build_undetermined(query: Query, reasons: Sequence[Reason]) -> Verdict:
    return Verdict(UNDETERMINED, tuple(dict.fromkeys(reasons)), State(None, None), query)


_Found = tuple[OverPlan | None, list[OverFailure], str, Verdict | None]


def _find_split_plan(query: Query, decide: Callable[[Query], Verdict]) -> tuple[Query, _Found]:
    """What is found for a query; window functions below others are a subquery if it has a plan then."""
    if len(query.selects) == 1 and is_projection(query) and not is_plain_over(query):
        split = split_over(query)
        found = _find_plan(split, decide)
        if found[0] is not None:
            return split, found
    return query, _find_plan(query, decide)


def _find_plan(query: Query, decide: Callable[[Query], Verdict]) -> _Found:
    """The plan of a bounded query; otherwise the rules that fail, and what is not known.

    Also the verdict on the rows below the functions, if they are those of a block.
    """
    if len(query.selects) != 1:
        return None, [], "a UNION with window functions", None
    (select,) = query.selects
    source, *others = list_windowed(select)
    if others:
        return None, [], "a join of tables with window functions", None
    streams = [o for o in select.every_occurrence if o.table.streaming and o.alias != source.alias]
    if streams or select.exists:
        return None, [], "a join with window functions", None
    opened, below = source, None
    if source.base.block is not None:
        below = decide(query_below(source))
        if below.outcome != BOUNDED:
            return None, [], "window functions over rows that are not bounded", below
        if _is_finite(below):
            return OverPlan(query, select, source.alias, (), (), below), [], "", below
        if not _is_final(below):
            return None, [], "window functions over rows that are revised", below
        opened = _open_base(source)
    needs, failures = find_needs(opened)
    if failures:
        return None, failures, "", below
    gap = _find_consumer_gap(query, opened, needs, decide)
    if gap is not None:
        return None, [], gap, below
    partitions = tuple(count_partitions(opened, need.function) for need in needs)
    return OverPlan(query, select, source.alias, tuple(needs), partitions, below), [], "", below


def query_below(source: WindowedSource) -> Query:
    """The query of the rows below window functions, with the columns that they and their consumer use."""
    base, functions = source.base, [f for f in source.block.functions if f.name in source.used]
    used = set(source.used) & {column.name for column in base.all_columns}
    for f in functions:
        used |= {*f.partition_by, *(key.column for key in f.order_by)}
        used |= {each for each in f.arguments if isinstance(each, str)}
    names = tuple(column.name for column in base.all_columns if column.name in used) or (
        base.columns[0].name,
    )
    items = tuple(Item(Ref(base.name, name), name) for name in names)
    select = Select((Occurrence(base.name, base),), items, source.block.where, text=source.select.text)
    return Query((Term((select,), False),), names, source.select.text, source.select.position)


def _is_finite(below: Verdict) -> bool:
    """Whether the rows of a bounded query below window functions are finitely many groups."""
    (select,) = below.query.selects
    block = select.occurrences[0].table.block
    return isinstance(block, Subquery) and has_finite_answer(block.query)


def _is_final(below: Verdict) -> bool:
    """Whether the rows of a bounded query below window functions come once and for all, in time."""
    (select,) = below.query.selects
    table = select.occurrences[0].table
    if isinstance(table.block, Subquery):
        plan = below.blocks[table.name].over
        is_ordered = plan is None or find_over_delay(plan) is not None
        return table.time is not None and is_ordered and not is_revised(table.block.query)
    return below.over is None or find_over_delay(below.over) is not None


def _open_base(source: WindowedSource) -> WindowedSource:
    """The source with the rows below its functions as those of a declared stream."""
    base = source.base
    opened = open_table(base) if isinstance(base.block, Subquery) else replace(base, block=None)
    block = replace(source.block, base=opened)
    table = replace(source.table, block=block)
    alias = source.alias
    select = map_occurrences(source.select, lambda o: replace(o, table=table) if o.alias == alias else o)
    return WindowedSource(select, alias)


def _find_consumer_gap(
    query: Query, source: WindowedSource, needs: Sequence[FunctionNeed], decide: Callable[[Query], Verdict]
) -> str | None:
    """Why the select over the results is not known to be bounded; None if it is."""
    select = source.select
    if not query.terms[0].distinct and not is_aggregate(select):
        return None
    if any(need.limit is not None and need.is_per_partition for need in needs):
        return None  # finitely many rows pass
    if any(need.revised or need.later_rows for need in needs):
        return "groups or a set of rows that are revised"
    rows = _take_as_stream(select, source.alias)
    verdict = decide(replace(query, terms=(replace(query.terms[0], selects=(rows,)),)))
    return None if verdict.outcome == BOUNDED else "groups or a set of the results"


def _take_as_stream(select: Select, alias: str) -> Select:
    """The select over a stream that has the results of window functions as ordinary columns."""
    return map_occurrences(
        select, lambda o: replace(o, table=replace(o.table, block=None)) if o.alias == alias else o
    )
