"""State against rows: what a query keeps after so many rows, beside what Spark's own operators would keep.

The limit of a bounded query comes from its plan; before it is reached, the query keeps what it has read.  For
an unbounded one, witnesses of growing size show how many rows every program has to remember.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from millpond.analysis.decide import decide
from millpond.analysis.repair.model import Repair
from millpond.analysis.verdict import BOUNDED, UNBOUNDED, Verdict
from millpond.plan.state import State
from millpond.query.model import Block, Occurrence, Query, Subquery, Table, Windowed
from millpond.query.trees import map_occurrences
from millpond.report.chart import Chart, Series
from millpond.report.spark_model import ASSUMED_RATE, SparkModel, model_spark
from millpond.report.story import find_small_witness

# The least number of rows on the axis, as a power of ten, and the most: limits further out are not reached.
_LEAST, _MOST = 6, 12
# The numbers of optional rows of the witnesses that are built.
_SIZES = (1, 3, 10)


@dataclass(frozen=True)
class StateChart:
    """A chart and sentences about it: where its lines come from."""

    chart: Chart
    notes: tuple[str, ...]


def find_growth(verdict: Verdict, repairs: Sequence[Repair] = ()) -> StateChart | None:
    """The state of a query against the rows it has read; None if nothing is known about it.

    If repairs are given, so is the state after the first one whose limit is a number.
    """
    state, is_assumed = _find_state(verdict)
    own: list[tuple[str, State, int]] = []
    notes: list[str] = []
    if verdict.outcome == BOUNDED and state.entries is not None:
        own.append(("this query", state, state.entries))
        notes.append(
            "This query: the rows that it has read, once in each part of its state, until the limit (the "
            "dotted line) is reached. The limit is the worst case, proved from the query, however many rows "
            "it reads."
        )
        if is_assumed:
            notes.append(
                f"A rate of {ASSUMED_RATE} rows per second is assumed for streams that declare none."
            )
    proved = _find_proved(verdict)
    if proved:
        notes.append(
            "Every program: how many of the rows read have to be remembered, with at least one bit for each. "
            f"The points are witnesses with up to {int(proved[-1][1])} such rows, which were evaluated; "
            "there are larger ones of every size."
        )
    for number, repair in enumerate(repairs, start=1):
        repaired = repair.verdict.state if repair.verdict is not None else None
        if repaired is not None and repaired.entries:
            own.append((f"repair {number}", repaired, repaired.entries))
            notes.append(f"Repair {number}: the query after this change, until the limit is reached.")
            break
    model = model_spark(verdict.query)
    notes += _describe_model(model)
    rows = _list_rows(max((limit for _, _, limit in own), default=0))
    series = [line for name, kept, limit in own for line in _draw_own(name, kept, limit, rows)]
    series += [*_list_spark_series(model, state, rows), *(_draw_proved(proved, rows[-1]) if proved else [])]
    if not series:
        return None
    chart = Chart("State against rows", "rows read", "entries kept", tuple(series), is_log=True)
    return StateChart(chart, tuple(notes))


def _list_rows(limit: int) -> list[float]:
    """The numbers of rows at which lines are drawn, some beyond the limit of a state."""
    last = min(max(_LEAST, len(str(limit)) + 1), _MOST)
    last += last % 2  # a long axis has a tick at every second power
    return [*(float(round(10.0 ** (i / 10))) for i in range(10 * last)), 10.0**last]


def _draw_own(name: str, state: State, limit: int, rows: Sequence[float]) -> Iterator[Series]:
    """What a bounded query keeps after so many rows, and the limit of it."""
    parts = [(max(len(kept.keeps), 1), kept.entries) for kept in state.streams if kept.entries]
    if sum(entries for _, entries in parts) != limit:  # of blocks, whose parts are their own
        parts = [(1, limit)]
    line = tuple((x, float(sum(min(x * each, entries) for each, entries in parts))) for x in rows)
    reached = next((x for x, y in line if y >= limit), None)
    if reached is None:
        yield Series(f"limit of {name}", ((1.0, float(limit)), (rows[-1], float(limit))), "ours", "dotted")
    elif reached > 1:
        yield Series("", ((1.0, float(limit)), (reached, float(limit))), "ours", "dotted")
    yield Series(name, line, "ours")


def _find_proved(verdict: Verdict) -> tuple[tuple[float, float], ...]:
    """For witnesses of several sizes: the rows before the probe, and how many of them must be remembered."""
    if verdict.outcome != UNBOUNDED:
        return ()
    points = []
    for size in _SIZES:
        witness = find_small_witness(verdict, size)
        if witness is None:
            break
        points.append((float(len(witness.setup) + size), float(size)))
    return tuple(points)


def _draw_proved(proved: tuple[tuple[float, float], ...], last: float) -> list[Series]:
    """The witnesses that were built, and the line on which the larger ones lie."""
    rows, remembered = proved[-1]
    further = (proved[-1], (last, last - rows + remembered))
    return [
        Series("", proved, "proof", has_points=True),
        Series("every program, at least", further, "proof", "dotted"),
    ]


def _list_spark_series(model: SparkModel | None, state: State, rows: Sequence[float]) -> Iterator[Series]:
    if model is None:
        return
    if model.refuses:
        yield Series("every row that was read", ((1.0, 1.0), (rows[-1], rows[-1])), "plain", "dashed")
        return
    answers = [kept.entries for kept in state.streams if kept.stream is None]
    groups = sum(n for n in answers if n is not None) if None not in answers else None
    if model.has_open_groups and not groups:
        return
    line = tuple((x, model.count(x, groups or 0)) for x in rows)
    yield Series("Spark's own plan (model)", line, "spark", "dashed")


def _describe_model(model: SparkModel | None) -> list[str]:
    if model is None:
        return ["Spark's own plan is not modelled for queries with subqueries."]
    if model.refuses:
        return [f"{model.refuses}, so there is no plan of its own to compare with."]
    if not model.operators:
        return ["Spark's own plan (model): it keeps nothing either."]
    kept = "; ".join(operator.text for operator in model.operators)
    return [
        f"Spark's own plan is a model of its worst case, not a measurement: {kept}. All rows pass the "
        "filters, bring new values where the query sets no bound, and find one partner in a join. "
        "Spark gets the same watermarks."
    ]


# --- rates -------------------------------------------------------------------------------------------


def _find_state(verdict: Verdict) -> tuple[State, bool]:
    """The state of a query, and whether a rate is assumed to make it a number."""
    state = verdict.state
    if verdict.outcome != BOUNDED or state.entries is not None:
        return state, False
    rated = decide(_declare_rates(verdict.query))
    return (rated.state, True) if rated.state.entries is not None else (state, False)


def _declare_rates(query: Query) -> Query:
    """The query over streams with a rate, also in its blocks."""

    def declare(table: Table) -> Table:
        properties = table.properties
        if table.streaming and table.time is not None and table.block is None and "rate" not in properties:
            properties = {**properties, "rate": f"{ASSUMED_RATE} per second"}
        block: Block | None = table.block
        if isinstance(block, Subquery):
            block = Subquery(_declare_rates(block.query))
        elif isinstance(block, Windowed):
            block = replace(block, base=declare(block.base))
        return replace(table, properties=properties, block=block)

    def change(occurrence: Occurrence) -> Occurrence:
        return replace(occurrence, table=declare(occurrence.table))

    terms = [
        replace(term, selects=tuple(map_occurrences(select, change) for select in term.selects))
        for term in query.terms
    ]
    return replace(query, terms=tuple(terms))
