"""The rows of an experiment, their averages and their CSV file."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt
from pathlib import Path

import numpy as np

JOINING = ("experiment", "config", "policy", "size", "run", "results")
CACHING = ("experiment", "config", "policy", "size", "run", "hits", "hit_ratio")


@dataclass(frozen=True)
class Row:
    """One run of one policy.  ``results`` are result tuples, hits, a share or a score, by experiment."""

    experiment: str
    config: str
    policy: str
    size: float
    run: int
    results: float
    hit_ratio: float | None = None


@dataclass(frozen=True)
class Average:
    """The mean of a policy's runs, with half the width of the 95 % confidence interval."""

    mean: float
    margin: float


def average(values: Iterable[float]) -> Average:
    """The mean and its margin, which is 0 for a single value.

    >>> found = average([1.0, 2.0, 3.0])
    >>> found.mean, round(found.margin, 4)
    (2.0, 1.1316)
    """
    found = np.array(list(values))
    margin = 1.96 * float(found.std(ddof=1)) / sqrt(len(found)) if len(found) > 1 else 0.0
    return Average(float(found.mean()), margin)


def averages(rows: Iterable[Row], ratios: bool = False) -> dict[tuple[str, str, float], Average]:
    """The average of each (config, policy, size), in order of first occurrence."""
    grouped: dict[tuple[str, str, float], list[float]] = {}
    for row in rows:
        value = row.hit_ratio if ratios and row.hit_ratio is not None else row.results
        grouped.setdefault((row.config, row.policy, row.size), []).append(value)
    return {key: average(values) for key, values in grouped.items()}


def write_csv(rows: Iterable[Row], path: Path) -> None:
    """Write the rows with the columns JOINING, or CACHING if they have hit ratios."""
    rows = list(rows)
    caching = any(row.hit_ratio is not None for row in rows)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(CACHING if caching else JOINING)
        for row in rows:
            fields = (
                row.experiment,
                row.config,
                row.policy,
                _format(row.size),
                row.run,
                _format(row.results),
            )
            writer.writerow((*fields, f"{row.hit_ratio:.6f}") if row.hit_ratio is not None else fields)


def _format(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else f"{value:.9g}"
