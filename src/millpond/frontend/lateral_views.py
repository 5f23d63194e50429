"""Rewrites functions that make rows as LATERAL VIEW, before a tree is read.

``SELECT id, explode(tags) AS tag FROM orders`` is ``SELECT id, t.* FROM orders LATERAL VIEW explode(tags) t
AS tag``, where only ``t.*`` names the columns of ``t``.  ``FROM orders, LATERAL explode(tags) AS t(tag)`` is
``FROM orders LATERAL VIEW explode(tags) t AS tag``, and with LEFT JOIN it is LATERAL VIEW OUTER.
"""

from __future__ import annotations

from sqlglot import exp

from millpond.frontend.statement import AGGREGATES

# The key of a view that stands for a select item: its names are not visible.
OF_ITEM = "of a select item"
_NAMED = ("INLINE_OUTER", "JSON_TUPLE")
_ITEM_ALIAS = "rows of the select item"


def makes_rows(node: exp.Expr) -> bool:
    """Whether a node calls a function that makes rows of one row."""
    if isinstance(node, exp.Anonymous):
        return node.name.upper() in _NAMED
    return isinstance(node, exp.Explode | exp.ExplodeOuter | exp.Inline | exp.Stack)


def rewrite_lateral_views(tree: exp.Expr) -> None:
    """Replace calls in select lists and after LATERAL by views; calls beside groups stay as they are."""
    for select in list(tree.find_all(exp.Select)):
        _move_joins(select)
        has_groups = any(select.args.get(key) for key in ("group", "having"))
        has_windows = any(each.find(exp.Window) for each in select.expressions)
        if (
            not has_groups
            and not has_windows
            and not any(_has_aggregate(each) for each in select.expressions)
        ):
            _move_item(select)


def _has_aggregate(item: exp.Expr) -> bool:
    return any(not isinstance(each.parent, exp.Window) for each in item.find_all(*AGGREGATES))


def _move_item(select: exp.Select) -> None:
    """Make a view of the select item that makes rows; Spark allows one in a select."""
    calls = [each for each in select.expressions if makes_rows(_strip(each))]
    if len(calls) != 1:
        return
    (item,) = calls
    names = item.expressions if isinstance(item, exp.Aliases) else []
    if isinstance(item, exp.Alias):
        names = [item.args["alias"]]
    alias = exp.TableAlias(this=exp.to_identifier(_ITEM_ALIAS, quoted=True), columns=list(names))
    star = exp.Column(this=exp.Star(), table=exp.to_identifier(_ITEM_ALIAS, quoted=True))
    item.replace(star)
    view = exp.Lateral(this=_strip(item), view=True, outer=False, alias=alias)
    view.meta[OF_ITEM] = True
    select.append("laterals", view)


def _strip(item: exp.Expr) -> exp.Expr:
    return item.this if isinstance(item, exp.Alias | exp.Aliases) else item


def _move_joins(select: exp.Select) -> None:
    """Make views of ``LATERAL explode(…)``, if they are the last tables of FROM."""
    joins: list[exp.Join] = list(select.args.get("joins") or ())
    views: list[exp.Lateral] = []
    while joins and _is_view(joins[-1]):
        join = joins.pop()
        view = join.this
        view.set("view", True)
        view.set("outer", join.args.get("side") == "LEFT")
        view.args.pop("ordinality", None)
        views.insert(0, view)
    if views:
        select.set("joins", joins)
        select.set("laterals", [*views, *(select.args.get("laterals") or ())])


def _is_view(join: exp.Join) -> bool:
    """Whether a join is with the rows of a call, without a condition."""
    on, words = join.args.get("on"), {join.args.get(key) or "" for key in ("method", "side", "kind")}
    is_plain = not join.args.get("using") and words <= {"", "INNER", "CROSS", "LEFT", "OUTER"}
    is_true = on is None or (isinstance(on, exp.Boolean) and on.this is True)
    lateral = join.this
    is_call = isinstance(lateral, exp.Lateral) and not lateral.args.get("view") and makes_rows(lateral.this)
    return is_plain and is_true and is_call
