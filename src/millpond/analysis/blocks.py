"""Decides queries of several blocks: subqueries that are tables of their own.

A block whose rows are final is a stream: the select that reads it is decided like any other.  If all blocks
and that select are bounded, so is the query, and its state is theirs together.  The converse does not hold: a
select may not need what its block cannot give.  So a query is unbounded only if a witness of the whole query
is confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from millpond.analysis.reasons import describe_undetermined
from millpond.analysis.verdict import BOUNDED, UNDETERMINED, Reason, UndeterminedCode, Verdict
from millpond.plan.state import State
from millpond.query.model import And, Condition, Occurrence, Or, Query, Ref, Select, Subquery, Table
from millpond.query.parts import collect_derived_facts
from millpond.query.result_times import is_revised
from millpond.query.trees import conjuncts, map_occurrences, refs, rename_refs

Decide = Callable[[Query], Verdict]


def has_blocks(query: Query) -> bool:
    """Whether a table of the query is a block."""
    return any(isinstance(table.block, Subquery) for table in query.tables.values())


def decide_blocks(query: Query, decide: Decide) -> Verdict:
    """The verdict on a query of several blocks; ``decide`` is that on one block, and on what it reads."""
    tables = {name: t for name, t in query.tables.items() if isinstance(t.block, Subquery)}
    blocks = {name: decide(_query_of(table)) for name, table in tables.items()}
    own = decide(open_blocks(query))
    revised = [name for name, table in tables.items() if table.streaming and is_revised(_query_of(table))]
    failed = [name for name, verdict in blocks.items() if verdict.outcome != BOUNDED]
    if not failed and not revised and own.outcome == BOUNDED:
        return replace(own, query=query, state=_add_states(own, blocks), blocks=blocks)
    reasons = tuple(_list_reasons(blocks, own, revised))
    about = next(iter(failed or revised), None)
    return Verdict(UNDETERMINED, reasons, State(None, None), query, blocks=blocks, block=about)


def _query_of(table: Table) -> Query:
    assert isinstance(table.block, Subquery)
    return table.block.query


def _list_reasons(blocks: Mapping[str, Verdict], own: Verdict, revised: list[str]) -> Iterator[Reason]:
    for name, verdict in blocks.items():
        for reason in verdict.reasons:
            cause = replace(reason, message=f"in {name}, {reason.message}")
            yield describe_undetermined(UndeterminedCode.BLOCK, cause=cause)
    for name in revised:
        yield describe_undetermined(UndeterminedCode.REVISED, name)
    for reason in own.reasons:
        yield describe_undetermined(UndeterminedCode.UNCONFIRMED, cause=reason)


def _add_states(own: Verdict, blocks: Mapping[str, Verdict]) -> State:
    """What all blocks keep together."""
    states = [*(verdict.state for verdict in blocks.values()), own.state]
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
        if not isinstance(table.block, Subquery):
            return occurrence
        return replace(occurrence, table=replace(table, block=None, checks=tuple(_list_facts(table))))

    terms = (
        replace(term, selects=tuple(map_occurrences(select, open_block) for select in term.selects))
        for term in query.terms
    )
    return replace(query, terms=tuple(terms))


def _list_facts(table: Table) -> Iterator[Condition]:
    """Conditions on one column that every row of a block fulfils, unless the column is NULL."""
    query = _query_of(table)
    for number, name in enumerate(query.columns):
        if query.projection or not any(column.name == name for column in table.columns):
            continue
        branches = [_find_facts(select, number) for select in query.selects]
        if all(branches):
            alternatives = tuple(_rename(branch, Ref(table.name, name)) for branch in branches)
            yield alternatives[0] if len(alternatives) == 1 else Or(alternatives)


def _find_facts(select: Select, number: int) -> list[Condition]:
    """The conditions of a select on the column that is an item, and on no other."""
    ref = select.items[number].expression
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
