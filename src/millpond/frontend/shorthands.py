"""Rewrites shorthands as what they stand for, before a tree is read.

- ``GROUP BY ALL`` groups by the select items without aggregates.
- ``GROUP BY ROLLUP (…)``, ``CUBE (…)`` and ``GROUPING SETS (…)`` are one select for each set of columns, with
  UNION ALL between them; a column that is not in the set is NULL.
- ``x LIKE ANY (…)`` and ``x LIKE ALL (…)`` are one LIKE for each pattern, ``(a, b) IN ((1, 2), …)`` one
  comparison for each value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, product

from sqlglot import exp

from millpond.frontend.statement import AGGREGATES

_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)
_GROUPING = (exp.Grouping, exp.GroupingId)
_SET_CLAUSES = ("rollup", "cube", "grouping_sets")
# CUBE of n columns has 2^n sets; more selects than this are not made of one.
MAX_SETS = 64


def expand_shorthands(tree: exp.Expr) -> tuple[exp.Expr, set[int]]:
    """The tree without shorthands, and the places in the text of what is no longer in it."""
    left_out = _list_starts(tree.find_all(*_SETS, *_GROUPING, exp.Any, exp.All, exp.Tuple))
    for select in list(tree.find_all(exp.Select)):
        _expand_group_by_all(select)
    for like in [*tree.find_all(exp.Like), *tree.find_all(exp.ILike)]:
        _expand_like(like)
    for test in list(tree.find_all(exp.In)):
        _expand_row_test(test)
    for select in reversed(list(tree.find_all(exp.Select))):
        union = _expand_grouping_sets(select)
        if union is not None:
            left_out |= _list_starts([select])
            if select is tree:
                tree = union
            else:
                select.replace(union)
    return tree, left_out


def _list_starts(nodes: Iterable[exp.Expr]) -> set[int]:
    every = (each.meta.get("start") for node in nodes for each in node.walk())
    return {start for start in every if start is not None}


def _expand_group_by_all(select: exp.Select) -> None:
    group = select.args.get("group")
    if group is None or not group.args.get("all") or any(each.is_star for each in select.expressions):
        return
    items = [each.unalias() for each in select.expressions]
    keys = [each.copy() for each in items if each.find(*AGGREGATES, exp.Window) is None]
    keys = [each for each in keys if each.find(exp.Column) is not None]
    select.set("group", exp.Group(expressions=keys) if keys else None)


# --- comparisons -------------------------------------------------------------------------------------


def _expand_like(node: exp.Binary) -> None:
    """``x LIKE ANY ('a%', 'b%')`` as ``x LIKE 'a%' OR x LIKE 'b%'``; NOT stands before each LIKE."""
    patterns = node.expression
    if not isinstance(patterns, exp.Any | exp.All) or not isinstance(patterns.this, exp.Tuple | exp.Paren):
        return
    listed = patterns.this.expressions or [patterns.this.this]
    tests: list[exp.Expr] = [type(node)(this=node.this.copy(), expression=each) for each in listed]
    if node.args.get("negate"):
        tests = [exp.Not(this=each) for each in tests]
    combine = exp.or_ if isinstance(patterns, exp.Any) else exp.and_
    node.replace(exp.Paren(this=combine(*tests, copy=False)))


def _expand_row_test(node: exp.In) -> None:
    """``(a, b) IN ((1, 2), (3, 4))`` as ``(a = 1 AND b = 2) OR (a = 3 AND b = 4)``."""
    left, rows = node.this, node.expressions
    if not isinstance(left, exp.Tuple) or not rows:
        return
    width = len(left.expressions)
    if not all(isinstance(row, exp.Tuple) and len(row.expressions) == width for row in rows):
        return
    tests = [
        exp.and_(
            *(
                exp.EQ(this=a.copy(), expression=b)
                for a, b in zip(left.expressions, row.expressions, strict=True)
            ),
            copy=False,
        )
        for row in rows
    ]
    node.replace(exp.Paren(this=exp.or_(*(exp.Paren(this=each) for each in tests), copy=False)))


# --- ROLLUP, CUBE, GROUPING SETS ---------------------------------------------------------------------


def _expand_grouping_sets(select: exp.Select) -> exp.Expr | None:
    """A select for each grouping set, with UNION ALL between them; None if there are no such sets."""
    group = select.args.get("group")
    if (
        group is None
        or select.args.get("qualify")
        or any(each.find(exp.Window) for each in select.expressions)
    ):
        return None
    clauses = [key for key in _SET_CLAUSES if group.args.get(key)]
    if not clauses and not any(isinstance(each, _SETS) for each in group.expressions):
        return None
    sets = [[_resolve(select, each) for each in columns] for columns in _list_sets(group, clauses)]
    if not 0 < len(sets) <= MAX_SETS:
        return None
    every = list(dict.fromkeys(column for columns in sets for column in columns))
    ending = {key: select.args.pop(key, None) for key in ("with_", "order", "limit")}
    branches = [_build_branch(select, columns, every) for columns in sets]
    made: exp.Expr = branches[0]
    for branch in branches[1:]:
        made = exp.Union(this=made, expression=branch, distinct=bool(select.args.get("distinct")))
    for key, clause in ending.items():
        if clause is not None:
            made.set(key, clause)
    return made


def _list_sets(group: exp.Group, clauses: Sequence[str]) -> list[list[exp.Expr]]:
    """The sets of columns to group by."""
    if clauses:  # GROUP BY a, b WITH ROLLUP, or GROUP BY a, b GROUPING SETS (…)
        (node,) = group.args[clauses[0]]
        return _list_own_sets(node if node.expressions else type(node)(expressions=group.expressions))
    factors = [
        _list_own_sets(each) if isinstance(each, _SETS) else [_list_columns(each)]
        for each in group.expressions
    ]
    return [[column for columns in choice for column in columns] for choice in product(*factors)]


def _list_own_sets(node: exp.Expr) -> list[list[exp.Expr]]:
    if isinstance(node, exp.GroupingSets):
        return [
            columns
            for each in node.expressions
            for columns in (_list_own_sets(each) if isinstance(each, _SETS) else [_list_columns(each)])
        ]
    units = [_list_columns(each) for each in node.expressions]
    if isinstance(node, exp.Rollup):
        chosen: Iterable[Sequence[list[exp.Expr]]] = (units[:n] for n in range(len(units), -1, -1))
    elif len(units) > MAX_SETS.bit_length():
        return []
    else:
        chosen = (c for n in range(len(units), -1, -1) for c in combinations(units, n))
    return [[column for unit in units for column in unit] for units in chosen]


def _list_columns(node: exp.Expr) -> list[exp.Expr]:
    """The columns of ``(a, b)``, ``(a)``, ``a`` or ``()``."""
    if isinstance(node, exp.Tuple):
        return list(node.expressions)
    return [node.this] if isinstance(node, exp.Paren) else [node]


def _resolve(select: exp.Select, node: exp.Expr) -> exp.Expr:
    """The select item that a number stands for; any other expression itself."""
    if isinstance(node, exp.Literal) and node.is_int and 1 <= int(node.name) <= len(select.expressions):
        item: exp.Expr = select.expressions[int(node.name) - 1].unalias()
        return item
    return node


def _build_branch(select: exp.Select, columns: list[exp.Expr], every: list[exp.Expr]) -> exp.Select:
    """The select for one grouping set: a column that is in another set only is NULL."""
    branch = select.copy()
    missing = [each for each in every if each not in columns]
    items = [_blank(item, missing, columns, every) for item in branch.expressions]
    branch.set("expressions", items)
    having = branch.args.get("having")
    condition = _blank(having.this, missing, columns, every) if having is not None else None
    if columns:
        branch.set("group", exp.Group(expressions=[each.copy() for each in columns]))
    else:  # all rows are one group, which does not exist without rows
        branch.set("group", None)
        some = exp.GT(this=exp.Count(this=exp.Star(), big_int=True), expression=exp.Literal.number(0))
        condition = exp.and_(some, condition, copy=False) if condition is not None else some
    branch.set("having", exp.Having(this=condition) if condition is not None else None)
    return branch


def _blank(
    node: exp.Expr, missing: Sequence[exp.Expr], columns: Sequence[exp.Expr], every: Sequence[exp.Expr]
) -> exp.Expr:
    """A select item or condition with NULL for missing columns, and with the numbers of GROUPING."""

    def change(each: exp.Expr) -> exp.Expr:
        if isinstance(each, _GROUPING):
            flags = [not _is_among(column, columns) for column in each.expressions or every]
            return exp.Literal.number(int("".join(str(int(flag)) for flag in flags) or "0", 2))
        if _is_among(each, missing) and each.find_ancestor(*AGGREGATES) is None:
            return exp.Null()
        return each

    alias = node.args["alias"] if isinstance(node, exp.Alias) else None
    value = node.this if alias is not None else node
    used = [column for column in missing if any(is_same(each, column) for each in value.walk())]
    if alias is not None and not used and _is_among(exp.column(alias.copy()), missing):
        return exp.Alias(this=exp.Null(), alias=alias)
    changed = value.transform(change)
    name = alias or (exp.to_identifier(value.name) if isinstance(value, exp.Column) else None)
    return exp.Alias(this=changed, alias=name) if name is not None and node.parent is not None else changed


def _is_among(node: exp.Expr, columns: Iterable[exp.Expr]) -> bool:
    return any(is_same(node, each) for each in columns)


def is_same(one: exp.Expr, other: exp.Expr) -> bool:
    """Whether two expressions are the same; a column may have a qualifier in one of them."""
    if isinstance(one, exp.Column) and isinstance(other, exp.Column):
        tables = {one.table.lower(), other.table.lower()} - {""}
        return one.name.lower() == other.name.lower() and len(tables) < 2
    return one == other
