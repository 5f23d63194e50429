"""One micro-batch of a shard: advances the state by the rows that the watermark has passed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from millpond.engines.timed.execute import BatchChange, advance, find_last_closing
from millpond.engines.timed.program import TimedProgram
from millpond.engines.timed.reorder_buffer import Release
from millpond.engines.timed.state import ShardState
from millpond.runtime.duckdb import DuckDb


def advance_state(
    db: DuckDb, program: TimedProgram, state: ShardState, release: Release
) -> Iterator[BatchChange]:
    """Advance a state to the clock of a release; yields what changes, when ``state`` has its new revision.

    The state is stored when all changes have been taken.
    """
    clock = release.clock
    closes = program.closes and clock.watermark > state.clock.watermark
    if release.released or not state.revision or closes:
        matches = state.load_matches()
        change = advance(db, program, matches, release.released, release.recent, clock.watermark)
        state.store_matches(change.state)
        yield change
        last = find_last_closing(program, change.state) if release.has_ended else None
        if last is not None:  # a later run may continue, but not change the groups that are written
            clock = replace(clock, watermark=max(last, clock.watermark))
            change = advance(db, program, change.state, {}, {}, clock.watermark)
            state.store_matches(change.state)
            yield change
    state.store_header(clock)
