"""REHEARSE for joining: try several scores on streams drawn from the models, and use the best.

HEEB needs an estimate of how long tuples stay (alpha); a wrong one costs up to a sixth of the results.  How
long they stay depends on what else arrives, which the models predict, so REHEARSE simulates it.  It tries
HEEB with a range of alphas, and the *surplus* of a tuple at a price: a place in memory costs ``price`` per
step, a tuple earns its expected results and is evicted when that pays best.  This is the Lagrangian of the
memory constraint; at the right price as many tuples want a place as there are places.  All of these rank
dominating tuples first, as Theorem 3 demands.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import numpy as np

from millpond.models.array_types import Floats, Ints
from millpond.models.models import Model
from millpond.models.score_tables import ScoreTable, best_rate, build_table, build_tables, heeb_table, surplus
from millpond.policies.kernels.join_loop import run_join
from millpond.policies.kernels.kinds import JoinScore
from millpond.policies.kernels.score_lookup import AlignedTables, align_tables

ALPHAS = (0.2, 0.3, 0.5, 0.8, 1.2, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 40.0, 80.0)
# Prices, relative to the highest average benefit of any tuple.
PRICES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
# The largest tables for which scores other than HEEB's are tried.
MOST_ROWS = 250
MOST_VALUES = 20_000
# By how many standard errors a score must beat HEEB as published.
CLEARLY = 3.0
# Added to the seed, so that a rehearsal never draws the streams of the experiment itself.
REHEARSAL_SEED = 0x5EED
# How many steps a score other than HEEB's looks ahead.
AHEAD = 100


@dataclass(frozen=True, eq=False)
class JoinTables:
    """The tables of one score: for tuples of R and for tuples of S."""

    name: str
    of_r: ScoreTable
    of_s: ScoreTable

    def align(self, r: Ints, s: Ints) -> tuple[AlignedTables, AlignedTables]:
        """The tables aligned with two streams."""
        return align_tables((self.of_r,), s), align_tables((self.of_s,), r)


def heeb_join_tables(r: Model, s: Model, alpha: float) -> JoinTables:
    """HEEB with the given alpha."""
    return JoinTables(f"heeb alpha={alpha:.3g}", heeb_table(s, alpha), heeb_table(r, alpha))


def build_alternatives(r: Model, s: Model, alpha: float) -> list[JoinTables]:
    """HEEB as published, then its competitors: other alphas and, if values range narrowly, other scores."""
    alphas = [heeb_join_tables(r, s, other) for other in (alpha, *ALPHAS)]
    return [*alphas, *_build_other_scores(r, s)] if _is_narrow(r) and _is_narrow(s) else alphas


def _is_narrow(model: Model) -> bool:
    """Whether tables of scores other than HEEB's can be built quickly."""
    low, high = model.reach(AHEAD)
    return model.rows <= MOST_ROWS and high - low <= MOST_VALUES


@lru_cache(maxsize=16)
def _build_other_scores(r: Model, s: Model) -> tuple[JoinTables, ...]:
    """Cached, because they depend on the models but not on the memory size."""
    rates = [build_table(model, best_rate, AHEAD) for model in (s, r)]
    highest = max(float(table.scores.max()) for table in rates)
    prices = [share * highest for share in PRICES]
    valuations = [surplus(price) for price in prices]
    of_r, of_s = (build_tables(model, valuations, AHEAD) for model in (s, r))
    priced = zip(prices, of_r, of_s, strict=True)
    surpluses = (JoinTables(f"surplus price={price:.3g}", *tables) for price, *tables in priced)
    return JoinTables("rate", *rates), *surpluses


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """The tables chosen, and the average results of all that were tried, HEEB as published first."""

    chosen: JoinTables
    results: dict[str, float]


def rehearse(
    r: Model, s: Model, size: int, alpha: float, runs: int = 24, steps: int = 2000, seed: int = 1
) -> Rehearsal:
    """Choose the tables that find most on streams drawn from the models.

    After a quarter of the runs only the eight best continue.  HEEB as published is chosen unless it is beaten
    by three standard errors of the difference on the same streams; the best of many alternatives is ahead by
    two through chance alone.
    """
    tried = build_alternatives(r, s, alpha)
    streams = []
    for run in range(runs):
        rng = np.random.default_rng([seed, run, REHEARSAL_SEED])
        streams.append((r.sample(rng, steps), s.sample(rng, steps)))
    warm_up = min(4 * size, steps // 2)

    def play(tables: JoinTables, chosen: list[tuple[Ints, Ints]]) -> Floats:
        runs = (run_join(*pair, size, JoinScore.TABLE, tables.align(*pair)) for pair in chosen)
        return np.array([run.total(warm_up) for run in runs], np.float64)

    heats = max(2, runs // 4)
    first = [play(tables, streams[:heats]) for tables in tried]
    order = sorted(range(1, len(tried)), key=lambda i: -first[i].mean())[:8]
    final = {i: np.concatenate([first[i], play(tried[i], streams[heats:])]) for i in (0, *order)}
    published = final[0]
    best = max(order, key=lambda i: final[i].mean())
    gain = final[best] - published
    clear = gain.mean() > CLEARLY * gain.std() / sqrt(len(gain))
    chosen = tried[best] if clear else tried[0]
    return Rehearsal(chosen, {tried[i].name: float(totals.mean()) for i, totals in final.items()})
