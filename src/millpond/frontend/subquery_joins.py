"""Joins a select with a subquery that is correlated with it: the groups of the subquery's rows, by key.

``(SELECT MAX(l.most) FROM limits l WHERE l.shop = o.shop)`` has a value for each shop, so it is a column of

    LEFT JOIN (SELECT l.shop, MAX(l.most) FROM limits l GROUP BY l.shop) s ON s.shop = o.shop

A comparison, as in ``l.since <= o.day``, cuts the days of each shop at each value of ``l.since``.  From one
value to the next the same rows are in the subquery, so it has a value for each such step.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from millpond.frontend.correlation import Correlation

_KEY = "{} of a subquery"
BOUND = "bound of a subquery"
_FOUND = "partners of a subquery"
NEXT = "next bound of a subquery"
_NEGATED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GTE,
    exp.LTE: exp.GT,
    exp.GT: exp.LTE,
    exp.GTE: exp.LT,
}


def name_keys(found: Correlation) -> list[str]:
    """The names of the keys, after the columns that they are."""
    names = list[str]()
    for number, (inner, _) in enumerate(found.equalities, 1):
        name = _KEY.format(inner.name if isinstance(inner, exp.Column) else f"key {number}")
        names.append(_KEY.format(f"key {number}") if name in (*names, BOUND, NEXT) else name)
    return names


def compare_keys(found: Correlation, alias: str) -> list[exp.Expr]:
    """The conditions that the keys of a block are what the select around it compares them with."""
    return [
        exp.EQ(this=make_column(name, alias), expression=outer)
        for name, (_, outer) in zip(name_keys(found), found.equalities, strict=True)
    ]


def make_name(name: str) -> exp.Identifier:
    """A name that the text does not have."""
    return exp.to_identifier(name, quoted=True)


def make_column(name: str, table: str) -> exp.Column:
    """A column of a table that the text does not name."""
    return exp.Column(this=make_name(name), table=make_name(table))


def list_starts(node: exp.Expr) -> set[int]:
    """The places in the text of the parts of a node."""
    return {each.meta["start"] for each in node.walk() if "start" in each.meta}


def can_join(found: Correlation) -> bool:
    """Whether the rows of a subquery fall into groups, of which each row around it reads one."""
    return not found.others and len(found.bounds) <= 1


def join_groups(
    select: exp.Select,
    query: exp.Select,
    found: Correlation,
    values: Sequence[tuple[str, exp.Expr]],
    alias: str,
    is_inner: bool = False,
) -> None:
    """Join a select with the groups of a subquery, whose aggregates are ``values``, by their names.

    Rows without a group get NULL, or are left out if ``is_inner``.
    """
    conditions = compare_keys(found, alias)
    query.set("where", _make_where(found.own))
    if found.bounds:
        ((_, kind, outer),) = found.bounds
        made, more = _build_steps(query, found, values), is_in_step(kind, outer, alias)
    else:
        made, more = _build_groups(query, found, values), []
    conditions += [*more, *found.outside]
    _join(select, made, alias, conditions, None if is_inner else "LEFT")


def _join(
    select: exp.Select, made: exp.Select, alias: str, conditions: Sequence[exp.Expr], side: str | None
) -> None:
    """Join a select with a block; without conditions each row has the one row of the block."""
    table = exp.Subquery(this=made, alias=exp.TableAlias(this=make_name(alias)))
    if conditions:
        join = exp.Join(this=table, side=side, on=exp.and_(*conditions, copy=False))
    else:
        join = exp.Join(this=table, kind="CROSS")
    select.append("joins", join)


def join_partners(select: exp.Select, query: exp.Select, found: Correlation, alias: str) -> exp.Expr:
    """Join a select with the groups of a subquery by its keys; the condition that there is a partner."""
    query.set("where", _make_where(found.own))
    query.set("distinct", None)
    values: list[tuple[str, exp.Expr]] = [(_FOUND, exp.Count(this=exp.Star(), big_int=True))]
    conditions = compare_keys(found, alias)
    for inner, kind, outer in found.bounds:  # if any row is within the bound, the outermost is
        outermost = (exp.Min if issubclass(kind, exp.LT | exp.LTE) else exp.Max)(this=inner)
        values.append((BOUND, outermost))
        conditions.append(kind(this=make_column(BOUND, alias), expression=outer))
    if not found.equalities:  # all rows are one group, which may have none
        conditions.append(exp.GT(this=make_column(_FOUND, alias), expression=exp.Literal.number(0)))
    made = _build_groups(query, found, values)
    _join(select, made, alias, [*conditions, *found.outside], "LEFT")
    return exp.Not(this=exp.Is(this=make_column(_FOUND, alias), expression=exp.Null()))


def _make_where(conditions: Sequence[exp.Expr]) -> exp.Where | None:
    return exp.Where(this=exp.and_(*conditions, copy=False)) if conditions else None


def _alias(node: exp.Expr, name: str) -> exp.Alias:
    return exp.Alias(this=node, alias=make_name(name))


def _build_groups(
    query: exp.Select, found: Correlation, values: Sequence[tuple[str, exp.Expr]]
) -> exp.Select:
    """The groups of the rows of a subquery by its keys."""
    keys = [inner for inner, _ in found.equalities]
    items = [_alias(key, name) for key, name in zip(keys, name_keys(found), strict=True)]
    query.set("expressions", [*items, *(_alias(value, name) for name, value in values)])
    query.set("group", exp.Group(expressions=[key.copy() for key in keys]) if keys else None)
    return query


def _build_steps(query: exp.Select, found: Correlation, values: Sequence[tuple[str, exp.Expr]]) -> exp.Select:
    """The groups of a subquery by its keys and by the values of its bound, each with the next value.

    The group of a value has the rows of its key on the side of it that the comparison asks for.
    """
    ((bound, kind, _),) = found.bounds
    keys = [inner for inner, _ in found.equalities]
    names = name_keys(found)
    ascending = issubclass(kind, exp.LT | exp.LTE)
    points = query.copy()
    points.set(
        "expressions", [_alias(k.copy(), n) for k, n in zip((*keys, bound), (*names, BOUND), strict=True)]
    )
    points.set("distinct", exp.Distinct())
    ends = _build_ends(points, names, ascending)
    reach = (exp.LTE if ascending else exp.GTE)(this=bound, expression=make_column(BOUND, "steps"))
    same = [
        exp.EQ(this=key, expression=make_column(name, "steps")) for key, name in zip(keys, names, strict=True)
    ]
    table = exp.Subquery(this=ends, alias=exp.TableAlias(this=make_name("steps")))
    query.append("joins", exp.Join(this=table, on=exp.and_(*same, reach, copy=False)))
    columns = [*names, BOUND, NEXT]
    items = [_alias(make_column(name, "steps"), name) for name in columns]
    query.set("expressions", [*items, *(_alias(value, name) for name, value in values)])
    query.set("group", exp.Group(expressions=[make_column(name, "steps") for name in columns]))
    return query


def _build_ends(points: exp.Select, names: Sequence[str], ascending: bool) -> exp.Select:
    """The values of the bound in each key, each with the next one, NULL for the last."""
    one, other = make_column(BOUND, "one step"), make_column(BOUND, "other step")
    after = (exp.GT if ascending else exp.LT)(this=other, expression=one)
    same = [exp.EQ(this=make_column(n, "other step"), expression=make_column(n, "one step")) for n in names]
    shown = [make_column(name, "one step") for name in (*names, BOUND)]
    following = (exp.Min if ascending else exp.Max)(this=other.copy())
    first, second = (
        exp.Subquery(this=each, alias=exp.TableAlias(this=make_name(alias)))
        for each, alias in ((points, "one step"), (points.copy(), "other step"))
    )
    return exp.Select(
        expressions=[*(_alias(c, c.name) for c in shown), _alias(following, NEXT)],
        from_=exp.From(this=first),
        joins=[exp.Join(this=second, side="LEFT", on=exp.and_(*same, after, copy=False))],
        group=exp.Group(expressions=[column.copy() for column in shown]),
    )


def is_in_step(kind: type[exp.Expr], outer: exp.Expr, alias: str) -> list[exp.Expr]:
    """The conditions that a value lies in a step: the bound holds there, and not yet the next one."""
    bound, following = make_column(BOUND, alias), make_column(NEXT, alias)
    missing = exp.Is(this=following.copy(), expression=exp.Null())
    outside = _NEGATED[kind](this=following, expression=outer.copy())
    last = exp.Paren(this=exp.or_(missing, outside, copy=False))
    return [kind(this=bound, expression=outer), last]
