"""A weighted sample that represents the tuples shed on one side of a join, for any join condition.

A tuple of the sample stands for ``weight`` shed tuples.  The expected weight of every shed tuple is 1 in
every batch, so the weighted number of matches is an unbiased estimate.  When the sample is full, it is
thinned by priority sampling (Duffield, Lund, Thorup: "Priority Sampling for Estimation of Arbitrary Subset
Sums"): tuples that are expected to match more often stay more often.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from millpond.engines.budgeted.missed_results import MissedEstimate, estimate_from_moments
from millpond.models.array_types import Floats, Ints

# What is stored of a tuple in the sample: its weight, the sum of its earlier matches, each times the excess
# of its weight over 1 at that time, and the number of its matches.
SAMPLE_COLUMNS = [("weight", pa.float64()), ("lead", pa.float64()), ("matched", pa.float64())]


@dataclass(frozen=True)
class SampleMoments:
    """The estimated number of missed results over all batches, and its variance.

    ``third`` is the covariance of the two, which makes the interval skewed.
    """

    value: float = 0.0
    variance: float = 0.0
    third: float = 0.0

    def __add__(self, other: SampleMoments) -> SampleMoments:
        return SampleMoments(
            self.value + other.value, self.variance + other.variance, self.third + other.third
        )

    def estimate(self, weight: float) -> MissedEstimate:
        """The estimate, where a tuple of the sample has about the given weight."""
        step = self.third / self.variance if self.variance > 0 else weight if weight > 1 else 0.0
        return estimate_from_moments(self.value, self.variance, step)


def start_sample(tuples: pa.Table, schema: pa.Schema) -> pa.Table:
    """Shed tuples as tuples of a sample, each of which stands for itself."""
    ones, zeros = np.ones(tuples.num_rows), np.zeros(tuples.num_rows)
    return pa.table([*tuples.columns, pa.array(ones), pa.array(zeros), pa.array(zeros)], schema=schema)


def count_matches(sample: pa.Table, matches: Floats) -> tuple[SampleMoments, pa.Table]:
    """What the matches of each tuple of the sample in a batch add to the estimate, and the sample after it.

    Let Z be the weight of a shed tuple, 0 when it is not in the sample, and m its matches in a batch.  Z is a
    martingale that starts at 1, so the covariance of the terms m Z of an earlier and a later batch is m m'
    (E[Z^2] - 1) with the earlier Z, and m m' (Z - 1) Z' estimates it without bias.  Terms of different tuples
    are uncorrelated.
    """
    weight, lead, matched = (sample.column(name).to_numpy() for name, _ in SAMPLE_COLUMNS)
    variances = weight * matches * (matches * (weight - 1) + 2 * lead)
    matched = matched + matches
    added = SampleMoments(
        float(weight @ matches), float(variances.sum()), float((variances * (weight - 1)) @ matched)
    )
    columns = dict(zip(sample.column_names, sample.columns, strict=True))
    columns |= {"lead": pa.array(lead + matches * (weight - 1)), "matched": pa.array(matched)}
    return added, pa.table(columns, schema=sample.schema)


def thin_sample(sample: pa.Table, rates: Floats, size: int, rng: np.random.Generator) -> pa.Table:
    """At most ``size`` tuples of the sample; ``rates`` says how often each is expected to match."""
    if sample.num_rows <= size:
        return sample
    kept, weight = choose_by_priority(sample.column("weight").to_numpy(), rates, size, rng)
    place = sample.schema.get_field_index("weight")
    return sample.take(pa.array(kept)).set_column(place, sample.schema.field(place), pa.array(weight))


def choose_by_priority(
    weight: Floats, rates: Floats, size: int, rng: np.random.Generator
) -> tuple[Ints, Floats]:
    """Priority sampling: the numbers of ``size`` of the items, and their weights afterwards.

    Half of an item's chance to stay is the same for all items, so no weight exceeds twice that of a uniform
    sample.
    """
    importance = weight * (rates + max(float(rates.mean()), 1e-12))
    priority = importance / (1.0 - rng.random(len(weight)))
    order = np.argpartition(-priority, size)
    kept = np.sort(order[:size])
    return kept, weight[kept] * np.maximum(1.0, priority[order[size]] / importance[kept])
