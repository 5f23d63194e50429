"""A query that is about to run, and the protocol of the engines that run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from millpond.analysis.verdict import Verdict
from millpond.engines.lookup.plan import LookupPlan
from millpond.query.model import Query
from millpond.spark.admission import Allowance, Budget
from millpond.spark.answer import AnswerFrame
from millpond.spark.sources.opened import OpenSource


class RejectedRows(Enum):
    """What becomes of malformed and late rows if Spark's own operators run the query; others emit them."""

    EMIT = "emit"  # with the results; the source is scanned twice
    FAIL = "fail"  # the query fails, and is started again with EMIT
    DROP = "drop"


@dataclass(frozen=True)
class Job:
    """A query with its verdict, the memory it may use, and its opened tables (all but lookup relations).

    ``end_of_input`` is a stream on which a row means that no more input will come; it contains the latest
    timestamp, if Spark knows it.  Only engines that hold rows back read it.  ``updates``: groups that close
    are written whenever they change.  ``blocks`` are the jobs of the tables that are subqueries, by name.
    ``inner_relations`` are the open tables that subqueries of relations read.
    """

    spark: SparkSession
    verdict: Verdict
    allowance: Allowance
    sources: Mapping[str, OpenSource]
    end_of_input: DataFrame | None = None
    updates: bool = False
    rejected: RejectedRows = RejectedRows.DROP
    blocks: Mapping[str, Job] = field(default_factory=dict)
    inner_relations: Mapping[str, OpenSource] = field(default_factory=dict)

    @property
    def query(self) -> Query:
        return self.verdict.query

    def with_end_of_input(self, end_of_input: DataFrame) -> Job:
        """The job, and the jobs of its blocks, with the stream that announces the end of the input."""
        blocks = {name: block.with_end_of_input(end_of_input) for name, block in self.blocks.items()}
        return replace(self, end_of_input=end_of_input, blocks=blocks)

    def with_rejected(self, rejected: RejectedRows) -> Job:
        """The job, and the jobs of its blocks, which treat rejected rows as given."""
        blocks = {name: block.with_rejected(rejected) for name, block in self.blocks.items()}
        return replace(self, rejected=rejected, blocks=blocks)

    @property
    def every_source(self) -> dict[str, OpenSource]:
        """The open tables of the job and of its blocks, each with the rejected rows if they come with it."""
        declared = self.query.declared_tables
        found = {n: s for n, s in self.sources.items() if n in declared}
        found |= {n: s for n, s in self.inner_relations.items() if n not in found or s.rejects}
        for block in self.blocks.values():
            found |= {n: s for n, s in block.every_source.items() if n not in found or s.rejects}
        return found

    @property
    def budget(self) -> Budget | None:
        return self.allowance.budget

    @property
    def lookups(self) -> LookupPlan:
        """The lookups in relations that stay in their databases; empty if there are none."""
        return self.allowance.lookups

    @property
    def time_zone(self) -> str:
        return self.spark.conf.get("spark.sql.session.timeZone") or "UTC"


class Engine(Protocol):
    """Runs one kind of query.

    An engine that ``holds_rows_back`` (until the watermark passes them) needs to know when the input ends.
    """

    holds_rows_back: bool

    def accepts(self, job: Job) -> bool:
        """Whether this engine runs the job, if no engine before it in the table does."""

    def build(self, job: Job) -> AnswerFrame:
        """The answer as a streaming DataFrame."""
