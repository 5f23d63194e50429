"""Finds the fields of a time that a number or a text is composed of: ``year(at) * 100 + month(at)``.

If different fields always give different codes, a group by the code is one by its fields, which tell when it
closes.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from millpond.frontend.row_facts import read_value
from millpond.frontend.scope import Scope
from millpond.frontend.time_fields import EXTRACTED, FIELD_NAMES, FIELDS, Field


def list_fields(scope: Scope, node: exp.Expr) -> list[exp.Expr]:
    """The functions of a stream's time that are equal exactly if the codes are; empty if there are none."""
    if not isinstance(node, exp.Add | exp.Sub | exp.Concat | exp.DPipe):
        return []
    found = _read_number(node) if isinstance(node, exp.Add | exp.Sub) else _read_text(node)
    columns = [column for part in found for column in part.find_all(exp.Column)]
    if len(found) < 2 or len(columns) != len(found) or not all(map(scope.knows, columns)):
        return []
    refs = {scope.find_column(column)[0] for column in columns}
    if len(refs) != 1:
        return []
    (ref,) = refs
    table = scope.occurrence_of(ref).table
    return found if table.streaming and table.time == ref.column else []


def _read_number(node: exp.Expr) -> list[exp.Expr]:
    """The fields of a sum of multiples of them; one of them may be unlimited, as years are.

    Each factor is greater than the range of what the smaller factors are multiplied with.
    """
    terms = [*_list_terms(node)]
    fields = [
        (factor, each, _find_field(each)) for factor, each in terms if each.find(exp.Column) is not None
    ]
    if any(field is None or not factor for factor, _, field in fields):
        return []
    if any(factor is None for factor, _ in terms):
        return []
    reach: int | None = 0
    for factor, _, field in sorted(fields, key=lambda each: abs(each[0] or 0)):
        assert factor is not None and field is not None
        if reach is None or abs(factor) <= reach:
            return []
        is_limited = field.low is not None and field.high is not None
        reach = reach + abs(factor) * ((field.high or 0) - (field.low or 0)) if is_limited else None
    return [each for _, each, _ in fields]


def _list_terms(node: exp.Expr, sign: int = 1) -> Iterator[tuple[int | None, exp.Expr]]:
    """The terms of a sum, each with the whole number that it is multiplied with, if that is known."""
    node = node.unnest()
    if isinstance(node, exp.Add | exp.Sub):
        yield from _list_terms(node.this, sign)
        yield from _list_terms(node.expression, sign if isinstance(node, exp.Add) else -sign)
    elif isinstance(node, exp.Mul):
        left, right = node.this.unnest(), node.expression.unnest()
        if left.find(exp.Column) is None:
            left, right = right, left
        factor = read_value(right)
        yield (sign * factor if type(factor) is int else None), left
    elif node.find(exp.Column) is not None:
        yield sign, node
    else:
        yield (sign if type(read_value(node)) is int else None), node


def _read_text(node: exp.Expr) -> list[exp.Expr]:
    """The fields of a text that is made of them.

    From the end, each part can be told from what is before it: it has a fixed width, or it is a number after
    a constant that does not end with a digit.
    """
    parts = [*_list_parts(node)]
    found: list[exp.Expr] = []
    for index, part in enumerate(parts):
        if isinstance(part, exp.Literal):
            continue
        before = parts[index - 1] if index else None
        is_apart = isinstance(before, exp.Literal) and before.name != "" and not before.name[-1].isdigit()
        inner, is_fixed = _strip_padding(part)
        field = _find_field(inner)
        is_number = field is not None and field.low is not None
        is_first = not any(each.find(exp.Column) for each in parts[:index])
        if not (
            is_fixed or (is_apart and is_number) or (is_first and (field is not None or _is_date(inner)))
        ):
            return []
        found.append(inner)
    return found


def _list_parts(node: exp.Expr) -> Iterator[exp.Expr]:
    node = node.unnest()
    if isinstance(node, exp.DPipe):
        yield from _list_parts(node.this)
        yield from _list_parts(node.expression)
    elif isinstance(node, exp.Concat):
        for each in node.expressions:
            yield from _list_parts(each)
    else:
        yield node


def _strip_padding(node: exp.Expr) -> tuple[exp.Expr, bool]:
    """What is written in a text, and whether that always has the same width: ``lpad(hour(at), 2, '0')``."""
    node = _strip_cast(node)
    if not isinstance(node, exp.Pad) or not node.args.get("is_left"):
        return node, False
    inner, width, fill = _strip_cast(node.this), read_value(node.expression), node.args.get("fill_pattern")
    field = _find_field(inner)
    is_zero = isinstance(fill, exp.Literal) and fill.name == "0"
    if field is None or field.low is None or field.high is None or type(width) is not int or not is_zero:
        return node, False
    return (inner, True) if field.high < 10**width else (node, False)


def _strip_cast(node: exp.Expr) -> exp.Expr:
    """A node without a cast to text, which concatenation makes anyway."""
    node = node.unnest()
    is_text = isinstance(node, exp.Cast) and node.to.this is exp.DType.TEXT
    return node.this.unnest() if is_text else node


def _is_date(node: exp.Expr) -> bool:
    """Whether a node is the date of a column, ``to_date(at)`` or ``CAST(at AS DATE)``."""
    is_cast = isinstance(node, exp.Cast) and node.to.this is exp.DType.DATE
    is_date = is_cast or (isinstance(node, exp.TsOrDsToDate) and not node.args.get("format"))
    return is_date and isinstance(node.this, exp.Column)


def _find_field(node: exp.Expr) -> Field | None:
    """The calendar field that a node computes from a column."""
    if isinstance(node, exp.Extract):
        known, argument = EXTRACTED.get(node.this.name.upper()), node.expression
    else:
        known, argument = FIELD_NAMES.get(type(node).__name__.upper()), node.this
    if isinstance(argument, exp.TsOrDsToDate) and not argument.args.get("safe"):
        argument = argument.this  # sqlglot puts it around the argument of some functions
    return FIELDS[known] if known is not None and isinstance(argument, exp.Column) else None
