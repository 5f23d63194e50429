"""Expressions that read an earlier timestamp only to see whether it is near: the flags of sessions.

``prev IS NULL OR ts > prev + INTERVAL 30 MINUTES`` is the same for a row without predecessor as for one whose
predecessor is more than 30 minutes ago, so older rows need not be remembered for it.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.simplify import simplify

from millpond.frontend.counted_times import find_differences
from millpond.frontend.intervals import read_interval, read_shift
from millpond.frontend.time_bounds import TimeDifference
from millpond.frontend.truncated_times import find_truncated
from millpond.query.model import Table, Windowed
from millpond.query.window_functions import is_earlier_time, reads_no_earlier_row

# Comparisons of a timestamp with an earlier one: whether they hold if the earlier one is long ago.
_IF_FAR: dict[type[exp.Expr], bool] = {
    exp.GT: True,
    exp.GTE: True,
    exp.LT: False,
    exp.LTE: False,
    exp.EQ: False,
    exp.NEQ: True,
}
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
}


def find_near_columns(table: Table, row: exp.Expr, slack: int) -> tuple[tuple[str, int], ...]:
    """The earlier timestamps that an expression over a row reads, each with a distance in microseconds.

    The expression is the same if the timestamp is NULL as if it is further away than that.  ``slack``: by how
    many microseconds a stretch of local time can be longer than one in UTC.
    """
    block = table.block
    if not isinstance(block, Windowed) or table.time is None:
        return ()
    found: dict[str, int] = {}
    names = {column.name for column in row.find_all(exp.Column)}
    for function in block.functions:
        if function.name not in names or not is_earlier_time(function, block.base):
            continue
        near = _find_distance(row, table.time, function.name, slack)
        if near is None:
            continue
        distance, rest = near
        if function.name not in rest:
            found[function.name] = distance
        for other in block.functions:
            # Where the timestamp is near, so are the rows from there on.
            if other.name in names - rest and reads_no_earlier_row(other, function):
                found[other.name] = min(found.get(other.name, distance), distance)
    return tuple(found.items())


def _find_distance(row: exp.Expr, time: str, earlier: str, slack: int) -> tuple[int, set[str]] | None:
    """A distance beyond which an earlier timestamp is as good as missing, and the columns read then."""
    missing = _replace_atoms(row, time, earlier, slack, is_missing=True)
    far = _replace_atoms(row, time, earlier, slack, is_missing=False)
    if missing is None or far is None:
        return None
    try:
        reduced = [_reduce(tree) for tree, _ in (missing, far)]
    except SqlglotError:
        return None
    if reduced[0].sql("spark") != reduced[1].sql("spark"):
        return None
    return far[1], {column.name for column in reduced[0].find_all(exp.Column)}


def _replace_atoms(
    row: exp.Expr, time: str, earlier: str, slack: int, is_missing: bool
) -> tuple[exp.Expr, int] | None:
    """An expression whose conditions on the earlier timestamp are replaced, and the longest distance."""
    tree, longest = exp.Paren(this=row.copy()), 0
    while (column := _find_column(tree, earlier)) is not None:
        atom = column.find_ancestor(exp.Is, exp.Between, *_IF_FAR)
        read = _read_atom(atom, time, earlier, slack)
        if atom is None or read is None:
            return None
        if_missing, if_far, distance = read
        atom.replace((if_missing if is_missing else if_far).copy())
        longest = max(longest, distance)
    return tree, longest


def _find_column(tree: exp.Expr, name: str) -> exp.Column | None:
    return next((column for column in tree.find_all(exp.Column) if column.name == name), None)


def _reduce(tree: exp.Expr) -> exp.Expr:
    """An expression without the constants that can be evaluated."""

    def choose(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Coalesce):
            rest = [each for each in (node.this, *node.expressions) if not isinstance(each, exp.Null)]
            if not rest or len(rest) == 1 or isinstance(rest[0], exp.Boolean):
                return rest[0] if rest else exp.null()
            return exp.Coalesce(this=rest[0], expressions=rest[1:])
        return node

    for choice in [*tree.find_all(exp.If)]:
        is_of_case = isinstance(choice.parent, exp.Case) and choice.parent.args.get("this") is not None
        if not is_of_case:
            choice.set("this", _choose_false(choice.this))
    reduced: exp.Expr = simplify(tree.transform(choose), dialect="spark")
    return reduced


def _choose_false(condition: exp.Expr) -> exp.Expr:
    """A condition of CASE, for which NULL is the same as FALSE."""
    if isinstance(condition, exp.Null):
        return exp.false()
    if isinstance(condition, exp.And | exp.Or | exp.Paren):
        for key in ("this", "expression"):
            if condition.args.get(key) is not None:
                condition.set(key, _choose_false(condition.args[key]))
    return condition


def _read_atom(
    atom: exp.Expr | None, time: str, earlier: str, slack: int
) -> tuple[exp.Expr, exp.Expr, int] | None:
    """The value of a condition if the earlier timestamp is missing or far away, and how far that is."""
    if isinstance(atom, exp.Is):
        is_missing = isinstance(atom.expression, exp.Null) and _is_missing_with(
            atom.this, time, earlier, slack
        )
        return (exp.true(), exp.false(), 0) if is_missing else None
    if atom is None or len([c for c in atom.find_all(exp.Column) if c.name == earlier]) > 1:
        return None
    found = _find_differences(atom, time, earlier, slack)
    if not found:
        return None
    if_far = all(each.if_far for each in found)
    return exp.null(), exp.true() if if_far else exp.false(), max(each.reach for each in found)


def _is_missing_with(node: exp.Expr, time: str, earlier: str, slack: int) -> bool:
    """Whether an expression is NULL exactly if the earlier timestamp is."""
    node = node.unnest()
    if isinstance(node, exp.Sub) and _is_column(node.this, time) and _is_column(node.expression, earlier):
        return True
    compared = exp.LT(this=node.copy(), expression=exp.Literal.number(1))
    return _is_column(node, earlier) or bool(_find_differences(compared, time, earlier, slack))


def _find_differences(atom: exp.Expr, time: str, earlier: str, slack: int) -> list[TimeDifference]:
    """The times between a row and an earlier one that a condition compares; empty if it reads others."""
    if type(atom) in _IF_FAR:
        found = _find_plain_difference(atom, time, earlier, slack)
        if found is not None:
            return [found]
    differences = find_truncated(atom, slack) or _count_differences(atom, slack)
    if all(_is_column(each.earlier, time) and _is_column(each.later, earlier) for each in differences):
        mirrored = _mirror(atom)
        differences = [] if mirrored is None else find_truncated(mirrored, slack)
    fits = all(_is_column(each.later, time) and _is_column(each.earlier, earlier) for each in differences)
    return differences if fits else []


def _mirror(atom: exp.Expr) -> exp.Expr | None:
    """The same comparison with its sides swapped."""
    kind = _MIRRORED.get(type(atom))
    return None if kind is None else kind(this=atom.expression.copy(), expression=atom.this.copy())


def _count_differences(atom: exp.Expr, slack: int) -> list[TimeDifference]:
    if not isinstance(atom, exp.NEQ):
        return find_differences(atom, slack)
    equal = exp.EQ(this=atom.this.copy(), expression=atom.expression.copy())
    return [replace(each, if_far=True) for each in find_differences(equal, slack)]


def _find_plain_difference(atom: exp.Expr, time: str, earlier: str, slack: int) -> TimeDifference | None:
    """A comparison of the timestamps themselves, plus constants, or of their difference with a length."""
    atom = _move_earlier(atom)
    kind, (left, right) = type(atom), [_read_side(side, slack) for side in (atom.this, atom.expression)]
    if left is None or right is None:
        return None
    if left[0] == earlier:
        left, right, kind = right, left, _MIRRORED[kind]
    if left[0] != time or right[0] != earlier:
        return None
    reach, if_far = max(right[1] - left[1], 0), _IF_FAR[kind]
    return TimeDifference(atom.this, atom.expression, (), True, reach, if_far)


def _move_earlier(atom: exp.Expr) -> exp.Expr:
    """``ts - prev > INTERVAL 30 MINUTES`` as ``ts > prev + INTERVAL 30 MINUTES``; others as they are."""
    difference = atom.this.unnest()
    if not isinstance(difference, exp.Sub) or read_interval(atom.expression.unnest()) is None:
        return atom
    shifted = exp.Add(this=difference.expression.copy(), expression=atom.expression.copy())
    return type(atom)(this=difference.this.copy(), expression=shifted)


def _read_side(node: exp.Expr, slack: int) -> tuple[str, int] | None:
    """A column plus a number of microseconds."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        return node.name, 0
    shifted = read_shift(node)
    if shifted is None or not isinstance(shifted[0], exp.Column) or not shifted[1].is_exact(slack):
        return None
    return shifted[0].name, shifted[1].fixed or 0


def _is_column(node: exp.Expr, name: str) -> bool:
    return isinstance(node, exp.Column) and node.name == name
