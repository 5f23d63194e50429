"""Millpond decides whether a streaming SQL query needs bounded memory, and runs it on Spark."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from millpond.analysis.verdict import Reason, Verdict
    from millpond.errors import (
        MillpondError,
        NotBoundedError,
        NotUnboundedError,
        RunError,
        SqlError,
        UsageError,
        WitnessSizeError,
    )
    from millpond.plan.state import Kept, KeptColumn, State
    from millpond.policies.registry import PolicyChoice
    from millpond.spark.watch import StateWarning, StateWatch

__all__ = [
    "Kept",
    "KeptColumn",
    "MillpondError",
    "NotBoundedError",
    "NotUnboundedError",
    "PolicyChoice",
    "Reason",
    "RunError",
    "SqlError",
    "State",
    "UsageError",
    "Verdict",
    "WitnessSizeError",
    "check",
    "lookup",
    "sql",
    "watch",
]
__version__ = "0.1.0"

# The modules of the public names.  They are imported at the first use: Spark's Python workers import this
# package as well, and need none of them.
_MODULES = {
    "Kept": "plan.state",
    "KeptColumn": "plan.state",
    "MillpondError": "errors",
    "NotBoundedError": "errors",
    "NotUnboundedError": "errors",
    "PolicyChoice": "policies.registry",
    "Reason": "analysis.verdict",
    "RunError": "errors",
    "SqlError": "errors",
    "State": "plan.state",
    "UsageError": "errors",
    "Verdict": "analysis.verdict",
    "WitnessSizeError": "errors",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def check(query: str | DataFrame, output_mode: str = "append") -> Verdict | list[Verdict]:
    """Decide every query of a text, or the query of a streaming DataFrame.

    A text with several queries gets a list of verdicts.  The verdict on a DataFrame is that of the same query
    as SQL; ``output_mode``, in which it is to run, matters for what Spark itself keeps (``spark_state``).

    >>> clicks = "CREATE STREAMING TABLE clicks (ad INT, bid INT);"
    >>> check(clicks + "SELECT ad, COUNT(*) FROM clicks WHERE ad BETWEEN 1 AND 9 GROUP BY ad").outcome
    'bounded'
    """
    from millpond.errors import UsageError

    if isinstance(query, str) and query.strip().lower().endswith(".sql") and len(query.split()) == 1:
        message = f"{query.strip()!r} is the name of a file, not SQL text"
        raise UsageError(message, remedy="read the file first: millpond.check(Path(…).read_text())")
    if isinstance(query, str):
        from millpond.analysis.decide import check as check_text

        return check_text(query)
    if type(query).__module__.startswith("pyspark."):
        from millpond.spark.plans.check import check_frame

        return check_frame(query, output_mode)
    message = f"the query must be SQL text or a streaming DataFrame, not {type(query).__name__}"
    is_path = hasattr(query, "__fspath__")
    raise UsageError(message, remedy="read the file first: path.read_text()" if is_path else None)


def sql(
    spark: SparkSession,
    query: str,
    memory: int | None = None,
    policy: str | PolicyChoice | None = None,
    updates: bool = False,
) -> DataFrame:
    """The exact answer to a bounded query over the session's temporary views, as a streaming DataFrame.

    A query that is not bounded keeps at most ``memory`` tuples, which ``policy`` chooses: its rows are
    correct, but some may be missing.  For lookup relations, ``memory`` is the number of rows to cache.  A
    group of a time window is emitted once, when it closes; with ``updates``, whenever it changes.  Needs
    Spark, which ``check`` does not.
    """
    from millpond.spark.sql import answer_query

    return answer_query(spark, query, memory, policy, updates)


def watch(spark: SparkSession, callback: Callable[[StateWarning], object] | None = None) -> StateWatch:
    """Warn of queries of the session whose state passes its bound or keeps growing.

    A warning goes to the logger ``millpond`` and, if it is given, to ``callback``, once for each run of a
    query.  Queries may have been started before or after.  ``stop()`` ends the watch.
    """
    from millpond.errors import require
    from millpond.spark.caller_session import check_session
    from millpond.spark.watch import StateWatch

    require(callback is None or callable(callback), "callback", "a function", callback)
    return StateWatch(check_session(spark), callback)


def lookup(
    spark: SparkSession,
    name: str,
    *,
    url: str,
    dbtable: str,
    memory: int | None = None,
    policy: str | None = None,
    ttl: str | None = None,
    timeout: str | None = None,
    retries: int | None = None,
) -> None:
    """Register a table of a database as a lookup relation, of which ``memory`` rows are cached.

    Queries of the session can use it under ``name``, with the columns of the table.  ``ttl`` and ``timeout``
    are durations such as '10 minutes'.
    """
    from millpond.spark.sql import register_lookup

    register_lookup(spark, name, url, dbtable, memory, policy, ttl, timeout, retries)
