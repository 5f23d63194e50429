"""Runs one micro-batch on a budget: all of its rows join, then only the tuples with the best scores are kept.

The state of a shard is a set of tables: the tuples of each side of each level, the rows of DISTINCT, the
groups, and what was learned about the streams.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod

import numpy as np
import pyarrow as pa

from millpond.engines.budgeted.bloom_filter import create_bloom_filter
from millpond.engines.budgeted.distinct_and_groups import (
    DistinctRows,
    HeldGroups,
    LostRows,
    held_groups_schema,
)
from millpond.engines.budgeted.level_join import Arrivals, LevelJoin, is_sampled, sample_schema, side_schema
from millpond.engines.budgeted.missed_results import MissedEstimate, estimate_from_expectation
from millpond.engines.budgeted.program import BudgetedProgram, BudgetedTermProgram, LeafProgram, SelectProgram
from millpond.engines.budgeted.shard_budgets import ShardBudgets
from millpond.engines.budgeted.tuple_scores import LevelScorer
from millpond.models.array_types import Bools, Floats, Ints
from millpond.policies.registry import PolicyChoice
from millpond.runtime.duckdb import DuckDb

# The largest part of a budget that the DISTINCT rows and groups of a join may take.
RESULTS_PART = 0.5
# The table of stream statistics, and the names of its entries with the budgets of the shards and with what
# DISTINCT and GROUP BY lost.
LEARNED, SHARD_BUDGETS, LOST_ROWS = "learned", "market", "lost"
_DIGESTED_ROWS = 20
_LEARNED_SCHEMA = pa.schema([("name", pa.string()), ("data", pa.binary())])


@dataclass(frozen=True, eq=False)
class TaskRows:
    """The rows of a leaf that one task read for a shard.

    ``places`` are their positions among the ``count`` rows of the task, ``recent`` the task's last join keys.
    """

    rows: pa.Table
    places: Ints
    count: int
    recent: Ints | Floats


def state_schemas(program: BudgetedProgram) -> dict[str, pa.Schema]:
    """The schemas of the tables of a shard's state."""
    schemas: dict[str, pa.Schema] = {}
    for level in (level for select in program.selects for level in select.levels):
        for side in (level.left, level.right):
            schemas[side.name] = side_schema(level, side)
            if is_sampled(level):
                schemas[f"{side.name}_shed"] = sample_schema(level, side)
    for number, term in enumerate(program.terms):
        if term.set_schema is not None:
            schemas[f"t{number}"] = term.set_schema
        if term.groups is not None:
            schemas[f"t{number}"] = held_groups_schema(term.groups)
    schemas[LEARNED] = _LEARNED_SCHEMA
    return schemas


