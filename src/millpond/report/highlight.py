"""SQL as HTML: words, strings, numbers and comments in colour, and pieces of the text marked.

It reads tokens only, so any text can be highlighted, also one that does not parse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

_WORDS = """
ALL AND ANTI ANY AS ASC BETWEEN BY CASE CAST CHECK CREATE CROSS CURRENT DATE DESC DISTINCT ELSE END
EXCEPT EXISTS FALSE FILTER FIRST FOLLOWING FROM FULL GROUP HAVING IN INNER INTERSECT INTERVAL IS
JOIN LAST LATERAL LEFT LIKE LIMIT NATURAL NOT NULL NULLS ON OPTIONS OR ORDER OUTER OVER
PARTITION PRECEDING QUALIFY RANGE REPLACE RIGHT RLIKE ROW ROWS SELECT SEMI STREAMING TABLE
TBLPROPERTIES TEMPORARY THEN TRUE UNBOUNDED UNION USING VIEW WHEN WHERE WINDOW WITH
BIGINT BOOLEAN DECIMAL DOUBLE FLOAT INT SMALLINT STRING TIMESTAMP TINYINT
"""
_KEYWORDS = frozenset(_WORDS.split())
# Keywords that are names of functions before a parenthesis.
_FUNCTIONS = frozenset({"DATE", "FIRST", "LAST", "LEFT", "REPLACE", "RIGHT", "WINDOW"})
_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))
    |(?P<string>'(?:[^'\\]|\\.|'')*'?|"(?:[^"\\]|\\.)*"?)
    |(?P<quoted>`[^`]*`?)
    |(?P<number>\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\w*)
    |(?P<word>(?<!\.)\b[^\W\d]\w*)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Mark:
    """A piece of a text, ``[start, end)``, to be shown in an element of HTML with a class."""

    start: int
    end: int
    element: str = "mark"
    css: str = ""


def highlight(text: str, marks: Iterable[Mark] = ()) -> Markup:
    """The text as HTML, with its tokens in ``<span>`` and the marked pieces in the elements of the marks.

    Marks that overlap an earlier one are left out.

    >>> print(highlight("SELECT a", [Mark(7, 8)]))
    <span class="keyword">SELECT</span> <mark>a</mark>
    """
    tokens = list(_list_tokens(text))
    out, at = [], 0
    for mark in _drop_overlaps(marks, len(text)):
        out.append(_render(text, at, mark.start, tokens))
        css = f' class="{mark.css}"' if mark.css else ""
        inside = _render(text, mark.start, mark.end, tokens)
        out.append(Markup(f"<{mark.element}{css}>") + inside + Markup(f"</{mark.element}>"))
        at = mark.end
    out.append(_render(text, at, len(text), tokens))
    return Markup("").join(out)


def _drop_overlaps(marks: Iterable[Mark], length: int) -> Iterator[Mark]:
    end = 0
    for mark in sorted(marks, key=lambda each: (each.start, -each.end)):
        if end <= mark.start < mark.end <= length:
            yield mark
            end = mark.end


def _list_tokens(text: str) -> Iterator[tuple[int, int, str]]:
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup or ""
        if kind == "word":
            word = found[0].upper()
            is_call = word in _FUNCTIONS and text.startswith("(", found.end())
            kind = "keyword" if word in _KEYWORDS and not is_call else ""
        if kind and kind != "quoted":
            yield found.start(), found.end(), kind


def _render(text: str, start: int, end: int, tokens: Sequence[tuple[int, int, str]]) -> Markup:
    out, at = [], start
    for first, last, kind in tokens:
        first, last = max(first, start), min(last, end)
        if first >= last:
            continue
        out += [escape(text[at:first]), Markup('<span class="{}">{}</span>').format(kind, text[first:last])]
        at = last
    return Markup("").join([*out, escape(text[at:end])])
