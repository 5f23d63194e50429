"""One batch under a budget: everything in it may join, then only the best tuples are kept.

The state of a shard is a few tables: the tuples of each side of each level, the rows of sets, the groups; and
what was learned.  ``Work`` takes it through a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import numpy as np
import pyarrow as pa

from millpond.engines.budgeted.bloom_filter import create_bloom_filter
from millpond.engines.budgeted.distinct_and_groups import DistinctRows, HeldGroups, held_groups_schema
from millpond.engines.budgeted.level_join import Arrivals, LevelJoin, is_sampled, side_schema
from millpond.engines.budgeted.missed_results import MissedEstimate
from millpond.engines.budgeted.program import BudgetedProgram, BudgetedTermProgram, LeafProgram, SelectProgram
from millpond.engines.budgeted.shard_budgets import ShardBudgets
from millpond.engines.budgeted.tuple_scores import LevelScorer
from millpond.models.arrays import Bools, Floats, Ints
from millpond.policies.registry import PolicyChoice
from millpond.runtime.duckdb import DuckDb

# At most this part of the budget is for rows of sets and for groups on top of a join.
ON_TOP = 0.5
LEARNED, MARKET = "learned", "market"
_LEARNED_SCHEMA = pa.schema([("name", pa.string()), ("data", pa.binary())])
# Rows of a task on their way: the rows, their places in the task, their number, and the last values.
TaskRows = tuple[pa.Table, Ints, int, Ints | Floats]


def state_schemas(program: BudgetedProgram) -> dict[str, pa.Schema]:
    """The tables of a shard's state."""
    shapes: dict[str, pa.Schema] = {}
    for level in (level for select in program.selects for level in select.levels):
        for side in (level.left, level.right):
            shapes[side.name] = side_schema(level, side)
            if is_sampled(level):
                shapes[f"{side.name}_shed"] = side_schema(level, side)
    for number, term in enumerate(program.terms):
        if term.set_schema is not None:
            shapes[f"t{number}"] = term.set_schema
        if term.groups is not None:
            shapes[f"t{number}"] = held_groups_schema(term.groups)
    shapes[LEARNED] = _LEARNED_SCHEMA
    return shapes


