"""Describes a text that sqlglot does not parse: what is wrong, where, and what could be written."""

from __future__ import annotations

import re

from sqlglot import Token, TokenType
from sqlglot.errors import ParseError

from millpond.errors import SqlError, SqlTypeError, one_line
from millpond.frontend.catalog import TABLE_FORM, TYPE_NAMES, describe_types
from millpond.frontend.statement import position

_QUOTES = {"'": "string", '"': "string", "`": "quoted name", "/*": "comment"}
_SEPARATE = "check the words before it, and put ; between statements"
_CREATED = frozenset(("STREAMING", "TABLE", "VIEW", "OR", "TEMPORARY", "TEMP", "GLOBAL", "EXTERNAL"))
# Constructs of other dialects that do not parse, by their first words, with what Spark has instead.
_OTHER_DIALECTS: dict[tuple[str, ...], tuple[str, str | None]] = {
    ("WATERMARK", "FOR"): ("WATERMARK FOR", "write TBLPROPERTIES ('watermark' = '10 seconds')"),
    ("MATCH_RECOGNIZE", "("): ("MATCH_RECOGNIZE", None),
    ("SESSION", "("): ("the function SESSION", "write session_window(ts, '10 minutes')"),
    ("TABLE", "(", "TUMBLE"): ("the table function TUMBLE", "in GROUP BY, write window(ts, '10 minutes')"),
    ("TABLE", "(", "HOP"): (
        "the table function HOP",
        "in GROUP BY, write window(ts, '10 minutes', '5 minutes'), with the width before the slide",
    ),
    ("TABLE", "(", "SESSION"): (
        "the table function SESSION",
        "in GROUP BY, write session_window(ts, '10 minutes')",
    ),
    ("TABLE", "(", "CUMULATE"): ("the table function CUMULATE", None),
    ("SELECT", "TOP"): ("TOP", None),
    ("EMIT", "CHANGES"): ("EMIT CHANGES", None),
}


def describe_syntax_error(text: str, tokens: list[Token], error: ParseError) -> SqlError:
    """The error for a statement that sqlglot does not parse."""
    found = error.errors[0] if error.errors else {}
    near, description = one_line(str(found.get("highlight") or ""), 40), str(found.get("description") or "")
    at = (found.get("line"), found.get("col"))
    index = next((i for i, token in enumerate(tokens) if (token.line, token.col) == at), len(tokens) - 1)
    place = position(text, tokens[index].start)
    is_create = tokens[0].text.upper() == "CREATE"
    other = _find_other_dialect(text, tokens, index)
    if other is not None:
        return other
    if "missing for" in description or "but got" in description or not near:
        return SqlError(f"something is missing after {near or 'this'}", place, "complete the statement")
    if _is_type_place(tokens, index):
        return SqlTypeError(f"there is no type {near}", place, describe_types(near))
    if description.startswith("Expecting"):
        remedy = f"the types are {TYPE_NAMES}" if is_create else "close it"
        return SqlError(f"expected {one_line(description[9:], 20)} at {near}", place, remedy)
    return SqlError(f"{near} is not expected here", place, _SEPARATE)


def _find_other_dialect(text: str, tokens: list[Token], index: int) -> SqlError | None:
    """The error for a construct of another dialect that starts at or before a token."""
    words = [token.text.upper() for token in tokens]
    if words[0] == "CREATE" and len(words) > 1 and words[1] not in _CREATED:
        what = f"CREATE {one_line(words[1], 40)}"
        return SqlError(f"{what} is not supported", position(text, tokens[0].start), TABLE_FORM)
    quoted = (TokenType.STRING, TokenType.IDENTIFIER)
    for start in range(min(index + 1, len(words))):
        for begin, (construct, remedy) in _OTHER_DIALECTS.items():
            if tuple(words[start : start + len(begin)]) == begin and tokens[start].token_type not in quoted:
                named = next(i for i in range(start, len(words)) if words[i] in construct.split())
                return SqlError(f"{construct} is not supported", position(text, tokens[named].start), remedy)
    return None


def _is_type_place(tokens: list[Token], index: int) -> bool:
    """Whether a word stands where a type is expected: after a declared column, or in a cast."""
    if index < 1 or tokens[index].token_type is not TokenType.VAR:
        return False
    before = tokens[index - 1]
    if tokens[0].text.upper() == "CREATE":
        opens = tokens[index - 2].text if index > 1 else ""
        return opens in ("(", ",") and before.token_type in (TokenType.VAR, TokenType.IDENTIFIER)
    return before.text.upper() in ("AS", "::")


def describe_unclosed(text: str) -> SqlError:
    """The error for a string, quoted name or comment that is not closed, at the position where it opens."""
    closed = r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|`(?:``|[^`])*`|/\*.*?\*/|--[^\n]*"
    for found in re.finditer(rf"{closed}|(?P<open>'|\"|`|/\*)", text, re.DOTALL):
        if found["open"]:
            place = position(text, found.start())
            return SqlError(f"a {_QUOTES[found['open']]} starts here and is not closed", place, "close it")
    return SqlError("the text ends in a string, a quoted name or a comment", remedy="close it")
