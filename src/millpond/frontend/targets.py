"""Statements that say where the rows of a query go.

``INSERT INTO t SELECT …``, ``CREATE STREAMING TABLE t AS SELECT …`` and ``CREATE MATERIALIZED VIEW t AS …``
are queries like any other.  Later statements can read a ``t`` that has been created so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import Token, TokenType

from millpond.errors import SqlError
from millpond.frontend.statement import position

_QUERY = ("SELECT", "WITH", "(")
# Words between CREATE and the name.
_KINDS = frozenset(
    "CREATE OR REPLACE REFRESH TEMPORARY TEMP STREAMING LIVE MATERIALIZED VIEW TABLE IF NOT EXISTS".split()  # noqa: SIM905
)
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)


@dataclass(frozen=True)
class Target:
    """Where the rows of a query go: ``query`` is its first token, ``name`` is that of a created table."""

    query: int
    name: str | None = None
    columns: tuple[str, ...] = ()


def find_target(text: str, tokens: Sequence[Token]) -> Target | None:
    """The target of a statement; None if the statement is none of those above.

    >>> from sqlglot.dialects.spark import Spark
    >>> statement = "CREATE STREAMING TABLE paid AS SELECT id FROM orders"
    >>> find_target(statement, Spark().tokenize(statement))
    Target(query=5, name='paid', columns=())
    """
    words = [token.text.upper() for token in tokens]
    if words[0] == "INSERT":
        start = next((i for i, word in enumerate(words) if word in ("SELECT", "WITH")), None)
        return Target(start - (words[start - 1] == "(")) if start else None
    if words[0] != "CREATE" or ("VIEW" in words[:5] and "MATERIALIZED" not in words[:5]):
        return None
    start = _find_query(words)
    if start is None:
        return None
    at = next(i for i, word in enumerate(words) if word not in _KINDS)
    columns = _list_columns(text, tokens, at + 1) if words[at + 1] == "(" else ()
    return Target(start, tokens[at].text, columns)


def _find_query(words: Sequence[str]) -> int | None:
    """The place of the query after AS, outside of parentheses."""
    depth = 0
    for index, word in enumerate(words[:-1]):
        depth += (word == "(") - (word == ")")
        if depth == 0 and word == "AS" and words[index + 1] in _QUERY:
            return index + 1
    return None


def _list_columns(text: str, tokens: Sequence[Token], opening: int) -> tuple[str, ...]:
    """The names in the list of columns; it may not say which rows are kept."""
    names: list[str] = []
    depth = 0
    for before, token in zip(tokens[opening - 1 :], tokens[opening:], strict=False):
        if token.text.upper() in ("CONSTRAINT", "EXPECT", "CHECK"):
            place = position(text, token.start)
            message = f"{token.text.upper()} in a table that is filled by a query is not supported"
            raise SqlError(message, place, "put the condition in WHERE if it drops rows, else leave it out")
        if depth == 1 and before.text in ("(", ",") and token.token_type in _NAMES:
            names.append(token.text)
        depth += (token.text == "(") - (token.text == ")")
        if depth == 0:
            break
    return tuple(names)
