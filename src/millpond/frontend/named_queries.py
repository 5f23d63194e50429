"""Reads queries with a name: WITH and CREATE VIEW."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from millpond.errors import SqlError, SqlNameError, one_line
from millpond.frontend.joins import Surroundings
from millpond.frontend.refusals import accept_only, unsupported_error
from millpond.frontend.scope import NamedQuery, Names, read_name, read_table_name
from millpond.frontend.statement import Statement

_VIEW = "write CREATE VIEW name [(column, …)] AS SELECT …"


def strip_subquery(
    statement: Statement, node: exp.Expr, around: Surroundings
) -> tuple[exp.Expr, Surroundings]:
    """A query without the parentheses around it; WITH adds to the names that its FROM can use."""
    while True:
        around = replace(around, names=read_with(statement, node, around.names))
        if not isinstance(node, exp.Subquery):
            return node, around
        accept_only(statement, node, "this", "with_", "order")
        node = node.this


def read_with(statement: Statement, node: exp.Expr, names: Names) -> Names:
    """The names that a query can use: those around it, and those of its WITH clause."""
    clause = node.args.get("with_")
    if clause is None:
        return names
    accept_only(statement, clause, "expressions")
    known = dict(names)
    own: set[str] = set()
    for each in clause.expressions:
        accept_only(statement, each, "this", "alias")
        written = each.args["alias"]
        name = read_name(statement, written.this)
        if name.lower() in own:
            message = f"{one_line(name)} is defined twice in WITH"
            raise SqlNameError(message, statement.at(written), "give each a different name")
        own.add(name.lower())
        columns = tuple(read_name(statement, column) for column in written.args.get("columns") or ())
        query = NamedQuery(name, statement, each.this, columns, dict(known))
        known = {key: value for key, value in known.items() if key.lower() != name.lower()} | {name: query}
    return known


def read_view(statement: Statement, names: Names) -> NamedQuery:
    """The query that CREATE VIEW names; it can name the tables and views before it."""
    tree = statement.tree
    assert isinstance(tree, exp.Create)
    accept_only(statement, tree, "this", "kind", "expression", "replace", "exists", "properties")
    properties = tree.args.get("properties")
    for each in properties.expressions if properties else ():
        if not isinstance(each, exp.TemporaryProperty | exp.SchemaCommentProperty):
            raise unsupported_error(statement, each)
    schema, query = tree.this, tree.args.get("expression")
    if query is None:
        raise SqlError("CREATE VIEW without a query", statement.token_at(0), _VIEW)
    columns: tuple[str, ...] = ()
    if isinstance(schema, exp.Schema):
        nodes = (each.this if isinstance(each, exp.ColumnDef) else each for each in schema.expressions)
        columns = tuple(read_name(statement, each) for each in nodes)
        schema = schema.this
    name = read_table_name(statement, schema)
    return NamedQuery(name, statement, query, columns, dict(names))
