"""One binary join during one micro-batch: its results, the estimate of what it misses, and what it keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.engines.budgeted.missed_results import (
    AmsSketch,
    MissedEstimate,
    choose_replacements,
    count_equal_pairs,
)
from millpond.engines.budgeted.program import JoinKeyKind, LevelProgram, SideProgram
from millpond.engines.budgeted.tuple_scores import COUNTERS, CandidateTuples, LevelScorer
from millpond.models.array_types import Bools, Floats, Ints
from millpond.runtime.duckdb import DuckDb

# Size of the sample that represents the shed tuples, where the join is not an equality join.
SAMPLE_SIZE = 1024
# What is stored of a tuple besides its columns and its join key: the position in a sliding window, the times
# of its arrival and of its last match, and the number of matches.
_STATISTICS = [("place", pa.float64()), ("came", pa.float64()), ("used", pa.float64()), ("uses", pa.int64())]


@dataclass(frozen=True)
class Arrivals:
    """The rows of a leaf in a batch, in the order of the stream.

    ``rows`` are those of this shard, ``places`` their positions among the ``count`` rows of all shards, and
    ``recent`` the join keys of the last rows of all shards.
    """

    rows: pa.Table
    places: Ints
    count: int
    recent: Ints | Floats


def side_schema(level: LevelProgram, side: SideProgram) -> pa.Schema:
    """The schema of the tuples that are kept of one side of a join."""
    number = pa.float64() if level.kind is JoinKeyKind.BAND else pa.int64()
    return pa.schema([*side.schema, ("v", number), *_STATISTICS])


def is_sampled(level: LevelProgram) -> bool:
    """Whether a sample represents the shed tuples; otherwise an AMS sketch does."""
    return level.kind in (JoinKeyKind.BAND, JoinKeyKind.NOTHING)


class LevelJoin:
    """One binary join of a shard during a batch.

    ``tables`` is the state of the shard, which the join updates; ``known`` holds the statistics of earlier
    batches.
    """

    def __init__(
        self,
        engine: DuckDb,
        level: LevelProgram,
        scorer: LevelScorer,
        shards: int,
        tables: dict[str, pa.Table],
        known: Mapping[str, bytes],
    ) -> None:
        self.level = level
        self._engine = engine
        self._scorer = scorer
        self._tables = tables
        self._sides = (level.left, level.right)
        self._schemas = [side_schema(level, side) for side in self._sides]
        self._shed = [AmsSketch(max(1, COUNTERS // shards)) for _ in self._sides]
        self._clock = 0.0
        self._counts = {"found": 0, "pairs": 0, "left": 0}  # over all batches
        self._shed_counts = [0, 0]
        self.missed = MissedEstimate()  # over all batches
        self.candidates: list[pa.Table] = []
        self._load(known)

    # --- a batch -----------------------------------------------------------------------------------

    def take_results(self, found: pa.Table) -> Arrivals:
        """The results of the level below as arrivals on the left of this one."""
        values = self._join_keys(self.level.left, found)
        count = found.num_rows
        return Arrivals(found, np.arange(count), count, values[-SAMPLE_SIZE:])

    def join(self, left: Arrivals, right: Arrivals, outputs: str) -> pa.Table:
        """Returns the results of the batch, and sets the candidates for keeping."""
        arrivals = (left, right)
        span = float(max(left.count, right.count))
        old = [self._get_stored(side) for side in (0, 1)]
        new = [self._to_tuples(i, each, span) for i, each in enumerate(arrivals)]
        values = [table.column("v").to_numpy() for table in new]
        found = self._find_results(outputs, old, new)
        self._count_results(old, new, found.num_rows)
        self.missed += self._estimate_missed(values, new)
        old = [self._count_uses(table, values[1 - i]) for i, table in enumerate(old)]
        for i, each in enumerate(arrivals):
            positions = new[i].column("place").to_numpy()
            self._scorer.partners[i].observe(values[i], positions, each.recent, each.count)
        self._clock += span
        self.candidates = [pa.concat_tables(pair) for pair in zip(old, new, strict=True)]
        return found

    def _get_stored(self, side: int) -> pa.Table:
        return self._tables.get(self._sides[side].name, self._schemas[side].empty_table())

    def _to_tuples(self, side: int, arrivals: Arrivals, span: float) -> pa.Table:
        """The arrivals as tuples that can be stored; the batch takes ``span`` units of time."""
        rows = arrivals.rows.select(self._sides[side].schema.names)
        count = rows.num_rows
        came = self._clock + (arrivals.places + 1) * (span / max(arrivals.count, 1)) - 1
        program = self._sides[side]
        found = self._engine.query(
            f"SELECT {program.value} AS v, {program.place} AS place FROM rows", {"rows": arrivals.rows}
        )
        columns = [*rows.columns, found.column("v"), found.column("place")]
        stamps = [
            pa.array(came, pa.float64()),
            pa.array(came, pa.float64()),
            pa.array(np.zeros(count, np.int64)),
        ]
        return pa.table([*columns, *stamps], schema=self._schemas[side])

    def _join_keys(self, side: SideProgram, rows: pa.Table) -> Ints | Floats:
        found = self._engine.query(f"SELECT {side.value} AS v FROM rows", {"rows": rows})
        values: Ints | Floats = found.column("v").to_numpy()
        return values

    def _find_results(self, outputs: str, old: Sequence[pa.Table], new: Sequence[pa.Table]) -> pa.Table:
        """The results with at least one new tuple."""
        tables = {
            "left_old": old[0],
            "left_new": new[0],
            "right_new": new[1],
            "right_all": pa.concat_tables([old[1], new[1]]),
        }
        where = self.level.condition
        return self._engine.query(
            f"SELECT {outputs} FROM left_new l, right_all r WHERE {where} "
            f"UNION ALL SELECT {outputs} FROM left_old l, right_new r WHERE {where}",
            tables,
        )

    def _count_uses(self, old: pa.Table, partners: Ints | Floats) -> pa.Table:
        """The stored tuples, with the matches that the join keys ``partners`` bring them."""
        if not self.level.kind.is_equality or not old.num_rows or not len(partners):
            return old
        values, counts = np.unique(partners, return_counts=True)
        own = old.column("v").to_numpy()
        at = np.minimum(np.searchsorted(values, own), len(values) - 1)
        hit = values[at] == own
        used = np.where(hit, self._clock, old.column("used").to_numpy())
        uses = old.column("uses").to_numpy() + np.where(hit, counts[at], 0)
        columns = dict(zip(old.column_names, old.columns, strict=True))
        return pa.table(columns | {"used": pa.array(used), "uses": pa.array(uses)}, schema=old.schema)

    # --- found and missed results -------------------------------------------------------------------

    def _count_results(self, old: Sequence[pa.Table], new: Sequence[pa.Table], found: int) -> None:
        """Count the results, and the pairs of equal join keys, not all of which are results."""
        self._counts["found"] += found
        self._counts["left"] += new[0].num_rows
        if self.level.kind.is_equality and not self.level.exact:
            old_left, old_right, new_left, new_right = (
                table.column("v").to_numpy() for table in (*old, *new)
            )
            self._counts["pairs"] += count_equal_pairs(new_left, np.concatenate([old_right, new_right]))
            self._counts["pairs"] += count_equal_pairs(old_left, new_right)

    @property
    def fan_out(self) -> float:
        """The average number of results, found or missed, of a tuple from the left."""
        found = self._counts["found"] + max(self.missed.value, 0.0)
        return found / self._counts["left"] if self._counts["left"] else 1.0

    def _estimate_missed(self, values: Sequence[Ints | Floats], new: Sequence[pa.Table]) -> MissedEstimate:
        """The results that the arrivals would have had with tuples shed earlier."""
        if is_sampled(self.level):
            return self._estimate_by_sample(0, new[1]) + self._estimate_by_sample(1, new[0])
        pairs = self._shed[0].estimate_pairs(values[1])  # type: ignore[arg-type]
        pairs += self._shed[1].estimate_pairs(values[0])  # type: ignore[arg-type]
        if self.level.exact:
            return pairs
        passing = (self._counts["found"] + 1) / (self._counts["pairs"] + 1)
        return pairs.scale(min(passing, 1.0))

    def _estimate_by_sample(self, side: int, arrived: pa.Table) -> MissedEstimate:
        """The results of the tuples shed on a side with the arrivals on the other, from the sample."""
        sample = self._tables.get(f"{self._sides[side].name}_shed")
        if sample is None or not sample.num_rows or not arrived.num_rows:
            return MissedEstimate()
        weight = self._shed_counts[side] / sample.num_rows
        own, other = ("l", "r") if side == 0 else ("r", "l")
        found = self._engine.query(
            f"SELECT count(*) AS pairs FROM (SELECT row_number() OVER () AS number, * FROM sample) {own}, "
            f"arrived {other} WHERE {self.level.condition} GROUP BY {own}.number",
            {"sample": sample, "arrived": arrived},
        )
        pairs = found.column("pairs").to_numpy().astype(np.float64)
        variance = weight * max(weight - 1, 0.0) * float(np.square(pairs).sum())
        return MissedEstimate(weight * float(pairs.sum()), variance)

    # --- keeping -------------------------------------------------------------------------------------

    def score_candidates(self, rng: np.random.Generator) -> list[Floats]:
        """The scores of the candidates of each side."""
        return [
            self._scorer.score_tuples(
                side,
                CandidateTuples(
                    *(table.column(name).to_numpy() for name in ("v", "place", "came", "used", "uses"))
                ),
                rng,
                self._clock,
            )
            for side, table in enumerate(self.candidates)
        ]

    def scores_by_model(self, side: int, values: Ints) -> Floats | None:
        """The expected benefit of join keys of a side; None where the other side has no model."""
        return self._scorer.scores_by_model(side, values, self._clock)

    def keep(self, chosen: Sequence[Bools], rng: np.random.Generator) -> None:
        """Store the chosen candidates of each side, and shed the others."""
        for side, (table, stays) in enumerate(zip(self.candidates, chosen, strict=True)):
            name = self._sides[side].name
            if stays.all():
                self._tables[name] = table
                continue
            shed = table.filter(pa.array(~stays))
            self._tables[name] = table.filter(pa.array(stays))
            if is_sampled(self.level):
                self._add_to_sample(side, shed, rng)
            else:
                self._shed[side].add(shed.column("v").to_numpy())
            self._shed_counts[side] += shed.num_rows

    def _add_to_sample(self, side: int, shed: pa.Table, rng: np.random.Generator) -> None:
        name = f"{self._sides[side].name}_shed"
        sample = self._tables.get(name, shed.schema.empty_table())
        positions, chosen = choose_replacements(
            rng, SAMPLE_SIZE, self._shed_counts[side], sample.num_rows, shed.num_rows
        )
        size = max(sample.num_rows, int(positions.max()) + 1 if len(positions) else 0)
        source = np.arange(size)
        source[positions] = sample.num_rows + chosen
        self._tables[name] = pa.concat_tables([sample, shed]).take(pa.array(source))

    # --- statistics that are part of the state -------------------------------------------------------

    def statistics(self) -> dict[str, bytes]:
        """The statistics over all batches, by name, for the state."""
        name = self.level.left.name
        missed = [self.missed.value, self.missed.variance]
        counts = {"clock": self._clock, "counts": self._counts, "shed": self._shed_counts, "missed": missed}
        known = {f"{name}/counts": json.dumps(counts).encode()}
        for side, (shed, partner) in enumerate(zip(self._shed, self._scorer.partners, strict=True)):
            known[f"{name}/{side}/shed"] = shed.save()
            known |= {f"{name}/{side}/{key}": data for key, data in partner.state().items()}
        return known

    def _load(self, known: Mapping[str, bytes]) -> None:
        name = self.level.left.name
        if f"{name}/counts" not in known:
            return
        counts = json.loads(known[f"{name}/counts"])
        self._clock, self._counts, self._shed_counts = counts["clock"], counts["counts"], counts["shed"]
        self.missed = MissedEstimate(*counts["missed"])
        for side, (shed, partner) in enumerate(zip(self._shed, self._scorer.partners, strict=True)):
            shed.load(known[f"{name}/{side}/shed"])
            partner.load({key: known[f"{name}/{side}/{key}"] for key in ("known", "frequencies")})
