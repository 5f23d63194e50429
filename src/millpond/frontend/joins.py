"""Reads FROM: tables, inner and outer joins, ON and USING."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from sqlglot import exp

from millpond.errors import SqlError, SqlNameError, SqlTypeError, one_line
from millpond.frontend.conditions import Rest, conjunction, read_in_part, read_row_condition
from millpond.frontend.expressions import Reader
from millpond.frontend.fields import read_field_accesses
from millpond.frontend.refusals import accept_only, unsupported_error
from millpond.frontend.scope import (
    KeepBlockError,
    NamedQuery,
    Names,
    Path,
    Scope,
    Source,
    SourceColumn,
    find_table,
    list_names,
    read_name,
    read_table_name,
)
from millpond.frontend.statement import Statement
from millpond.query.expressions import TRUE, Comparison, Condition, Op, Ref
from millpond.query.model import Column, Exists, Join, JoinSide, Occurrence, Table
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
    """A table or block of FROM and how it is joined; ``negated`` is set for LEFT SEMI and LEFT ANTI JOIN."""

    table: exp.Table | exp.Subquery
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

    Without outer joins ``joins`` is empty, and ``condition`` has all ON conditions and the conditions of
    merged blocks; with them, those that hold after the joins.  ``columns`` are those that ``*`` stands for.
    ``rest`` are conditions of inner joins that cannot be read.
    """

    occurrences: tuple[Occurrence, ...]
    joins: tuple[Join, ...]
    condition: Condition
    exists: tuple[Exists, ...]
    scope: Scope
    columns: tuple[SourceColumn, ...]
    rest: Rest = field(default_factory=list)


@dataclass(frozen=True)
class MergedBlock:
    """What an entry of FROM stands for: one table, or the tables of a block with what it does to them.

    ``is_branch``: the block is one branch of a UNION ALL.
    """

    source: Source
    occurrences: tuple[Occurrence, ...]
    condition: Condition = TRUE
    joins: tuple[Join, ...] = ()
    exists: tuple[Exists, ...] = ()
    extended: frozenset[str] = frozenset()
    is_branch: bool = False


class BlockReader(Protocol):
    """Reads blocks: subqueries in FROM, views and queries of WITH."""

    def read(self, query: NamedQuery, alias: str, around: Surroundings) -> MergedBlock:
        """What a block stands for; ``around.path`` leads to it."""


@dataclass(frozen=True)
class Surroundings:
    """What the reader of FROM knows of the text around it.

    ``names`` is what FROM can name.  A subquery has the scope around it as ``outer``; ``taken`` are aliases
    (in lower case) that it must not use.  A block that is merged shares the ``derived`` columns of the select
    that it is merged into, and takes its ``alias`` if it has one table.  ``path`` leads to the block.
    ``ignores_duplicates``: the select is DISTINCT, or asks only whether there is a row.  ``branches`` are the
    branches to read of blocks that are a UNION ALL.
    """

    names: Names
    blocks: BlockReader
    outer: Scope | None = None
    taken: set[str] = field(default_factory=set)
    derived: dict[str, dict[str, Column]] = field(default_factory=dict)
    alias: str | None = None
    path: Path = ()
    ignores_duplicates: bool = False
    branches: Mapping[Path, int] = field(default_factory=dict)

    def choose(self, path: Path, branch: int) -> Surroundings:
        """The same, with the choice of a branch."""
        return replace(self, branches={**self.branches, path: branch})

    def take(self, alias: str) -> str:
        """An alias that is not taken, as similar as possible; it is taken now."""
        unique, number = alias, 1
        while unique.lower() in self.taken:
            number += 1
            unique = f"{alias}_{number}"
        self.taken.add(unique.lower())
        return unique


def read_from(statement: Statement, node: exp.Select, around: Surroundings) -> FromClause:
    """Read FROM; in the rest of the select, fields of its columns are told from columns."""
    clause = _FromReader(statement, around).read(node)
    read_field_accesses(clause.scope, node)
    return clause


