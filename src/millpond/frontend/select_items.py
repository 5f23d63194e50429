"""The select list: its items, the columns that ``*`` stands for, and the names of the output columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from millpond.errors import SqlError, SqlNameError
from millpond.frontend.constants import Bound
from millpond.frontend.expressions import Reader
from millpond.frontend.joins import FromClause
from millpond.frontend.limits import is_hidden
from millpond.frontend.projections import Computed, join_filters
from millpond.frontend.refusals import accept_only
from millpond.frontend.scope import Scope, SourceColumn, list_names, read_name
from millpond.frontend.statement import Statement
from millpond.frontend.time_calls import pick_edge
from millpond.query.model import (
    Item,
    OutputColumn,
)
from millpond.query.types import WINDOW

MAX_ITEMS = 10_000


@dataclass(frozen=True)
class SelectItem:
    """A select item; ``column`` is set if the item comes from ``*``."""

    node: exp.Expr
    alias: str | None
    text: str
    column: SourceColumn | None = None


def read_items(statement: Statement, node: exp.Select, clause: FromClause) -> list[SelectItem]:
    """The select items, with each ``*`` replaced by the columns that it stands for."""
    items: list[SelectItem] = []
    for each in node.expressions:
        if isinstance(each, exp.Star) or (isinstance(each, exp.Column) and isinstance(each.this, exp.Star)):
            items += _expand_star(statement, each, clause)
        elif isinstance(each, exp.Alias):
            accept_only(statement, each, "this", "alias")
            items.append(
                SelectItem(each.this, read_name(statement, each.args["alias"]), statement.slice(each))
            )
        else:
            items.append(SelectItem(each, _name_field(each), statement.slice_with_signs(each)))
        if len(items) > MAX_ITEMS:
            message = f"more than {MAX_ITEMS} columns in one select"
            raise SqlError(message, statement.at(each), "name the columns you need")
    if not items:
        raise SqlError("nothing is selected", statement.at(node), "name columns after SELECT")
    return items


def replace_earlier_aliases(scope: Scope, node: exp.Select) -> None:
    """Put select items in place of their aliases in later items: ``price * 2 AS double, double + 1``.

    As in Spark, a column of that name comes first.
    """
    aliases: dict[str, exp.Expr] = {}
    for item in node.expressions:
        for column in [*item.find_all(exp.Column)] if aliases else ():
            if column.parent_select is node and not isinstance(column.this, exp.Star):
                replace_alias(scope, column, aliases)
        if isinstance(item, exp.Alias):
            aliases.setdefault(item.alias.lower(), item.this)


def replace_alias(scope: Scope, column: exp.Column, aliases: Mapping[str, exp.Expr]) -> None:
    """Put the item in the place of a name that is an alias, and not a column."""
    item = None if column.args.get("table") else aliases.get(column.name.lower())
    if item is None or scope.knows(column):
        return
    copied: exp.Expr = exp.Paren(this=scope.statement.copy(item))
    if isinstance(column.parent, exp.Select):
        copied = exp.Alias(this=copied, alias=column.this.copy())
    scope.statement.place(copied, column)
    column.replace(copied)


def _name_field(node: exp.Expr) -> str | None:
    """Spark's name for a field of a struct column, ``city`` for ``address.city``; None for other items."""
    root = node
    while isinstance(root, exp.Dot):
        root = root.this
    return node.name if root is not node and isinstance(root, exp.Column) else None


def _expand_star(statement: Statement, node: exp.Expr, clause: FromClause) -> list[SelectItem]:
    star = node.this if isinstance(node, exp.Column) else node
    accept_only(statement, star, "except_")
    columns: Sequence[SourceColumn] = clause.columns
    if isinstance(node, exp.Column):
        accept_only(statement, node, "this", "table")
        columns = clause.scope.find_source(node.args["table"]).columns
    shown = _leave_out(statement, star, [each for each in columns if not is_hidden(each.name)])
    return [SelectItem(node, None, str(each.ref or each.name), each) for each in shown]


