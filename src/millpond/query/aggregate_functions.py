"""The aggregate functions: what each has to remember of the values of a group, and its value.

Names are those of Spark SQL.  The front end reads other aggregates as one of these: COUNT_IF(c) as
COUNT(CASE WHEN c THEN 1 END), BOOL_OR(c) as MAX(c), FIRST(x) as MIN_BY(x, ts).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from enum import Enum
from fractions import Fraction
from math import ceil, floor, sqrt
from typing import Any

from millpond.query.expressions import Aggregate, Literal


class Memory(Enum):
    """What an aggregate has to remember of the values of a group."""

    COUNTS = "counts"  # the number of values and sums of their powers and products
    EXTREME = "extreme"  # the least or the greatest value
    SET = "set"  # which values occur
    SKETCH = "sketch"  # a fixed number of registers, filled from the hashes of the values
    VALUES = "values"  # which values occur how often
    LIST = "list"  # all values, as the result has them


_MEMORY = {
    **dict.fromkeys(("COUNT", "SUM", "AVG"), Memory.COUNTS),
    **dict.fromkeys(("VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV_SAMP"), Memory.COUNTS),
    **dict.fromkeys(("CORR", "COVAR_POP", "COVAR_SAMP"), Memory.COUNTS),
    **dict.fromkeys(("MIN", "MAX", "MIN_BY", "MAX_BY"), Memory.EXTREME),
    **dict.fromkeys(("MEDIAN", "PERCENTILE", "PERCENTILE_DISC", "PERCENTILE_APPROX"), Memory.VALUES),
    "COLLECT_LIST": Memory.LIST,
    "COLLECT_SET": Memory.SET,
    "APPROX_COUNT_DISTINCT": Memory.SKETCH,
}
# Functions that do not change if every value of the group is repeated equally often.
_RATIOS = frozenset({"AVG", "MEDIAN", "PERCENTILE_DISC", "VAR_POP", "STDDEV_POP", "CORR", "COVAR_POP"})
# Functions of pairs: the second column orders the values of the first, or is multiplied with it.
ORDERED = frozenset({"MIN_BY", "MAX_BY"})
_PAIRED = frozenset({"CORR", "COVAR_POP", "COVAR_SAMP"})
APPROXIMATE = frozenset({"PERCENTILE_APPROX", "APPROX_COUNT_DISTINCT"})

# Values of a group, and how often each occurs.
Values = Mapping[Any, int]


def find_memory(aggregate: Aggregate) -> Memory:
    """What an aggregate has to remember."""
    return Memory.SET if aggregate.distinct else _MEMORY[aggregate.function]


def keeps_values(aggregate: Aggregate) -> bool:
    """Whether an aggregate remembers different values of its argument one by one."""
    return find_memory(aggregate) in (Memory.SET, Memory.VALUES, Memory.LIST)


def is_ratio(aggregate: Aggregate) -> bool:
    """Whether an aggregate stays the same if every value of the group is repeated equally often."""
    return aggregate.function in _RATIOS and not aggregate.distinct


def ignores_duplicates(aggregate: Aggregate) -> bool:
    """Whether an aggregate depends only on which values occur, not on how often."""
    return find_memory(aggregate) in (Memory.SET, Memory.EXTREME, Memory.SKETCH)


def is_tuple(aggregate: Aggregate) -> bool:
    """Whether the values of an aggregate are tuples, of several columns."""
    return any(not isinstance(each, Literal) for each in aggregate.others)


def drop_nulls(aggregate: Aggregate, value: tuple[Any, ...]) -> Any:
    """The value of an aggregate's columns in one row; None for a row that it ignores."""
    if not is_tuple(aggregate):
        return value[0]
    needed = value[1:] if aggregate.function in ORDERED else value
    return None if any(each is None for each in needed) else value


def aggregate_values(aggregate: Aggregate, values: Values) -> Any:
    """The aggregate of a multiset of non-NULL values; on the empty one, the same as in Spark.

    Where SQL leaves the result open it is a fixed one: lists are sorted, and of several values with the
    greatest order MAX_BY chooses the greatest (MIN_BY, the least).
    """
    if aggregate.distinct:
        values = dict.fromkeys(values, 1)
    if aggregate.function in ("COUNT", "APPROX_COUNT_DISTINCT"):
        return len(values) if find_memory(aggregate) is Memory.SKETCH else sum(values.values())
    if aggregate.function.startswith("COLLECT"):
        repeated = find_memory(aggregate) is Memory.LIST
        return tuple(v for v in sorted(values) for _ in range(values[v] if repeated else 1))
    return _FUNCTIONS[aggregate.function](aggregate, values) if values else None


