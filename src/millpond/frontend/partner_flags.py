"""Rewrites EXISTS and IN (SELECT …), before a tree is read, where they are not conditions that AND connects.

The rows of a relation are grouped by the columns that the subquery compares, and LEFT JOIN finds the group:
a group is a partner.  ``x NOT IN (SELECT y …)`` is true if the subquery has no row, or if x is not NULL, no y
is NULL, and no y equals x.

What makes one row of several in a subquery (GROUP BY, UNION, LIMIT) becomes a block in its FROM.
"""

from __future__ import annotations

from sqlglot import exp

from millpond.frontend.correlation import (
    Correlation,
    find_clause,
    find_correlation,
    has_aggregate_of,
    is_aggregated,
    is_streaming,
)
from millpond.frontend.scope import Names
from millpond.frontend.spark_names import NAME
from millpond.frontend.statement import AGGREGATES
from millpond.frontend.subquery_joins import (
    can_join,
    join_groups,
    join_partners,
    list_starts,
    make_column,
    make_name,
)

_ROWS = "rows of the subquery"
_COLUMN = "column {} of a subquery"
_COUNT, _PRESENT = "rows of a subquery", "values of a subquery"
_GROUPED = ("group", "having", "limit", "offset")


def rewrite_partner_tests(tree: exp.Expr, names: Names) -> set[int]:
    """Replace EXISTS and IN (SELECT …) where they cannot be read as they are.

    Returns the places in the text of what is left out of the tree.
    """
    left_out = set[int]()
    found = [each for each in tree.find_all(exp.Exists, exp.In) if _find_query(each) is not None]
    for number, node in reversed([*enumerate(found, 1)]):
        left_out |= _rewrite_groups(node, names)
        if node.parent is None or _find_query(node) is None:
            continue
        select = node.find_ancestor(exp.Select)
        if isinstance(select, exp.Select) and not _is_operand(node, select):
            left_out |= _rewrite_flag(select, node, names, f"partners {number}")
    return left_out


def _find_query(node: exp.Expr) -> exp.Expr | None:
    """The subquery of EXISTS or IN, without the parentheses around it."""
    query = node.this if isinstance(node, exp.Exists) else node.args.get("query")
    while isinstance(query, exp.Subquery) and not query.alias:
        query = query.this
    return query if isinstance(query, exp.Query) else None


def _set_query(node: exp.Expr, query: exp.Expr) -> None:
    is_test = isinstance(node, exp.Exists)
    node.set("this" if is_test else "query", query if is_test else exp.Subquery(this=query))


# --- groups in the subquery ------------------------------------------------------------------------------


def _rewrite_groups(node: exp.Expr, names: Names) -> set[int]:
    """Make a block of a subquery that groups its rows; a value of one of a single aggregate."""
    query, left_out = _find_query(node), set[int]()
    if not isinstance(query, exp.Select):
        if isinstance(node, exp.In) and isinstance(query, exp.SetOperation) and not query.args.get("with_"):
            _put_below(node, query, _count_values(node), {})
        return left_out
    if isinstance(node, exp.Exists):
        left_out |= _drop_limit(query)
    is_single = not query.args.get("group") and has_aggregate_of(query)
    limited = any(query.args.get(key) for key in ("limit", "offset", "distinct", "with_", "qualify"))
    if is_single and not limited:
        having = query.args.get("having")
        if isinstance(node, exp.In) and having is None and len(query.expressions) == 1:
            value = exp.Subquery(this=query)
            node.replace(exp.Paren(this=exp.EQ(this=node.this, expression=value)))
        elif isinstance(node, exp.Exists) and having is not None and having.find(*AGGREGATES):
            left_out = {start for each in query.expressions for start in list_starts(each)}
            query.set("having", None)
            query.set("expressions", [having.this])
            holds = exp.Coalesce(this=exp.Subquery(this=query), expressions=[exp.false()])
            node.replace(holds)
        return left_out
    if any(query.args.get(key) for key in _GROUPED) and not query.args.get("with_"):
        select = node.find_ancestor(exp.Select)
        assert isinstance(select, exp.Select)
        found = find_correlation(query, select, names)
        if found is None or found.others or found.bounds or found.outside:
            return left_out
        if found.equalities and (query.args.get("limit") or not query.args.get("group")):
            return left_out
        if any(each.is_star for each in query.expressions):
            return left_out
        width = len(query.expressions)
        _put_below(node, query, width, _move_keys(query, found))
    return left_out


def _drop_limit(query: exp.Select) -> set[int]:
    """Leave out LIMIT, because a subquery has a row if the first rows of it have one."""
    limit = query.args.get("limit")
    number = limit.expression.name if isinstance(limit, exp.Limit) else ""
    if not number.isdecimal() or int(number) == 0 or query.args.get("offset"):
        return set()
    dropped = [query.args.pop(key) for key in ("limit", "order") if query.args.get(key)]
    return {start for each in dropped for start in list_starts(each)}


def _move_keys(query: exp.Select, found: Correlation) -> dict[str, exp.Expr]:
    """Group a subquery by what it compares with the select around it as well; the columns, by name."""
    if not found.equalities:
        return {}
    query.set("where", exp.Where(this=exp.and_(*found.own, copy=False)) if found.own else None)
    moved: dict[str, exp.Expr] = {}
    for number, (inner, outer) in enumerate(found.equalities, 1):
        name = f"key {number} of a subquery"
        moved[name] = outer
        query.append("expressions", exp.Alias(this=inner, alias=make_name(name)))
        query.args["group"].append("expressions", inner.copy())
    return moved


