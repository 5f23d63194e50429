"""Expressions that read an earlier timestamp only to see whether it is near: the flags of sessions.

``prev IS NULL OR ts > prev + INTERVAL 30 MINUTES`` is the same for a row without predecessor as for one whose
predecessor is more than 30 minutes ago, so older rows need not be remembered for it.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.simplify import simplify

from millpond.frontend.counted_times import TimeDifference, find_differences
from millpond.frontend.intervals import read_shift
from millpond.query.model import Table, Windowed
from millpond.query.window_functions import is_earlier_time

# Comparisons of a timestamp with an earlier one: whether they hold if the earlier one is long ago.
_IF_FAR: dict[type[exp.Expr], bool] = {exp.GT: True, exp.GTE: True, exp.LT: False, exp.LTE: False}
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
}


def find_near_columns(table: Table, row: exp.Expr, slack: int) -> tuple[tuple[str, int], ...]:
    """The earlier timestamps that an expression over a row reads, each with a distance in microseconds.

    The expression is the same if the timestamp is NULL as if it is further away than that.  ``slack``: by how
    many microseconds a stretch of local time can be longer than one in UTC.
    """
    if not isinstance(table.block, Windowed) or table.time is None:
        return ()
    found = []
    names = {column.name for column in row.find_all(exp.Column)}
    for function in table.block.functions:
        if function.name in names and is_earlier_time(function, table.block.base):
            distance = _find_distance(row, table.time, function.name, slack)
            if distance is not None:
                found.append((function.name, distance))
    return tuple(found)


def _find_distance(row: exp.Expr, time: str, earlier: str, slack: int) -> int | None:
    missing, far, distances = exp.Paren(this=row.copy()), exp.Paren(this=row.copy()), [0]
    for column in row.find_all(exp.Column):
        if column.name != earlier:
            continue
        atom = column.find_ancestor(exp.Is, *_IF_FAR)
        read = _read_atom(atom, time, earlier, slack)
        if atom is None or read is None:
            return None
        if_missing, if_far, distance = read
        distances.append(distance)
        for tree, value in ((missing, if_missing), (far, if_far)):
            target = next((c for c in tree.find_all(exp.Column) if c.name == earlier), None)
            place = target.find_ancestor(exp.Is, *_IF_FAR) if target is not None else None
            if place is None:
                return None
            place.replace(value.copy())
    try:
        same = _reduce(missing) == _reduce(far)
    except SqlglotError:
        return None
    return max(distances) if same else None


def _reduce(tree: exp.Expr) -> str:
    """An expression without the constants that can be evaluated, as text."""

    def choose(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Coalesce):
            rest = [each for each in (node.this, *node.expressions) if not isinstance(each, exp.Null)]
            if not rest or len(rest) == 1 or isinstance(rest[0], exp.Boolean):
                return rest[0] if rest else exp.null()
            return exp.Coalesce(this=rest[0], expressions=rest[1:])
        return node

    return str(simplify(tree.transform(choose), dialect="spark").sql())


def _read_atom(
    atom: exp.Expr | None, time: str, earlier: str, slack: int
) -> tuple[exp.Expr, exp.Expr, int] | None:
    """The value of a condition if the earlier timestamp is missing or far away, and how far that is."""
    if isinstance(atom, exp.Is):
        plain = isinstance(atom.expression, exp.Null) and _is_column(atom.this, earlier)
        return (exp.true(), exp.false(), 0) if plain else None
    if atom is None or type(atom) not in _IF_FAR:
        return None
    found = _find_differences(atom, time, earlier, slack)
    if not found:
        return None
    if_far = all(each.if_far for each in found)
    return exp.null(), exp.true() if if_far else exp.false(), max(each.reach for each in found)


def _find_differences(atom: exp.Expr, time: str, earlier: str, slack: int) -> list[TimeDifference]:
    """The times between a row and an earlier one that a condition compares; empty if it reads others."""
    kind, sides = type(atom), [_read_side(side, slack) for side in (atom.this, atom.expression)]
    left, right = sides
    if left is not None and right is not None:
        if left[0] == earlier:
            left, right, kind = right, left, _MIRRORED[kind]
        if left[0] != time or right[0] != earlier:
            return []
        reach, if_far = max(right[1] - left[1], 0), _IF_FAR[kind]
        return [TimeDifference(atom.this, atom.expression, (), True, reach, if_far)]
    found = find_differences(atom, slack)
    fits = all(_is_column(each.later, time) and _is_column(each.earlier, earlier) for each in found)
    return found if fits else []


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
