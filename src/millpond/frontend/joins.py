"""Reads FROM: tables, inner and outer joins, ON and USING."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from millpond.errors import SqlError, SqlNameError, SqlTypeError, one_line
from millpond.frontend.conditions import conjunction, read_row_condition
from millpond.frontend.expressions import Reader
from millpond.frontend.refusals import accept_only, unsupported_error
from millpond.frontend.scope import Scope, find_table, list_names, read_name, read_table_name
from millpond.frontend.statement import Statement
from millpond.query.model import (
    TRUE,
    Column,
    Comparison,
    Condition,
    Exists,
    Join,
    JoinSide,
    Occurrence,
    Op,
    Ref,
    Table,
)
from millpond.query.types import SqlType

_JOIN = "the joins are [LEFT | RIGHT | FULL] JOIN … ON …, LEFT SEMI JOIN, LEFT ANTI JOIN and CROSS JOIN"
_SIDES: dict[tuple[str, ...], JoinSide] = {
    (): JoinSide.INNER,
    ("INNER",): JoinSide.INNER,
    ("CROSS",): JoinSide.INNER,
    **{(side.value,): side for side in JoinSide},
    **{(side.value, "OUTER"): side for side in JoinSide if side is not JoinSide.INNER},
}
# Joins that only test for a partner: whether they keep the rows that have none.
_TESTS = {("LEFT", "SEMI"): False, ("SEMI",): False, ("LEFT", "ANTI"): True, ("ANTI",): True}


@dataclass(frozen=True)
class _Entry:
    """A table of FROM and how it is joined; ``negated`` is set for LEFT SEMI and LEFT ANTI JOIN."""

    table: exp.Table
    join: exp.Join | None
    side: JoinSide
    negated: bool | None = None

    @property
    def on(self) -> exp.Expr | None:
        found: exp.Expr | None = self.join.args.get("on") if self.join is not None else None
        return found


@dataclass(frozen=True)
class FromClause:
    """FROM: its occurrences, as the rest of the select sees them.

    Without outer joins ``joins`` is empty, and ``condition`` has all ON conditions.  ``columns`` are those
    that ``*`` stands for.
    """

    occurrences: tuple[Occurrence, ...]
    joins: tuple[Join, ...]
    condition: Condition
    exists: tuple[Exists, ...]
    scope: Scope
    columns: tuple[tuple[Ref, SqlType], ...]


def read_from(
    statement: Statement,
    node: exp.Select,
    tables: Mapping[str, Table],
    outer: Scope | None = None,
    taken: Collection[str] = (),
) -> FromClause:
    """Read FROM; ``outer`` is the scope around a subquery, ``taken`` are aliases that it must not use."""
    return _FromReader(statement, tables, outer, {alias.lower() for alias in taken}).read(node)


@dataclass
class _FromReader:
    """Reads the tables of FROM from left to right."""

    statement: Statement
    tables: Mapping[str, Table]
    outer: Scope | None
    taken: set[str]
    occurrences: list[Occurrence] = field(default_factory=list)
    written: dict[str, str] = field(default_factory=dict)
    hidden: set[Ref] = field(default_factory=set)
    derived: dict[str, dict[str, Column]] = field(default_factory=dict)
    columns: list[tuple[Ref, SqlType]] = field(default_factory=list)
    extended: set[str] = field(default_factory=set)

    def read(self, node: exp.Select) -> FromClause:
        entries = list(_list_entries(self.statement, node))
        every = self._read_occurrences(entries)
        joins: list[Join] = []
        exists: list[Exists] = []
        for entry, occurrence in zip(entries, every, strict=True):
            if entry.negated is not None:
                exists.append(self._read_test(entry, occurrence, entry.negated, every))
                continue
            self.occurrences.append(occurrence)
            on = self._read_condition(entry, occurrence, every)
            if entry.join is not None:
                joins.append(Join(occurrence.alias, entry.side, on))
                self._extend(joins[-1])
        has_outer = any(join.side is not JoinSide.INNER for join in joins)
        if exists and any(join.side.keeps_right for join in joins):
            place = self.statement.keyword_at(node, "SEMI", "ANTI")
            raise SqlError("LEFT SEMI or ANTI JOIN beside RIGHT or FULL JOIN is not supported", place)
        return FromClause(
            tuple(self.occurrences),
            tuple(joins) if has_outer else (),
            TRUE if has_outer else conjunction(join.on for join in joins if join.on != TRUE),
            tuple(exists),
            self._scope(self.occurrences),
            tuple(self.columns),
        )

    def _extend(self, join: Join) -> None:
        """Note which occurrences the join can replace by NULLs, for all that is read after its ON."""
        if join.side.keeps_left:
            self.extended.add(join.alias)
        if join.side.keeps_right:
            self.extended |= {o.alias for o in self.occurrences if o.alias != join.alias}

    def _scope(self, seen: Sequence[Occurrence], later: Sequence[Occurrence] = ()) -> Scope:
        return Scope(
            self.statement,
            tuple(seen),
            tuple(later),
            self.derived if self.outer is None else self.outer.derived,
            frozenset(self.hidden),
            self.outer,
            self.written,
            self.extended | (self.outer.extended if self.outer is not None else set()),
        )

    def _read_occurrences(self, entries: Sequence[_Entry]) -> list[Occurrence]:
        """The occurrences, each with an alias that is not taken."""
        occurrences: dict[str, Occurrence] = {}
        for entry in entries:
            node = entry.table
            table, written = find_table(self.statement, node, self.tables), node.args.get("alias")
            if written:
                accept_only(self.statement, written, "this")
            alias = read_name(self.statement, written.this if written else node.this)
            if alias.lower() in occurrences:
                message = f"{one_line(alias)} appears twice in FROM"
                raise SqlNameError(message, self.statement.at(written or node), "give each a different alias")
            unique, number = alias, 1
            while unique.lower() in self.taken:
                number += 1
                unique = f"{alias}_{number}"
            self.taken.add(unique.lower())
            if unique != alias:
                self.written[unique] = alias
            occurrences[alias.lower()] = Occurrence(unique, table)
        return list(occurrences.values())

    def _read_test(
        self, entry: _Entry, occurrence: Occurrence, negated: bool, every: Sequence[Occurrence]
    ) -> Exists:
        """LEFT SEMI or LEFT ANTI JOIN; what comes after it does not see its columns."""
        assert entry.join is not None
        on: Condition = TRUE
        if entry.on is not None:
            later = [o for o in every if o not in self.occurrences and o is not occurrence]
            scope = self._scope([*self.occurrences, occurrence], later)
            on = read_row_condition(Reader(self.statement, scope), entry.on)
        text, place = self.statement.slice(entry.join), self.statement.at(entry.join)
        return Exists((occurrence,), on, negated, text, place)

    def _read_condition(
        self, entry: _Entry, occurrence: Occurrence, every: Sequence[Occurrence]
    ) -> Condition:
        """The condition of ON or USING.

        ON sees all tables before it: to Spark a comma in FROM binds as tightly as JOIN.
        """
        own = [(Ref(occurrence.alias, c.name), c.type) for c in occurrence.table.columns]
        using = entry.join.args.get("using") if entry.join is not None else None
        if using:
            return self._read_using(entry, own, using)
        self.columns += own
        if entry.on is None:
            return TRUE
        later = every[len(self.occurrences) :]
        return read_row_condition(Reader(self.statement, self._scope(self.occurrences, later)), entry.on)

    def _read_using(
        self, entry: _Entry, own: Sequence[tuple[Ref, SqlType]], names: Sequence[exp.Expr]
    ) -> Condition:
        """USING: equal columns, of which one represents both; it has the value of a row without partner."""
        if entry.side is JoinSide.FULL:
            place = self.statement.keyword_at(names[0], "USING")
            raise SqlError("FULL JOIN … USING is not supported", place, "write ON a.column = b.column")
        merged: list[tuple[Ref, SqlType]] = []
        conditions: list[Condition] = []
        for node in names:
            left, right = self._find_shared(node, self.columns), self._find_shared(node, own)
            if left[1].family is not right[1].family:
                message = f"{left[0]} ({left[1]}) cannot be compared with {right[0]} ({right[1]})"
                raise SqlTypeError(message, self.statement.at(node), "compare values of the same type")
            kept, other = (right, left) if entry.side is JoinSide.RIGHT else (left, right)
            merged.append(kept)
            self.hidden.add(other[0])
            text = self.statement.slice(node)
            conditions.append(Comparison(left[0], Op.EQ, right[0], text, self.statement.at(node)))
        shown = {ref for ref, _ in merged} | self.hidden
        self.columns = [*merged, *(c for c in (*self.columns, *own) if c[0] not in shown)]
        return conjunction(conditions)

    def _find_shared(self, node: exp.Expr, among: Sequence[tuple[Ref, SqlType]]) -> tuple[Ref, SqlType]:
        name = read_name(self.statement, node)
        found = [(ref, kind) for ref, kind in among if ref.column.lower() == name.lower()]
        if len(found) == 1:
            return found[0]
        place = self.statement.at(node)
        if found:
            meanings = " or ".join(one_line(str(ref)) for ref, _ in found)
            raise SqlNameError(f"{one_line(name)} is ambiguous: it can be {meanings}", place)
        known = list_names(name, (ref.column for ref, _ in among))
        message = f"USING needs a column {one_line(name)} on both sides"
        raise SqlNameError(message, place, f"one side has only {known}")


def _list_entries(statement: Statement, node: exp.Select) -> Iterator[_Entry]:
    start = node.args.get("from_")
    if start is None:
        raise SqlError("SELECT without FROM is not supported", statement.at(node), "name a table")
    accept_only(statement, start, "this")
    yield _Entry(_read_table(statement, start.this), None, JoinSide.INNER)
    for join in node.args.get("joins") or ():
        accept_only(statement, join, "this", "on", "using", "kind", "side", "method")
        words = tuple(join.args[key] for key in ("method", "side", "kind") if join.args.get(key))
        table = _read_table(statement, join.this)
        if words in _TESTS and not join.args.get("using"):
            yield _Entry(table, join, JoinSide.INNER, _TESTS[words])
        elif words in _SIDES:
            yield _Entry(table, join, _SIDES[words])
        else:
            message = f"{' '.join(words)} JOIN{' … USING' if words in _TESTS else ''} is not supported"
            raise SqlError(message, statement.keyword_at(join, words[0]), _JOIN)


def _read_table(statement: Statement, node: exp.Expr) -> exp.Table:
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table):
        message = "a table or join in parentheses is not supported"
        raise SqlError(message, statement.at(node), "leave out the parentheses")
    if not isinstance(node, exp.Table):
        raise unsupported_error(statement, node)
    read_table_name(statement, node, "alias")
    return node
