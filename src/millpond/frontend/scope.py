"""Resolves names to tables and columns; like Spark, it ignores case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

from sqlglot import exp

from millpond.errors import SqlError, SqlNameError, one_line
from millpond.frontend.refusals import accept_only
from millpond.frontend.statement import Statement
from millpond.query.model import Column, Occurrence, Ref, Table
from millpond.query.types import SqlType

_MOST_NAMES = 12


def read_name(statement: Statement, node: exp.Expr | None) -> str:
    """A name as spelled, without backticks."""
    assert node is not None
    if not isinstance(node, exp.Identifier):
        raise SqlError(f"{statement.excerpt(node)} is not a name", statement.at(node), "write a plain name")
    if statement.slice(node)[:1] in ("'", '"'):
        raise SqlError(
            f"{statement.excerpt(node)} is a string, not a name", statement.at(node), "quote it with `…`"
        )
    return node.name


@dataclass(frozen=True)
class Scope:
    """The occurrences whose columns a name can refer to; an ON does not see ``later`` ones.

    ``derived`` collects the columns that the select computes, by alias and name.
    ``hidden`` columns need a qualifier: JOIN … USING has merged them with others of the same name.  A
    subquery has the scope around it as ``outer``; ``written`` are the aliases of its own occurrences as
    written, where they had to be changed to be unique.  ``extended`` are the aliases of occurrences that an
    outer join can replace by NULLs; outside ON, no column can be derived from them before the join.
    """

    statement: Statement
    occurrences: tuple[Occurrence, ...]
    later: tuple[Occurrence, ...] = ()
    derived: dict[str, dict[str, Column]] = field(default_factory=dict)
    hidden: frozenset[Ref] = frozenset()
    outer: Scope | None = None
    written: Mapping[str, str] = field(default_factory=dict)
    extended: set[str] = field(default_factory=set)

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

    def column(self, ref: Ref) -> Column:
        """The declared or derived column that a reference names."""
        return self.derived.get(ref.occurrence, {}).get(ref.column) or self.occurrence_of(ref).table.column(
            ref.column
        )

    def find_occurrence(self, qualifier: exp.Expr) -> Occurrence:
        """The occurrence with this alias."""
        name = read_name(self.statement, qualifier)
        for each in self.occurrences:
            if self.written.get(each.alias, each.alias).lower() == name.lower():
                return each
        if self.outer is not None and self.outer.has_alias(name):
            return self.outer.find_occurrence(qualifier)
        raise self._unknown_alias(qualifier, name)

    def has_alias(self, name: str) -> bool:
        """An occurrence of this scope, or of one around it, has this alias."""
        own = (self.written.get(each.alias, each.alias).lower() for each in self.occurrences)
        return name.lower() in own or (self.outer is not None and self.outer.has_alias(name))

    def find_column(self, node: exp.Column) -> tuple[Ref, SqlType]:
        """The column that a name refers to, and its type."""
        accept_only(self.statement, node, "this", "table", "db")
        if node.args.get("db"):
            place = self.statement.at(node)
            raise SqlError(f"{self.statement.excerpt(node)} has too many parts", place, "write alias.column")
        name, qualifier = read_name(self.statement, node.this), node.args.get("table")
        among = (self.find_occurrence(qualifier),) if qualifier else self.occurrences
        found = [
            (Ref(each.alias, column.name), column.type)
            for each in among
            for column in each.table.columns
            if column.name.lower() == name.lower()
            and (qualifier or Ref(each.alias, column.name) not in self.hidden)
        ]
        if not found and not qualifier and self.outer is not None and self.outer.knows(node):
            return self.outer.find_column(node)
        if len(found) > 1:
            meanings = " or ".join(one_line(str(ref)) for ref, _ in found)
            message = f"{one_line(name)} is ambiguous: it can be {meanings}"
            raise SqlNameError(message, self.statement.at(node), "write alias.column")
        if not found:
            self._refuse_later(
                node, name, [column.name for each in self.later for column in each.table.columns]
            )
            known = list_names(name, (column.name for each in among for column in each.table.columns))
            raise SqlNameError(
                f"there is no column {self.statement.excerpt(node)}",
                self.statement.at(node),
                f"the columns are {known}",
            )
        return found[0]

    def _refuse_later(self, node: exp.Expr, name: str, later: list[str]) -> None:
        if name.lower() in (each.lower() for each in later):
            message = f"{one_line(name)} is not visible in this ON, which sees only the tables before it"
            raise SqlNameError(message, self.statement.at(node), "put the condition in WHERE")

    def knows(self, node: exp.Column) -> bool:
        """The name refers to exactly one column."""
        try:
            self.find_column(node)
        except SqlNameError:
            return False
        return True

    def _unknown_alias(self, qualifier: exp.Expr, name: str) -> SqlNameError:
        place = self.statement.at(qualifier)
        self._refuse_later(qualifier, name, [each.alias for each in self.later])
        for each in self.occurrences:
            if each.table.name.lower() == name.lower():
                message = f"table {one_line(name)} has the alias {one_line(each.alias)} here"
                return SqlNameError(message, place, "use the alias")
        known = list_names(name, (each.alias for each in self.occurrences))
        return SqlNameError(
            f"there is no table or alias {one_line(name)} in FROM", place, f"the aliases are {known}"
        )


def find_table(statement: Statement, node: exp.Table, tables: Mapping[str, Table]) -> Table:
    """The declared table that an entry of FROM names."""
    name = read_name(statement, node.this)
    for key, table in tables.items():
        if key.lower() == name.lower():
            return table
    remedy = (
        f"the tables are {list_names(name, tables)}" if tables else "declare it with CREATE STREAMING TABLE"
    )
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
