"""The options of a run.  Imports no Spark."""

from __future__ import annotations

from dataclasses import dataclass

OUTPUT_FORMATS = ("json", "parquet", "csv", "orc")


@dataclass(frozen=True)
class RunOptions:
    """How to run a query: the options of ``millpond run``.

    ``memory`` is the number of tuples that a query without a bound may keep, and ``policy`` chooses them; for
    lookup relations, the number of rows to cache.  ``updates``: groups that close are written whenever they
    change, not only when they close.
    """

    output: str
    once: bool = False
    format: str = "json"
    metrics: str | None = None
    checkpoint: str | None = None
    master: str | None = None
    strict: bool = False
    memory: int | None = None
    policy: str | None = None
    updates: bool = False
