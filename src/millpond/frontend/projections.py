"""Reads select items that are computed from a result: ``ROUND(AVG(x), 1)``, ``CASE WHEN a.x > b.y …``.

The aggregates, group columns and columns of several tables in such an item become columns of the result;
what is computed from them is the query's projection, which is applied to each row as it is written.  So are
conditions that only Spark can compute, of HAVING and (without groups) over several tables: they are the
query's filter.

The verdict is that on the result before projection and filter.  Unbounded is confirmed with the filter, on
the columns that the projection leaves as they are, and on the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from millpond.errors import SqlError, SqlNameError, SqlTypeError
from millpond.frontend.constants import Bound
from millpond.frontend.expressions import (
    Reader,
    bind,
    bind_star_column,
    find_grouped_time,
    has_aggregate,
    names_window,
)
from millpond.frontend.refusals import is_unsettled
from millpond.frontend.row_expressions import (
    find_derived,
    find_expression_type,
    is_row_function,
    mark_as_read,
)
from millpond.frontend.scope import SourceColumn
from millpond.frontend.spark_functions import to_duckdb
from millpond.frontend.spark_names import name_expression
from millpond.frontend.statement import AGGREGATES
from millpond.frontend.time_calls import is_window_call, read_time_call
from millpond.query.expressions import Expr
from millpond.query.model import OutputColumn
from millpond.query.types import BOOLEAN, WINDOW, Family, SqlType


@dataclass
class Computed:
    """A select item that is computed from ``parts``, which ``row`` names ``0``, ``1``, … .

    Where it is ``unsettled``, it also has the current time or a random value in it.
    """

    row: exp.Expr
    parts: list[Bound] = field(default_factory=list)
    type: SqlType | None = None
    name: str = ""

    @property
    def unsettled(self) -> bool:
        """Whether the item has another value each time it is computed."""
        return any(map(is_unsettled, self.row.walk()))

    def to_output(self, name: str, names: list[str]) -> OutputColumn:
        """The output column; ``names`` are those of the parts in the result."""
        row = self.row.copy()
        for column in [*row.find_all(exp.Column)]:
            column.set("this", exp.to_identifier(names[int(column.name)], quoted=True))
        named = zip(names, self.parts, strict=True)
        times = {name for name, part in named if part.type is not None and part.type.family is Family.TIME}
        return OutputColumn(name, row.sql("spark"), to_duckdb(row, times))


def bind_item(reader: Reader, node: exp.Expr) -> Bound | Computed:
    """A select item: an expression of the language, or one that is computed from such expressions."""
    if reader.grouped is None and isinstance(node, exp.Column) and reader.scope.knows(node):
        _, column = reader.scope.resolve(node)
        if isinstance(column.value, Computed):
            return replace(column.value, name=node.name)
    if _has_edges(reader, node):
        made = _read_computed(reader, node)
        if made is not None:
            return made
    try:
        return bind(reader, node)
    except (SqlTypeError, SqlNameError):
        raise
    except SqlError as refusal:
        is_item = _is_over_results(reader, node) or any(map(is_unsettled, node.walk()))
        computed = _read_computed(reader, node, may_be_unsettled=True) if is_item else None
        if computed is None:
            raise refusal
        return computed


def _has_edges(reader: Reader, node: exp.Expr) -> bool:
    """Whether an item is computed from the edges of a window that the select groups by."""
    if reader.grouped is None or isinstance(node, exp.Column):
        return False
    return any(names_window(reader, column) for column in node.find_all(exp.Column))


def bind_star_item(reader: Reader, node: exp.Expr, column: SourceColumn) -> Bound | Computed:
    """One of the columns that ``*`` stands for."""
    if reader.grouped is None and isinstance(column.value, Computed):
        return replace(column.value, name=column.name)
    return bind_star_column(reader, node, column)


def _is_over_results(reader: Reader, node: exp.Expr) -> bool:
    """Whether an item is constant, or over groups or several occurrences; over one, the refusal says more."""
    if reader.grouped is not None:
        return True
    if node.find(exp.Query) is not None:
        return False
    columns = (column for column in node.find_all(exp.Column) if not isinstance(column.this, exp.Star))
    owners = {reader.scope.find_column(column)[0].occurrence for column in columns}
    return len(owners) != 1 or not owners.isdisjoint(reader.scope.extended)


def read_filter(reader: Reader, node: exp.Expr, refusal: SqlError) -> Computed:
    """A condition that is computed from the result; raises ``refusal`` if it is not."""
    computed = None
    is_of_rows = reader.grouped is None and (has_aggregate(node) or node.find(exp.Interval) is not None)
    if not is_of_rows and _is_over_results(reader, node):
        computed = _read_computed(replace(reader, aliases={}), _expand_aliases(reader, node))
    if computed is None:
        raise refusal
    if computed.type is not BOOLEAN:
        raise SqlTypeError(
            f"{reader.statement.excerpt(node)} is {computed.type}, not a condition", reader.statement.at(node)
        )
    mark_as_read(reader.statement, node)
    return computed


def _expand_aliases(reader: Reader, node: exp.Expr) -> exp.Expr:
    """The node with the select items that HAVING names in place of their aliases."""

    def find(each: exp.Expr) -> exp.Expr | None:
        is_name = isinstance(each, exp.Column) and not each.args.get("table") and not reader.scope.knows(each)
        return reader.aliases.get(each.name.lower()) if is_name else None

    if not any(map(find, node.walk())):
        return node
    expanded = node.transform(
        lambda each: exp.Paren(this=item.copy()) if (item := find(each)) is not None else each
    )
    expanded.parent = node.parent  # its place in the statement
    return expanded


def join_filters(filters: Sequence[Computed], names: Callable[[Computed], list[str]]) -> OutputColumn | None:
    """All of some conditions on the result; ``names`` are those of their parts."""
    if not filters:
        return None
    made = [each.to_output("", names(each)) for each in filters]
    spark = " AND ".join(f"({each.sql})" for each in made)
    duckdb = " AND ".join(f"({each.duckdb})" for each in made)
    return OutputColumn(" AND ".join(each.name for each in filters), spark, duckdb)


def _read_computed(reader: Reader, node: exp.Expr, may_be_unsettled: bool = False) -> Computed | None:
    """The computed item; None if it is no function of aggregates and columns."""
    if not isinstance(node, exp.Condition | exp.Paren) or isinstance(node, (*AGGREGATES, exp.Column)):
        return None
    computed = Computed(exp.Paren(this=node.copy()))
    pairs = zip(list(computed.row.this.walk(bfs=False)), list(node.walk(bfs=False)), strict=True)
    done: set[int] = set()
    places: list[tuple[exp.Expr, Bound]] = []
    for copied, written in pairs:
        if written.parent is not None and id(written.parent) in done and written is not node:
            done.add(id(written))
            continue
        bound = bind_part(reader, written)
        if bound is not None:
            if bound.type is WINDOW or bound.type is None:
                return None
            done.add(id(written))
            places.append((copied, bound))
        elif not is_row_function(written) and not (may_be_unsettled and is_unsettled(written)):
            return None
    known: dict[Expr, int] = {}
    for copied, bound in places:
        number = known.setdefault(bound.expression, len(known))
        if number == len(computed.parts):
            computed.parts.append(bound)
        copied.replace(exp.column(exp.to_identifier(str(number), quoted=True)))
    computed.row = computed.row.this
    types = {str(i): part.type for i, part in enumerate(computed.parts) if part.type is not None}
    computed.type = find_expression_type(reader.statement, node, computed.row, types)
    computed.name = name_expression(reader.statement, node)
    mark_as_read(reader.statement, node)
    return computed


def bind_part(reader: Reader, node: exp.Expr) -> Bound | None:
    """A column of the result that an item is computed from: an aggregate, a group or another column."""
    if isinstance(node, (*AGGREGATES, exp.Column, exp.Filter)):
        return bind(reader, node)
    if isinstance(node, exp.Dot) or is_window_call(node):
        return read_time_call(reader.scope, node, reader.grouped is not None) and bind(reader, node)
    if reader.grouped is not None and isinstance(node, exp.Condition) and not _has_edges(reader, node):
        called = find_grouped_time(reader, node)
        if called is not None:
            return called
        found = find_derived(reader.scope, node)
        if found is not None and any(
            found[0] == g.occurrence and found[1].name == g.column for g in reader.grouped
        ):
            return bind(reader, node)
    return None
