"""Millpond: can this continuous query run in bounded memory?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.analysis.decide import check
from millpond.analysis.verdict import Reason, Verdict
from millpond.errors import MillpondError, NotUnboundedError, SqlError, WitnessSizeError
from millpond.plan.state import Kept, KeptColumn, State

__all__ = [
    "Kept",
    "KeptColumn",
    "MillpondError",
    "NotUnboundedError",
    "Reason",
    "SqlError",
    "State",
    "Verdict",
    "WitnessSizeError",
    "check",
    "lookup",
    "sql",
]
__version__ = "0.1.0"

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from millpond.policies.registry import PolicyChoice


def sql(
    spark: SparkSession, query: str, memory: int | None = None, policy: str | PolicyChoice | None = None
) -> DataFrame:
    """The exact answer of a bounded query over the session's temporary views, as a streaming DataFrame.

    A query that is not bounded runs with at most ``memory`` tuples, kept by the ``policy``: its rows are true
    ones, but some may be missed.  Of a relation in a database, so many rows are kept.  Needs Spark;
    everything else in this package does not.
    """
    from millpond.spark.sql import sql as streaming_answer

    return streaming_answer(spark, query, memory, policy)


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
    """Let queries of the session look rows up in a table of a database, ``memory`` of them being kept.

    Its columns are those of the table.  ``ttl`` and ``timeout`` are lengths of time: '10 minutes'.
    """
    from millpond.spark.sql import lookup as registered

    registered(spark, name, url, dbtable, memory, policy, ttl, timeout, retries)