def _leave_out(statement: Statement, star: exp.Expr, columns: list[SourceColumn]) -> list[SourceColumn]:
    """The columns of ``* EXCEPT (…)``."""
    for each in star.args.get("except_") or ():
        name = read_name(statement, each.this if isinstance(each, exp.Column) else each).lower()
        kept = [column for column in columns if column.name.lower() != name]
        if len(kept) == len(columns):
            known = list_names(name, (column.name for column in columns))
            message = f"there is no column {statement.excerpt(each)} to leave out"
            raise SqlNameError(message, statement.at(each), f"the columns are {known}")
        columns = kept
    return columns


def name_outputs(
    reader: Reader,
    items: Sequence[SelectItem],
    bound: Sequence[Bound | Computed],
    filters: Sequence[Computed],
) -> tuple[tuple[Item, ...], tuple[tuple[int, str], ...], tuple[OutputColumn, ...], OutputColumn | None]:
    """The items and windows of the result, and the projection and the filter that are computed from them."""
    plain = [(item, each) for item, each in zip(items, bound, strict=True) if isinstance(each, Bound)]
    computed = [*(each for each in bound if isinstance(each, Computed)), *filters]
    if not computed:
        return (*_name_items(reader, items, [each for _, each in plain]), (), None)
    names = unique_names([item.alias or each.name for item, each in zip(items, bound, strict=True)])
    shown = [
        (replace(i, alias=n), b) for i, n, b in zip(items, names, bound, strict=True) if isinstance(b, Bound)
    ]
    known = {b.expression: i.alias or "" for i, b in shown if b.type is not WINDOW}
    for part in (part for each in computed for part in each.parts):
        if part.expression not in known:
            name = f"part {len(known) + 1} of the result"
            known[part.expression] = name
            shown.append((SelectItem(exp.Null(), name, name), part))
    named, windows = _name_items(reader, [item for item, _ in shown], [each for _, each in shown])
    projection = []
    for name, each in zip(names, bound, strict=True):
        if isinstance(each, Computed):
            projection.append(each.to_output(name, [known[part.expression] for part in each.parts]))
        else:
            column = exp.column(exp.to_identifier(name, quoted=True))
            projection.append(OutputColumn(name, column.sql("spark"), column.sql("duckdb")))
    filtered = join_filters(filters, lambda each: [known[part.expression] for part in each.parts])
    return named, windows, tuple(projection), filtered


def _name_items(
    reader: Reader, items: Sequence[SelectItem], bound: Sequence[Bound]
) -> tuple[tuple[Item, ...], tuple[tuple[int, str], ...]]:
    """The items under their names, and the windows among them: each is two items, its start and its end."""
    unique = unique_names([item.alias or each.name for item, each in zip(items, bound, strict=True)])
    out: list[Item] = []
    windows: list[tuple[int, str]] = []
    for item, each, name in zip(items, bound, unique, strict=True):
        if each.type is WINDOW:
            windows.append((len(out), name))
            is_grouped = reader.grouped is not None
            edges = [pick_edge(reader.scope, each, edge, is_grouped) for edge in ("start", "end")]
            out += [Item(edge.expression, f"{name} {edge.name}", item.text) for edge in edges]
        else:
            out.append(Item(each.expression, name, item.text))
    names = unique_names([item.name for item in out])
    return tuple(replace(i, name=n) for i, n in zip(out, names, strict=True)), tuple(windows)


def unique_names(names: Sequence[str]) -> list[str]:
    """Append _1, _2, … to names that occur more than once.

    >>> unique_names(["A", "B", "a"])
    ['A_1', 'B', 'a_2']
    """
    counts = Counter(name.lower() for name in names)
    taken = {name for name, count in counts.items() if count == 1}
    numbers: Counter[str] = Counter()
    result = []
    for name in names:
        unique = name
        while counts[name.lower()] > 1 and (unique == name or unique.lower() in taken):
            numbers[name.lower()] += 1
            unique = f"{name}_{numbers[name.lower()]}"
        taken.add(unique.lower())
        result.append(unique)
    return result
