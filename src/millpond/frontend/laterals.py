"""Rewrites LATERAL with equalities and ORDER BY … LIMIT n as a rank within the columns that are compared.

    FROM (SELECT DISTINCT shop FROM sales) s
    JOIN LATERAL (SELECT item FROM sales WHERE sales.shop = s.shop ORDER BY price DESC LIMIT 3) top

are the rows of ``sales`` whose rank within their shop is at most 3.  The list of shops on the left adds
nothing to that, because each of them occurs in it once, and is left out; any other table is joined with these
rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from millpond.frontend.correlation import find_correlation
from millpond.frontend.limits import RANK
from millpond.frontend.scope import Names
from millpond.frontend.versions import join_versions

_KEY = "{} in ORDER BY"


@dataclass(frozen=True)
class _Equality:
    """A column of the rows in LATERAL that equals a column outside, and its name in the ranked rows."""

    inner: exp.Column
    outer: exp.Column
    name: str


def rewrite_laterals(tree: exp.Expr, names: Names) -> set[int]:
    """Rank the rows of ``JOIN LATERAL (… WHERE x = outer.y ORDER BY … LIMIT n)`` among those with equal x.

    The nearest row before or after a value outside is a version (``versions``).

    Returns the places in the text of what is left out of the tree.
    """
    left_out = set[int]()
    for join in list(tree.find_all(exp.Join)):
        lateral = join.this
        if not isinstance(lateral, exp.Lateral) or not isinstance(lateral.this, exp.Subquery):
            continue
        query, alias = lateral.this.this, lateral.args.get("alias")
        if alias is None or alias.args.get("columns") or not isinstance(query, exp.Select):
            continue
        if query.args.get("order") and query.args.get("limit"):
            versions = join_versions(join, query, alias, names)
            if versions is not None:
                left_out |= versions
            elif _is_equal_only(join, query, names):
                left_out |= _rank_lateral(join, query, alias)
    return left_out


def _is_equal_only(join: exp.Join, query: exp.Select, names: Names) -> bool:
    """Whether a subquery is compared with the tables around it by equalities only."""
    if not isinstance(join.parent, exp.Select):
        return False
    found = find_correlation(query, join.parent, names)
    return found is not None and not (found.bounds or found.others or found.outside)


def _rank_lateral(join: exp.Join, query: exp.Select, alias: exp.TableAlias) -> set[int]:
    """Replace LATERAL by ranked rows; returns the places of what is left out."""
    equalities, kept = _split_condition(query)
    if not equalities:
        return set()
    select = join.parent
    lists_keys = isinstance(select, exp.Select) and _lists_keys(select, join, query, equalities)
    order, limit = query.args.pop("order"), query.args.pop("limit")
    query.set("where", exp.Where(this=exp.and_(*kept, copy=False)) if kept else None)
    partition = [each.inner.copy() for each in equalities]
    rank = exp.Window(this=exp.RowNumber(), partition_by=partition, order=order)
    query.append("expressions", exp.Alias(this=rank, alias=_name(RANK)))
    for each in equalities:
        query.append("expressions", exp.Alias(this=each.inner, alias=_name(each.name)))
    ranked = exp.Subquery(this=query, alias=alias)
    conditions: list[exp.Expr] = [exp.LTE(this=_column(RANK, alias), expression=limit.expression)]
    if join.args.get("on") is not None:
        conditions.append(join.args["on"])
    if lists_keys:
        assert isinstance(select, exp.Select)
        return _leave_out_keys(select, ranked, conditions, equalities)
    for each in equalities:
        conditions.append(exp.EQ(this=_column(each.name, alias), expression=each.outer))
    join.set("this", ranked)
    join.set("on", exp.and_(*conditions, copy=False))
    return set()


def _split_condition(query: exp.Select) -> tuple[list[_Equality], list[exp.Expr]]:
    """The equalities with columns outside of a subquery, and the other conditions of its WHERE."""
    own = {each.alias_or_name.lower() for each in query.find_all(exp.Table, exp.Subquery)}
    where = query.args.get("where")
    found = (
        [] if where is None else [*where.this.flatten()] if isinstance(where.this, exp.And) else [where.this]
    )
    equalities, kept = list[_Equality](), list[exp.Expr]()
    for each in found:
        sides = [each.this, each.expression] if isinstance(each, exp.EQ) else []
        inner = [s for s in sides if isinstance(s, exp.Column) and s.table.lower() in own]
        outer = [s for s in sides if isinstance(s, exp.Column) and s.table and s.table.lower() not in own]
        if len(inner) == len(outer) == 1:
            equalities.append(_Equality(inner[0], outer[0], _KEY.format(len(equalities) + 1)))
        else:
            kept.append(each)
    return equalities, kept


def _lists_keys(select: exp.Select, join: exp.Join, query: exp.Select, equalities: list[_Equality]) -> bool:
    """Whether a select joins the different values of columns of a table with rows of the same table only.

    It must name the table of each column, so that it is known which of them are those values.
    """
    source = select.args.get("from_")
    listed = source.this if source is not None else None
    if not isinstance(listed, exp.Subquery):
        return False
    keys = listed.this
    if not isinstance(keys, exp.Select) or len(select.args["joins"]) != 1 or join.args.get("side"):
        return False
    table = _find_only_table(keys, {"distinct"})
    if table is None or table != _find_only_table(query, {"where", "order", "limit"}):
        return False
    shown = {each.alias_or_name.lower(): each.unalias() for each in keys.expressions}
    compared = {each.outer.name.lower(): each.inner.name.lower() for each in equalities}
    is_same = {name: each.name.lower() for name, each in shown.items()} == compared
    is_plain = all(isinstance(each, exp.Column) for each in shown.values())
    is_named = _names_all(select, listed, equalities)
    is_key = all(each.outer.table.lower() == listed.alias.lower() for each in equalities)
    is_distinct = bool(keys.args.get("distinct")) and len(compared) == len(equalities)
    return is_same and is_plain and is_named and is_key and is_distinct


def _names_all(select: exp.Select, listed: exp.Subquery, equalities: list[_Equality]) -> bool:
    """Whether a select names the table of all its columns, and its subqueries none of the listed table."""
    own = _list_columns(select)
    if any(not each.table for each in own) or any(each.is_star for each in select.expressions):
        return False
    known = {id(each) for each in (*own, *(equality.outer for equality in equalities))}
    columns = (each for each in select.find_all(exp.Column) if each.table.lower() == listed.alias.lower())
    return all(id(each) in known or each.find_ancestor(exp.Select) is listed.this for each in columns)


def _find_only_table(query: exp.Select, clauses: set[str]) -> str | None:
    """The name of the one table that a select reads; None if it has other clauses than these."""
    given = {key for key, value in query.args.items() if value} - {"expressions", "from_"}
    source = query.args.get("from_")
    if source is None or not isinstance(source.this, exp.Table) or not given <= clauses:
        return None
    return None if source.this.args.get("joins") else ".".join(p.name.lower() for p in source.this.parts)


def _list_columns(select: exp.Select) -> list[exp.Column]:
    """The columns that a select names itself, not in a subquery."""
    return [each for each in select.find_all(exp.Column) if each.find_ancestor(exp.Select) is select]


def _leave_out_keys(
    select: exp.Select, ranked: exp.Subquery, conditions: list[exp.Expr], equalities: list[_Equality]
) -> set[int]:
    """Read the ranked rows alone; a key is one of their columns, which must not be NULL."""
    alias = ranked.args["alias"]
    names = {each.outer.name.lower(): each.name for each in equalities}
    listed = select.args["from_"].this
    left_out: list[exp.Expr] = [listed, *(each.outer for each in equalities)]
    for column in _list_columns(select):
        if column.table.lower() == listed.alias.lower():
            left_out.append(column)
            made = _column(names[column.name.lower()], alias)
            made.this.meta.update(column.this.meta)  # its place in the text
            is_item = column.parent is select
            column.replace(exp.Alias(this=made, alias=column.this.copy()) if is_item else made)
    present = [
        exp.Not(this=exp.Is(this=_column(name, alias), expression=exp.Null())) for name in names.values()
    ]
    where = select.args.get("where")
    conditions = [*([where.this] if where is not None else []), *conditions, *present]
    select.set("from_", exp.From(this=ranked))
    select.set("joins", [])
    select.set("where", exp.Where(this=exp.and_(*conditions, copy=False)))
    return {part.meta["start"] for each in left_out for part in each.walk() if "start" in part.meta}


def _name(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def _column(name: str, table: exp.TableAlias) -> exp.Column:
    return exp.Column(this=_name(name), table=_name(table.name))