@dataclass
class _FromReader:
    """Reads the tables and blocks of FROM from left to right."""

    statement: Statement
    around: Surroundings
    seen: list[MergedBlock] = field(default_factory=list)
    hidden: set[tuple[str, str]] = field(default_factory=set)
    columns: list[tuple[Source, SourceColumn]] = field(default_factory=list)
    extended: set[str] = field(default_factory=set)
    rest: Rest = field(default_factory=list)
    has_outer: bool = False

    def read(self, node: exp.Select) -> FromClause:
        entries = list(_list_entries(self.statement, node))
        every = self._read_blocks(entries)
        joins: list[Join] = []
        exists: list[Exists] = []
        conditions: list[Condition] = []
        has_outer = any(e.side is not JoinSide.INNER for e in entries) or any(block.joins for block in every)
        self.has_outer = has_outer
        for number, (entry, block) in enumerate(zip(entries, every, strict=True)):
            if entry.negated is not None:
                exists.append(self._read_test(entry, block, entry.negated, every))
                continue
            self.seen.append(block)
            on = self._read_condition(entry, block, every)
            if has_outer:
                self._refuse_to_merge(entry, block, entries[number + 1 :])
            joins += block.joins
            exists += block.exists
            self.extended |= block.extended
            in_on = entry.side in (JoinSide.INNER, JoinSide.LEFT) and entry.join is not None
            if in_on:
                on = conjunction(each for each in (on, block.condition) if each != TRUE)
            elif block.condition != TRUE:
                conditions.append(block.condition)
            if entry.join is not None:
                joins += [Join(o.alias, JoinSide.INNER) for o in block.occurrences[:-1]]
                joins.append(Join(block.occurrences[-1].alias, entry.side, on))
                self._extend(entry.side, block)
            elif not block.joins:
                joins += [Join(o.alias, JoinSide.INNER) for o in block.occurrences[1:]]
        if exists and any(join.side.keeps_right for join in joins):
            place = self.statement.keyword_at(node, "SEMI", "ANTI")
            raise SqlError("LEFT SEMI or ANTI JOIN beside RIGHT or FULL JOIN is not supported", place)
        if not has_outer:
            conditions += [join.on for join in joins if join.on != TRUE]
        return FromClause(
            tuple(self._occurrences()),
            tuple(joins) if has_outer else (),
            conjunction(conditions),
            tuple(exists),
            self._scope(self.seen),
            tuple(column for _, column in self.columns),
            self.rest,
        )

    def _refuse_to_merge(self, entry: _Entry, block: MergedBlock, after: Sequence[_Entry]) -> None:
        """Keep a block as it is if the tables and conditions in it cannot take part in the outer joins."""
        is_single = len(block.occurrences) == 1 and not block.joins and not block.exists
        is_plain = is_single and block.condition == TRUE
        fits = is_single
        if entry.join is None:  # its conditions hold after the joins, unless a later join adds rows
            fits = is_plain or not any(each.side.keeps_right for each in after)
        elif entry.side is JoinSide.INNER:
            fits = not block.joins and not block.exists
        elif entry.side.keeps_right:
            fits = is_plain
        is_first = entry.join is None and not any(each.side.keeps_right for each in after)
        if not fits or (block.is_branch and not is_first):
            raise KeepBlockError(block.source.path)

    def _extend(self, side: JoinSide, block: MergedBlock) -> None:
        """Note which occurrences the join can replace by NULLs, for all that is read after its ON."""
        mine = {o.alias for o in block.occurrences}
        if side.keeps_left:
            self.extended |= mine
        if side.keeps_right:
            self.extended |= {o.alias for o in self._occurrences() if o.alias not in mine}

    def _occurrences(self) -> Iterator[Occurrence]:
        return (o for block in self.seen for o in block.occurrences)

    def _scope(self, seen: Sequence[MergedBlock], later: Sequence[MergedBlock] = ()) -> Scope:
        outer = self.around.outer
        return Scope(
            self.statement,
            tuple(o for block in seen for o in block.occurrences),
            tuple(block.source for block in later),
            self.around.derived if outer is None else outer.derived,
            frozenset(self.hidden),
            outer,
            self.extended | (outer.extended if outer is not None else set()),
            tuple(block.source for block in seen),
        )

    def _read_blocks(self, entries: Sequence[_Entry]) -> list[MergedBlock]:
        """What the entries stand for.  Tables get their aliases first, which those in blocks must not use."""
        found: dict[str, tuple[str, Table | NamedQuery, _Entry]] = {}
        for number, entry in enumerate(entries):
            alias, target = self._read_entry(entry, number)
            if alias.lower() in found:
                message = f"{one_line(alias)} appears twice in FROM"
                place = self.statement.at(entry.table.args.get("alias") or entry.table)
                raise SqlNameError(message, place, "give each a different alias")
            found[alias.lower()] = alias, target, entry
        blocks: dict[str, MergedBlock] = {}
        wanted = self.around.alias if len(entries) == 1 else None
        for alias, target, entry in found.values():
            if isinstance(target, Table):
                table_alias = self.around.take(wanted or alias)
                occurrence = Occurrence(table_alias, target)
                source = self._rename_columns(entry, Source.of(occurrence, alias))
                blocks[alias] = MergedBlock(source, (occurrence,))
        for alias, target, entry in found.values():
            if isinstance(target, NamedQuery):
                outer, path = self.around.outer, (*self.around.path, id(entry.table))
                derived = self.around.derived if outer is None else outer.derived
                inside = replace(self.around, path=path, derived=derived, alias=wanted or alias)
                block = self.around.blocks.read(target, wanted or alias, inside)
                blocks[alias] = replace(block, source=replace(block.source, alias=alias, name=target.name))
                if isinstance(entry.table, exp.Table):
                    renamed = self._rename_columns(entry, blocks[alias].source)
                    blocks[alias] = replace(blocks[alias], source=renamed)
        return [blocks[alias] for alias, _, _ in found.values()]

    def _read_entry(self, entry: _Entry, number: int) -> tuple[str, Table | NamedQuery]:
        """The alias of an entry as written, and the table or query that it names."""
        node, written = entry.table, entry.table.args.get("alias")
        if written:
            accept_only(self.statement, written, "this", "columns")
        if isinstance(node, exp.Table):
            target = find_table(self.statement, node, self.around.names)
            named = written.this if written and written.this else node.this  # AS (x) names columns only
            return read_name(self.statement, named), target
        alias = (
            read_name(self.statement, written.this) if written and written.this else f"subquery {number + 1}"
        )
        columns = self._read_column_list(entry)
        return alias, NamedQuery(alias, self.statement, node.this, columns, self.around.names)

    def _read_column_list(self, entry: _Entry) -> tuple[str, ...]:
        """The names of ``AS alias (name, …)``."""
        written = entry.table.args.get("alias")
        nodes = written.args.get("columns") or () if written else ()
        return tuple(read_name(self.statement, each) for each in nodes)

    def _rename_columns(self, entry: _Entry, source: Source) -> Source:
        return rename_columns(self.statement, entry.table, source, self._read_column_list(entry))

    def _read_test(
        self, entry: _Entry, block: MergedBlock, negated: bool, every: Sequence[MergedBlock]
    ) -> Exists:
        """LEFT SEMI or LEFT ANTI JOIN; what comes after it does not see its columns."""
        assert entry.join is not None
        if block.joins or block.exists:
            raise KeepBlockError(block.source.path)
        on: Condition = TRUE
        if entry.on is not None:
            later = [each for each in every if each not in self.seen and each is not block]
            scope = self._scope([*self.seen, block], later)
            on = read_row_condition(Reader(self.statement, scope), entry.on)
        on = conjunction(each for each in (on, block.condition) if each != TRUE)
        text, place = self.statement.slice(entry.join), self.statement.at(entry.join)
        return Exists(block.occurrences, on, negated, text, place)

    def _read_condition(self, entry: _Entry, block: MergedBlock, every: Sequence[MergedBlock]) -> Condition:
        """The condition of ON or USING.

        ON sees all tables before it: to Spark a comma in FROM binds as tightly as JOIN.
        """
        own = [(block.source, column) for column in block.source.columns]
        using = entry.join.args.get("using") if entry.join is not None else None
        if using:
            return self._read_using(entry, own, using)
        self.columns += own
        if entry.on is None:
            return TRUE
        later = every[len(self.seen) :]
        reader, rest = Reader(self.statement, self._scope(self.seen, later)), self.rest
        read_field_accesses(reader.scope, entry.on)
        condition = read_in_part(read_row_condition, reader, entry.on, rest)
        if rest and self.has_outer:
            raise rest[-1][1]
        return condition

    def _read_using(
        self, entry: _Entry, own: Sequence[tuple[Source, SourceColumn]], names: Sequence[exp.Expr]
    ) -> Condition:
        """USING: equal columns, of which one represents both; it has the value of a row without partner."""
        if entry.side is JoinSide.FULL:
            place = self.statement.keyword_at(names[0], "USING")
            raise SqlError(
                "FULL JOIN … USING of three tables is not supported", place, "write ON a.column = b.column"
            )
        merged: list[tuple[Source, SourceColumn]] = []
        conditions: list[Condition] = []
        for node in names:
            left, right = self._find_shared(node, self.columns), self._find_shared(node, own)
            one, other = self._require_column(left), self._require_column(right)
            if one[1].family is not other[1].family:
                message = f"{one[0]} ({one[1]}) cannot be compared with {other[0]} ({other[1]})"
                raise SqlTypeError(message, self.statement.at(node), "compare values of the same type")
            kept, dropped = (right, left) if entry.side is JoinSide.RIGHT else (left, right)
            merged.append(kept)
            self.hidden.add((dropped[0].alias.lower(), dropped[1].name.lower()))
            text = self.statement.slice(node)
            conditions.append(Comparison(one[0], Op.EQ, other[0], text, self.statement.at(node)))
        shown = {(source.alias.lower(), column.name.lower()) for source, column in merged} | self.hidden
        rest = (each for each in (*self.columns, *own))
        self.columns = [*merged, *(c for c in rest if (c[0].alias.lower(), c[1].name.lower()) not in shown)]
        return conjunction(conditions)

    def _require_column(self, found: tuple[Source, SourceColumn]) -> tuple[Ref, SqlType]:
        source, column = found
        if column.ref is None or column.type is None:
            raise KeepBlockError(source.path)
        return column.ref, column.type

    def _find_shared(
        self, node: exp.Expr, among: Sequence[tuple[Source, SourceColumn]]
    ) -> tuple[Source, SourceColumn]:
        name = read_name(self.statement, node)
        found = [(source, column) for source, column in among if column.name.lower() == name.lower()]
        if len(found) == 1:
            return found[0]
        place = self.statement.at(node)
        if found:
            meanings = " or ".join(one_line(f"{source.alias}.{column.name}") for source, column in found)
            raise SqlNameError(f"{one_line(name)} is ambiguous: it can be {meanings}", place)
        known = list_names(name, (column.name for _, column in among))
        message = f"USING needs a column {one_line(name)} on both sides"
        raise SqlNameError(message, place, f"one side has only {known}")


