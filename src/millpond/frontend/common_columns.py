"""Rewrites joins that name no condition or one value for two columns, before a tree is read.

- ``a NATURAL JOIN b`` is ``a JOIN b USING (…)`` with the columns that both have, or a CROSS JOIN without any.
- ``a FULL JOIN b USING (k)`` is ``a FULL JOIN b ON a.k = b.k``, where ``k`` alone is ``COALESCE(a.k, b.k)``.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from millpond.frontend.correlation import Sources, list_sources
from millpond.frontend.scope import Names
from millpond.frontend.subquery_joins import list_starts, make_name


def expand_common_columns(tree: exp.Expr, names: Names) -> set[int]:
    """Write out the conditions of NATURAL JOIN and FULL JOIN … USING, where the columns are known.

    Returns the places in the text of what is left out of the tree.
    """
    left_out = set[int]()
    for select in reversed([*tree.find_all(exp.Select)]):
        joins: list[exp.Join] = select.args.get("joins") or []
        sources = list_sources(select, names)
        for number, join in enumerate(joins, 1):
            is_test = join.args.get("kind") in ("SEMI", "ANTI")
            if join.args.get("method") == "NATURAL" and not is_test:
                _expand_natural(join, sources, number)
        if len(joins) == 1 and joins[0].args.get("using") and joins[0].args.get("side") == "FULL":
            left_out |= _expand_full(select, joins[0], sources)
    return left_out


def _expand_natural(join: exp.Join, sources: Sources, number: int) -> None:
    """Let a NATURAL JOIN, the one with this number, name the columns that both sides have."""
    columns = [*sources.values()]
    own = columns[number] if number < len(columns) else None
    before = [each for each in columns[:number] if each is not None]
    if own is None or len(before) < number:
        return
    left = {name.lower(): name for each in reversed(before) for name in reversed(each)}
    shared = [make_name(left[name]) for name in reversed(left) if name in _lower(own)]
    join.set("method", None)
    if shared:
        join.set("using", shared)
    elif not join.args.get("side"):
        join.set("kind", "CROSS")
    else:
        join.set("on", exp.true())


def _expand_full(select: exp.Select, join: exp.Join, sources: Sources) -> set[int]:
    """Replace USING of a FULL JOIN of two tables by ON; returns the places of what is left out."""
    shared = [each.name.lower() for each in join.args["using"]]
    if len(sources) != 2 or any(each is None for each in sources.values()):
        return set()
    nodes = [*select.find_all(exp.Column)]
    named = [each for each in nodes if not each.table and each.name.lower() in shared]
    stars = [each for each in select.expressions if isinstance(each, exp.Star)]
    if any(each.parent_select is not select for each in named) or any(
        each.args.get("except_") for each in stars
    ):
        return set()
    if any(not set(shared) <= _lower(columns or ()) for columns in sources.values()):
        return set()
    written = [each.name for each in join.args["using"]]
    left_out = {start for each in join.args["using"] for start in list_starts(each)}
    for column in named:
        left_out |= list_starts(column)
        value = _coalesce(sources, column.name)
        is_item = column.parent is select and column.arg_key == "expressions"
        column.replace(exp.Alias(this=value, alias=column.this.copy()) if is_item else value)
    for star in stars:
        select.set(
            "expressions", [i for each in select.expressions for i in _expand(each, star, sources, written)]
        )
    equal = [exp.EQ(this=one, expression=other) for one, other in (_list_both(sources, n) for n in shared)]
    join.set("using", None)
    join.set("on", exp.and_(*equal, copy=False))
    return left_out


def _expand(item: exp.Expr, star: exp.Expr, sources: Sources, written: list[str]) -> list[exp.Expr]:
    """The columns that ``*`` stands for: the shared ones first, then the others of both tables."""
    if item is not star:
        return [item]
    items: list[exp.Expr] = [
        exp.Alias(this=_coalesce(sources, name), alias=make_name(name)) for name in written
    ]
    shared = _lower(written)
    for alias, columns in sources.items():
        items += [_column(name, alias) for name in columns or () if name.lower() not in shared]
    return items


def _lower(columns: Iterable[str]) -> set[str]:
    return {name.lower() for name in columns}


def _list_both(sources: Sources, name: str) -> list[exp.Column]:
    return [_column(name, alias) for alias in sources]


def _coalesce(sources: Sources, name: str) -> exp.Expr:
    one, other = _list_both(sources, name)
    return exp.Coalesce(this=one, expressions=[other])


def _column(name: str, alias: str) -> exp.Column:
    return exp.Column(this=make_name(name), table=make_name(alias))
