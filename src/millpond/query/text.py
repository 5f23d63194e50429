"""Renders expressions as text for messages."""

from __future__ import annotations

from millpond.query.expressions import Aggregate, Arithmetic, Choice, Expr, Literal, Negation, Ref


def expression_text(expr: Expr) -> str:
    """An expression as SQL, without the aliases of occurrences."""
    match expr:
        case Literal(value=None):
            return "NULL"
        case Literal(value=str() as text):
            return "'" + text.replace("'", "''") + "'"
        case Literal(value=value):
            return str(value)
        case Ref(column=column):
            return column
        case Negation(operand=operand):
            return f"-{expression_text(operand)}"
        case Arithmetic(operator=op, left=left, right=right):
            return f"({expression_text(left)} {op} {expression_text(right)})"
        case Choice():
            condition, chosen, otherwise = map(expression_text, (expr.condition, expr.chosen, expr.otherwise))
            return f"CASE WHEN {condition} THEN {chosen} ELSE {otherwise} END"
        case Aggregate(text=text):
            return text
