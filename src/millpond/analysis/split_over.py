"""Divides a query with window functions into blocks: their rows, and what is made of them.

A select that groups, joins or deduplicates rows with window functions becomes one over a subquery of these
rows, and so do window functions of other window functions.  Conditions on the rows alone go into the
subquery, as a limited rank needs less there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from millpond.query.expressions import And, Condition, Ref
from millpond.query.model import Column, Item, Occurrence, Query, Select, Subquery, Table, Term, Windowed
from millpond.query.trace import find_used_columns
from millpond.query.trees import conjuncts, is_projection, map_occurrences, refs, rename_refs, renaming


def is_plain_over(query: Query) -> bool:
    """Whether the query filters and projects rows with window functions, of one table without others."""
    if len(query.selects) != 1 or not is_projection(query):
        return False
    block = query.selects[0].occurrences[0].table.block
    return isinstance(block, Windowed) and not isinstance(block.base.block, Windowed)


def split_over(query: Query) -> Query:
    """An equivalent query that reads rows with window functions as subqueries.

    Rows of one table that it only filters and projects are read as they are.
    """
    is_plain, names = len(query.selects) == 1 and is_projection(query), set(query.tables)

    def split(select: Select) -> Select:
        return _split_below(select) if is_plain else _split_select(select, names)

    terms = (replace(term, selects=tuple(map(split, term.selects))) for term in query.terms)
    return replace(query, terms=tuple(terms))


def _split_select(select: Select, names: set[str]) -> Select:
    """The select with each table of window functions as a subquery, under a name that is not taken."""
    for occurrence in select.every_occurrence:
        if isinstance(occurrence.table.block, Windowed):
            name = occurrence.alias
            while name in names:
                name += "_rows"
            names.add(name)
            select = _take_out(name, _split_below(select, occurrence.alias), occurrence.alias)
    return select


def _take_out(name: str, select: Select, alias: str) -> Select:
    """The select with one table of window functions as a subquery, and the conditions on it alone there."""
    table = select.occurrence(alias).table
    own, where = _divide(select.where, alias) if _is_filtered(select, alias) else ([], select.where)
    exists = list(select.exists)
    for i, each in enumerate(exists):
        if any(o.alias == alias for o in each.occurrences):
            pushed, condition = _divide(each.condition, alias)
            own += pushed
            exists[i] = replace(each, condition=condition)
    select = replace(select, where=where, exists=tuple(exists))
    made = _make_block(name, table, alias, _find_named_columns(select, alias), own)
    return map_occurrences(select, lambda o: Occurrence(alias, made) if o.alias == alias else o)


def _is_filtered(select: Select, alias: str) -> bool:
    """Whether WHERE decides on the rows of an occurrence: no outer join replaces them by NULLs."""
    return not select.joins or (
        select.occurrences[0].alias == alias and not any(join.side.keeps_right for join in select.joins)
    )


def _divide(condition: Condition, alias: str) -> tuple[list[Condition], Condition]:
    """The conjuncts on one occurrence alone, and the conjunction of the others."""
    every = conjuncts(condition)
    own = [each for each in every if refs(each) and {ref.occurrence for ref in refs(each)} == {alias}]
    others = tuple(each for each in every if not any(each is one for one in own))
    return own, And(others) if len(others) != 1 else others[0]


def _split_below(select: Select, only: str | None = None) -> Select:
    """The select with window functions below others as subqueries."""

    def split(occurrence: Occurrence) -> Occurrence:
        block = occurrence.table.block
        if only not in (None, occurrence.alias) or not isinstance(block, Windowed):
            return occurrence
        if not isinstance(block.base.block, Windowed):
            return occurrence
        return replace(
            occurrence, table=_split_base(occurrence.table, find_used_columns(select, occurrence.alias))
        )

    return map_occurrences(select, split)


def _split_base(table: Table, used: frozenset[str]) -> Table:
    """A table of window functions, of which ``used`` columns are used, with a subquery as its base."""
    block = table.block
    assert isinstance(block, Windowed)
    base, columns = block.base, {column.name for column in block.base.all_columns}
    functions = tuple(function for function in block.functions if function.name in used)
    needed = {name for name in used if name in columns}
    for function in functions:
        needed |= {*function.partition_by, *(key.column for key in function.order_by)}
        needed |= {each for each in function.arguments if isinstance(each, str)}
    shown = Select((Occurrence(base.name, base),), tuple(Item(Ref(base.name, n), n) for n in sorted(needed)))
    inner = _split_below(shown).occurrences[0].table
    name = base.name.partition(" OVER #")[0]
    made = _make_block(name, inner, base.name, needed, conjuncts(block.where))
    values = tuple(Column(function.name, function.type) for function in functions)
    derived = tuple(column for column in table.derived if column.name in used)
    made_block = Windowed(made, functions)
    return replace(table, columns=made.columns + values, derived=derived, block=made_block)


def _make_block(name: str, table: Table, alias: str, used: Iterable[str], own: Sequence[Condition]) -> Table:
    """The table of a subquery with the used columns of a table of window functions, where ``own`` holds.

    Functions of time stay derived columns, so that what closes with them does.
    """
    wanted = {*used, *([table.time] if table.time is not None else [])}
    in_time = _list_functions_of_time(table, wanted)
    shown = [c for c in table.all_columns if c.name in wanted and c not in in_time]
    columns = tuple(replace(column, derivation=None) for column in shown)
    names = tuple(column.name for column in columns)
    items = tuple(Item(Ref(alias, name), name) for name in names)
    where = own[0] if len(own) == 1 else And(tuple(own))
    kept = replace(table, checks=_list_checks(table))
    query = Query((Term((Select((Occurrence(alias, kept),), items, where),), False),), names)
    properties = {key: value for key, value in table.properties.items() if key.lower() == "rate"}
    derived = tuple(_rename_facts(column, table.name, name) for column in in_time)
    return Table(name, columns, table.streaming, (), None, properties, table.time, derived, Subquery(query))


def _rename_facts(column: Column, old: str, new: str) -> Column:
    """A derived column of a table that is called otherwise."""
    derivation = column.derivation
    assert derivation is not None
    facts = tuple(rename_refs(fact, renaming(old, new)) for fact in derivation.facts)
    return replace(column, derivation=replace(derivation, facts=facts))


def _list_functions_of_time(table: Table, used: set[str]) -> list[Column]:
    """The used derived columns that are functions of time, with the ends of their buckets."""
    derivations = {c.name: c.derivation for c in table.derived if c.derivation and not c.derivation.arguments}
    functions = {name: each.time for name, each in derivations.items() if name in used}
    names = {*used, *(each.end for each in functions.values() if each is not None)}
    if functions:  # the end of a calendar unit is no function that a query can name
        names |= {name for name, each in derivations.items() if each.time is None}
    found: list[Column] = []
    for column in reversed(table.derived):  # each after those that it depends on
        if column.name in derivations and column.name in names:
            found.insert(0, column)
            names |= {name for name in derivations if f"`{name}`" in derivations[column.name].sql}
    return found


def _find_named_columns(select: Select, alias: str) -> set[str]:
    """The columns of an occurrence that a select names itself."""
    places = [select.where, select.having, *(join.on for join in select.joins)]
    places += [each.condition for each in select.exists]
    found = {ref for place in places for ref in refs(place)} | set(select.group_by or ())
    found |= {ref for item in select.items for ref in refs(item.expression)}
    if select.session is not None:
        found |= {select.session.time, select.session.start, select.session.end}
    return {ref.column for ref in found if ref.occurrence == alias}


def _list_checks(table: Table) -> tuple[Condition, ...]:
    """What holds for the rows below window functions, and so for those with them."""
    assert isinstance(table.block, Windowed)
    base, names = table.block.base, {column.name for column in table.all_columns}
    known = (*base.checks, *conjuncts(table.block.where))
    own = [each for each in known if all(ref.column in names for ref in refs(each))]
    return (*table.checks, *(rename_refs(each, renaming(base.name, table.name)) for each in own))
