"""Window functions over the rows of a relation, as Spark SQL."""

from __future__ import annotations

from millpond.query.expressions import Literal
from millpond.query.model import WindowFunction
from millpond.query.types import Family
from millpond.runtime.query_sql import frame_sql, sort_key_sql
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
        words.append(f"ORDER BY {', '.join(sort_key_sql(key, _name) for key in function.order_by)}")
    if function.frame is not None:
        words.append(frame_sql(function.frame, order, _write_length))
    return f"{function.function}({', '.join(arguments)}){nulls} OVER ({' '.join(words)})"


def _name(name: str) -> str:
    return Dialect.SPARK.name_of(name)


def _write_length(micros: int) -> str:
    seconds, rest = divmod(micros, _SECOND)
    return f"INTERVAL '{seconds}.{rest:06}' SECOND"
