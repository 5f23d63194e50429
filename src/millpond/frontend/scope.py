"""Names → tables and columns, without regard to case, as Spark has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from sqlglot import exp

from millpond.errors import SqlError, SqlNameError, one_line
from millpond.frontend.refusals import accept_only
from millpond.frontend.statement import Statement
from millpond.query.model import Occurrence, Ref, Table
from millpond.query.types import SqlType

_MOST_NAMES = 12


def read_name(statement: Statement, node: exp.Expr | None) -> str:
    """A name as spelled, without back quotes."""
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
    """The occurrences whose columns a name can mean; ``later`` ones are joined only after this ON."""

    statement: Statement
    occurrences: tuple[Occurrence, ...]
    later: tuple[Occurrence, ...] = ()

    def find_occurrence(self, qualifier: exp.Expr) -> Occurrence:
        """The occurrence with this alias."""
        name = read_name(self.statement, qualifier)
        for each in self.occurrences:
            if each.alias.lower() == name.lower():
                return each
        raise self._no_alias(qualifier, name)

    def column(self, node: exp.Column) -> tuple[Ref, SqlType]:
        """The one column this name means, and its type."""
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
        ]
        if len(found) > 1:
            meanings = " or ".join(one_line(str(ref)) for ref, _ in found)
            message = f"{one_line(name)} is ambiguous: it could be {meanings}"
            raise SqlNameError(message, self.statement.at(node), "put the alias in front")
        if not found:
            self._guard_reach(
                node, name, [column.name for each in self.later for column in each.table.columns]
            )
            known = list_names(name, (column.name for each in among for column in each.table.columns))
            raise SqlNameError(
                f"no column {self.statement.excerpt(node)}", self.statement.at(node), f"there is {known}"
            )
        return found[0]

    def _guard_reach(self, node: exp.Expr, name: str, later: list[str]) -> None:
        if name.lower() in (each.lower() for each in later):
            message = f"{one_line(name)} is not in reach of this ON, which sees only the tables before it"
            raise SqlNameError(message, self.statement.at(node), "put the condition in WHERE")

    def knows(self, node: exp.Column) -> bool:
        try:
            self.column(node)
        except SqlNameError:
            return False
        return True

    def _no_alias(self, qualifier: exp.Expr, name: str) -> SqlNameError:
        place = self.statement.at(qualifier)
        self._guard_reach(qualifier, name, [each.alias for each in self.later])
        for each in self.occurrences:
            if each.table.name.lower() == name.lower():
                message = f"{one_line(name)} is called {one_line(each.alias)} here"
                return SqlNameError(message, place, "use that alias")
        known = list_names(name, (each.alias for each in self.occurrences))
        return SqlNameError(f"no table or alias {one_line(name)} in FROM", place, f"there is {known}")


def find_table(statement: Statement, node: exp.Table, tables: Mapping[str, Table]) -> Table:
    """The declared table that a place in FROM names."""
    name = read_name(statement, node.this)
    for key, table in tables.items():
        if key.lower() == name.lower():
            return table
    remedy = f"there is {list_names(name, tables)}" if tables else "declare it with CREATE STREAMING TABLE"
    raise SqlNameError(f"no table {one_line(name)}", statement.at(node), remedy)


def read_table_name(statement: Statement, node: exp.Expr, *known: str) -> str:
    """The name of a table without database, function or version."""
    if not isinstance(node, exp.Table):
        raise SqlError(
            f"{statement.excerpt(node)} is not a table name", statement.at(node), "write a plain name"
        )
    if node.args.get("db"):
        place = statement.at(node)
        raise SqlError("a table with a database in front is outside the language", place, "name it alone")
    if isinstance(node.this, exp.Func):
        message = f"the table function {statement.excerpt(node).partition('(')[0]} is outside the language"
        raise SqlError(message, statement.at(node), "name a declared table")
    accept_only(statement, node, "this", *known)
    return read_name(statement, node.this)


def list_names(wanted: str, names: Iterable[str]) -> str:
    """The names that exist, those most like the wanted one first.

    >>> listing("prise", ["day", "price", "size"])
    'price, day, size'
    """
    unique = list(dict.fromkeys(names))
    lower = {name.lower(): name for name in reversed(unique)}
    close = [lower[match] for match in get_close_matches(wanted.lower()[:80], lower, n=3)]
    ordered = close + [name for name in unique if name not in close]
    shown = [one_line(name, 40) for name in ordered[:_MOST_NAMES]]
    more = len(ordered) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
