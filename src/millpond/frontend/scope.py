"""Resolves names to tables and columns; like Spark, it ignores case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from sqlglot import exp

from millpond.errors import SqlError, SqlNameError, one_line
from millpond.frontend.refusals import accept_only
from millpond.frontend.statement import Statement
from millpond.query.expressions import Ref
from millpond.query.model import Column, Occurrence, Table
from millpond.query.types import SqlType

_MOST_NAMES = 12
# The key of a node's column, if the text does not name it.
_REF = "ref"


def read_name(statement: Statement, node: exp.Expr | None) -> str:
    """A name as spelled, without backticks."""
    assert node is not None
    if not isinstance(node, exp.Identifier):
        raise SqlError(f"{statement.excerpt(node)} is not a name", statement.at(node), "write a plain name")
    if statement.has_place(node) and statement.slice(node)[:1] in ("'", '"'):
        raise SqlError(
            f"{statement.excerpt(node)} is a string, not a name", statement.at(node), "quote it with `…`"
        )
    return node.name


# Where a block is used: the entries of FROM on the way to it, by the identity of their nodes.
Path = tuple[int, ...]


class KeepBlockError(Exception):
    """A block cannot be merged into the select around it; it has to be read as a table of its own."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path


@dataclass(frozen=True)
class SourceColumn:
    """A column of a table or block in FROM: its name and what it stands for.

    ``ref`` is None if it stands for an expression over several tables: ``value`` is then the select item.
    A WINDOW has ``edges``: the columns with its start and its end, and a ``width`` in microseconds.
    """

    name: str
    ref: Ref | None
    type: SqlType | None
    value: Any = None
    edges: tuple[SourceColumn, SourceColumn] | None = None
    width: int | None = None


@dataclass(frozen=True)
class Source:
    """A table or block in FROM under its alias as written; a merged block stands for several occurrences."""

    alias: str
    columns: tuple[SourceColumn, ...]
    name: str = ""
    path: Path = ()

    @staticmethod
    def of(occurrence: Occurrence, alias: str = "") -> Source:
        """The source that is one declared table."""
        own = (SourceColumn(c.name, Ref(occurrence.alias, c.name), c.type) for c in occurrence.table.columns)
        return Source(alias or occurrence.alias, tuple(own), occurrence.table.name)

    def find(self, name: str) -> list[SourceColumn]:
        """The columns with a name."""
        return [column for column in self.columns if column.name.lower() == name.lower()]