# --- the functions -----------------------------------------------------------------------------------


def _sum(_: Aggregate, values: Values) -> Any:
    if _are_lengths(values):
        return sum((v * n for v, n in values.items()), timedelta())
    return sum(v * n for v, n in values.items())


def _average(aggregate: Aggregate, values: Values) -> float | timedelta:
    if _are_lengths(values):
        total: timedelta = _sum(aggregate, values)
        return total / sum(values.values())
    return float(Fraction(sum(Fraction(v) * n for v, n in values.items())) / sum(values.values()))


def _are_lengths(values: Values) -> bool:
    """Whether the values are lengths of time."""
    return isinstance(next(iter(values)), timedelta)


def _extreme_by(aggregate: Aggregate, values: Values) -> Any:
    choose = max if aggregate.function == "MAX_BY" else min
    return choose(values, key=lambda pair: (pair[1], pair[0] is not None, pair[0]))[0]


def _covariance(aggregate: Aggregate, values: Values) -> float | None:
    """The mean product of the distances from the means; VAR and STDDEV are those of a value with itself."""
    pairs = values if aggregate.function in _PAIRED else {(v, v): n for v, n in values.items()}
    count = sum(pairs.values())
    sample = aggregate.function.endswith("_SAMP")
    if sample and count == 1:
        return None
    spread = _sum_products(pairs, count) / (count - sample)
    return sqrt(spread) if aggregate.function.startswith("STDDEV") else float(spread)


def _correlation(_: Aggregate, values: Values) -> float | None:
    count = sum(values.values())
    xs: Counter[Any] = Counter()
    ys: Counter[Any] = Counter()
    for (x, y), n in values.items():
        xs[x, x] += n
        ys[y, y] += n
    spread = _sum_products(xs, count) * _sum_products(ys, count)
    return float(_sum_products(values, count)) / sqrt(spread) if spread else None


def _sum_products(pairs: Values, count: int) -> Fraction:
    means = [sum(Fraction(pair[i]) * n for pair, n in pairs.items()) / count for i in (0, 1)]
    products = ((Fraction(x) - means[0]) * (Fraction(y) - means[1]) * n for (x, y), n in pairs.items())
    return Fraction(sum(products))


def _percentile(aggregate: Aggregate, values: Values) -> float:
    """The value at a fraction of the way from the least to the greatest, interpolated."""
    fraction = Fraction(1, 2)
    if aggregate.others and isinstance(aggregate.others[0], Literal):
        fraction = Fraction(str(aggregate.others[0].value))
    place = fraction * (sum(values.values()) - 1)
    low, high = (Fraction(_find_ranked(values, rank)) for rank in (floor(place), ceil(place)))
    return float(low + (high - low) * (place - floor(place)))


def _percentile_of_values(aggregate: Aggregate, values: Values) -> Any:
    """The least value that is at least as great as this fraction of the values."""
    assert isinstance(aggregate.others[0], Literal)
    place = Fraction(str(aggregate.others[0].value)) * sum(values.values())
    return _find_ranked(values, max(ceil(place) - 1, 0))


def _find_ranked(values: Values, rank: int) -> Any:
    """The value with this rank, from 0, in their order."""
    for value in sorted(values):
        rank -= values[value]
        if rank < 0:
            return value
    raise ValueError("the rank is too high")


_FUNCTIONS: dict[str, Callable[[Aggregate, Values], Any]] = {
    "SUM": _sum,
    "AVG": _average,
    "MIN": lambda _, values: min(values),
    "MAX": lambda _, values: max(values),
    **dict.fromkeys(("MIN_BY", "MAX_BY"), _extreme_by),
    **dict.fromkeys(("MEDIAN", "PERCENTILE"), _percentile),
    **dict.fromkeys(("PERCENTILE_DISC", "PERCENTILE_APPROX"), _percentile_of_values),
    **dict.fromkeys(("VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV_SAMP"), _covariance),
    **dict.fromkeys(("COVAR_POP", "COVAR_SAMP"), _covariance),
    "CORR": _correlation,
}
