"""For which rows the expressions of a query are evaluated: those for which Spark would evaluate them, too.

Spark raises an error where a value cannot be computed: a division by zero, a cast of a text that is no
number.  A condition before the expression protects from that: ``b <> 0 AND a / b > 2``.  A derived column is
computed before the conditions of its query, so it is given the conditions on the same row that precede it.

A row without a partner in a join is protected by the conditions on itself only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile

from millpond.query.expressions import And, Condition, Not, NotTrue, Or, Ref
from millpond.query.model import Column, Query, Select, Table, Windowed
from millpond.query.trees import aliases_in, conjuncts, refs
from millpond.runtime.sql import Dialect, all_of, any_of, condition_sql


def find_guard(query: Query, table: Table, column: Column) -> str | None:
    """A condition on a row, as Spark SQL: where it does not hold, the value of a derived column is not used.

    None if the value may be used for every row.
    """
    if column.derivation is None or not column.derivation.arguments:
        return None
    guards: list[str] = []
    for select in query.selects:
        for alias, condition, elsewhere in _list_places(select, table.name):
            ref = Ref(alias, column.name)
            for path in _find_paths(condition, ref, ref in elsewhere, _speller(table, column)):
                if path == "TRUE":
                    return None
                guards.append(path)
    unique = list(dict.fromkeys(guards))
    return any_of(unique) if len(unique) > 1 else next(iter(unique), None)


def _list_places(select: Select, name: str) -> Iterator[tuple[str, Condition, frozenset[Ref]]]:
    """Each occurrence of a table: its alias, the condition on its rows, and the columns used elsewhere."""
    shown = {ref for item in select.items for ref in refs(item.expression)} | {*(select.group_by or ())}
    shown |= refs(select.having).union(*(refs(join.on) for join in select.joins))
    shown |= {ref for each in select.exists for ref in refs(each.condition)}
    for occurrence in select.occurrences:
        if occurrence.table.name == name:
            yield occurrence.alias, select.where, frozenset(shown)
    for exists in select.exists:
        for occurrence in exists.occurrences:
            if occurrence.table.name == name:
                yield occurrence.alias, exists.condition, frozenset()
    for occurrence in select.every_occurrence:
        block = occurrence.table.block
        if isinstance(block, Windowed) and block.base.name == name:
            yield name, block.where, frozenset(Ref(name, column.name) for column in block.base.derived)


def _find_paths(
    condition: Condition, ref: Ref, used_after: bool, spell: Callable[[Ref], str | None]
) -> Iterator[str]:
    """For each use of a column, what holds of a row when it is evaluated, as SQL."""
    parts = conjuncts(condition)
    before = [*takewhile(lambda each: ref not in refs(each), parts)]
    known = all_of([text for each in before if (text := _spell_condition(each, ref, spell)) is not None])
    if used_after:
        yield known
        return
    for path in _find_inner_paths(parts[len(before)], ref, spell) if len(before) < len(parts) else ():
        yield all_of([known, *path])


def _find_inner_paths(
    condition: Condition, ref: Ref, spell: Callable[[Ref], str | None]
) -> Iterator[list[str]]:
    """For each use inside a condition, what the operands to the left of it must not be."""
    match condition:
        case And(operands=operands) | Or(operands=operands):
            # AND evaluates the next operand unless this one is false, OR unless this one is true.
            skips = "FALSE" if isinstance(condition, And) else "TRUE"
            passed: list[str] = []
            for each in operands:
                for path in _find_inner_paths(each, ref, spell):
                    yield [*passed, *path]
                text = _spell_condition(each, ref, spell)
                if text is not None:
                    passed.append(f"({text} IS NOT {skips})")
        case Not(operand=operand) | NotTrue(operand=operand):
            yield from _find_inner_paths(operand, ref, spell)
        case _ if ref in refs(condition):
            yield []


def _speller(table: Table, column: Column) -> Callable[[Ref], str | None]:
    """Spells what the guard of a column may use, with the expressions of derived columns.

    None for a function of time.  What has another value each time that the row is repeated has no such
    expression: it is spelled by its name, if it is computed before the guarded column.
    """
    before = {each.name for each in takewhile(lambda each: each.name != column.name, table.derived)}

    def differs_in_repetitions(name: str) -> bool:
        derivation = table.column(name).derivation
        if derivation is None:
            return False
        return derivation.repeated or any(map(differs_in_repetitions, derivation.arguments))

    def spell(ref: Ref) -> str | None:
        derivation = table.column(ref.column).derivation
        if derivation is None:
            return Dialect.SPARK.name_of(ref.column)
        if not derivation.arguments:
            return None
        if differs_in_repetitions(ref.column):
            return Dialect.SPARK.name_of(ref.column) if ref.column in before else None
        return f"({derivation.sql})"

    return spell


def _spell_condition(condition: Condition, of: Ref, spell: Callable[[Ref], str | None]) -> str | None:
    """A condition on the row that a column belongs to; None if it is on others, too."""
    if aliases_in(condition) != {of.occurrence} or any(spell(ref) is None for ref in refs(condition)):
        return None
    return condition_sql(condition, lambda ref: spell(ref) or "", Dialect.SPARK)