@dataclass(frozen=True)
class Scope:
    """The tables and blocks whose columns a name can refer to; an ON does not see ``later`` ones.

    ``occurrences`` are the tables of the select, ``sources`` what names refer to; by default each occurrence.
    ``derived`` collects the columns that the select computes, by alias and name.
    ``hidden`` columns, by alias and name in lower case, need a qualifier: JOIN … USING has merged them with
    others of the same name.  A subquery has the scope around it as ``outer``.  ``extended`` are the aliases
    of occurrences that an outer join can replace by NULLs; outside ON, no column can be derived from them
    before the join.
    """

    statement: Statement
    occurrences: tuple[Occurrence, ...]
    later: tuple[Source, ...] = ()
    derived: dict[str, dict[str, Column]] = field(default_factory=dict)
    hidden: frozenset[tuple[str, str]] = frozenset()
    outer: Scope | None = None
    extended: set[str] = field(default_factory=set)
    sources: tuple[Source, ...] | None = None

    @cached_property
    def visible(self) -> tuple[Source, ...]:
        """The sources that names refer to."""
        return self.sources if self.sources is not None else tuple(map(Source.of, self.occurrences))

    def derive(self, alias: str, column: Column) -> Ref:
        """Add a derived column to an occurrence, unless it has it already."""
        self.derived.setdefault(alias, {}).setdefault(column.name, column)
        return Ref(alias, column.name)

    def occurrence_of(self, ref: Ref) -> Occurrence:
        """The occurrence that a column belongs to."""
        found = (each for each in self.occurrences if each.alias == ref.occurrence)
        if self.outer is None:
            return next(found)
        return next(found, None) or self.outer.occurrence_of(ref)

    def table_of(self, alias: str) -> Table:
        """The table of an occurrence, with the columns derived so far."""
        table = self.occurrence_of(Ref(alias, "")).table
        return replace(table, derived=(*table.derived, *self.derived.get(alias, {}).values()))

    def column(self, ref: Ref) -> Column:
        """The declared or derived column that a reference names."""
        return self.derived.get(ref.occurrence, {}).get(ref.column) or self.occurrence_of(ref).table.column(
            ref.column
        )

    def find_source(self, qualifier: exp.Expr) -> Source:
        """The source with this alias."""
        name = read_name(self.statement, qualifier)
        for each in self.visible:
            if each.alias.lower() == name.lower():
                return each
        if self.outer is not None and self.outer.has_alias(name):
            return self.outer.find_source(qualifier)
        raise self._unknown_alias(qualifier, name)

    def has_alias(self, name: str) -> bool:
        """A source of this scope, or of one around it, has this alias."""
        own = (each.alias.lower() for each in self.visible)
        return name.lower() in own or (self.outer is not None and self.outer.has_alias(name))

    def find_column(self, node: exp.Column) -> tuple[Ref, SqlType]:
        """The column that a name refers to, and its type; it has to be a column of one table."""
        source, column = self.resolve(node)
        if column.ref is None:
            raise KeepBlockError(source.path)
        assert column.type is not None
        return column.ref, column.type

    def resolve(self, node: exp.Column) -> tuple[Source, SourceColumn]:
        """The column that a name refers to, with its source."""
        ref = node.meta.get(_REF)
        if isinstance(ref, Ref):
            return Source(ref.occurrence, ()), SourceColumn(ref.column, ref, self.column(ref).type)
        accept_only(self.statement, node, "this", "table", "db")
        edge = self._find_edge(node)
        if edge is not None:
            return edge
        if node.args.get("db"):
            place = self.statement.at(node)
            raise SqlError(f"{self.statement.excerpt(node)} has too many parts", place, "write alias.column")
        name, qualifier = read_name(self.statement, node.this), node.args.get("table")
        among = (self.find_source(qualifier),) if qualifier else self.visible
        found = [
            (each, column)
            for each in among
            for column in each.find(name)
            if qualifier or (each.alias.lower(), column.name.lower()) not in self.hidden
        ]
        if not found and not qualifier and self.outer is not None and self.outer.knows(node):
            return self.outer.resolve(node)
        if len(found) > 1:
            meanings = " or ".join(one_line(f"{each.alias}.{column.name}") for each, column in found)
            message = f"{one_line(name)} is ambiguous: it can be {meanings}"
            raise SqlNameError(message, self.statement.at(node), "write alias.column")
        if not found:
            self._refuse_later(node, name, [column.name for each in self.later for column in each.columns])
            known = list_names(name, (column.name for each in among for column in each.columns))
            raise SqlNameError(
                f"there is no column {self.statement.excerpt(node)}",
                self.statement.at(node),
                f"the columns are {known}",
            )
        return found[0]

    def make_column(self, ref: Ref, at: exp.Expr) -> exp.Column:
        """A node for a column that the text does not name; ``at`` is its place."""
        node = exp.column(exp.to_identifier(ref.column, quoted=True))
        node.meta[_REF] = ref
        node.parent = at
        return node

    def refer(self, node: exp.Column, ref: Ref) -> None:
        """Let a node name a column, whatever its text."""
        node.meta[_REF] = ref

    def _find_edge(self, node: exp.Column) -> tuple[Source, SourceColumn] | None:
        """``w.start`` or ``x.w.start``, where ``w`` is a window that a block has as a column."""
        found = self.find_window(node)
        if found is None:
            return None
        source, window = found
        assert window.edges is not None
        name = node.name.lower()
        return source, replace(window.edges[name == "end"], name=name)

    def find_window(self, node: exp.Column) -> tuple[Source, SourceColumn] | None:
        """The window of a block, and the block, of which ``w.start`` or ``x.w.start`` is an edge."""
        name, window, alias = node.name.lower(), node.args.get("table"), node.args.get("db")
        if window is None or name not in ("start", "end") or (alias is None and self.has_alias(window.name)):
            return None
        for each in (self.find_source(alias),) if alias is not None else self.visible:
            for column in each.find(window.name):
                if column.edges is not None:
                    return each, column
        return None

    def _refuse_later(self, node: exp.Expr, name: str, later: list[str]) -> None:
        if name.lower() in (each.lower() for each in later):
            message = f"{one_line(name)} is not visible in this ON, which sees only the tables before it"
            raise SqlNameError(message, self.statement.at(node), "put the condition in WHERE")

    def knows(self, node: exp.Column) -> bool:
        """The name refers to exactly one column."""
        try:
            self.resolve(node)
        except SqlNameError:
            return False
        return True

    def _unknown_alias(self, qualifier: exp.Expr, name: str) -> SqlNameError:
        place = self.statement.at(qualifier)
        self._refuse_later(qualifier, name, [each.alias for each in self.later])
        for each in self.visible:
            if each.name.lower() == name.lower():
                message = f"table {one_line(name)} has the alias {one_line(each.alias)} here"
                return SqlNameError(message, place, "use the alias")
        known = list_names(name, (each.alias for each in self.visible))
        return SqlNameError(
            f"there is no table or alias {one_line(name)} in FROM", place, f"the aliases are {known}"
        )


