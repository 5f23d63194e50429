"""Score tables in the form that compiled loops read: aligned with the steps of the partner stream."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from millpond.models.array_types import Floats, Ints
from millpond.models.score_tables import ScoreTable
from millpond.policies.kernels.compiled import inlined


class AlignedTables(NamedTuple):
    """Tables of one side of a join or cache.  Several alternatives have the same shape."""

    scores: Floats  # by alternative, row and column
    factors: Floats  # by alternative: the factors below and above the table
    shape: Ints  # low, scale, step below, step above
    row: Ints  # the row of each step
    origin: Ints  # the origin of each step


def align_tables(tables: tuple[ScoreTable, ...], partner: Ints, start: int = 0) -> AlignedTables:
    """Align tables with the values of the partner stream, of which the first belongs to step ``start``."""
    first = tables[0]
    low = min(table.low for table in tables)
    high = max(table.low + table.scores.shape[1] for table in tables)
    steps = np.arange(start, start + len(partner), dtype=np.int64)
    row, origin = first.model.place(steps, partner)
    return AlignedTables(
        _stack(tables, low, high),
        np.array([[table.below.factor, table.above.factor] for table in tables]),
        np.array([low, first.model.scale, first.below.step, first.above.step], np.int64),
        row,
        origin,
    )


@lru_cache(maxsize=2)  # the same tables are often aligned with one stream after another
def _stack(tables: tuple[ScoreTable, ...], low: int, high: int) -> Floats:
    return np.stack([_widen(table, low, high) for table in tables])


def _widen(table: ScoreTable, low: int, high: int) -> Floats:
    """The scores of the columns from ``low`` to before ``high``, continued as the table's edges say."""
    width = table.scores.shape[1]
    columns = np.arange(low, high) - table.low
    over = np.maximum(0, -(-(columns - width + 1) // table.above.step))
    under = np.where(columns < 0, -(columns // table.below.step), 0)
    inner = columns - over * table.above.step + under * table.below.step
    factor = float(table.above.factor) ** over * float(table.below.factor) ** under
    widened: Floats = table.scores[:, inner] * factor
    return widened


def no_tables() -> AlignedTables:
    """A placeholder for scores that need no table."""
    zero = np.zeros(1, np.int64)
    return AlignedTables(np.zeros((1, 1, 1)), np.zeros((1, 2)), np.array([0, 1, 1, 1], np.int64), zero, zero)


@inlined
def look_up_score(scores: Floats, factors: Floats, shape: Ints, origin: int, value: int) -> float:
    """The score of a value in one row of a table, as :meth:`ScoreTable.look_up` computes it."""
    column = shape[1] * value - origin - shape[0]
    width = len(scores)
    if 0 <= column < width:
        return float(scores[column])
    if column >= width:
        if factors[1] == 0.0:
            return 0.0
        over = -(-(column - width + 1) // shape[3])
        return float(scores[column - over * shape[3]] * factors[1] ** over)
    if factors[0] == 0.0:
        return 0.0
    under = -(column // shape[2])
    return float(scores[column + under * shape[2]] * factors[0] ** under)
