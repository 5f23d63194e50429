"""Reads constants from sqlglot's nodes."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from millpond.errors import SqlTypeError
from millpond.frontend import literals
from millpond.frontend.refusals import accept_only, unsupported_error
from millpond.frontend.statement import Statement
from millpond.query.expressions import Expr, Literal
from millpond.query.types import STRING, Family, SqlType

_TIME_PARSERS = {
    exp.DType.DATE: literals.parse_date,
    exp.DType.TIMESTAMP: literals.parse_timestamp,
    exp.DType.TIMESTAMPTZ: literals.parse_timestamp,
}


@dataclass(frozen=True)
class Bound:
    """An expression, its type (None: the untyped NULL) and the name Spark gives it."""

    expression: Expr
    type: SqlType | None
    name: str


def read_constant(statement: Statement, node: exp.Expr) -> Bound | None:
    """A constant, for example a number with its sign; None if the node is something else."""
    try:
        literal, name = _read_constant(statement, node)
    except ValueError as error:
        raise SqlTypeError(f"{statement.excerpt(node)} {error}", statement.at(node)) from None
    return Bound(literal, literal.type, name or literals.spark_name(literal)) if literal else None


def _read_constant(statement: Statement, node: exp.Expr) -> tuple[Literal | None, str | None]:
    if isinstance(node, exp.Literal):
        return (
            (Literal(node.this, STRING), node.this)
            if node.is_string
            else (_read_number(statement, node), None)
        )
    if isinstance(node, exp.Boolean):
        return literals.to_boolean(bool(node.this)), None
    if isinstance(node, exp.Null):
        return literals.NULL, None
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal | exp.TryCast):
        inner, _ = _read_constant(statement, node.this)
        if inner and inner.type and inner.type.family is Family.NUMBER:
            return literals.negate(inner), None
    if isinstance(node, exp.Cast) and node.find(exp.Column) is None:
        return _read_cast(statement, node)
    return None, None


def _read_number(statement: Statement, node: exp.Expr) -> Literal:
    return literals.parse_number(statement.slice(node) if node.meta else node.name)


def _read_cast(statement: Statement, node: exp.Cast) -> tuple[Literal, str | None]:
    """``DATE '…'``, ``DATE('…')``, ``CAST('…' AS DATE)``, the same of TIMESTAMP, or ``10L``."""
    accept_only(statement, node, "this", "to")
    inner, kind = node.this, node.to.this
    first, last = statement.span(node)
    is_call = statement.word(first + 1) == "("
    if isinstance(inner, exp.Literal) and not is_call and statement.slice(inner) == statement.slice(node):
        return _read_number(statement, inner), None
    if not isinstance(inner, exp.Literal) or not inner.is_string or kind not in _TIME_PARSERS:
        raise unsupported_error(statement, node)
    if statement.word(first) == "CAST":
        return _TIME_PARSERS[kind](inner.this), f"CAST({inner.this} AS {statement.word(last - 1)})"
    if is_call:  # Spark names date('…') as its argument
        word = statement.word(first).lower()
        statement.leaves.add(first)
        name = inner.this if word in ("date", "timestamp") else f"{word}({inner.this})"
        return _TIME_PARSERS[kind](inner.this), name
    return _TIME_PARSERS[kind](inner.this), None
