"""A SELECT that is built operator by operator, and its text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from millpond.frontend.spark_names import quote_name
from millpond.spark.plans.expressions import Definition, WindowColumn


@dataclass(frozen=True)
class FromItem:
    """A table or subquery in FROM, and how it is joined with those before it.

    Of a subquery that adds nothing to its own text, ``inner`` is that text and ``exports`` are its columns.
    """

    text: str
    alias: str
    join: str = "JOIN"
    on: tuple[str, ...] = ()
    inner: str | None = None
    exports: tuple[str, ...] = ()

    def render(self, is_first: bool) -> str:
        """The item as part of a FROM clause."""
        name = quote_name(self.alias)
        shown = self.text if self.text == name else f"{self.text} AS {name}"
        if is_first:
            return shown
        if self.join == "JOIN" and not self.on:
            return f"CROSS JOIN {shown}"
        return f"{self.join} {shown} ON {' AND '.join(self.on) or 'TRUE'}"


@dataclass(frozen=True)
class SelectText:
    """The parts of a SELECT as text, and the SQL that defines each of its columns, by ID."""

    items: tuple[FromItem, ...]
    columns: Mapping[int, Definition] = field(default_factory=dict)
    laterals: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    group: tuple[str, ...] | None = None
    having: tuple[str, ...] = ()
    distinct: bool = False
    has_over: bool = False
    order: tuple[str, ...] = ()
    limit: int | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it has only joins, conditions and expressions, so that other operators can be added."""
        return self.group is None and not self.distinct and not self.has_over and self.limit is None

    def render(self, output: Sequence[tuple[Definition, str | None]]) -> str:
        """The text of the SELECT with these columns, each with its name, if it has to have one."""
        inner = self._find_inner(output)
        if inner is not None:
            return inner
        shown = []
        for definition, name in output:
            if isinstance(definition, WindowColumn) and definition.whole is None:
                shown.append(definition.start.text)
            else:
                sql = definition.whole if isinstance(definition, WindowColumn) else definition
                assert sql is not None
                natural = sql.column[1] if sql.column is not None else sql.text
                is_named = name is None or name == natural
                shown.append(sql.text if is_named else f"{sql.text} AS {quote_name(name or '')}")
        lines = [f"SELECT {'DISTINCT ' * self.distinct}{', '.join(shown)}"]
        lines.append("FROM " + " ".join(item.render(not i) for i, item in enumerate(self.items)))
        lines += self.laterals
        conditions = tuple(dict.fromkeys(self.where))
        if conditions:
            lines.append("WHERE " + " AND ".join(conditions))
        if self.group:
            lines.append("GROUP BY " + ", ".join(dict.fromkeys(self.group)))
        if self.having:
            lines.append("HAVING " + " AND ".join(dict.fromkeys(self.having)))
        if self.limit is not None:
            if self.order:
                lines.append("ORDER BY " + ", ".join(self.order))
            lines.append(f"LIMIT {self.limit}")
        return "\n".join(lines)

    def _find_inner(self, output: Sequence[tuple[Definition, str | None]]) -> str | None:
        """The text of the only subquery, if nothing is added to it."""
        (item, *others) = self.items
        if others or item.inner is None or not self.is_plain or self.where or self.laterals:
            return None
        names = [d.column[1] if not isinstance(d, WindowColumn) and d.column else "" for d, _ in output]
        return item.inner if tuple(names) == item.exports else None
