"""One binary join during one micro-batch: its results, the estimate of what it misses, and what it keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millpond.engines.budgeted.missed_results import MissedEstimate
from millpond.engines.budgeted.program import JoinKeyKind, LevelProgram, SideProgram
from millpond.engines.budgeted.shed_keys import SKETCHES, ShedKeys, estimate_pairs
from millpond.engines.budgeted.shed_sample import (
    SAMPLE_COLUMNS,
    SampleMoments,
    count_matches,
    start_sample,
    thin_sample,
)
from millpond.engines.budgeted.tuple_scores import CandidateTuples, LevelScorer
from millpond.models.array_types import Bools, Floats, Ints
from millpond.runtime.duckdb import DuckDb

# Tuples in the sample that represents the tuples shed on a side, with and without an equality.
EQUALITY_SAMPLE, OTHER_SAMPLE = 4096, 1024
# The join keys that the results of a level are recorded with for the models of the level above.
RECENT_KEYS = 1024
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


def sample_schema(level: LevelProgram, side: SideProgram) -> pa.Schema:
    """The schema of the sample of the tuples shed on one side of a join."""
    return pa.schema([*side_schema(level, side), *SAMPLE_COLUMNS])


def is_sampled(level: LevelProgram) -> bool:
    """Whether a sample represents the shed tuples; otherwise their join keys say which pairs are missed."""
    return not (level.kind.is_equality and level.exact)


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
        self._shed_keys = [ShedKeys(shards) for _ in self._sides]
        self._clock = 0.0
        # Over all batches: the results found and the tuples from the left; estimates of the missed pairs, one
        # for each sketch; moments of the estimate from samples.
        self._counts = {"found": 0, "left": 0}
        self._missed_pairs = np.zeros(SKETCHES)
        self._missed_in_sample = SampleMoments()
        self.candidates: list[pa.Table] = []
        self._load(known)

    # --- a batch -----------------------------------------------------------------------------------

    def take_results(self, found: pa.Table) -> Arrivals:
        """The results of the level below as arrivals on the left of this one."""
        values = self._join_keys(self.level.left, found)
        count = found.num_rows
        return Arrivals(found, np.arange(count), count, values[-RECENT_KEYS:])

    def join(self, left: Arrivals, right: Arrivals, outputs: str) -> pa.Table:
        """Returns the results of the batch, and sets the candidates for keeping."""
        arrivals = (left, right)
        span = float(max(left.count, right.count))
        old = [self._get_stored(side) for side in (0, 1)]
        new = [self._to_tuples(i, each, span) for i, each in enumerate(arrivals)]
        values = [table.column("v").to_numpy() for table in new]
        found = self._find_results(outputs, old, new)
        self._counts["found"] += found.num_rows
        self._counts["left"] += new[0].num_rows
        self._count_missed(values, new)
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

    @property
    def found(self) -> int:
        """The number of results over all batches."""
        return self._counts["found"]

    @property
    def missed(self) -> MissedEstimate:
        """The results that tuples shed earlier would have had, over all batches."""
        if not is_sampled(self.level):
            return estimate_pairs(self._missed_pairs)
        samples = [self._tables.get(_sample_name(side)) for side in self._sides]
        weights = [
            pc.mean(sample.column("weight")).as_py() or 0.0 for sample in samples if sample is not None
        ]
        return self._missed_in_sample.estimate(max(weights, default=0.0))

    @property
    def fan_out(self) -> float:
        """The average number of results, found or missed, of a tuple from the left."""
        found = self._counts["found"] + max(self.missed.value, 0.0)
        return found / self._counts["left"] if self._counts["left"] else 1.0

    def _count_missed(self, values: Sequence[Ints | Floats], new: Sequence[pa.Table]) -> None:
        """Count the results that the arrivals would have had with tuples shed earlier."""
        for side in (0, 1):
            if is_sampled(self.level):
                self._count_missed_in_sample(side, new[1 - side])
            else:
                self._missed_pairs += self._shed_keys[side].count_pairs(values[1 - side])  # type: ignore[arg-type]

    def _count_missed_in_sample(self, side: int, arrived: pa.Table) -> None:
        """Count the results of the sampled tuples of a side with the arrivals on the other."""
        name = _sample_name(self._sides[side])
        sample = self._tables.get(name)
        if sample is None or not sample.num_rows or not arrived.num_rows:
            return
        own, other = ("l", "r") if side == 0 else ("r", "l")
        found = self._engine.query(
            f"SELECT {own}.number AS number, count(*) AS matches FROM sample {own}, arrived {other} "
            f"WHERE {self.level.condition} GROUP BY {own}.number",
            {
                "sample": sample.append_column("number", pa.array(np.arange(sample.num_rows))),
                "arrived": arrived,
            },
        )
        matches = np.zeros(sample.num_rows)
        matches[found.column("number").to_numpy()] = found.column("matches").to_numpy()
        added, self._tables[name] = count_matches(sample, matches)
        self._missed_in_sample += added

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
                self._shed_keys[side].add(shed.column("v").to_numpy())

    def _add_to_sample(self, side: int, shed: pa.Table, rng: np.random.Generator) -> None:
        name = _sample_name(self._sides[side])
        schema = sample_schema(self.level, self._sides[side])
        sample = start_sample(shed, schema)
        if name in self._tables:
            sample = pa.concat_tables([self._tables[name], sample])
        size = EQUALITY_SAMPLE if self.level.kind.is_equality else OTHER_SAMPLE
        if sample.num_rows > size:
            values, places = (sample.column(each).to_numpy() for each in ("v", "place"))
            sample = thin_sample(sample, self._scorer.match_rates(side, values, places), size, rng)
        self._tables[name] = sample

    # --- statistics that are part of the state -------------------------------------------------------

    def statistics(self) -> dict[str, bytes]:
        """The statistics over all batches, by name, for the state."""
        name = self.level.left.name
        counts = {
            "clock": self._clock,
            "counts": self._counts,
            "missed pairs": self._missed_pairs.tolist(),
            "missed in sample": asdict(self._missed_in_sample),
        }
        known = {f"{name}/counts": json.dumps(counts).encode()}
        for side, (shed, partner) in enumerate(zip(self._shed_keys, self._scorer.partners, strict=True)):
            known[f"{name}/{side}/shed"] = shed.save()
            known |= {f"{name}/{side}/{key}": data for key, data in partner.state().items()}
        return known

    def _load(self, known: Mapping[str, bytes]) -> None:
        name = self.level.left.name
        if f"{name}/counts" not in known:
            return
        counts = json.loads(known[f"{name}/counts"])
        self._clock, self._counts = counts["clock"], counts["counts"]
        self._missed_pairs = np.array(counts["missed pairs"])
        self._missed_in_sample = SampleMoments(**counts["missed in sample"])
        for side, (shed, partner) in enumerate(zip(self._shed_keys, self._scorer.partners, strict=True)):
            shed.load(known[f"{name}/{side}/shed"])
            partner.load({key: known[f"{name}/{side}/{key}"] for key in ("known", "frequencies")})


def _sample_name(side: SideProgram) -> str:
    """The name of the table with the sample of the tuples shed on a side."""
    return f"{side.name}_shed"
