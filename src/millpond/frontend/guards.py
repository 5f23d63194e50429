"""Limits on the size of a text: larger ones are refused before they are parsed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import Token, TokenType

from millpond.errors import SqlError
from millpond.frontend.statement import position

MAX_CHARACTERS = 1_000_000
MAX_TOKENS = 20_000
MAX_NESTING = 100
MAX_COMPARISONS = 1_000

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_OPENING = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSING = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
_PREFIXES = (TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE)
_COMPARING = (TokenType.LT, TokenType.LTE, TokenType.EQ, TokenType.GTE, TokenType.GT, TokenType.NEQ)


def guard_statements(text: str, statements: Sequence[list[Token]]) -> None:
    """Refuse statements with more comparisons, tokens or levels of nesting than the limits allow."""
    for tokens in statements:
        _guard_comparisons(text, tokens)
    total = sum(map(len, statements))
    if total > MAX_TOKENS:
        message = f"the text has {total} tokens, more than the limit of {MAX_TOKENS}"
        remedy = "write ranges as BETWEEN, or put values into a static relation and join by equality"
        raise SqlError(message, remedy=remedy)
    for tokens in statements:
        _guard_nesting(text, tokens)


def guard_text(text: str) -> None:
    """Refuse a text that is too long or contains control characters."""
    if len(text) > MAX_CHARACTERS:
        message = f"the text has {len(text)} characters, more than the limit of {MAX_CHARACTERS}"
        raise SqlError(message, remedy="put constants into a static relation and join by equality")
    control = _CONTROL.search(text)
    if control:
        message = f"the character U+{ord(control[0]):04X} is not text"
        raise SqlError(message, position(text, control.start()), "give a file with SQL text")


def _guard_comparisons(text: str, tokens: list[Token]) -> None:
    """Refuse a statement with more comparisons than the analysis handles in reasonable time."""
    comparing = connecting = 0
    lists: list[bool] = []  # for each open parenthesis, whether it belongs to IN
    before = None
    for token in tokens:
        kind = token.token_type
        if kind in _OPENING:
            lists.append(before is TokenType.IN)
        elif kind in _CLOSING and lists:
            lists.pop()
        is_value = kind is TokenType.COMMA and bool(lists) and lists[-1]
        comparing += kind in _COMPARING or kind is TokenType.IN or is_value
        comparing += 2 * (kind is TokenType.BETWEEN)
        connecting += kind in (TokenType.AND, TokenType.OR) and before is not TokenType.BETWEEN
        before = kind
    count = max(comparing, connecting)
    if count > MAX_COMPARISONS:
        raise SqlError(
            f"{count} comparisons in one statement, more than the limit of {MAX_COMPARISONS}",
            position(text, tokens[0].start),
            "write a range as BETWEEN, or put the values into a static relation and join by equality",
        )


def _guard_nesting(text: str, tokens: list[Token]) -> None:
    depth = prefixes = deepest = 0
    first: Token | None = None
    for token in tokens:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        prefixes = prefixes + 1 if token.token_type in _PREFIXES else 0
        deepest = max(deepest, depth, prefixes)
        first = first or (token if deepest > MAX_NESTING else None)
    if first:
        message = f"the statement is nested {deepest} levels deep, more than the limit of {MAX_NESTING}"
        raise SqlError(message, position(text, first.start), "leave out parentheses that are not needed")
