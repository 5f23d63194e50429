"""One binary join on its way through a batch: what it finds, what it misses, and what it could keep."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.engines.budgeted.missed_results import (
    AmsSketch,
    MissedEstimate,
    count_equal_pairs,
    update_reservoir,
)
from millpond.engines.budgeted.program import JoinKeyKind, LevelProgram, SideProgram
from millpond.engines.budgeted.tuple_scores import COUNTERS, CandidateTuples, LevelScorer
from millpond.models.arrays import Bools, Floats, Ints
from millpond.runtime.duckdb import DuckDb

# The tuples of what was shed that stand for all of it, where the condition is more than equal values.
SAMPLE = 1024
# What is known of a tuple besides its columns and its value: where it stands in a sliding window, when it
# came and was last used, how often.
_TAIL = [("place", pa.float64()), ("came", pa.float64()), ("used", pa.float64()), ("uses", pa.int64())]


@dataclass(frozen=True)
class Arrivals:
    """The rows of a leaf in a batch, in the order of the stream.

    ``rows`` are those of this shard, ``places`` their places among the ``count`` of the whole stream, and
    ``recent`` the values of its last ones.
    """

    rows: pa.Table
    places: Ints
    count: int
    recent: Ints | Floats


def side_schema(level: LevelProgram, side: SideProgram) -> pa.Schema:
    number = pa.float64() if level.kind is JoinKeyKind.BAND else pa.int64()
    return pa.schema([*side.schema, ("v", number), *_TAIL])


def is_sampled(level: LevelProgram) -> bool:
    """What was shed is known by a sample of it."""
    return level.kind in (JoinKeyKind.BAND, JoinKeyKind.NOTHING)


class LevelJoin:
    """One binary join on its way through a batch."""

    def __init__(
        self,
        engine: DuckDb,
        level: LevelProgram,
        worth: LevelScorer,
        shards: int,
        tables: dict[str, pa.Table],
        known: Mapping[str, bytes],
    ) -> None:
        self.level = level
        self._engine = engine
        self._worth = worth
        self._tables = tables
        self._sides = (level.left, level.right)
        self._schemas = [side_schema(level, side) for side in self._sides]
        self._shed = [AmsSketch(max(1, COUNTERS // shards)) for _ in self._sides]
        self._clock = 0.0
        self._counts = {"found": 0, "pairs": 0, "left": 0}
        self._shed_counts = [0, 0]
        self.missed = MissedEstimate()  # in all
        self.candidates: list[pa.Table] = []
        self._load(known)

    # --- a batch -----------------------------------------------------------------------------------

    def valued(self, found: pa.Table) -> Arrivals:
        """Results of the level below as arrivals of this one."""
        values = self._values(self.level.left, found)
        count = found.num_rows
        return Arrivals(found, np.arange(count), count, values[-SAMPLE:])

    def joined(self, left: Arrivals, right: Arrivals, outputs: str) -> pa.Table:
        """The results of the batch, and the candidates for keeping."""
        arrivals = (left, right)
        span = float(max(left.count, right.count))
        old = [self._kept(side) for side in (0, 1)]
        new = [self._entered(i, each, span) for i, each in enumerate(arrivals)]
        values = [table.column("v").to_numpy() for table in new]
        found = self._pairs(outputs, old, new)
        self._count(old, new, found.num_rows)
        self.missed += self._estimated(values, new)
        old = [self._used(i, table, values[1 - i]) for i, table in enumerate(old)]
        for i, each in enumerate(arrivals):
            places = new[i].column("place").to_numpy()
            self._worth.partners[i].observe(values[i], places, each.recent, each.count)
        self._clock += span
        self.candidates = [pa.concat_tables(pair) for pair in zip(old, new, strict=True)]
        return found

    def _kept(self, side: int) -> pa.Table:
        return self._tables.get(self._sides[side].name, self._schemas[side].empty_table())

    def _entered(self, side: int, arrivals: Arrivals, span: float) -> pa.Table:
        """New rows as tuples that may be kept."""
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

    def _values(self, side: SideProgram, rows: pa.Table) -> Ints | Floats:
        found = self._engine.query(f"SELECT {side.value} AS v FROM rows", {"rows": rows})
        values: Ints | Floats = found.column("v").to_numpy()
        return values

    def _pairs(self, outputs: str, old: Sequence[pa.Table], new: Sequence[pa.Table]) -> pa.Table:
        """Results with at least one new tuple."""
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

    def _used(self, side: int, old: pa.Table, partners: Ints | Floats) -> pa.Table:
        """Kept tuples, with the uses that equal values give them."""
        if (
            self.level.kind not in (JoinKeyKind.NUMBER, JoinKeyKind.HASH)
            or not old.num_rows
            or not len(partners)
        ):
            return old
        values, counts = np.unique(partners, return_counts=True)
        own = old.column("v").to_numpy()
        at = np.minimum(np.searchsorted(values, own), len(values) - 1)
        hit = values[at] == own
        used = np.where(hit, self._clock, old.column("used").to_numpy())
        uses = old.column("uses").to_numpy() + np.where(hit, counts[at], 0)
        columns = dict(zip(old.column_names, old.columns, strict=True))
        return pa.table(columns | {"used": pa.array(used), "uses": pa.array(uses)}, schema=old.schema)

    # --- what it found and missed -------------------------------------------------------------------

    def _count(self, old: Sequence[pa.Table], new: Sequence[pa.Table], found: int) -> None:
        self._counts["found"] += found
        self._counts["left"] += new[0].num_rows
        if self.level.kind in (JoinKeyKind.NUMBER, JoinKeyKind.HASH) and not self.level.exact:
            one, other, before, after = (
                table.column("v").to_numpy() for table in (new[0], new[1], old[0], old[1])
            )
            self._counts["pairs"] += count_equal_pairs(
                one, np.concatenate([after, other])
            ) + count_equal_pairs(before, other)

    @property
    def fan_out(self) -> float:
        """Results that a tuple from the level below has, those that are missed too."""
        found = self._counts["found"] + max(self.missed.value, 0.0)
        return found / self._counts["left"] if self._counts["left"] else 1.0

    def _estimated(self, values: Sequence[Ints | Floats], new: Sequence[pa.Table]) -> MissedEstimate:
        if is_sampled(self.level):
            return self._sampled_pairs(0, new[1]) + self._sampled_pairs(1, new[0])
        pairs = self._shed[0].pairs(values[1]) + self._shed[1].pairs(values[0])  # type: ignore[arg-type]
        if self.level.exact:
            return pairs
        passing = (self._counts["found"] + 1) / (self._counts["pairs"] + 1)
        return pairs.times(min(passing, 1.0))

    def _sampled_pairs(self, side: int, arrived: pa.Table) -> MissedEstimate:
        """The pairs of what was shed on a side with what arrived on the other, as the sample has them."""
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

    def scores(self, rng: np.random.Generator) -> list[Floats]:
        return [
            self._worth.scores(
                side,
                CandidateTuples(
                    *(table.column(name).to_numpy() for name in ("v", "place", "came", "used", "uses"))
                ),
                rng,
                self._clock,
            )
            for side, table in enumerate(self.candidates)
        ]

    def expected(self, side: int, values: Ints) -> Floats | None:
        """The partners that values of a side can expect by a model; None without one."""
        return self._worth.modelled(side, values, self._clock)

    def keep(self, stays: Sequence[Bools], rng: np.random.Generator) -> None:
        for side, (table, chosen) in enumerate(zip(self.candidates, stays, strict=True)):
            name = self._sides[side].name
            if chosen.all():
                self._tables[name] = table
                continue
            gone = table.filter(pa.array(~chosen))
            self._tables[name] = table.filter(pa.array(chosen))
            if is_sampled(self.level):
                self._sample(side, gone, rng)
            else:
                self._shed[side].add(gone.column("v").to_numpy())
            self._shed_counts[side] += gone.num_rows

    def _sample(self, side: int, gone: pa.Table, rng: np.random.Generator) -> None:
        name = f"{self._sides[side].name}_shed"
        sample = self._tables.get(name, gone.schema.empty_table())
        places, chosen = update_reservoir(
            rng, SAMPLE, self._shed_counts[side], sample.num_rows, gone.num_rows
        )
        size = max(sample.num_rows, int(places.max()) + 1 if len(places) else 0)
        source = np.arange(size)
        source[places] = sample.num_rows + chosen
        self._tables[name] = pa.concat_tables([sample, gone]).take(pa.array(source))

    # --- what was learned ----------------------------------------------------------------------------

    def learned(self) -> dict[str, bytes]:
        name = self.level.left.name
        missed = [self.missed.value, self.missed.variance]
        counts = {"clock": self._clock, "counts": self._counts, "shed": self._shed_counts, "missed": missed}
        known = {f"{name}/counts": json.dumps(counts).encode()}
        for side, (shed, partner) in enumerate(zip(self._shed, self._worth.partners, strict=True)):
            known[f"{name}/{side}/shed"] = shed.state()
            known |= {f"{name}/{side}/{key}": data for key, data in partner.state().items()}
        return known

    def _load(self, known: Mapping[str, bytes]) -> None:
        name = self.level.left.name
        if f"{name}/counts" not in known:
            return
        counts = json.loads(known[f"{name}/counts"])
        self._clock, self._counts, self._shed_counts = counts["clock"], counts["counts"], counts["shed"]
        self.missed = MissedEstimate(*counts["missed"])
        for side, (shed, partner) in enumerate(zip(self._shed, self._worth.partners, strict=True)):
            shed.load(known[f"{name}/{side}/shed"])
            partner.load({key: known[f"{name}/{side}/{key}"] for key in ("known", "frequencies")})
