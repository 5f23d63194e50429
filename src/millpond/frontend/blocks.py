"""Reads blocks: subqueries in FROM, queries of WITH, and views.

A block of joins, filters and expressions is merged into the select that uses it: the query is then the same
as if the tables of the block stood in FROM.  The branches of a UNION ALL are merged one by one.  Any other
block is a table of its own (``Subquery``), a stream if it reads one.  Its time column is a timestamp or time
bucket that its rows are final with.

A block is merged wherever possible.  If a column then turns out to be an expression over several tables that
its user cannot do without, the whole query is read again with that block kept (``KeepBlockError``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from millpond.errors import SqlError
from millpond.frontend.block_tables import BlockTable, build_block_table
from millpond.frontend.joins import MergedBlock, Surroundings, rename_columns
from millpond.frontend.named_queries import strip_subquery
from millpond.frontend.orders import read_ending
from millpond.frontend.scope import KeepBlockError, NamedQuery, Names, Path, Source
from millpond.frontend.select import (
    DistributeError,
    TypedSelect,
    build_query,
    has_groups,
    read_plain,
    read_terms,
)
from millpond.frontend.statement import Statement
from millpond.frontend.time_calls import WantedTimeError
from millpond.query.model import Occurrence, Query, Table

MAX_BLOCKS = 200


def read_query(statement: Statement, names: Names) -> Query:
    """Read a query, with all names resolved."""
    blocks = _Blocks(names)
    order, limit = (statement.tree.args.pop(key, None) for key in ("order", "limit"))
    while True:
        try:
            query = _read_top(statement, statement.tree, names, blocks)
            return read_ending(statement, query, order, limit)
        except KeepBlockError as error:
            blocks.kept.add(error.path)
        except WantedTimeError as error:
            blocks.times[error.table] = error.column


def check_view(view: NamedQuery) -> None:
    """Refuse a view that cannot be read, whether or not a query uses it."""
    _read_top(view.statement, view.node, view.names, _Blocks(view.names))


def _read_top(statement: Statement, tree: exp.Expr, names: Names, blocks: _Blocks) -> Query:
    blocks.restart()
    reads: list[TypedSelect] = []
    terms = read_terms(statement, tree, Surroundings(names, blocks), reads)
    start, end = statement.tokens[0].start, statement.tokens[-1].end + 1
    return build_query(reads, terms, statement.text[start:end], statement.token_at(0))


@dataclass
class _Blocks:
    """Reads the blocks of one query.

    ``kept`` are the blocks that are not merged, ``times`` the time columns that tables of blocks must have.
    """

    names: Names
    kept: set[Path] = field(default_factory=set)
    times: dict[str, str] = field(default_factory=dict)
    tables: dict[str, Query] = field(default_factory=dict)
    count: int = 0

    def restart(self) -> None:
        """Forget what was read before."""
        self.tables, self.count = {}, 0

    def read(self, query: NamedQuery, alias: str, around: Surroundings) -> MergedBlock:
        """What a block stands for: its tables if it is merged, else a table of its own."""
        self.count += 1
        if self.count > MAX_BLOCKS:
            message = f"more than {MAX_BLOCKS} subqueries and uses of views in one query"
            raise SqlError(message, query.statement.at(query.node), "write several queries")
        statement, path = query.statement, around.path
        inside = replace(around, names=query.names, outer=None)
        node, inside = strip_subquery(statement, query.node, inside)
        branches = _list_branches(statement, node, inside) if path not in self.kept else []
        is_branch = len(branches) > 1
        if is_branch:
            if around.outer is not None:
                raise KeepBlockError(path)
            if path not in around.branches:
                raise DistributeError(path, len(branches))
            names = self._name_columns(query, *branches[0])
            node, inside = branches[around.branches[path]]
        block = self._read_block(query, node, inside)
        if is_branch:
            block = replace(block, source=_rename_branch(statement, node, block.source, names))
        source = rename_columns(statement, query.node, replace(block.source, alias=alias), query.columns)
        return replace(block, source=source, is_branch=is_branch)

    def _name_columns(self, named: NamedQuery, node: exp.Expr, around: Surroundings) -> list[str]:
        """The names of the columns of a UNION, which are those of its first select."""
        block = self._read_block(named, node, replace(around, taken=set(), derived={}))
        return [column.name for column in block.source.columns]

    def _read_block(self, named: NamedQuery, node: exp.Expr, inside: Surroundings) -> MergedBlock:
        if inside.path not in self.kept and _is_plain(node, inside):
            assert isinstance(node, exp.Select)
            return read_plain(named.statement, node, inside)
        return self._read_table(named, node, inside)

    def _read_table(self, named: NamedQuery, node: exp.Expr, around: Surroundings) -> MergedBlock:
        """A block as a table of its own."""
        statement, alias = named.statement, around.alias or named.name
        reads: list[TypedSelect] = []
        inside = replace(around, alias=None, branches={}, ignores_duplicates=False)
        terms = read_terms(statement, node, inside, reads)
        for read in reads:
            read.require_settled()
        query = build_query(reads, terms, statement.slice(node), statement.at(node))
        wanted = self._name_table(named.name, query)
        made: BlockTable = build_block_table(wanted, query, reads[0].types, self.times.get(wanted))
        unique = around.take(alias)
        around.derived.setdefault(unique, {}).update({column.name: column for column in made.derived})
        source = made.source_of(unique, around.path)
        return MergedBlock(source, (Occurrence(unique, made.table),))

    def _name_table(self, wanted: str, query: Query) -> str:
        """A name for the table of a block: no other table has it, unless it is the same block."""
        taken = {name.lower() for name, each in self.names.items() if isinstance(each, Table)}
        name, number = wanted, 1
        while name.lower() in taken or self.tables.get(name, query) != query:
            number += 1
            name = f"{wanted}_{number}"
        self.tables[name] = query
        return name


def _rename_branch(statement: Statement, node: exp.Expr, source: Source, names: Sequence[str]) -> Source:
    if len(names) != len(source.columns):
        message = f"the UNION starts with {len(names)} columns, this select has {len(source.columns)}"
        raise SqlError(message, statement.at(node), "select the same number of columns in each")
    return rename_columns(statement, node, source, names)


def _is_plain(node: exp.Expr, around: Surroundings) -> bool:
    """Whether a block has joins, filters and expressions only, so that it can be merged."""
    if not isinstance(node, exp.Select) or has_groups(node):
        return False
    return not node.args.get("distinct") or around.ignores_duplicates


def _list_branches(
    statement: Statement, node: exp.Expr, around: Surroundings
) -> list[tuple[exp.Expr, Surroundings]]:
    """The selects of a UNION ALL, from left to right; empty if the block is none.

    Where duplicates do not matter, UNION is the same.
    """
    if not isinstance(node, exp.Union):
        return [(node, around)] if isinstance(node, exp.Select) else []
    if node.args.get("distinct") and not around.ignores_duplicates:
        return []
    found: list[tuple[exp.Expr, Surroundings]] = []
    for each in (node.this, node.expression):
        branches = _list_branches(statement, *strip_subquery(statement, each, around))
        if not branches:
            return []
        found += branches
    return found