class ShardBatch:
    """One shard during one micro-batch."""

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
        self._seed = (batch, shard)
        self._rng = np.random.default_rng(self._seed)
        # Samples of shed tuples must not depend on the choice of what is shed, nor be alike in all queries.
        self._sampling = self._rng
        self._tables = dict(tables)
        learned = self._tables.pop(LEARNED, _LEARNED_SCHEMA.empty_table()).to_pydict()
        self._known: dict[str, bytes] = dict(zip(learned["name"], learned["data"], strict=True))
        self._budgets = ShardBudgets(program.memory, program.shards, len(program.leaves))
        self._budgets.load(self._known.get(SHARD_BUDGETS, b""))
        self._budget = int(self._budgets.tuples[shard])
        self._arrived = 0
        self._levels = [
            [self._create_join(select, number) for number in range(len(select.levels))]
            for select in program.selects
        ]
        self._held = {
            f"t{number}": held
            for number, term in enumerate(program.terms)
            if (held := self._create_result_store(f"t{number}", term)) is not None
        }
        self.shed = 0
        lost = json.loads(self._known.get(LOST_ROWS, b"{}"))
        self._lost_rows = LostRows(**lost)  # over all batches

    def _create_join(self, select: SelectProgram, number: int) -> LevelJoin:
        models = self._choice.models
        left = models.get(select.leaves[0].stream) if number == 0 else None
        right = models.get(select.leaves[number + 1].stream)
        level, program = select.levels[number], self._program
        scorer = LevelScorer(level, self._choice, (left, right), program.memory, program.shards)
        return LevelJoin(self._engine, level, scorer, program.shards, self._tables, self._known)

    def _create_result_store(self, name: str, term: BudgetedTermProgram) -> DistinctRows | HeldGroups | None:
        """The rows or groups of a term that are held; None for a term without DISTINCT and aggregates."""
        bloom_filter = create_bloom_filter(self._program.memory, self._program.shards)
        bloom_filter.load(self._known.get(name, b""))
        held = self._tables.get(name)
        if held is None and self._known and (schema := state_schemas(self._program).get(name)) is not None:
            held = schema.empty_table()  # not the first batch: an earlier one left no rows
        if term.groups is not None:
            return HeldGroups(self._engine, term.groups, held, bloom_filter)
        if term.set_schema is not None:
            return DistinctRows(self._engine, term.set_schema, held, bloom_filter)
        return None

    # --- a batch -----------------------------------------------------------------------------------

    def run(self, arrivals: Mapping[str, Arrivals]) -> Iterator[pa.Table]:
        """Run the batch.  Result tables have the columns ``o0 …``, ``w`` (the weight) and ``retracted``."""
        self._arrived = sum(each.count for each in arrivals.values())
        self._sampling = np.random.default_rng([*self._seed, _digest(arrivals.values())])
        levels = iter(self._levels)
        for number, term in enumerate(self._program.terms):
            matches = [self._find_matches(select, next(levels), arrivals) for select in term.selects]
            held = self._held.get(f"t{number}")
            if isinstance(held, HeldGroups):
                rows = held.add(matches[0], self._room_for_held(), self._batch, self._program.names)
            elif isinstance(held, DistinctRows):
                rows = held.add(matches, self._room_for_held())
            else:
                rows = matches[0]
            yield _add_weights(rows)
        for name, held in self._held.items():
            self._tables[name] = held.held
            self.shed += held.shed
            self._lost_rows += held.counted
        self._shed_tuples()

    def _find_matches(
        self, select: SelectProgram, levels: Sequence[LevelJoin], arrivals: Mapping[str, Arrivals]
    ) -> pa.Table:
        left = arrivals[select.leaves[0].name]
        if not levels:
            return self._engine.query(f"SELECT {select.outputs} FROM rows l", {"rows": left.rows})
        for number, join in enumerate(levels):
            right = arrivals[select.leaves[number + 1].name]
            last = number == len(levels) - 1
            outputs = select.outputs if last else levels[number + 1].level.left.columns
            found = join.join(left, right, outputs)
            if not last:
                left = levels[number + 1].take_results(found)
        return found

    @property
    def shards(self) -> int:
        return self._program.shards

    @property
    def has_interval(self) -> bool:
        """Whether the limits of the estimate are known: the fan-out of further levels has no known error."""
        return all(len(levels) <= 1 for levels in self._levels)

    @property
    def found(self) -> int:
        """The matches found over all batches; those of the last level of each join."""
        if not any(self._levels):
            return self._lost_rows.found
        return sum(levels[-1].found for levels in self._levels if levels)

    @property
    def missed(self) -> MissedEstimate:
        """The estimated number of matches missed over all batches, and rows lost by DISTINCT and GROUP BY.

        What a level misses is multiplied by the fan-out of the levels above.
        """
        found = estimate_from_expectation(self._lost_rows.lost, self._lost_rows.variance)
        for levels in self._levels:
            for number, join in enumerate(levels):
                found += join.missed.scale(_fan_out(levels[number + 1 :]))
        return found

    def _room_for_held(self) -> int:
        """The number of rows or groups that each term may hold."""
        part = RESULTS_PART if any(self._levels) else 1.0
        return int(self._budget * part) // len(self._held)

    # --- shedding ----------------------------------------------------------------------------------

    def _shed_tuples(self) -> None:
        """Keep the tuples with the best scores; those of all sides of all levels compete."""
        joins = [join for levels in self._levels for join in levels]
        room = self._budget - sum(held.held.num_rows for held in self._held.values())
        candidates = [table for join in joins for table in join.candidates]
        total = sum(table.num_rows for table in candidates)
        if total <= room:
            stays = np.ones(total, bool)
        else:
            # HEEB scores are expected matches, so they are scaled to final results; other scores
            # are not counts.
            scores = [
                each * (_fan_out(levels[number + 1 :]) if self._choice.expects else 1.0)
                for levels in self._levels
                for number, join in enumerate(levels)
                for each in join.score_candidates(self._rng)
            ]
            came = [table.column("came").to_numpy() for table in candidates]
            stays = choose_best(np.concatenate(scores), np.concatenate(came), room)
            self.shed += total - room
        parts = np.split(stays, np.cumsum([table.num_rows for table in candidates])[:-1])
        for number, join in enumerate(joins):
            join.keep(parts[2 * number : 2 * number + 2], self._sampling)

    def rebalance(self, samples: Sequence[tuple[int, pa.Table]]) -> None:
        """Divide the budget among the shards for the next batch, by samples of the join keys."""
        if self._program.shards > 1 and any(self._levels):
            self._budgets.observe(samples, self._arrived)
            self._budgets.rebalance(self._scores_by_model)

    def _scores_by_model(self, leaf: int, values: Ints) -> Floats | None:
        """The expected benefit of join keys of a leaf; None where the other side has no model."""
        for select, levels in zip(self._program.selects, self._levels, strict=True):
            if leaf < len(select.leaves):
                join, side = levels[max(0, leaf - 1)], min(leaf, 1)
                return join.scores_by_model(side, values)
            leaf -= len(select.leaves)
        raise IndexError(leaf)

    # --- the state after the batch -----------------------------------------------------------------

    @property
    def entries(self) -> int:
        """The number of tuples, rows and groups in the state."""
        return sum(table.num_rows for name, table in self._tables.items() if not name.endswith("_shed"))

    def state(self) -> dict[str, pa.Table]:
        """The tables of the state, by name."""
        lost = json.dumps(asdict(self._lost_rows)).encode()
        known: dict[str, bytes] = {SHARD_BUDGETS: self._budgets.save(), LOST_ROWS: lost}
        for join in (join for levels in self._levels for join in levels):
            known |= join.statistics()
        known |= {name: held.filter.save() for name, held in self._held.items()}
        columns = {"name": list(known), "data": list(known.values())}
        return {**self._tables, LEARNED: pa.table(columns, schema=_LEARNED_SCHEMA)}


