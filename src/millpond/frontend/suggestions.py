"""Finds the known name that is nearest to one that is not: of a function, a type or a property."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache

from sqlglot.dialects.spark import Spark

_LONGEST = 80  # characters; comparing longer words takes long, and none is known


def suggest_name(word: str, known: Iterable[str]) -> str | None:
    """A question for the name that the user may have meant; None if none is similar.

    >>> suggest_name("watermrk", ["time", "watermark"])
    'did you mean watermark?'
    """
    names = {name.upper(): name for name in known if name.upper() != word.upper()}
    close = get_close_matches(word.upper()[:_LONGEST], names, n=1, cutoff=0.75)
    return f"did you mean {names[close[0]]}?" if close else None


def suggest_function(word: str) -> str | None:
    """The same for functions.

    >>> suggest_function("windw"), suggest_function("my_function")
    ('did you mean WINDOW?', None)
    """
    return suggest_name(word, _function_names())


@cache
def _function_names() -> tuple[str, ...]:
    return (*Spark.Parser.FUNCTIONS, "WINDOW", "SESSION_WINDOW")
