"""Names → tables and columns, without regard to case, as Spark has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from sqlglot import exp

from millpond.errors import NameError_, SqlError, one_line
from millpond.frontend.refusals import only
from millpond.frontend.source import Source
from millpond.query.model import Occurrence, Ref, Table
from millpond.query.types import SqlType

_MOST_NAMES = 12


def identifier(source: Source, node: exp.Expr | None) -> str:
    """A name as spelled, without back quotes."""
    assert node is not None
    if not isinstance(node, exp.Identifier):
        raise SqlError(f"{source.shown(node)} is not a name", source.at(node), "write a plain name")
    if source.slice(node)[:1] in ("'", '"'):
        raise SqlError(f"{source.shown(node)} is a string, not a name", source.at(node), "quote it with `…`")
    return node.name


@dataclass(frozen=True)
class Scope:
    """The occurrences whose columns a name can mean; ``later`` ones are joined only after this ON."""

    source: Source
    occurrences: tuple[Occurrence, ...]
    later: tuple[Occurrence, ...] = ()

    def qualified(self, qualifier: exp.Expr) -> Occurrence:
        """The occurrence with this alias."""
        name = identifier(self.source, qualifier)
        for each in self.occurrences:
            if each.alias.lower() == name.lower():
                return each
        raise self._no_alias(qualifier, name)

    def column(self, node: exp.Column) -> tuple[Ref, SqlType]:
        """The one column this name means, and its type."""
        only(self.source, node, "this", "table", "db")
        if node.args.get("db"):
            place = self.source.at(node)
            raise SqlError(f"{self.source.shown(node)} has too many parts", place, "write alias.column")
        name, qualifier = identifier(self.source, node.this), node.args.get("table")
        among = (self.qualified(qualifier),) if qualifier else self.occurrences
        found = [
            (Ref(each.alias, column.name), column.type)
            for each in among
            for column in each.table.columns
            if column.name.lower() == name.lower()
        ]
        if len(found) > 1:
            meanings = " or ".join(one_line(str(ref)) for ref, _ in found)
            message = f"{one_line(name)} is ambiguous: it could be {meanings}"
            raise NameError_(message, self.source.at(node), "put the alias in front")
        if not found:
            self._guard_reach(
                node, name, [column.name for each in self.later for column in each.table.columns]
            )
            known = listing(name, (column.name for each in among for column in each.table.columns))
            raise NameError_(
                f"no column {self.source.shown(node)}", self.source.at(node), f"there is {known}"
            )
        return found[0]

    def _guard_reach(self, node: exp.Expr, name: str, later: list[str]) -> None:
        if name.lower() in (each.lower() for each in later):
            message = f"{one_line(name)} is not in reach of this ON, which sees only the tables before it"
            raise NameError_(message, self.source.at(node), "put the condition in WHERE")

    def knows(self, node: exp.Column) -> bool:
        try:
            self.column(node)
        except NameError_:
            return False
        return True

    def _no_alias(self, qualifier: exp.Expr, name: str) -> NameError_:
        place = self.source.at(qualifier)
        self._guard_reach(qualifier, name, [each.alias for each in self.later])
        for each in self.occurrences:
            if each.table.name.lower() == name.lower():
                message = f"{one_line(name)} is called {one_line(each.alias)} here"
                return NameError_(message, place, "use that alias")
        known = listing(name, (each.alias for each in self.occurrences))
        return NameError_(f"no table or alias {one_line(name)} in FROM", place, f"there is {known}")


def find_table(source: Source, node: exp.Table, tables: Mapping[str, Table]) -> Table:
    """The declared table that a place in FROM names."""
    name = identifier(source, node.this)
    for key, table in tables.items():
        if key.lower() == name.lower():
            return table
    remedy = f"there is {listing(name, tables)}" if tables else "declare it with CREATE STREAMING TABLE"
    raise NameError_(f"no table {one_line(name)}", source.at(node), remedy)


def table_name(source: Source, node: exp.Expr, *known: str) -> str:
    """The name of a table without database, function or version."""
    if not isinstance(node, exp.Table):
        raise SqlError(f"{source.shown(node)} is not a table name", source.at(node), "write a plain name")
    if node.args.get("db"):
        place = source.at(node)
        raise SqlError("a table with a database in front is outside the language", place, "name it alone")
    if isinstance(node.this, exp.Func):
        message = f"the table function {source.shown(node).partition('(')[0]} is outside the language"
        raise SqlError(message, source.at(node), "name a declared table")
    only(source, node, "this", *known)
    return identifier(source, node.this)


def listing(wanted: str, names: Iterable[str]) -> str:
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