def choose_best(scores: Floats, came: Floats, room: int) -> Bools:
    """The ``room`` tuples with the highest scores; of equal ones, those that came last."""
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
    """The arrivals of a leaf from the rows of several tasks, given in the order of the stream."""
    tables, places = [leaf.schema.empty_table()], [np.empty(0, np.int64)]
    recent: Ints | Floats = np.empty(0, np.int64)
    count = 0
    for part in parts:
        tables.append(part.rows)
        places.append(part.places + count)
        recent = part.recent if len(part.recent) < part.count else np.concatenate([recent, part.recent])
        count += part.count
    return Arrivals(pa.concat_tables(tables), np.concatenate(places), count, recent)


def _digest(arrivals: Iterable[Arrivals]) -> int:
    """A number that depends on some rows of a batch, and is the same if the batch is repeated."""
    rows = [each.rows.slice(0, _DIGESTED_ROWS).to_pylist() for each in arrivals]
    return zlib.crc32(repr(rows).encode())


def _fan_out(levels: Sequence[LevelJoin]) -> float:
    """The average number of final results of a tuple that enters these levels."""
    return prod(level.fan_out for level in levels)


def _add_weights(rows: pa.Table) -> pa.Table:
    """The rows with weight 1, and with ``retracted``, which is false unless they have it."""
    rows = rows.append_column("w", pa.array(np.ones(rows.num_rows, np.int64)))
    if "retracted" not in rows.column_names:
        rows = rows.append_column("retracted", pa.array(np.zeros(rows.num_rows, bool)))
    return rows
