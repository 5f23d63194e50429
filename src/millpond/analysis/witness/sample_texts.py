"""Sample strings that match a pattern: a regular expression, LIKE, or the format of a time.

Parts of a pattern that match strings of any length become tokens, which differ from key to key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from millpond.analysis.witness.samples import (
    DIGITS,
    LETTERS,
    Constant,
    Parts,
    Sample,
    TimeText,
    TimeValue,
    Token,
)

_ALPHABETS = (LETTERS, DIGITS, LETTERS.upper())
_CLASSES = {"d": r"\d", "w": r"\w", "s": r"\s", "D": r"\D", "W": r"\W", "S": r"\S"}
_QUANTIFIER = re.compile(r"([*+?]|\{(\d+)(,(\d*))?\})[?+]?")
_MOST_REPEATED = 100
# Letters of Spark's formats of times, and those of strftime.
_FORMAT = re.compile(r"'[^']*'|([A-Za-z])\1*|.", re.DOTALL)
_FORMAT_LETTERS = {
    "y": "%Y",
    "u": "%Y",
    "M": "%m",
    "d": "%d",
    "H": "%H",
    "h": "%I",
    "m": "%M",
    "s": "%S",
    "S": "%f",
    "a": "%p",
}


def match_regex(pattern: str) -> Sample | None:
    """Strings in which a regular expression is found; None for constructs that are not known.

    >>> sample = match_regex(r"^/user/(\\d+)\\?ok$")
    >>> sample.make(7, None)
    '/user/100000007?ok'
    """
    try:
        parts, rest = _read_choice(pattern, 0)
    except (LookupError, ValueError, re.error):
        return None
    return Parts(tuple(parts)) if rest == len(pattern) else None


def _read_choice(pattern: str, at: int) -> tuple[list[Sample], int]:
    """The first of some alternatives, and where they end."""
    first: list[Sample] | None = None
    while True:
        parts, at = _read_sequence(pattern, at)
        first = parts if first is None else first
        if at == len(pattern) or pattern[at] != "|":
            return first, at
        at += 1


def _read_sequence(pattern: str, at: int) -> tuple[list[Sample], int]:
    out: list[Sample] = []
    while at < len(pattern) and pattern[at] not in "|)":
        atom, at = _read_atom(pattern, at)
        repeated = _QUANTIFIER.match(pattern, at)
        if repeated is None:
            out += atom.parts if isinstance(atom, Parts) else [_shorten(atom)]
            continue
        at = repeated.end()
        out += _repeat(atom, repeated)
    return out, at


def _repeat(atom: Sample, repeated: re.Match[str]) -> list[Sample]:
    """An atom as often as its quantifier says; a token where it may be long."""
    is_open = repeated[1] in ("*", "+") or (repeated[3] is not None and not repeated[4])
    if isinstance(atom, Token) and is_open:
        return [atom]
    count = int(repeated[2]) if repeated[2] else int(repeated[1] == "+")
    if count > _MOST_REPEATED:
        raise ValueError(repeated[0])
    return [_shorten(atom)] * count


def _shorten(atom: Sample) -> Sample:
    """One character of the alphabet of a token."""
    return Constant(atom.alphabet[0]) if isinstance(atom, Token) else atom


def _read_atom(pattern: str, at: int) -> tuple[Sample, int]:
    """What a regular expression asks for at a position, as a token if it is any character of a class."""
    char = pattern[at]
    if char == "(":
        start = re.compile(r"\((\?:|\?<\w+>|\?i\))?").match(pattern, at)
        assert start is not None
        if start[1] == "?i)":
            return Parts(()), start.end()
        if start[1] is None and pattern[at + 1] == "?":
            raise ValueError("a group that looks ahead")
        parts, end = _read_choice(pattern, start.end())
        if pattern[end] != ")":
            raise ValueError("a group without an end")
        return Parts(tuple(parts)), end + 1
    if char == "[":
        end = pattern.index("]", at + 2)
        return _choose_token(pattern[at : end + 1]), end + 1
    if char == "\\":
        escaped = pattern[at + 1]
        if escaped in "bBAzZ":
            return Parts(()), at + 2
        is_class = escaped in _CLASSES
        if not is_class and escaped.isalnum():
            return Constant({"t": "\t", "n": "\n"}[escaped]), at + 2
        return (_choose_token(_CLASSES[escaped]) if is_class else Constant(escaped)), at + 2
    if char in "^$":
        return Parts(()), at + 1
    return (Token() if char == "." else Constant(char)), at + 1


def _choose_token(characters: str) -> Sample:
    """A token of characters of a class, or one such character."""
    if "[" in characters[1:] or "&&" in characters:  # sets of sets, which Java has
        raise ValueError(characters)
    known = re.compile(characters)
    for alphabet in _ALPHABETS:
        if known.fullmatch(alphabet[0]) and known.fullmatch(alphabet[-1]):
            return Token(alphabet)
    found = next((chr(i) for i in (*range(32, 127), 9) if known.fullmatch(chr(i))), None)
    if found is None:
        raise ValueError(characters)
    return Constant(found)


def match_like(pattern: str) -> Sample:
    """Strings that match a pattern of LIKE.

    >>> match_like("%@mail._").make(1, None)
    'baaaaaaaaaab@mail.a'
    """
    pieces = re.findall(r"\\.|[%_]|[^%_\\]+", pattern)
    return Parts(tuple(map(_match_piece, pieces)))


def _match_piece(piece: str) -> Sample:
    if piece == "%":
        return Token()
    return Constant("a" if piece == "_" else piece.removeprefix("\\"))


def match_time(pattern: str, days: int) -> Sample | None:
    """Strings in one of Spark's formats of times, so many days apart; None for letters that are not known.

    >>> match_time("dd/MM/yyyy HH:mm", 1).make(1, None)
    '02/01/2000 00:00'
    """
    try:
        text = "".join(_translate_letters(pattern))
    except KeyError:
        return None
    return TimeText(TimeValue(days=days), text)


def _translate_letters(pattern: str) -> Iterator[str]:
    for piece in _FORMAT.finditer(pattern):
        if piece[1] is None:
            yield piece[0].strip("'") if len(piece[0]) > 1 else piece[0]
        elif piece[1] == "M" and len(piece[0]) > 2:
            yield "%b" if len(piece[0]) == 3 else "%B"
        else:
            yield _FORMAT_LETTERS[piece[1]] if piece[0] != "yy" else "%y"
