"""The joins and groups below the window functions of a select, as one block.

What the select reads of the block are columns of it, which take the place of aggregates, group columns and
columns of joined tables in the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from millpond.errors import SqlError
from millpond.frontend.block_tables import BlockTable, build_block_table
from millpond.frontend.constants import Bound
from millpond.frontend.expressions import Reader, bind_star_column
from millpond.frontend.joins import FromClause, Surroundings
from millpond.frontend.projections import bind_part
from millpond.frontend.scope import SourceColumn
from millpond.frontend.time_calls import pick_edge
from millpond.query.expressions import TRUE, Expr
from millpond.query.model import Occurrence, Query
from millpond.query.types import WINDOW


@dataclass
class BlockColumn:
    """A column of the block below window functions: what it shows, and the nodes that stand for it."""

    name: str
    bound: Bound
    nodes: list[exp.Column] = field(default_factory=list)


def cut_columns(
    reader: Reader, node: exp.Select, items: Sequence[tuple[exp.Expr, SourceColumn | None]]
) -> list[BlockColumn]:
    """What a select with window functions reads of the block below them; each is replaced by a column.

    ``items`` are the select items, those of ``*`` with the column that they stand for.
    """
    cutter = _Cutter(reader)
    expressions: list[exp.Expr] = []
    for item, column in items:
        if column is None:
            expressions.append(item.parent if isinstance(item.parent, exp.Alias) else item)
        else:
            made = cutter.stand_for(bind_star_column(reader, item, column), item)
            alias = exp.to_identifier(column.name, quoted=True)
            reader.statement.place(alias, item)
            expressions.append(exp.Alias(this=made, alias=alias))
            reader.statement.place(expressions[-1], item)
    node.set("expressions", expressions)
    windows = node.args.get("windows") or ()
    for place in (*node.expressions, *filter(None, [node.args.get("qualify")]), *windows):
        cutter.cut(place)
    return list(cutter.columns.values())


@dataclass
class _Cutter:
    """Replaces aggregates, group columns and other columns by columns of a block."""

    reader: Reader
    columns: dict[Expr, BlockColumn] = field(default_factory=dict)
    in_window: bool = False

    def cut(self, node: exp.Expr) -> None:
        """Replace the parts of a node."""
        if isinstance(node, exp.Query) or self._is_made(node):
            return
        if isinstance(node, exp.Window):
            call = node.this
            while isinstance(call, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
                if isinstance(call, exp.Filter):
                    self.cut(call.expression)
                call = call.this
            order = node.args.get("order")
            below = [*(call.iter_expressions() if isinstance(call, exp.Func) else ())]
            below += [*(node.args.get("partition_by") or ()), *(order.expressions if order else ())]
            outer, self.in_window = self.in_window, True
            for each in below:
                self.cut(each)
            self.in_window = outer
            return
        bound = None if isinstance(node, exp.Alias | exp.Star) else bind_part(self.reader, node)
        if bound is not None:
            made = self.stand_for(bound, node)
            node.replace(made)
            return
        for each in [*node.iter_expressions()]:
            self.cut(each)

    def stand_for(self, bound: Bound, node: exp.Expr) -> exp.Column:
        """A node for the column of the block that shows something."""
        statement, scope = self.reader.statement, self.reader.scope
        if bound.type is WINDOW and self.in_window:
            bound = pick_edge(scope, bound, "start", self.reader.grouped is not None)
        if bound.type is None or bound.type is WINDOW:
            message = f"{statement.excerpt(node)} is not supported beside OVER over joins or groups"
            raise SqlError(message, statement.at(node))
        taken = {column.name.lower() for column in self.columns.values()}
        name, number = bound.name, 1
        while name.lower() in taken:
            number += 1
            name = f"{bound.name} {number}"
        column = self.columns.setdefault(bound.expression, BlockColumn(name, bound))
        identifier = exp.to_identifier(column.name, quoted=True)
        made = exp.Column(this=identifier)
        for each in (made, identifier):
            statement.place(each, node)
        column.nodes.append(made)
        return made

    def _is_made(self, node: exp.Expr) -> bool:
        return any(node is made for column in self.columns.values() for made in column.nodes)


def build_block_below(
    node: exp.Select,
    clause: FromClause,
    around: Surroundings,
    query: Query,
    columns: Sequence[BlockColumn],
) -> FromClause:
    """FROM with one table: the block below the window functions of a select."""
    alias, number = "rows", 1
    taken = around.taken | {name.lower() for name in around.names}
    while alias.lower() in taken:
        number += 1
        alias = f"rows {number}"
    around.taken.add(alias)
    made = _build_table(alias, node, query, columns)
    source = made.source_of(alias, ())
    derived = clause.scope.derived
    derived.setdefault(alias, {}).update({column.name: column for column in made.derived})
    for column, shown in zip(columns, source.columns, strict=True):
        assert shown.ref is not None
        for each in column.nodes:
            clause.scope.refer(each, shown.ref)
    occurrence = Occurrence(alias, made.table)
    scope = replace(clause.scope, occurrences=(occurrence,), sources=(source,), extended=set())
    return FromClause((occurrence,), (), TRUE, (), scope, source.columns)


def _build_table(alias: str, node: exp.Select, query: Query, columns: Sequence[BlockColumn]) -> BlockTable:
    """The table of a block below window functions: its time is one that they partition by, if possible.

    The rows of a join can be final with several timestamps, and a partition that holds the time closes.
    """
    types = [column.bound.type for column in columns]
    windows = [each for each in node.find_all(exp.Window) if each.args.get("alias") is None]
    for column in columns:
        uses = [_find_partitioned(each) for each in column.nodes]
        if not all(any(window is use for use in uses) for window in windows):
            continue
        made = build_block_table(alias, query, types, column.name)
        if made.table.time == column.name:
            return made
    return build_block_table(alias, query, types, None)


def _find_partitioned(node: exp.Expr) -> exp.Expr | None:
    """The window whose partitions a column is a part of."""
    while node.parent is not None and not isinstance(node.parent, exp.Window):
        node = node.parent
    return node.parent if node.arg_key == "partition_by" else None
