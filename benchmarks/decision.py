"""How long a verdict takes, by the size of the query.

    python -m benchmarks.decision

The queries are random conjunctions over integers: a quarter of the predicates compare a column with a
constant, the others two columns.  For each size, the table has the median CPU times of reading the text, of
the decision alone, and of the decision with its proof (the plan and its bound, or a confirmed witness).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from statistics import median
from time import process_time
from typing import TypeVar

from benchmarks.tables import print_table
from millpond.analysis.decide import analyse, decide
from millpond.frontend.parse import parse

SIZES = [(2, 5, 10), (5, 10, 25), (10, 10, 50), (20, 10, 100), (40, 10, 200), (80, 10, 400)]
QUERIES = 12
T = TypeVar("T")


def random_query(streams: int, columns: int, predicates: int, seed: int) -> str:
    """Make a satisfiable query, with or without DISTINCT.

    Every predicate is chosen so that it holds for one random assignment of values to the columns.
    """
    rng = random.Random(seed)
    value = {(s, c): rng.randrange(-50, 50) for s in range(streams) for c in range(columns)}
    places = list(value)
    conditions = [f"S0.C0 = {value[0, 0]}"]
    while len(conditions) < predicates:
        a, b = rng.sample(places, 2)
        if rng.random() < 0.25:
            bound = value[a] + rng.randrange(1, 20)
            conditions.append(f"S{a[0]}.C{a[1]} < {bound}")
        elif value[a] != value[b]:
            low, high = sorted((a, b), key=value.__getitem__)
            conditions.append(f"S{low[0]}.C{low[1]} {rng.choice(['<', '<='])} S{high[0]}.C{high[1]}")
    tables = "".join(
        f"CREATE STREAMING TABLE S{s} ({', '.join(f'C{c} INT' for c in range(columns))});\n"
        for s in range(streams)
    )
    projection = rng.choice(["", "DISTINCT "])
    sources = ", ".join(f"S{s}" for s in range(streams))
    return f"{tables}SELECT {projection}S0.C0 FROM {sources} WHERE {' AND '.join(conditions)}"


def measure(action: Callable[[], T]) -> tuple[T, float]:
    """Return the result of an action, and the CPU time that it takes in milliseconds."""
    started = process_time()
    result = action()
    return result, 1000 * (process_time() - started)


def main() -> None:
    table = []
    for size in SIZES:
        times: list[tuple[float, float, float]] = []
        outcomes: Counter[str] = Counter()
        for seed in range(QUERIES):
            text = random_query(*size, seed)
            queries, reading = measure(partial(parse, text))
            _, deciding = measure(partial(analyse, queries[0]))
            verdict, proving = measure(partial(decide, queries[0]))
            times.append((reading, deciding, proving))
            outcomes[verdict.outcome] += 1
        medians = (f"{median(column):.0f} ms" for column in zip(*times, strict=True))
        verdicts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        table.append((" x ".join(map(str, size)), *medians, verdicts))
    print_table(["streams x columns x predicates", "read", "decide", "decide with proof", "verdicts"], table)


if __name__ == "__main__":
    main()
