"""The one place that chooses the engine of a query: the first entry of ``ENGINES`` that accepts it.

| engine        | takes                                                    | state                           |
|---------------|----------------------------------------------------------|---------------------------------|
| lookup        | streams joined with relations that stay in a database    | none; workers cache rows        |
| budgeted      | queries that are not bounded, with ``--memory N``        | at most N tuples                |
| projection    | bounded: rows of one block, each by itself               | that of the block               |
| finite        | bounded: finitely many rows of blocks that change        | these rows, and the answer      |
| stream-static | bounded: rows of one stream, joined with relations       | none                            |
| native        | bounded: windows, sessions, DISTINCT over one stream     | Spark's own, until they close   |
| over          | bounded: window functions over one stream                | reorder buffer, last rows, sums |
| timed         | bounded: conditions on application time, or relations    | reorder buffer, partial matches |
| exact         | all other bounded queries                                | synopses                        |

A new engine is one more entry: a class with ``accepts`` and ``build`` (see ``job.Engine``), placed before the
engines that would accept its queries, too.
"""

from __future__ import annotations

from millpond.errors import MillpondError
from millpond.plan.computed_aggregates import explain_uncomputed
from millpond.spark.budgeted import BudgetedEngine
from millpond.spark.exact import ExactEngine
from millpond.spark.finite import FiniteEngine
from millpond.spark.job import Engine, Job
from millpond.spark.lookup import LookupEngine
from millpond.spark.native_windows import NativeEngine
from millpond.spark.over import OverEngine
from millpond.spark.projection import ProjectionEngine
from millpond.spark.stream_static import StreamStaticEngine
from millpond.spark.timed import TimedEngine

ENGINES: tuple[Engine, ...] = (
    LookupEngine(),
    BudgetedEngine(),
    ProjectionEngine(),
    FiniteEngine(),
    StreamStaticEngine(),
    NativeEngine(),
    OverEngine(),
    TimedEngine(),
    ExactEngine(),
)


def choose_engine(job: Job) -> Engine:
    """The first engine that accepts the job.

    Raises MillpondError if none can write updates of sessions or of the rows of blocks, or computes an
    aggregate.
    """
    if job.updates and ProjectionEngine().accepts(job):
        raise MillpondError(
            "the rows of a subquery cannot be written whenever they change (updates)",
            remedy="leave the option out; then each row is written once, when it is final",
        )
    if job.updates and any(select.session is not None for select in job.query.selects):
        raise MillpondError(
            "a session cannot be written whenever it changes (updates)",
            remedy="leave the option out; then each session is written once, when it ends",
        )
    engine = next(engine for engine in ENGINES if engine.accepts(job))
    has_own_state = isinstance(engine, TimedEngine | ExactEngine)
    for each in (job, *job.blocks.values()) if has_own_state else ():
        plan = each.verdict.timed or each.verdict.plan
        uncomputed = None if plan is None else explain_uncomputed(plan)
        if uncomputed is not None:
            raise MillpondError(uncomputed)
    return engine


def holds_rows_back(engine: Engine, job: Job) -> bool:
    """Whether rows wait in the engine of a job or in a block that it reads, until the input ends."""
    blocks = job.blocks.values()
    return engine.holds_rows_back or any(holds_rows_back(choose_engine(block), block) for block in blocks)
