"""The window functions: what each of them reads of its partition, and how its order can be normalised."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from millpond.query.expressions import Literal
from millpond.query.model import Frame, SortKey, Table, WindowFunction


class FunctionKind(Enum):
    """What a window function reads."""

    RANK = "rank"  # the place of the row in the order: ROW_NUMBER, RANK, DENSE_RANK
    SHARE = "share"  # its place relative to the number of rows: NTILE, PERCENT_RANK, CUME_DIST
    OFFSET = "offset"  # another row, so many rows away: LAG, LEAD
    VALUE = "value"  # one row of the frame: FIRST_VALUE, LAST_VALUE, NTH_VALUE
    AGGREGATE = "aggregate"  # all rows of the frame


@dataclass(frozen=True)
class FunctionSpec:
    """A window function.

    ``summary``: an aggregate that a state of fixed size computes for a frame that only grows.
    """

    kind: FunctionKind
    duckdb: str
    summary: bool = True


def _specs(kind: FunctionKind, *names: str, summary: bool = True) -> dict[str, FunctionSpec]:
    return {name: FunctionSpec(kind, name, summary) for name in names}


# By the name that Spark gives the function.
WINDOW_FUNCTIONS = {
    **_specs(FunctionKind.RANK, "ROW_NUMBER", "RANK", "DENSE_RANK"),
    **_specs(FunctionKind.SHARE, "NTILE", "PERCENT_RANK", "CUME_DIST"),
    **_specs(FunctionKind.OFFSET, "LAG", "LEAD"),
    **_specs(FunctionKind.VALUE, "FIRST_VALUE", "LAST_VALUE", "NTH_VALUE"),
    **_specs(FunctionKind.AGGREGATE, "COUNT", "SUM", "AVG", "MIN", "MAX", "BOOL_AND", "BOOL_OR"),
    "COUNT_IF": FunctionSpec(FunctionKind.AGGREGATE, "COUNT"),
    **_specs(FunctionKind.AGGREGATE, "VAR_SAMP", "VAR_POP", "STDDEV_SAMP", "STDDEV_POP"),
    "MAX_BY": FunctionSpec(FunctionKind.AGGREGATE, "arg_max_null"),  # MAX_BY of DuckDB skips NULLs
    "MIN_BY": FunctionSpec(FunctionKind.AGGREGATE, "arg_min_null"),
    **_specs(FunctionKind.AGGREGATE, "MEDIAN", summary=False),
}
_MIRRORED = {"LAG": "LEAD", "LEAD": "LAG", "FIRST_VALUE": "LAST_VALUE", "LAST_VALUE": "FIRST_VALUE"}


def find_kind(function: WindowFunction) -> FunctionKind:
    """What the function reads."""
    return WINDOW_FUNCTIONS[function.function].kind


def find_offset(function: WindowFunction) -> int:
    """How many rows away the row is that LAG, LEAD or NTH_VALUE reads."""
    offset = function.arguments[1] if len(function.arguments) > 1 else Literal(1, None)
    assert isinstance(offset, Literal) and isinstance(offset.value, int)
    return offset.value


def is_ordered_by_time(function: WindowFunction, base: Table) -> bool:
    """Whether the first key of the order is the time column, in either direction."""
    return bool(function.order_by) and base.time is not None and function.order_by[0].column == base.time


def is_earlier_time(function: WindowFunction, base: Table) -> bool:
    """Whether the value is the timestamp of an earlier row of the partition, or NULL if there is none."""
    mirrored = mirror_to_ascending(function) if is_ordered_by_time(function, base) else None
    if mirrored is None or mirrored.function != "LAG" or len(mirrored.arguments) > 2:
        return False
    return mirrored.arguments[0] == base.time and not function.ignore_nulls


def reads_no_earlier_row(function: WindowFunction, other: WindowFunction) -> bool:
    """Whether LAG reads a row that is not before the one that another LAG of the same window reads."""
    if (function.partition_by, function.order_by) != (other.partition_by, other.order_by):
        return False
    mirrored = [mirror_to_ascending(each) for each in (function, other)]
    if any(each is None or each.function != "LAG" or each.ignore_nulls for each in mirrored):
        return False
    return find_offset(function) <= find_offset(other)


def mirror_to_ascending(function: WindowFunction) -> WindowFunction | None:
    """The same function with its order reversed, if the order is descending; None if there is none.

    Ranks and shares from the end, and NTH_VALUE, count in the direction of the order.
    """
    if not function.order_by or not function.order_by[0].descending:
        return function
    if find_kind(function) in (FunctionKind.RANK, FunctionKind.SHARE) or function.function == "NTH_VALUE":
        return None
    keys = tuple(SortKey(k.column, not k.descending, not k.nulls_first) for k in function.order_by)
    frame = function.frame
    if frame is not None:
        start = None if frame.end is None else -frame.end
        end = None if frame.start is None else -frame.start
        frame = Frame(frame.unit, start, end)
    name = _MIRRORED.get(function.function, function.function)
    return replace(function, function=name, order_by=keys, frame=frame)
