"""Rewrites INTERSECT and EXCEPT as EXISTS and NOT EXISTS, before a tree is read."""

from __future__ import annotations

from sqlglot import exp


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
