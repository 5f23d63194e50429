"""Decides queries of several blocks: subqueries that are tables of their own.

A block whose rows are final is a stream: the select that reads it is decided like any other.  If all blocks
and that select are bounded, so is the query, and its state is theirs together.  The converse does not hold: a
select may not need what its block cannot give.  So a query is unbounded only if a witness of the whole query
is confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from millpond.analysis.reasons import describe_undetermined
from millpond.analysis.verdict import BOUNDED, UNBOUNDED, UNDETERMINED, Reason, UndeterminedCode, Verdict
from millpond.plan.state import VALUE_BYTES, Kept, State
from millpond.query.expressions import And, Comparison, Condition, Expr, Literal, Op, Or, Ref
from millpond.query.finite_columns import is_of_relations
from millpond.query.inner_times import list_inner_times
from millpond.query.model import Occurrence, Query, Select, Subquery, Table
from millpond.query.parts import collect_derived_facts
from millpond.query.result_times import find_final_buckets, is_revised
from millpond.query.trees import (
    aliases_in,
    conjuncts,
    has_aggregate,
    is_aggregate,
    map_occurrences,
    refs,
    rename_refs,
)
from millpond.query.types import INT

Decide = Callable[[Query], Verdict]


def has_blocks(query: Query) -> bool:
    """Whether a table of the query is a block."""
    return any(isinstance(table.block, Subquery) for table in query.tables.values())


def decide_blocks(query: Query, decide: Decide, prove: bool = True) -> Verdict:
    """The verdict on a query of several blocks; ``decide`` is that on one block, and on what it reads.

    It is unbounded only if it is to ``prove`` that.
    """
    tables = {n: t for n, t in query.tables.items() if isinstance(t.block, Subquery) and t.streaming}
    blocks = {name: decide(_query_of(table)) for name, table in tables.items()}
    failed = [name for name, verdict in blocks.items() if verdict.outcome != BOUNDED]
    if not failed and _reads_finite_blocks(query):
        return Verdict(BOUNDED, (), add_states(blocks.values()), query, blocks=blocks)
    own = decide(open_blocks(_drop_shown_columns(query)))
    revised = [name for name, table in tables.items() if table.streaming and is_revised(_query_of(table))]
    if not failed and own.outcome == BOUNDED:
        return replace(own, query=query, state=add_states([*blocks.values(), own]), blocks=blocks)
    from millpond.analysis.witness.find_whole import find_whole_template  # here, as it imports DuckDB

    known = [verdict.template for verdict in blocks.values()]
    template = find_whole_template(query, known) if prove else None
    if template is not None:
        every = [each.cause or each for verdict in (*blocks.values(), own) for each in verdict.reasons]
        found = [reason for reason in every if reason.code not in {*UndeterminedCode}] or every
        causes = tuple(dict.fromkeys(found)) or (describe_undetermined(UndeterminedCode.REVISED),)
        about = next((n for n, v in blocks.items() if causes[0] in [r.cause or r for r in v.reasons]), None)
        return Verdict(
            UNBOUNDED,
            causes,
            State(None, None),
            query,
            blocks=blocks,
            block=about,
            template=template,
            assumptions=template.assumptions,
        )
    reasons = tuple(_list_reasons(blocks, own, revised))
    about = next(iter(failed or revised), None)
    return Verdict(UNDETERMINED, reasons, State(None, None), query, blocks=blocks, block=about)


def decide_limit(query: Query, decide: Decide) -> Verdict:
    """LIMIT without ORDER BY: any ``limit`` rows of the result are an answer, and then nothing is kept."""
    limit, verdict = query.limit or 0, decide(replace(query, limit=None))
    if verdict.outcome == BOUNDED:
        return replace(verdict, query=query)
    reads = [[o for o in select.every_occurrence if o.table.streaming] for select in query.selects]
    if not has_blocks(query) and all(len(streams) == 1 for streams in reads):
        size = VALUE_BYTES * (len(query.columns) + 1)  # the first rows or groups, and what belongs to them
        kept = Kept(None, None, (), ("rows already emitted",), limit, limit * size)
        return Verdict(BOUNDED, (), State(limit, limit * size, (kept,)), query)
    reasons = [describe_undetermined(UndeterminedCode.NO_SYNOPSIS, cause=each) for each in verdict.reasons]
    return Verdict(UNDETERMINED, tuple(reasons), State(None, None), query)


def _query_of(table: Table) -> Query:
    assert isinstance(table.block, Subquery)
    return table.block.query


def _list_reasons(blocks: Mapping[str, Verdict], own: Verdict, revised: list[str]) -> Iterator[Reason]:
    for name, verdict in blocks.items():
        for reason in verdict.reasons:
            cause = replace(reason, message=f"in {name}, {reason.message}")
            yield describe_undetermined(UndeterminedCode.BLOCK, cause=cause)
    for reason in own.reasons:
        code = UndeterminedCode.REVISED if revised else UndeterminedCode.UNCONFIRMED
        yield describe_undetermined(code, cause=reason)


def _reads_finite_blocks(query: Query) -> bool:
    """Whether all streams that a query reads are bounded blocks with finitely many rows at any time.

    Such are groups that do not close, and sets without a timestamp.  What the query makes of them can be
    computed anew whenever they change.
    """
    tables = [t for t in query.tables.values() if t.streaming]
    return all(isinstance(t.block, Subquery) and has_finite_answer(t.block.query) for t in tables)


def _drop_shown_columns(query: Query) -> Query:
    """The query without result columns of finite blocks: these are kept whatever the query shows of them."""
    finite = {
        name
        for name, t in query.tables.items()
        if t.streaming and isinstance(t.block, Subquery) and has_finite_answer(t.block.query)
    }

    def drop(select: Select) -> Select:
        own = {o.alias for o in select.occurrences if o.table.name in finite}
        one = Literal(1, INT)
        items = tuple(
            replace(item, expression=one) if _is_of(item.expression, own) else item for item in select.items
        )
        group_by = select.group_by
        if group_by is not None:
            group_by = tuple(ref for ref in group_by if ref.occurrence not in own)
        return replace(select, items=items, group_by=group_by)

    terms = (replace(term, selects=tuple(map(drop, term.selects))) for term in query.terms)
    return replace(query, terms=tuple(terms)) if finite else query


def _is_of(expression: Expr, aliases: set[str]) -> bool:
    """Whether an expression is one over columns of these tables, without an aggregate."""
    return bool(refs(expression)) and aliases_in(expression) <= aliases and not has_aggregate(expression)


def has_finite_answer(query: Query) -> bool:
    """Whether a bounded query has to keep its whole answer, so that this is bounded, too."""
    return all(
        (is_aggregate(select) or term.distinct) and not find_final_buckets(select, term.distinct)
        for term in query.terms
        for select in term.selects
        if any(o.table.streaming for o in select.every_occurrence)
    )


def add_states(verdicts: Iterable[Verdict]) -> State:
    """What all blocks keep together."""
    states = [verdict.state for verdict in verdicts]
    entries = [state.entries for state in states]
    sizes = [state.bytes for state in states]
    windows = [window for state in states for window in state.windows]
    kept = tuple(kept for state in states for kept in state.streams)
    known = [n for n in entries if n is not None], [n for n in sizes if n is not None]
    return State(
        sum(known[0]) if len(known[0]) == len(states) else None,
        sum(known[1]) if len(known[1]) == len(states) else None,
        kept,
        [window for i, window in enumerate(windows) if window not in windows[:i]],
    )


# --- the tables of blocks ------------------------------------------------------------------------------


def open_blocks(query: Query) -> Query:
    """The query with its blocks as if they were declared streams, with what is known of their rows."""

    def open_block(occurrence: Occurrence) -> Occurrence:
        table = occurrence.table
        return (
            replace(occurrence, table=open_table(table)) if isinstance(table.block, Subquery) else occurrence
        )

    terms = (
        replace(term, selects=tuple(map_occurrences(select, open_block) for select in term.selects))
        for term in query.terms
    )
    return replace(query, terms=tuple(terms))


def open_table(table: Table) -> Table:
    """The table of a block as if it were a declared stream, with what is known of its rows."""
    columns = tuple(replace(c, of_relations=is_of_relations(table, c.name)) for c in table.columns)
    facts = (*_list_facts(table), *list_inner_times(table))
    return replace(table, columns=columns, block=None, checks=facts)


def _list_facts(table: Table) -> Iterator[Condition]:
    """Conditions on one column that every row of a block fulfils, unless the column is NULL."""
    query = _query_of(table)
    shown = {column.name for column in table.columns}
    if query.projection:  # columns that are computed from the result have no known conditions
        shown &= {each.name for each in query.projection if each.sql == f"`{each.name}`"}
    for number, name in enumerate(query.columns):
        if name not in shown:
            continue
        branches = [_find_facts(select, number) for select in query.selects]
        if all(branches):
            alternatives = tuple(_rename(branch, Ref(table.name, name)) for branch in branches)
            yield alternatives[0] if len(alternatives) == 1 else Or(alternatives)


def _find_facts(select: Select, number: int) -> list[Condition]:
    """The conditions of a select on the column that is an item, and on no other."""
    ref = select.items[number].expression
    if isinstance(ref, Literal) and ref.value is not None:
        return [Comparison(Ref("", "constant"), Op.EQ, ref)]
    if not isinstance(ref, Ref):
        return []
    known = [*conjuncts(select.where), *collect_derived_facts(select)]
    for occurrence in select.occurrences:
        if occurrence.alias == ref.occurrence:
            own = Ref(occurrence.table.name, ref.column)
            known += [_rename([check], ref) for check in occurrence.table.checks if refs(check) == {own}]
    if select.joins:
        known = []  # a row that an outer join adds fulfils none of them
    return [each for each in known if refs(each) == {ref}]


def _rename(conditions: list[Condition], ref: Ref) -> Condition:
    """The conjunction of conditions on one column, as conditions on another."""
    renamed = tuple(rename_refs(each, lambda _: ref) for each in conditions)
    return renamed[0] if len(renamed) == 1 else And(renamed)
