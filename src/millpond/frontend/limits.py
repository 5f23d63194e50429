"""ORDER BY … LIMIT n as a rank: the rows whose ROW_NUMBER() in that order is at most n.

The tree is rewritten before it is read, so that a limited order is a window function like any other.
"""

from __future__ import annotations

from sqlglot import exp

from millpond.frontend.statement import AGGREGATES, READ

# Columns that ``*`` does not stand for: the rank, what it is ordered by, and the value of a scalar subquery.
RANK = "rank in ORDER BY"
_KEY = "{} in ORDER BY"
SCALAR = "value of a scalar subquery"


def is_hidden(name: str) -> bool:
    """Whether a column has been added for ORDER BY … LIMIT or a scalar subquery, and is not shown."""
    return name.endswith((" in ORDER BY", " of a subquery")) or name == SCALAR


def rewrite_limits(tree: exp.Expr) -> exp.Expr:
    """The tree with every ORDER BY … LIMIT n of a query as a condition on a rank."""
    found = [node for node in tree.walk(bfs=False) if isinstance(node, exp.Query) and _is_limited(node)]
    read = {
        each.meta["start"]
        for node in found
        for each in node.args["order"].walk()
        if each.meta.get("start") is not None
    }
    for node in reversed(found):
        rewritten = _rewrite(node)
        tree = rewritten if node is tree else tree
    tree.meta[READ] = read
    return tree


def _is_limited(node: exp.Expr) -> bool:
    limit = node.args.get("limit")
    if not isinstance(limit, exp.Limit) or not isinstance(limit.expression, exp.Literal):
        return False
    others = any(node.args.get(key) for key in ("offset", "sort", "cluster", "distribute"))
    return not limit.expression.is_string and bool(node.args.get("order")) and not others


def _rewrite(node: exp.Expr) -> exp.Expr:
    """The query that filters by the rank, in the place of the given one."""
    place = exp.Placeholder()
    if node.parent is not None:
        node.replace(place)
    order, limit, clause = node.args.pop("order"), node.args.pop("limit"), node.args.pop("with_", None)
    if _is_plain(node):
        assert isinstance(node, exp.Select)
        keys = [_replace_alias(node, key) for key in order.expressions]
        node.append("expressions", _rank(keys))
        ranked: exp.Expr = node
    else:
        keys = [_find_key(node, key, number) for number, key in enumerate(order.expressions)]
        ranked = exp.Select(expressions=[exp.Star(), _rank(keys)], from_=_from(node, "ordered"))
    limited = exp.Select(
        expressions=[exp.Star()],
        from_=_from(ranked, "ranked"),
        where=exp.Where(this=exp.LTE(this=_column(RANK), expression=limit.expression)),
    )
    if clause is not None:
        limited.set("with_", clause)
    if place.parent is not None:
        place.replace(limited)
    return limited


def _is_plain(node: exp.Expr) -> bool:
    if not isinstance(node, exp.Select) or node.args.get("distinct"):
        return False
    if any(node.args.get(key) for key in ("group", "having", "qualify")):
        return False
    return all(each.find(*AGGREGATES, exp.AggFunc, exp.Window) is None for each in node.expressions)


def _column(name: str) -> exp.Column:
    return exp.column(exp.to_identifier(name, quoted=True))


def _from(query: exp.Expr, alias: str) -> exp.From:
    name = exp.TableAlias(this=exp.to_identifier(f"{alias} rows", quoted=True))
    return exp.From(this=exp.Subquery(this=query, alias=name))


def _rank(keys: list[exp.Expr]) -> exp.Alias:
    window = exp.Window(this=exp.RowNumber(), order=exp.Order(expressions=keys))
    return exp.Alias(this=window, alias=exp.to_identifier(RANK, quoted=True))


def _find_item(node: exp.Expr, key: exp.Expr) -> exp.Expr | None:
    """The select item that a key names by its alias or its position."""
    first = node
    while isinstance(first, exp.Union | exp.Subquery):
        first = first.this
    items = first.expressions
    if isinstance(key, exp.Literal) and not key.is_string and key.name.isdecimal():
        number = int(key.name)
        return items[number - 1] if 1 <= number <= len(items) else None
    if isinstance(key, exp.Column) and not key.args.get("table"):
        named = (each for each in items if isinstance(each, exp.Alias))
        return next((each for each in named if each.alias.lower() == key.name.lower()), None)
    return None


def _replace_alias(node: exp.Select, ordered: exp.Expr) -> exp.Expr:
    """The sort key over the tables of the select."""
    item = _find_item(node, ordered.this)
    if item is not None:
        ordered.set("this", (item.this if isinstance(item, exp.Alias) else item).copy())
    return ordered


def _find_key(node: exp.Expr, ordered: exp.Expr, number: int) -> exp.Expr:
    """The sort key over the result of a query; what the result does not show becomes a hidden column."""
    key = ordered.this
    item = _find_item(node, key)
    if isinstance(item, exp.Alias | exp.Column) and (item is not key):
        ordered.set("this", _column(item.alias_or_name))
    elif isinstance(node, exp.Select) and not node.args.get("distinct") and not _is_shown(node, key):
        name = _KEY.format(f"key {number + 1}")
        value = item.copy() if item is not None else key
        node.append("expressions", exp.Alias(this=value, alias=exp.to_identifier(name, quoted=True)))
        ordered.set("this", _column(name))
    return ordered


def _is_shown(node: exp.Select, key: exp.Expr) -> bool:
    """Whether a key is a column that the result shows under its own name."""
    if not isinstance(key, exp.Column):
        return False
    shown = (each for each in node.expressions if isinstance(each, exp.Column))
    return any(each.name.lower() == key.name.lower() for each in shown)