@dataclass(frozen=True)
class NamedQuery:
    """A query with a name: a view, or one of WITH.  It is read anew wherever FROM names it.

    ``columns`` are the names that its column list gives its columns, ``names`` what its own FROM can name.
    """

    name: str
    statement: Statement
    node: exp.Expr
    columns: tuple[str, ...]
    names: Names


# What FROM can name, by name.
Names = Mapping[str, "Table | NamedQuery"]


def find_table(statement: Statement, node: exp.Table, tables: Names) -> Table | NamedQuery:
    """The table or query that an entry of FROM names."""
    name = read_name(statement, node.this)
    for key, table in tables.items():
        if key.lower() == name.lower():
            return table
    remedy = (
        f"the tables are {list_names(name, tables)}" if tables else "declare it with CREATE STREAMING TABLE"
    )
    if name.lower() == "stream" and node.alias:  # as newer versions of Spark mark streams
        remedy = f"write {one_line(node.alias)} alone: CREATE STREAMING TABLE says that it is a stream"
    raise SqlNameError(f"there is no table {one_line(name)}", statement.at(node), remedy)


def read_table_name(statement: Statement, node: exp.Expr, *known: str) -> str:
    """The name of a table without database, function or version."""
    if not isinstance(node, exp.Table):
        raise SqlError(
            f"{statement.excerpt(node)} is not a table name", statement.at(node), "write a plain name"
        )
    if node.args.get("db"):
        place = statement.at(node)
        raise SqlError(
            "a table name with a database is not supported", place, "write the name of the table alone"
        )
    if isinstance(node.this, exp.Func):
        message = f"the table function {statement.excerpt(node).partition('(')[0]} is not supported"
        raise SqlError(message, statement.at(node), "name a declared table")
    accept_only(statement, node, "this", *known)
    return read_name(statement, node.this)


def list_names(wanted: str, names: Iterable[str]) -> str:
    """The names that exist, the most similar ones first.

    >>> list_names("prise", ["day", "price", "size"])
    'price, day, size'
    """
    unique = list(dict.fromkeys(names))
    lower = {name.lower(): name for name in reversed(unique)}
    close = [lower[match] for match in get_close_matches(wanted.lower()[:80], lower, n=3)]
    ordered = close + [name for name in unique if name not in close]
    shown = [one_line(name, 40) for name in ordered[:_MOST_NAMES]]
    more = len(ordered) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