class ShardBatch:
    """The state of one shard on its way through a batch."""

    def __init__(
        self,
        engine: DuckDb,
        program: BudgetedProgram,
        choice: PolicyChoice,
        shard: int,
        tables: Mapping[str, pa.Table],
        batch: int,
    ) -> None:
        self._engine = engine
        self._program = program
        self._choice = choice
        self._batch = batch
        self._rng = np.random.default_rng([batch, shard])
        self._tables = dict(tables)
        learned = self._tables.pop(LEARNED, _LEARNED_SCHEMA.empty_table()).to_pydict()
        self._known: dict[str, bytes] = dict(zip(learned["name"], learned["data"], strict=True))
        self._market = ShardBudgets(program.memory, program.shards, len(program.leaves))
        self._market.load(self._known.get(MARKET, b""))
        self._share = int(self._market.shares[shard])
        self._arrived = 0
        self._levels = [
            [self._level(select, number) for number in range(len(select.levels))]
            for select in program.selects
        ]
        self._tops = {
            f"t{number}": top
            for number, term in enumerate(program.terms)
            if (top := self._top(f"t{number}", term)) is not None
        }
        self.shed = 0
        self._missed_before = self._missed_in_joins()
        self._missed_on_top = MissedEstimate()

    def _level(self, select: SelectProgram, number: int) -> LevelJoin:
        models = self._choice.models
        left = models.get(select.leaves[0].stream) if number == 0 else None
        right = models.get(select.leaves[number + 1].stream)
        level, program = select.levels[number], self._program
        worth = LevelScorer(level, self._choice, (left, right), program.memory, program.shards)
        return LevelJoin(self._engine, level, worth, program.shards, self._tables, self._known)

    def _top(self, name: str, term: BudgetedTermProgram) -> DistinctRows | HeldGroups | None:
        filter_ = create_bloom_filter(self._program.memory, self._program.shards)
        filter_.load(self._known.get(name, b""))
        held = self._tables.get(name)
        if held is None and self._known and (schema := state_schemas(self._program).get(name)) is not None:
            held = schema.empty_table()  # a batch has been, and left nothing
        if term.groups is not None:
            return HeldGroups(self._engine, term.groups, held, filter_)
        if term.set_schema is not None:
            return DistinctRows(self._engine, term.set_schema, held, filter_)
        return None

    # --- a batch -----------------------------------------------------------------------------------

    def results(self, arrivals: Mapping[str, Arrivals]) -> Iterator[pa.Table]:
        """What the batch adds: columns ``o0 …``, ``w`` and ``retracted``."""
        self._arrived = sum(each.count for each in arrivals.values())
        levels = iter(self._levels)
        for number, term in enumerate(self._program.terms):
            matches = [self._matches(select, next(levels), arrivals) for select in term.selects]
            top = self._tops.get(f"t{number}")
            if isinstance(top, HeldGroups):
                yield _weighed(top.taken(matches[0], self._room_on_top(), self._batch, self._program.names))
            elif isinstance(top, DistinctRows):
                yield _weighed(top.taken(matches, self._room_on_top()))
            else:
                yield _weighed(matches[0])
        for name, top in self._tops.items():
            self._tables[name] = top.held
            self.shed += top.shed
            self._missed_on_top += top.missed
        self._shrink()

    def _matches(
        self, select: SelectProgram, levels: Sequence[LevelJoin], arrivals: Mapping[str, Arrivals]
    ) -> pa.Table:
        left = arrivals[select.leaves[0].name]
        if not levels:
            return self._engine.query(f"SELECT {select.outputs} FROM rows l", {"rows": left.rows})
        for number, work in enumerate(levels):
            right = arrivals[select.leaves[number + 1].name]
            last = number == len(levels) - 1
            outputs = select.outputs if last else levels[number + 1].level.left.columns
            found = work.joined(left, right, outputs)
            if not last:
                left = levels[number + 1].valued(found)
        return found

    @property
    def missed(self) -> MissedEstimate:
        """What the batch missed, as far as can be told now."""
        now, before = self._missed_in_joins(), self._missed_before
        return self._missed_on_top + MissedEstimate(now.value - before.value, now.variance - before.variance)

    def _missed_in_joins(self) -> MissedEstimate:
        """In all: what a level misses would have met partners in the levels above."""
        found = MissedEstimate()
        for levels in self._levels:
            for number, work in enumerate(levels):
                found += work.missed.times(_fan_out(levels[number + 1 :]))
        return found

    def _room_on_top(self) -> int:
        part = ON_TOP if any(self._levels) else 1.0
        return int(self._share * part) // len(self._tops)

    # --- keeping -----------------------------------------------------------------------------------

    def _shrink(self) -> None:
        """Keep the best tuples of all sides together."""
        works = [work for levels in self._levels for work in levels]
        room = self._share - sum(top.held.num_rows for top in self._tops.values())
        candidates = [table for work in works for table in work.candidates]
        total = sum(table.num_rows for table in candidates)
        if total <= room:
            stays = np.ones(total, bool)
        else:
            # What is expected of a tuple are final results; other scores are no numbers of results.
            scores = [
                each * (_fan_out(levels[number + 1 :]) if self._choice.expects else 1.0)
                for levels in self._levels
                for number, work in enumerate(levels)
                for each in work.scores(self._rng)
            ]
            came = [table.column("came").to_numpy() for table in candidates]
            stays = choose_best(np.concatenate(scores), np.concatenate(came), room)
            self.shed += total - room
        parts = np.split(stays, np.cumsum([table.num_rows for table in candidates])[:-1])
        for number, work in enumerate(works):
            work.keep(parts[2 * number : 2 * number + 2], self._rng)

    def share_out(self, samples: Sequence[tuple[int, pa.Table]]) -> None:
        """Share the budget out anew for the next batch, by samples of the keys of its leaves."""
        if self._program.shards > 1 and any(self._levels):
            self._market.observe(samples, self._arrived)
            self._market.settle(self._expected)

    def _expected(self, leaf: int, values: Ints) -> Floats | None:
        """The partners that keys of a leaf can expect by the model of the other side, where there is one."""
        for select, levels in zip(self._program.selects, self._levels, strict=True):
            if leaf < len(select.leaves):
                work, side = levels[max(0, leaf - 1)], min(leaf, 1)
                return work.expected(side, values)
            leaf -= len(select.leaves)
        raise IndexError(leaf)

    # --- the state after the batch -----------------------------------------------------------------

    @property
    def entries(self) -> int:
        """Tuples, rows and groups that are held."""
        return sum(table.num_rows for name, table in self._tables.items() if not name.endswith("_shed"))

    def state(self) -> dict[str, pa.Table]:
        known: dict[str, bytes] = {MARKET: self._market.state()}
        for work in (work for levels in self._levels for work in levels):
            known |= work.learned()
        known |= {name: top.filter.state() for name, top in self._tops.items()}
        columns = {"name": list(known), "data": list(known.values())}
        return {**self._tables, LEARNED: pa.table(columns, schema=_LEARNED_SCHEMA)}


def choose_best(scores: Floats, came: Floats, room: int) -> Bools:
    """The highest scores; of equal ones those that came last."""
    stays = np.zeros(len(scores), bool)
    if room <= 0:
        return stays
    least = np.partition(scores, len(scores) - room)[len(scores) - room]
    stays[scores > least] = True
    equal = np.flatnonzero(scores == least)
    wanted = room - int(stays.sum())
    stays[equal[np.argsort(came[equal], kind="stable")[len(equal) - wanted :]]] = True
    return stays


def merge_task_rows(leaf: LeafProgram, parts: Sequence[TaskRows]) -> Arrivals:
    """The rows of a leaf from those of several tasks, given in the order of the stream."""
    tables, places = [leaf.schema.empty_table()], [np.empty(0, np.int64)]
    recent: Ints | Floats = np.empty(0, np.int64)
    count = 0
    for rows, indices, total, last in parts:
        tables.append(rows)
        places.append(indices + count)
        recent = last if len(last) < total else np.concatenate([recent, last])
        count += total
    return Arrivals(pa.concat_tables(tables), np.concatenate(places), count, recent)


def _fan_out(levels: Sequence[LevelJoin]) -> float:
    """Results for a tuple that goes up to these levels."""
    return prod(level.fan_out for level in levels)


def _weighed(rows: pa.Table) -> pa.Table:
    """Rows as they leave: each once, and taken back only if they say so."""
    rows = rows.append_column("w", pa.array(np.ones(rows.num_rows, np.int64)))
    if "retracted" not in rows.column_names:
        rows = rows.append_column("retracted", pa.array(np.zeros(rows.num_rows, bool)))
    return rows
