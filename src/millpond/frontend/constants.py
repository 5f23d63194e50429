"""sqlglot's nodes → constants."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from millpond.errors import SqlError, TypeError_
from millpond.frontend import literals
from millpond.frontend.refusals import only, outside
from millpond.frontend.source import Source
from millpond.query.model import Expr, Literal
from millpond.query.types import STRING, Family, SqlType

_MOMENTS = {exp.DType.DATE: literals.day, exp.DType.TIMESTAMPTZ: literals.moment}


@dataclass(frozen=True)
class Bound:
    """An expression, its type (None: the untyped NULL) and the name Spark gives it."""

    expression: Expr
    type: SqlType | None
    name: str


def constant(source: Source, node: exp.Expr) -> Bound | None:
    """A constant as written, a signed number included; None where the node is something else."""
    try:
        literal, name = _constant(source, node)
    except ValueError as error:
        raise TypeError_(f"{source.shown(node)} {error}", source.at(node)) from None
    return Bound(literal, literal.type, name or literals.spark_name(literal)) if literal else None


def _constant(source: Source, node: exp.Expr) -> tuple[Literal | None, str | None]:
    if isinstance(node, exp.Literal):
        return (Literal(node.this, STRING), node.this) if node.is_string else (_number(source, node), None)
    if isinstance(node, exp.Boolean):
        return literals.boolean(bool(node.this)), None
    if isinstance(node, exp.Null):
        return literals.NULL, None
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal | exp.TryCast):
        inner, _ = _constant(source, node.this)
        if inner and inner.type and inner.type.family is Family.NUMBER:
            return literals.negate(inner), None
    if isinstance(node, exp.Cast):
        return _cast(source, node)
    return None, None


def _number(source: Source, node: exp.Expr) -> Literal:
    return literals.number(source.slice(node) if node.meta else node.name)


def _cast(source: Source, node: exp.Cast) -> tuple[Literal, str | None]:
    """``DATE '…'``, ``CAST('…' AS DATE)``, the same of TIMESTAMP, or a number with a suffix."""
    only(source, node, "this", "to")
    inner, kind = node.this, node.to.this
    first, last = source.span(node)
    is_call = source.word(first + 1) == "("
    if isinstance(inner, exp.Literal) and not is_call and source.slice(inner) == source.slice(node):
        return _number(source, inner), None
    if not isinstance(inner, exp.Literal) or not inner.is_string or kind not in _MOMENTS:
        raise outside(source, node)
    if source.word(first) == "CAST":
        return _MOMENTS[kind](inner.this), f"CAST({inner.this} AS {source.word(last - 1)})"
    if is_call:
        word = source.word(first)
        raise SqlError(f"the function {word} is outside the language", source.at(node), f"write {word} '…'")
    return _MOMENTS[kind](inner.this), None
