"""Window functions over the rows of a relation, as Spark SQL."""

from __future__ import annotations

from millpond.query.expressions import Literal
from millpond.query.model import Frame, FrameUnit, SortKey, WindowFunction
from millpond.query.types import Family
from millpond.runtime.sql import Dialect, literal_sql

_SECOND = 1_000_000


def spark_window_sql(function: WindowFunction, order: Family | None) -> str:
    """A window function over columns of a frame; ``order`` is the type of its first sort key."""
    arguments = [
        literal_sql(each.value, each.type, Dialect.SPARK) if isinstance(each, Literal) else _name(each)
        for each in function.arguments
    ]
    if function.function == "COUNT" and not arguments:
        arguments = ["*"]
    nulls = " IGNORE NULLS" if function.ignore_nulls else ""
    words = []
    if function.partition_by:
        words.append(f"PARTITION BY {', '.join(map(_name, function.partition_by))}")
    if function.order_by:
        words.append(f"ORDER BY {', '.join(map(_sort_key, function.order_by))}")
    if function.frame is not None:
        words.append(_frame(function.frame, order))
    return f"{function.function}({', '.join(arguments)}){nulls} OVER ({' '.join(words)})"


def _name(name: str) -> str:
    return Dialect.SPARK.name_of(name)


def _sort_key(key: SortKey) -> str:
    direction = "DESC" if key.descending else "ASC"
    return f"{_name(key.column)} {direction} NULLS {'FIRST' if key.nulls_first else 'LAST'}"


def _frame(frame: Frame, order: Family | None) -> str:
    def edge(distance: int | None, unbounded: str) -> str:
        if distance is None:
            return f"UNBOUNDED {unbounded}"
        if distance == 0:
            return "CURRENT ROW"
        in_time = frame.unit is FrameUnit.RANGE and order is Family.TIME
        seconds, rest = divmod(abs(distance), _SECOND)
        shown = f"INTERVAL '{seconds}.{rest:06}' SECOND" if in_time else str(abs(distance))
        return f"{shown} {'PRECEDING' if distance < 0 else 'FOLLOWING'}"

    start, end = edge(frame.start, "PRECEDING"), edge(frame.end, "FOLLOWING")
    return f"{frame.unit.value} BETWEEN {start} AND {end}"
