"""Solves comparisons of integer columns for a column: ``A * 2 < 10``, ``x.A - y.B > 3``, ``abs(A - 3) <= 5``.

What is solved is a condition that the closure understands; all others are conditions on derived columns.  The
truth value is the same, also for NULL.  Arithmetic that overflows, an error in Spark, is exact here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor

from sqlglot import exp

from millpond.frontend import literals
from millpond.frontend.row_expressions import mark_as_read
from millpond.frontend.scope import Scope
from millpond.query.expressions import And, Arithmetic, Comparison, Condition, Expr, Literal, Op, Or, Ref
from millpond.query.types import BIGINT, INTEGERS

_LIMIT = 2**62
# Up to here, a quotient of integers is the same DOUBLE as a constant only if they are equal.
_MAX_DIVISOR = 1000


@dataclass(frozen=True)
class _Linear:
    """The sum of some columns, each times a number, and a constant."""

    columns: dict[Ref, Fraction] = field(default_factory=dict)
    constant: Fraction = Fraction(0)

    def add(self, other: _Linear, times: Fraction = Fraction(1)) -> _Linear:
        """The sum with a multiple of another."""
        columns = dict(self.columns)
        for ref, factor in other.columns.items():
            columns[ref] = columns.get(ref, Fraction(0)) + factor * times
        return _Linear(columns, self.constant + other.constant * times)


@dataclass(frozen=True)
class Solver:
    """Reads comparisons of one statement; ``operators`` are those of sqlglot's nodes."""

    scope: Scope
    operators: dict[type[exp.Expr], Op]

    def solve(self, node: exp.Expr) -> Condition | None:
        """The condition that a comparison, BETWEEN or IN stands for; None if it is not to be solved."""
        if not any(map(_is_arithmetic, node.walk())):
            return None
        match node:
            case exp.Between():
                low = self._compare(node, node.this, Op.GE, node.args["low"])
                high = self._compare(node, node.this, Op.LE, node.args["high"])
                found = _join(And, [low, high])
            case exp.In():
                found = _join(Or, [self._compare(node, node.this, Op.EQ, each) for each in node.expressions])
            case _ if type(node) in self.operators:
                found = self._compare(node, node.this, self.operators[type(node)], node.expression)
            case _:
                return None
        if found is not None:
            mark_as_read(self.scope.statement, node)
        return found

    def _compare(self, node: exp.Expr, left: exp.Expr, op: Op, right: exp.Expr) -> Condition | None:
        left, right = _strip(left), _strip(right)
        if isinstance(right, exp.Abs | exp.Div):
            left, op, right = right, op.mirrored, left
        if isinstance(left, exp.Div):
            return self._compare_quotient(node, left, op, right)
        inner, limit = self._read(left.this if isinstance(left, exp.Abs) else left), self._read(right)
        if inner is None or limit is None:
            return None
        if not isinstance(left, exp.Abs):
            return self._finish(node, inner.add(limit, Fraction(-1)), op)
        if limit.columns or (op in (Op.EQ, Op.NE) and limit.constant < 0):
            return None
        sides = [
            self._finish(node, inner.add(limit, Fraction(-1)), op),
            self._finish(node, inner.add(limit), op.mirrored),
        ]
        return _join(And if op in (Op.LT, Op.LE, Op.NE) else Or, sides)

    def _compare_quotient(self, node: exp.Expr, left: exp.Div, op: Op, right: exp.Expr) -> Condition | None:
        """A column divided by a constant, which is a DOUBLE, compared with a constant."""
        value, divisor, limit = self._read(left.this), self._read(left.expression), self._read(right)
        if value is None or divisor is None or limit is None:
            return None
        by = divisor.constant
        is_small = 0 < abs(by) <= _MAX_DIVISOR and limit.constant.denominator <= _MAX_DIVISOR
        is_exact = all(self.scope.column(ref).type is not BIGINT for ref in value.columns)
        if divisor.columns or limit.columns or not is_small or not is_exact or by.denominator != 1:
            return None
        scaled = _Linear().add(value, 1 / by)
        return self._finish(node, scaled.add(limit, Fraction(-1)), op)

    def _read(self, node: exp.Expr) -> _Linear | None:
        """A linear expression over integer columns."""
        node = _strip(node)
        match node:
            case exp.Literal() if not node.is_string:
                return _Linear(constant=Fraction(node.this)) if _is_plain_number(node.this) else None
            case exp.Column() if not isinstance(node.this, exp.Star) and self.scope.knows(node):
                ref, kind = self.scope.find_column(node)
                return _Linear({ref: Fraction(1)}) if kind in INTEGERS else None
            case exp.Neg():
                inner = self._read(node.this)
                return _Linear().add(inner, Fraction(-1)) if inner is not None else None
            case exp.Add() | exp.Sub() | exp.Mul():
                left, right = self._read(node.this), self._read(node.expression)
                if left is None or right is None:
                    return None
                if not isinstance(node, exp.Mul):
                    return left.add(right, Fraction(-1 if isinstance(node, exp.Sub) else 1))
                if left.columns and right.columns:
                    return None
                factor, other = (right, left) if left.columns else (left, right)
                return _Linear().add(other, factor.constant)
        return None

    def _finish(self, node: exp.Expr, line: _Linear, op: Op) -> Condition | None:
        """``line op 0``, solved for a column."""
        if len(line.columns) not in (1, 2) or 0 in line.columns.values():  # A - A is NULL if A is
            return None
        (ref, factor), *others = line.columns.items()
        if others and others[0][1] != -factor:
            return None
        value = -line.constant / factor
        op = op.mirrored if factor < 0 else op
        if value.denominator != 1:
            if op in (Op.EQ, Op.NE):
                return None
            is_below = op in (Op.LT, Op.LE)
            op, value = (Op.LE if is_below else Op.GE), Fraction(floor(value) if is_below else ceil(value))
        if abs(value) > _LIMIT:
            return None
        right: Expr = _make_literal(int(value))
        if others and value == 0:
            right = others[0][0]
        elif others:
            right = Arithmetic("+" if value > 0 else "-", others[0][0], _make_literal(abs(int(value))))
        statement = self.scope.statement
        return Comparison(ref, op, right, statement.slice(node), statement.at(node))


def _is_arithmetic(node: exp.Expr) -> bool:
    """Whether an operation with a column is more than adding a constant, which conditions have anyway."""
    if isinstance(node, exp.Sub):
        return node.expression.find(exp.Column) is not None
    return isinstance(node, exp.Abs | exp.Mul | exp.Div | exp.Neg) and node.find(exp.Column) is not None


def _is_plain_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal()


def _strip(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _make_literal(value: int) -> Literal:
    literal = literals.parse_number(str(abs(value)))
    return literals.negate(literal) if value < 0 else literal


def _join(
    kind: Callable[[tuple[Condition, ...]], Condition], parts: list[Condition | None]
) -> Condition | None:
    found = tuple(part for part in parts if part is not None)
    if len(found) != len(parts) or not found:
        return None
    return found[0] if len(found) == 1 else kind(found)
