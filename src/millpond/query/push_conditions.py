"""Gives blocks what the select that reads them asks of their rows, where the result is exactly the same.

A condition on the columns of a block that holds for all rows of a group becomes a condition on the rows that
the block reads.  Where a column is equal to one of a relation, the block reads only rows with a value of that
relation: ``c.customer = r.customer`` leaves no more groups of ``c`` than ``r`` has customers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

from millpond.query.expressions import Comparison, Condition, Expr, Op, Ref
from millpond.query.finite_columns import is_of_relations
from millpond.query.model import Exists, Occurrence, Query, Select, Subquery, Table
from millpond.query.result_times import find_final_buckets
from millpond.query.trees import conjunction, conjuncts, is_aggregate, map_occurrences, refs, transform


def push_conditions(query: Query) -> Query:
    """The query, in which blocks have the conditions on their group columns themselves."""
    uses = [o.table.name for select in query.selects for o in select.every_occurrence]

    def push(select: Select) -> Select:
        for occurrence in select.occurrences:
            if uses.count(occurrence.table.name) == 1 and isinstance(occurrence.table.block, Subquery):
                select = _push_relations(select, occurrence)
                select = select if select.joins else _push_into(select, select.occurrence(occurrence.alias))
        return select

    terms = (replace(term, selects=tuple(map(push, term.selects))) for term in query.terms)
    return replace(query, terms=tuple(terms))


def _change_block(select: Select, occurrence: Occurrence, change: Callable[[Select], Select]) -> Select:
    """The select, after a change to all selects of a block that it reads."""
    assert isinstance(occurrence.table.block, Subquery)
    inner = occurrence.table.block.query
    terms = tuple(replace(term, selects=tuple(map(change, term.selects))) for term in inner.terms)
    table = replace(occurrence.table, block=Subquery(replace(inner, terms=terms)))
    return map_occurrences(select, lambda o: replace(o, table=table) if o.alias == occurrence.alias else o)


# --- conditions on one block -----------------------------------------------------------------------------


def _push_into(select: Select, occurrence: Occurrence) -> Select:
    block = occurrence.table.block
    if not isinstance(block, Subquery) or block.query.projection:
        return select
    kept: list[Condition] = []
    pushed: list[Condition] = []
    for each in conjuncts(select.where):
        own = {ref.occurrence for ref in refs(each)} == {occurrence.alias}
        (pushed if own and _can_push(block.query, each) else kept).append(each)
    if not pushed:
        return select
    changed = _change_block(select, occurrence, lambda each: _add_conditions(block.query, each, pushed))
    return replace(changed, where=conjunction(*kept))


def _list_values(query: Query, select: Select) -> dict[str, Expr]:
    return {n: item.expression for n, item in zip(query.columns, select.items, strict=True)}


def _can_push(query: Query, condition: Condition) -> bool:
    """Whether a condition on a block's columns is one on the rows that each of its selects reads."""
    for term in query.terms:
        for select in term.selects:
            values = [_list_values(query, select).get(ref.column) for ref in refs(condition)]
            grouped = is_aggregate(select)
            if grouped and (not select.group_by or select.session is not None):
                return False
            if not all(isinstance(v, Ref) and (not grouped or v in (select.group_by or ())) for v in values):
                return False
    return True


def _add_conditions(query: Query, select: Select, conditions: list[Condition]) -> Select:
    values = _list_values(query, select)
    found = [
        transform(each, lambda node: values[node.column] if isinstance(node, Ref) else None)
        for each in conditions
    ]
    return replace(select, where=conjunction(select.where, *found))


# --- columns of relations --------------------------------------------------------------------------------


def _push_relations(select: Select, occurrence: Occurrence) -> Select:
    """The select, whose block reads only rows that a relation has a partner for.

    Blocks whose groups close, and columns that have the values of a relation anyway, stay as they are.
    """
    block = occurrence.table.block
    if not isinstance(block, Subquery) or block.query.projection or _closes(block.query):
        return select
    for column, partner, table in _list_partners(select, occurrence.alias):
        own = Comparison(Ref(occurrence.alias, column), Op.EQ, Ref(occurrence.alias, column))
        if is_of_relations(occurrence.table, column) or not _can_push(block.query, own):
            continue
        add = partial(_add_partner, block.query, column=column, partner=partner, relation=table)
        select = _change_block(select, occurrence, add)
        occurrence = select.occurrence(occurrence.alias)
    return select


def _closes(query: Query) -> bool:
    return any(find_final_buckets(select, term.distinct) for term in query.terms for select in term.selects)


def _list_partners(select: Select, alias: str) -> Iterator[tuple[str, str, Table]]:
    """Columns of a block that have to be equal to a column of a relation, each with that column and relation.

    A row of the block without such a partner is as good as none: WHERE, EXISTS, or the ON of a join that does
    not keep it leaves it out.
    """
    tables = {o.alias: o.table for o in select.occurrences}
    conditions = [(each, tables) for each in conjuncts(select.where)]
    places = [o.alias for o in select.occurrences]
    for join in select.joins:
        is_right, is_left = join.alias == alias, places.index(join.alias) > places.index(alias)
        if (is_right and not join.side.keeps_right) or (is_left and not join.side.keeps_left):
            conditions += [(each, tables) for each in conjuncts(join.on)]
    for exists in select.exists:
        partners = {o.alias: o.table for o in exists.occurrences}
        conditions += [(each, partners) for each in conjuncts(exists.condition) if not exists.negated]
    for condition, known in conditions:
        for own, other in _list_sides(condition):
            table = known.get(other.occurrence)
            if own.occurrence == alias and table is not None and not table.streaming:
                yield own.column, other.column, table


def _list_sides(condition: Condition) -> Iterable[tuple[Ref, Ref]]:
    match condition:
        case Comparison(left=Ref() as left, operator=Op.EQ, right=Ref() as right):
            return (left, right), (right, left)
    return ()


def _add_partner(query: Query, select: Select, column: str, partner: str, relation: Table) -> Select:
    """The select with ``EXISTS (SELECT … FROM relation WHERE partner = column)``."""
    taken = {o.alias for o in select.every_occurrence}
    names = (f"{relation.name}{number or ''}" for number in range(len(taken) + 1))
    alias = next(name for name in names if name not in taken)
    own = _list_values(query, select)[column]
    text = f"{alias}.{partner} = {own}"
    condition = Comparison(Ref(alias, partner), Op.EQ, own, text)
    exists = Exists((Occurrence(alias, relation),), condition, text=f"EXISTS ({text})")
    return replace(select, exists=(*select.exists, exists))
