"""Names of derived columns: the expression as text, with a mark where the text is not enough.

Spark and DuckDB ignore the case of names, so expressions whose strings differ only in case need names that
differ in more.  The mark is a digest of the expression.  Messages leave it out.
"""

from __future__ import annotations

import re
from hashlib import sha256

_MARK = re.compile(r" #[0-9a-f]{6}$")


def mark_name(name: str, expression: str) -> str:
    """The name with the mark of an expression.

    >>> mark_name("upper(a) = 'X'", "upper(`a`) = 'X'")
    "upper(a) = 'X' #6c4c15"
    """
    return f"{name} #{sha256(expression.encode()).hexdigest()[:6]}"


def strip_mark(name: str) -> str:
    """The name as messages show it.

    >>> strip_mark("upper(a) = 'X' #6c4c15"), strip_mark("a")
    ("upper(a) = 'X'", 'a')
    """
    return _MARK.sub("", name)
