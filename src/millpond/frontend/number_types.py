"""The types of computed numbers, by Spark's rules, where those of sqlglot have fewer digits or are decimals
instead of DOUBLE.  Operands must have their types already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlglot import exp

from millpond.query.types import MAX_PRECISION

_LEAST_SCALE = 6  # kept where a result has more than 38 digits
_INTEGER_DIGITS = {exp.DType.TINYINT: 3, exp.DType.SMALLINT: 5, exp.DType.INT: 10, exp.DType.BIGINT: 20}
_FLOATING = (exp.DType.FLOAT, exp.DType.DOUBLE)


class Digits(NamedTuple):
    """How many digits a number has before and after the point."""

    whole: int
    scale: int


def find_computed_type(node: exp.Binary) -> exp.DataType | None:
    """The type of a sum, difference, product, quotient or remainder; None if no operand is a decimal or a
    floating-point number."""
    operands = [_skip_parentheses(each) for each in (node.this, node.expression)]
    if floating := _find_floating_type(operands):
        return exp.DataType.build("DOUBLE") if isinstance(node, exp.Div) else floating
    left, right = map(_find_operand_digits, operands)
    if left is None or right is None or not any(map(_is_decimal, operands)):
        return None
    scale = max(left.scale, right.scale)
    match node:
        case exp.Mul():
            digits = Digits(left.whole + right.whole + 1, left.scale + right.scale)
        case exp.Div():
            scale = max(_LEAST_SCALE, left.scale + right.whole + right.scale + 1)
            digits = Digits(left.whole + right.scale, scale)
        case exp.Mod():
            digits = Digits(min(left.whole, right.whole), scale)
        case _:
            digits = Digits(max(left.whole, right.whole) + 1, scale)
    return _make_type(digits)


def find_common_type(node: exp.Expr) -> exp.DataType | None:
    """The type of a number that is one of several; None for other values."""
    values = [_skip_parentheses(each) for each in _list_values(node)]
    values = [each for each in values if not isinstance(each, exp.Null)]
    if floating := _find_floating_type(values):
        return floating
    found = [_find_digits(each) for each in values]
    digits = [each for each in found if each is not None]
    if len(digits) < len(found) or not digits:
        return None
    if not any(map(_is_decimal, values)):
        widest = digits.index(max(digits))
        return values[widest].type
    whole, scale = (max(sizes) for sizes in zip(*digits, strict=True))
    return _make_type(Digits(whole, scale))


def find_literal_type(literal: exp.Literal) -> exp.DataType | None:
    """The type of a number with a point, which is a decimal in Spark; None for 1.5e0, 15 and strings."""
    whole, point, fraction = literal.name.partition(".")
    if literal.is_string or not point or not f"0{whole}{fraction}".isdecimal():
        return None
    return _make_type(Digits(len(whole.lstrip("0")), len(fraction)))


def find_rounded_type(node: exp.Round | exp.Ceil | exp.Floor) -> exp.DataType | None:
    """The type of a rounded integer or decimal; None for other numbers."""
    type_ = node.this.type
    if type_ is not None and type_.this in exp.DataType.INTEGER_TYPES:
        return type_ if isinstance(node, exp.Round) else exp.DataType.build("BIGINT")
    digits = _find_digits(node.this)
    if digits is None:
        return None
    wanted = node.args.get("decimals")
    scale = int(wanted.name) if isinstance(wanted, exp.Literal) and wanted.name.isdecimal() else 0
    return _make_type(Digits(digits.whole + 1, min(scale, digits.scale)))


def _list_values(node: exp.Expr) -> Sequence[exp.Expr]:
    if isinstance(node, exp.Case):
        default = node.args.get("default")
        return [*(each.args["true"] for each in node.args["ifs"]), *([default] if default else [])]
    return [node.this, *node.expressions]


def _skip_parentheses(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _find_floating_type(values: Sequence[exp.Expr]) -> exp.DataType | None:
    """DOUBLE if some value is a floating-point number and all are numbers; FLOAT if all are."""
    kinds = {each.type.this if each.type is not None else None for each in values}
    if not kinds & {*_FLOATING} or not kinds <= {*_FLOATING, *_INTEGER_DIGITS, exp.DType.DECIMAL}:
        return None
    return exp.DataType.build("FLOAT" if kinds == {exp.DType.FLOAT} else "DOUBLE")


def _is_decimal(node: exp.Expr) -> bool:
    return node.type is not None and node.type.this is exp.DType.DECIMAL


def _find_operand_digits(node: exp.Expr) -> Digits | None:
    """The digits of an operand: an integer that is written down has no more than are written."""
    return Digits(len(node.name), 0) if isinstance(node, exp.Literal) and node.is_int else _find_digits(node)


def _find_digits(node: exp.Expr) -> Digits | None:
    """The digits of an integer or a decimal; None for any other value."""
    type_ = node.type
    if type_ is None:
        return None
    if type_.this in _INTEGER_DIGITS:
        return Digits(_INTEGER_DIGITS[type_.this], 0)
    sizes = [int(each.name) for each in type_.expressions if each.name.isdecimal()]
    if type_.this is not exp.DType.DECIMAL or len(sizes) != 2:
        return None
    return Digits(sizes[0] - sizes[1], sizes[1])


def _make_type(digits: Digits) -> exp.DataType:
    """The decimal with these digits; one with too many loses some after the point, down to six."""
    whole, scale = digits
    if whole + scale > MAX_PRECISION:
        scale = max(MAX_PRECISION - whole, min(scale, _LEAST_SCALE))
    precision = min(max(whole + scale, 1), MAX_PRECISION)
    return exp.DataType.build(f"DECIMAL({precision}, {scale})")
