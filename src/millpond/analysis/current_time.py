"""Decides queries whose conditions name the current time, whose answer changes also when no row arrives.

Such a select is joined with a row of the current time (``query/current_time.py``), so that the criteria for
windows apply: ``at > now() - INTERVAL 1 HOUR`` keeps the rows of the last hour.  If it is bounded, its answer
at a moment is a bounded number of rows.  What other selects make of these can be computed anew at any moment.
"""

from __future__ import annotations

from collections.abc import Sequence

from millpond.analysis.blocks import Decide, add_states
from millpond.analysis.reasons import describe_undetermined
from millpond.analysis.verdict import BOUNDED, UNDETERMINED, Reason, UndeterminedCode, Verdict
from millpond.plan.state import State
from millpond.query.current_time import CLOCK, depends_on_current_time, has_current_time, is_clock
from millpond.query.model import Query, Subquery, Table, Windowed


def decide_at_current_time(query: Query, decide: Decide) -> Verdict:
    """Bounded if each select that reads streams is bounded together with the current time, else undetermined.

    ``decide`` is the verdict on a query with the current time as one of its streams.
    """
    streams = [t for t in query.tables.values() if t.streaming and not is_clock(t)]
    if all(table.block is None for table in streams):
        if not all(map(has_current_time, query.selects)):
            return _build_undetermined(query, {})
        verdict = decide(query)
        if verdict.outcome == BOUNDED:
            return Verdict(BOUNDED, (), _drop_clock(verdict.state), query)
        return _build_undetermined(query, {}, [each.cause or each for each in verdict.reasons])
    blocks: dict[str, Verdict] = {}
    for table in streams:
        base = _find_base(table)
        if not isinstance(base.block, Subquery) or not depends_on_current_time(base.block.query):
            return _build_undetermined(query, blocks)
        blocks[base.name] = decide_at_current_time(base.block.query, decide)
    failed = [reason for verdict in blocks.values() for reason in verdict.reasons]
    if failed:
        return _build_undetermined(query, blocks, [each.cause or each for each in failed])
    return Verdict(BOUNDED, (), add_states(blocks.values()), query, blocks=blocks)


def _drop_clock(state: State) -> State:
    """The state without what is kept of the current time itself."""
    own = [kept for kept in state.streams if kept.stream == CLOCK.name]
    entries, size = state.entries, state.bytes
    for kept in own:
        entries = None if entries is None or kept.entries is None else entries - kept.entries
        size = None if size is None or kept.bytes is None else size - kept.bytes
    windows = [window for window in state.windows if window["stream"] != CLOCK.name]
    return State(entries, size, tuple(kept for kept in state.streams if kept not in own), windows)


def _find_base(table: Table) -> Table:
    """The table below window functions."""
    while isinstance(table.block, Windowed):
        table = table.block.base
    return table


def _build_undetermined(query: Query, blocks: dict[str, Verdict], causes: Sequence[Reason] = ()) -> Verdict:
    """The verdict with the first of the criteria that fail; the others are mostly consequences of it."""
    known = [cause for cause in causes if cause.code != UndeterminedCode.CURRENT_TIME]
    reason = describe_undetermined(UndeterminedCode.CURRENT_TIME, cause=next(iter(known), None))
    about = next((name for name, verdict in blocks.items() if verdict.outcome != BOUNDED), None)
    return Verdict(UNDETERMINED, (reason,), State(None, None), query, blocks=blocks, block=about)
