"""Recognises time windows in analysed plans.

Spark's analyser replaces ``window(ts, …)`` by a struct of arithmetic on microseconds, once for each window
that a row lies in, and ``session_window(ts, gap)`` by a struct of the row's time and the end of the gap.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from millpond.runtime.sql import Dialect
from millpond.spark.plans.nodes import PlanExpression, UnsupportedPlanError
from millpond.spark.plans.sql_text import render_duration

_CONVERSION = "PreciseTimestampConversion"
_UNIT_SIZES = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}


@dataclass(frozen=True)
class TimeWindow:
    """``window(time, …)`` or ``session_window(time, gap)``; ``arguments`` are those after the time."""

    function: str
    time: PlanExpression
    arguments: tuple[str, ...]

    def render(self, time: str) -> str:
        """The call as SQL text, of the time column ``time``."""
        return f"{self.function}({', '.join((time, *map(Dialect.SPARK.string, self.arguments)))})"


def find_time_window(expression: PlanExpression) -> TimeWindow | None:
    """The time window that an expression stands for; None for any other expression.

    Raises UnsupportedPlanError for a session whose gap is computed, which has no SQL.
    """
    node = _strip(expression)
    if node.kind != "CreateNamedStruct" or len(node.children) != 4:
        return None
    names = (node.children[0].value, node.children[2].value)
    start, end = _strip(node.children[1]), _strip(node.children[3])
    if names != ("start", "end") or start.kind != _CONVERSION or end.kind != _CONVERSION:
        return None
    if start.children[0].kind == _CONVERSION:
        return _find_session(start.children[0].children[0], end)
    return _find_window(start, end)


def find_window_time(expression: PlanExpression) -> PlanExpression | None:
    """The window of ``window_time(window)``: the last microsecond of it."""
    if expression.kind != _CONVERSION or expression.children[0].kind != "Subtract":
        return None
    inner = expression.children[0].children[0]
    if inner.kind == _CONVERSION and inner.children[0].kind == "GetStructField":
        return inner.children[0].children[0]
    return None


def is_session_check(expression: PlanExpression) -> bool:
    """Whether a condition is the one that Spark adds to a session with a computed gap: it has to be long."""
    sides = expression.children
    return (
        expression.kind == "GreaterThan"
        and all(each.kind == "GetStructField" for each in sides)
        and sides[0].children[0] == sides[1].children[0]
        and sides[0].children[0].name == "session_window"
    )


def _find_window(start: PlanExpression, end: PlanExpression) -> TimeWindow | None:
    remainder = next((each for each in start.walk() if each.kind == "Remainder"), None)
    total = end.children[0]
    if remainder is None or total.kind != "Add" or remainder.children[0].kind != "Subtract":
        return None
    time, offset = remainder.children[0].children
    numbers = [_read_number(each) for each in (total.children[1], remainder.children[1], offset)]
    if time.kind != _CONVERSION or None in numbers:
        return None
    size, slide, shift = (number or 0 for number in numbers)
    arguments = [render_duration(size)]
    if slide != size or shift:
        arguments.append(render_duration(slide))
    if shift:
        arguments.append(render_duration(shift))
    return TimeWindow("window", time.children[0], tuple(arguments))


def _find_session(time: PlanExpression, end: PlanExpression) -> TimeWindow | None:
    add = next((each for each in end.walk() if each.kind in ("TimestampAddInterval", "TimeAdd")), None)
    if add is None:
        return None
    gap = add.children[1]
    literal = gap.children[0] if gap.kind == "Cast" else gap
    if literal.kind != "Literal" or literal.value is None:
        raise UnsupportedPlanError("a session window with a computed gap")
    microseconds = read_interval(literal)
    if microseconds is None:
        return None
    return TimeWindow("session_window", time, (render_duration(microseconds),))


def read_interval(literal: PlanExpression) -> int | None:
    """The microseconds of a constant interval, or of a text such as '5 minutes'; None for months and years.

    >>> read_interval(PlanExpression("Literal", type="interval hour", value="3600000000"))
    3600000000
    >>> read_interval(PlanExpression("Literal", type="string", value="interval 1 hour 5 minutes"))
    3900000000
    """
    text = (literal.value or "").strip().lower()
    if (literal.type or "").startswith("interval ") and re.fullmatch(r"-?\d+", text):
        return int(text) if not re.search("month|year", literal.type or "") else None
    total, rest = 0.0, text.removeprefix("interval").strip()
    while rest:
        found = re.match(r"'?(-?\d+(?:\.\d+)?)'?\s*([a-z]+)\s*", rest)
        size = _UNIT_SIZES.get(found[2].removesuffix("s")) if found else None
        if found is None or size is None:
            return None
        total += float(found[1]) * size
        rest = rest[found.end() :]
    return round(total) if text else None


def _strip(expression: PlanExpression) -> PlanExpression:
    while expression.kind in ("KnownNullable", "KnownNotNull", "Alias"):
        expression = expression.children[0]
    return expression


def _read_number(expression: PlanExpression) -> int | None:
    while expression.kind == "Cast":
        expression = expression.children[0]
    if expression.kind != "Literal" or not re.fullmatch(r"-?\d+", expression.value or ""):
        return None
    return int(expression.value or "0")