def rename_columns(statement: Statement, node: exp.Expr, source: Source, names: Sequence[str]) -> Source:
    """The source with its columns under the names of a column list, if there is one."""
    if not names:
        return source
    if len(names) != len(source.columns):
        message = (
            f"the list names {len(names)} columns, but {one_line(source.alias)} has {len(source.columns)}"
        )
        raise SqlError(message, statement.at(node), "name each of them")
    pairs = zip(source.columns, names, strict=True)
    return replace(source, columns=tuple(replace(column, name=name) for column, name in pairs))


def _list_entries(statement: Statement, node: exp.Select) -> Iterator[_Entry]:
    start = node.args.get("from_")
    if start is None:
        remedy = "name a table; rows of constants are a static relation, which CREATE TABLE declares"
        raise SqlError("SELECT without FROM is not supported", statement.at(node), remedy)
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


def _read_table(statement: Statement, node: exp.Expr) -> exp.Table | exp.Subquery:
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table):
        message = "a table or join in parentheses is not supported"
        raise SqlError(message, statement.at(node), "leave out the parentheses")
    if isinstance(node, exp.Subquery):
        accept_only(statement, node, "this", "alias")
        return node
    if not isinstance(node, exp.Table):
        raise unsupported_error(statement, node)
    read_table_name(statement, node, "alias")
    return node
