"""The streams and relations of a plan, declared as CREATE statements.

A stream is declared once, with the columns of its source.  Values that Spark attaches to its rows and that
the language cannot compute (a time column that is parsed from text, random numbers, rows of a generator) are
further columns of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from millpond.frontend.spark_names import quote_name
from millpond.spark.plans.nodes import Attribute, PlanNode, PlanSource
from millpond.spark.plans.sql_text import Sql, render_duration

_TIMES = ("timestamp", "timestamp_ntz", "timestamp_ltz")
_TYPES = {**dict.fromkeys(_TIMES, "timestamp"), "void": "string", "variant": "binary"}


@dataclass
class DeclaredTable:
    """A table that the query reads: its columns with their types, its time column and its watermark in ms.

    ``hint`` is the name that it was to have.
    """

    name: str
    columns: dict[str, str]
    streaming: bool
    hint: str | None = None
    required: frozenset[str] = frozenset()
    time: str | None = None
    delay: int | None = None
    is_timed: bool = False  # a window or a join uses the time column
    made: dict[str, str] = field(default_factory=dict)  # columns for expressions, by their SQL

    @property
    def times(self) -> list[str]:
        """The columns that can be the time column."""
        return [name for name, type_ in self.columns.items() if _TYPES.get(type_) == "timestamp"]

    @property
    def time_column(self) -> str | None:
        """The time column of a stream: the one with a watermark, or that windows use, or the first one."""
        return (self.time or next(iter(self.times), None)) if self.streaming else None

    def render(self) -> str:
        """The CREATE statement."""
        columns = (
            f"{quote_name(name)} {_render_type(type_)}{' NOT NULL' * (name in self.required)}"
            for name, type_ in self.columns.items()
        )
        kind = "STREAMING TABLE" if self.streaming else "TABLE"
        properties = []
        if self.streaming and len(self.times) > 1:
            properties.append(f"'time' = '{self.time_column}'")
        if self.streaming and self.delay:
            properties.append(f"'watermark' = '{render_duration(self.delay * 1000)}'")
        suffix = f" TBLPROPERTIES ({', '.join(properties)})" if properties else ""
        return f"CREATE {kind} {quote_name(self.name)} ({', '.join(columns)}){suffix};"


class PlanCatalog:
    """The tables of a plan, by source and by the aliases under which the query reads them."""

    def __init__(self) -> None:
        self.tables: list[DeclaredTable] = []
        self._by_alias: dict[str, DeclaredTable] = {}
        self._by_source: dict[tuple[PlanSource, tuple[str, ...]], DeclaredTable] = {}
        self._names: set[str] = set()

    def declare(self, node: PlanNode, hint: str | None) -> DeclaredTable:
        """The rows of a node as a stream or relation; one with the same source is declared once."""
        columns = {name: each.type for name, each in name_columns(node)}
        key = (node.source, tuple(columns)) if node.source is not None else None
        if key is not None and key in self._by_source:
            return self._by_source[key]
        required = frozenset(name for name, each in name_columns(node) if not each.nullable)
        name = _clean(hint) or _describe_source(node.source) or ("stream" if node.streaming else "relation")
        table = DeclaredTable(self.name_alias(name), columns, node.streaming, name, required)
        self.tables.append(table)
        if key is not None:
            self._by_source[key] = table
        return table

    def name_alias(self, hint: str) -> str:
        """A name that nothing else in the query has."""
        (name,) = make_unique([hint], self._names)
        self._names.add(name)
        return name

    def read(self, table: DeclaredTable, alias: str | None) -> str:
        """The alias of one more occurrence of a table."""
        is_first = not any(table is each for each in self._by_alias.values())
        wanted = _clean(alias) or table.name
        name = table.name if is_first and wanted in (table.name, table.hint) else self.name_alias(wanted)
        self._by_alias[name] = table
        return name

    def find(self, alias: str) -> DeclaredTable | None:
        """The declared table that is read under an alias; None for a subquery."""
        return self._by_alias.get(alias)

    def set_time(self, column: tuple[str, str] | None, delay: int | None = None) -> None:
        """Make a column the time column of its stream, unless one with a watermark is known already."""
        table = self.find(column[0]) if column is not None else None
        if column is None or table is None or not table.streaming:
            return
        if table.delay is None and (table.time is None or delay is not None):
            table.time, table.delay = column[1], delay
        table.is_timed |= delay is None and table.time == column[1]

    def set_window_time(self, column: tuple[str, str] | None) -> None:
        """Make a column that a window is made of the time column.

        A watermark on another column that no window or join uses has no effect, so it does not count.
        """
        table = self.find(column[0]) if column is not None else None
        if column is not None and table is not None and table.time != column[1] and not table.is_timed:
            table.time, table.delay = None, None
        self.set_time(column)

    def add_column(self, alias: str, name: str, type_: str, computed: str | None = None) -> Sql:
        """One more column of a stream; for equal ``computed`` SQL it is the same one."""
        table = self._by_alias[alias]
        computed = computed.replace(f"{quote_name(alias)}.", "") if computed is not None else None
        if computed is not None and computed in table.made:
            return make_column(alias, table.made[computed])
        (unique,) = make_unique([name], table.columns)
        table.columns[unique] = type_
        if computed is not None:
            table.made[computed] = unique
        return make_column(alias, unique)

    def find_made(self, text: str) -> str:
        """The column that was added for an expression; the expression itself if there is none."""
        for alias, table in self._by_alias.items():
            name = table.made.get(text.replace(f"{quote_name(alias)}.", ""))
            if name is not None:
                return make_column(alias, name).text
        return text

    def render(self) -> str:
        """All CREATE statements."""
        return "\n".join(table.render() for table in self.tables)


def name_columns(node: PlanNode) -> list[tuple[str, Attribute]]:
    """The columns of a node that a table can have, each under a name of its own."""
    columns = [each for each in node.output if _is_declarable(each.type)]
    return list(zip(make_unique(each.name for each in columns), columns, strict=True))


def make_unique(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """The names, with a number where one occurs again, whatever its case.

    >>> make_unique(["id", "k", "ID"])
    ['id', 'k', 'ID_2']
    """
    known, made = {each.lower() for each in taken}, []
    for name in names:
        unique, number = name, 2
        while unique.lower() in known:
            unique, number = f"{name}_{number}", number + 1
        known.add(unique.lower())
        made.append(unique)
    return made


def make_column(alias: str, name: str) -> Sql:
    """A column as SQL."""
    return Sql(f"{quote_name(alias)}.{quote_name(name)}", column=(alias, name))


def find_hint(node: PlanNode) -> str | None:
    """The name of a view, an alias or a table at or below a node with a single input."""
    while True:
        name = read_name(node)
        if name is not None:
            return name
        if len(node.children) != 1:
            return None
        (node,) = node.children


def read_name(node: PlanNode) -> str | None:
    """The name that a node gives its rows: an alias, a view, or a table of the session's catalog."""
    for key in ("identifier", "desc", "catalogTable", "tableMeta"):
        value = node.fields.get(key)
        while isinstance(value, dict):
            value = value.get("name") or value.get("table") or value.get("identifier")
        if isinstance(value, str) and value and not value.startswith("__auto_generated"):
            return value
    return None


def _describe_source(source: PlanSource | None) -> str | None:
    """A name from where a source reads: the last part of its path, its topic, or its format."""
    if source is None:
        return None
    for key in ("path", "subscribe", "topic"):
        parts = [part for part in re.split(r"[/\\,]", source.options.get(key, "")) if part.strip("*.")]
        if parts:
            return _clean(parts[-1])
    return _clean(re.sub(r"(TextSocket|Source|Provider)+.*", "", source.format)) or _clean(source.format)


def _clean(name: str | None) -> str | None:
    """A name without dots and other signs that would have to be quoted."""
    return re.sub(r"\W+", "_", name).strip("_") if name else None


def _render_type(type_: str) -> str:
    """A type in CREATE; the names of fields keep their case."""
    plain = _TYPES.get(type_, type_)
    return plain if "<" in plain else plain.upper()


def _is_declarable(type_: str) -> bool:
    return not type_.startswith(("interval", "time(", "udt", "object"))
