"""REHEARSE for joining: try several ways to score on streams drawn from the models, and take the best.

HEEB needs to be told how long tuples will stay (alpha), and a wrong answer costs up to a sixth of the
results.  The true answer depends on what else will arrive, which the models know: so play it through.
Among the ways tried are HEEB with a range of alphas, and the *surplus* of a tuple at a price: a slot costs
``price`` a step, a tuple earns its expected results and leaves when that pays best.  This is the Lagrangian
of the bound on memory; the right price is the one at which as many tuples want a slot as there are slots.
Both rank dominating tuples first, as Theorem 3 asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

import numpy as np

from millpond.models.arrays import Floats, Ints
from millpond.models.models import Model
from millpond.models.scores import ScoreTable, best_rate, heeb_table, surplus, valued_table, valued_tables
from millpond.policies.heeb import Tabled
from millpond.policies.kernels.join_loop import TABLE, Placed, run_join

ALPHAS = (0.2, 0.3, 0.5, 0.8, 1.2, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 40.0, 80.0)
# Prices, as shares of the highest average benefit that any tuple can earn.
PRICES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
# The largest tables for which valuations other than HEEB's are tried.
MOST_ROWS = 250
MOST_VALUES = 20_000
# By how many standard errors a way must be ahead of HEEB as published.
CLEARLY = 3.0
# Keeps the streams of a rehearsal apart from any that are drawn with the same seed.
APART = 0x5EED
# How far a valuation other than HEEB's looks ahead.
AHEAD = 100


@dataclass(frozen=True, eq=False)
class Way:
    """A way to score: a table for tuples of R, and one for tuples of S."""

    name: str
    of_r: ScoreTable
    of_s: ScoreTable

    def policy(self) -> Tabled:
        return Tabled(self.of_r, self.of_s)

    def placed(self, r: Ints, s: Ints) -> tuple[Placed, Placed]:
        """The tables against two streams."""
        return Placed.of((self.of_r,), s), Placed.of((self.of_s,), r)


def heeb_way(r: Model, s: Model, alpha: float) -> Way:
    """HEEB with the given alpha."""
    return Way(f"heeb alpha={alpha:.3g}", heeb_table(s, alpha), heeb_table(r, alpha))


def ways(r: Model, s: Model, alpha: float) -> list[Way]:
    """HEEB as published, then everything that competes with it; alphas alone where values range widely."""
    alphas = [heeb_way(r, s, other) for other in (alpha, *ALPHAS)]
    return [*alphas, *_valued_ways(r, s)] if _narrow(r) and _narrow(s) else alphas


def _narrow(model: Model) -> bool:
    """Whether valuations other than HEEB's are made quickly."""
    low, high = model.reach(AHEAD)
    return model.rows <= MOST_ROWS and high - low <= MOST_VALUES


@lru_cache(maxsize=16)
def _valued_ways(r: Model, s: Model) -> tuple[Way, ...]:
    """They depend on the models only: memories of several sizes share them."""
    rates = [valued_table(model, best_rate, AHEAD) for model in (s, r)]
    highest = max(float(table.scores.max()) for table in rates)
    prices = [share * highest for share in PRICES]
    valuations = [surplus(price) for price in prices]
    of_r, of_s = (valued_tables(model, valuations, AHEAD) for model in (s, r))
    priced = zip(prices, of_r, of_s, strict=True)
    return Way("rate", *rates), *(Way(f"surplus price={price:.3g}", *tables) for price, *tables in priced)


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """The way chosen, and the average results of every way that was tried, HEEB as published first."""

    chosen: Way
    results: dict[str, float]


def rehearse(
    r: Model, s: Model, size: int, alpha: float, runs: int = 24, steps: int = 2000, seed: int = 1
) -> Rehearsal:
    """The way that finds most on streams drawn from the models; HEEB as published unless clearly beaten.

    A quarter of the runs leaves the eight best in the race.  Clearly means by more than three standard
    errors of the difference on the same streams: the best of many is ahead by two through chance alone.
    """
    tried = ways(r, s, alpha)
    streams = []
    for run in range(runs):
        rng = np.random.default_rng([seed, run, APART])
        streams.append((r.sample(rng, steps), s.sample(rng, steps)))
    warm_up = min(4 * size, steps // 2)

    def play(way: Way, chosen: list[tuple[Ints, Ints]]) -> Floats:
        totals = [run_join(*pair, size, TABLE, way.placed(*pair)).total(warm_up) for pair in chosen]
        return np.array(totals, np.float64)

    heats = max(2, runs // 4)
    first = [play(way, streams[:heats]) for way in tried]
    order = sorted(range(1, len(tried)), key=lambda i: -first[i].mean())[:8]
    final = {i: np.concatenate([first[i], play(tried[i], streams[heats:])]) for i in (0, *order)}
    published = final[0]
    best = max(order, key=lambda i: final[i].mean())
    gain = final[best] - published
    clear = gain.mean() > CLEARLY * gain.std() / sqrt(len(gain))
    chosen = tried[best] if clear else tried[0]
    return Rehearsal(chosen, {tried[i].name: float(totals.mean()) for i, totals in final.items()})
