"""Rewrites constructs as others of the language, before a tree is read.

- A scalar subquery that is one aggregate is a table of one row.
- INTERSECT and EXCEPT are EXISTS and NOT EXISTS, in which NULL equals NULL.
"""

from __future__ import annotations

from sqlglot import exp

from millpond.frontend.limits import SCALAR
from millpond.frontend.statement import AGGREGATES


def rewrite_scalar_subqueries(tree: exp.Expr) -> None:
    """Join ``WHERE x > (SELECT AVG(y) FROM t)`` with the table of one row that the subquery is."""
    found = [node for node in tree.find_all(exp.Subquery) if _is_scalar(node)]
    for number, node in enumerate(found, 1):
        select = node.find_ancestor(exp.Select)
        assert isinstance(select, exp.Select)
        alias = f"scalar subquery {number}"
        node.replace(_column(SCALAR, alias))
        (item,) = node.this.expressions
        inner = item.this if isinstance(item, exp.Alias) else item
        node.this.set("expressions", [exp.Alias(this=inner, alias=_name(SCALAR))])
        node.set("alias", exp.TableAlias(this=_name(alias)))
        select.append("joins", exp.Join(this=node, kind="CROSS"))


def _is_scalar(node: exp.Subquery) -> bool:
    """Whether a node is a subquery in WHERE, or in a select list without aggregates, that has one row."""
    select, query = node.find_ancestor(exp.Select, exp.Join, exp.From, exp.Having, exp.Group), node.this
    if not isinstance(select, exp.Select) or isinstance(node.parent, exp.In | exp.Exists | exp.Subquery):
        return False
    if not isinstance(query, exp.Select) or len(query.expressions) != 1:
        return False
    if any(query.args.get(key) for key in ("group", "having", "distinct", "limit", "offset", "with_")):
        return False
    if _is_correlated(query):
        return False
    in_where = node.find_ancestor(exp.Where) is not None
    is_row = not select.args.get("group") and all(e.find(*AGGREGATES) is None for e in _others(select, node))
    return query.expressions[0].find(*AGGREGATES) is not None and (in_where or is_row)


def _is_correlated(query: exp.Select) -> bool:
    """Whether a subquery names columns of the query around it by their table."""
    own = {each.alias_or_name.lower() for each in query.find_all(exp.Table, exp.Subquery)}
    return any(column.table and column.table.lower() not in own for column in query.find_all(exp.Column))


def _others(select: exp.Select, node: exp.Expr) -> list[exp.Expr]:
    return [each for each in select.expressions if each.find(exp.Subquery) is not node]


def rewrite_set_operations(tree: exp.Expr) -> exp.Expr:
    """INTERSECT and EXCEPT as EXISTS and NOT EXISTS on all columns, in which NULL equals NULL."""
    for node in reversed(list(tree.find_all(exp.Intersect, exp.Except))):
        width = _count_columns(node.this)
        if not node.args.get("distinct") or width is None or width != _count_columns(node.expression):
            continue
        names = [f"column {i + 1}" for i in range(width)]
        left, right = (
            _rename(side, alias, names) for side, alias in ((node.this, "l"), (node.expression, "r"))
        )
        equal = [_equal(_column(name, "r rows"), _column(name, "l rows")) for name in names]
        inner = exp.Select(
            expressions=[exp.Literal.number(1)],
            from_=exp.From(this=right),
            where=exp.Where(this=exp.and_(*equal, copy=False)),
        )
        test: exp.Expr = exp.Exists(this=inner)
        test = exp.Not(this=test) if isinstance(node, exp.Except) else test
        shown = [
            exp.Alias(this=_column(name, "l rows"), alias=_name(shown))
            for name, shown in zip(names, _list_names(node.this), strict=True)
        ]
        made = exp.Select(
            expressions=shown, distinct=exp.Distinct(), from_=exp.From(this=left), where=exp.Where(this=test)
        )
        for key in ("with_", "order", "limit"):
            if node.args.get(key):
                made.set(key, node.args[key])
        if node is tree:
            tree = made
        else:
            node.replace(made)
    return tree


def _count_columns(node: exp.Expr) -> int | None:
    while isinstance(node, exp.SetOperation | exp.Subquery):
        node = node.this
    if not isinstance(node, exp.Select) or node.find(exp.Star) in node.expressions:
        return None
    return None if any(each.is_star for each in node.expressions) else len(node.expressions)


def _list_names(node: exp.Expr) -> list[str]:
    while isinstance(node, exp.SetOperation | exp.Subquery):
        node = node.this
    return [each.alias_or_name or f"column {i + 1}" for i, each in enumerate(node.expressions)]


def _rename(query: exp.Expr, alias: str, names: list[str]) -> exp.Subquery:
    inner = query.this if isinstance(query, exp.Subquery) and not query.alias else query
    columns = [_name(name) for name in names]
    return exp.Subquery(this=inner, alias=exp.TableAlias(this=_name(f"{alias} rows"), columns=columns))


def _equal(one: exp.Expr, other: exp.Expr) -> exp.Expr:
    missing = exp.and_(
        *(exp.Is(this=each.copy(), expression=exp.Null()) for each in (one, other)), copy=False
    )
    return exp.Paren(this=exp.or_(exp.EQ(this=one, expression=other), missing, copy=False))


def _name(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def _column(name: str, table: str) -> exp.Column:
    return exp.Column(this=_name(name), table=_name(table))