def _count_values(node: exp.Expr) -> int:
    left = node.this.unnest()
    return len(left.expressions) if isinstance(left, exp.Tuple) else 1


def _put_below(node: exp.Expr, query: exp.Expr, width: int, moved: dict[str, exp.Expr]) -> None:
    """Let the subquery of a test read a query as a block; ``moved`` are comparisons with its last columns."""
    columns = [_COLUMN.format(i) for i in range(1, width + 1)]
    every = [make_name(name) for name in (*columns, *moved)]
    block = exp.Subquery(this=query, alias=exp.TableAlias(this=make_name(_ROWS), columns=every))
    shown = [make_column(name, _ROWS) for name in columns] if isinstance(node, exp.In) else [exp.Star()]
    equal = [exp.EQ(this=make_column(name, _ROWS), expression=outer) for name, outer in moved.items()]
    where = exp.Where(this=exp.and_(*equal, copy=False)) if equal else None
    _set_query(node, exp.Select(expressions=shown, from_=exp.From(this=block), where=where))


# --- flags -----------------------------------------------------------------------------------------------


def _is_operand(node: exp.Expr, select: exp.Select) -> bool:
    """Whether a test is an operand of the topmost AND of WHERE, perhaps negated."""
    while isinstance(node.parent, exp.Not | exp.Paren):
        node = node.parent
    while isinstance(node.parent, exp.And | exp.Paren):
        node = node.parent
    return isinstance(node.parent, exp.Where) and node.parent.parent is select


def _rewrite_flag(select: exp.Select, node: exp.Expr, names: Names, alias: str) -> set[int]:
    """Replace a test over a relation by a condition on the group of partners that is joined with each row."""
    query = _find_query(node)
    if not isinstance(query, exp.Select) or is_streaming(query, names):
        return set()
    if any(query.args.get(key) for key in (*_GROUPED, "with_", "qualify", "laterals")):
        return set()
    clause = find_clause(node, select)
    is_row = is_aggregated(node, select) or not (select.args.get("group") or has_aggregate_of(select))
    found = find_correlation(query, select, names)
    if (
        found is None
        or not can_join(found)
        or not (clause == "where" or (clause == "expressions" and is_row))
    ):
        return set()
    if isinstance(node, exp.Exists):
        left_out = {start for each in query.expressions for start in list_starts(each)}
        name = "exists(" + ", ".join(dict.fromkeys(c.name for c in found.list_outer_columns())) + ")"
        _put_flag(node, join_partners(select, query, found, alias), name)
        return left_out
    negated = _is_negated(node, select)
    value = node.this.unnest()
    if negated is None or isinstance(value, exp.Tuple) or len(query.expressions) != 1:
        return set()
    if value.find(exp.Query) is not None or (negated and found.bounds):
        return set()
    item = query.expressions[0].unalias()
    left_out = list_starts(query.expressions[0]) - list_starts(item)
    counts = _join_counts(select, query, found, item, f"{alias} in all") if negated else ()
    found.equalities.append((item, value.copy()))
    flag = join_partners(select, query, found, alias)
    if counts:
        rows, present = counts
        known = exp.Not(this=exp.Is(this=value.copy(), expression=exp.Null()))
        every = exp.EQ(this=rows.copy(), expression=present)
        differs = exp.and_(known, every, exp.Not(this=flag), copy=False)
        none = exp.EQ(this=_or_zero(rows), expression=exp.Literal.number(0))
        flag = exp.Not(this=exp.Paren(this=exp.or_(none, exp.Paren(this=differs), copy=False)))
    _put_flag(node, exp.Paren(this=flag), "")
    return left_out


def _join_counts(
    select: exp.Select, query: exp.Select, found: Correlation, item: exp.Expr, alias: str
) -> tuple[exp.Expr, ...]:
    """Join the number of rows of a subquery, and of those where its item is not NULL."""
    copied = Correlation(
        [(inner.copy(), outer.copy()) for inner, outer in found.equalities],
        outside=[each.copy() for each in found.outside],
        own=[each.copy() for each in found.own],
    )
    values = [
        (_COUNT, exp.Count(this=exp.Star(), big_int=True)),
        (_PRESENT, exp.Count(this=item.copy(), big_int=True)),
    ]
    join_groups(select, query.copy(), copied, values, alias)
    return tuple(make_column(name, alias) for name, _ in values)


def _or_zero(column: exp.Expr) -> exp.Expr:
    return exp.Coalesce(this=column, expressions=[exp.Literal.number(0)])


def _put_flag(node: exp.Expr, flag: exp.Expr, name: str) -> None:
    if isinstance(node.parent, exp.Select):
        flag = exp.Alias(this=flag, alias=make_name(name))
    flag.meta[NAME] = name
    node.replace(flag)


def _is_negated(node: exp.Expr, select: exp.Select) -> bool | None:
    """Whether an odd number of NOTs is above a condition; None if more than AND, OR and NOT is."""
    negated = False
    while isinstance(node.parent, exp.And | exp.Or | exp.Not | exp.Paren):
        node = node.parent
        negated ^= isinstance(node, exp.Not)
    return negated if isinstance(node.parent, exp.Where) and node.parent.parent is select else None
