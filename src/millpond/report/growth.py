"""State against rows: what a query keeps after so many rows, beside what Spark's own operators would keep.

The bound of a bounded query comes from its plan.  For an unbounded one, witnesses of growing size show how
many rows every program has to remember.
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

_ROWS = tuple(10.0**i for i in range(7))
# The numbers of optional rows of the witnesses that are built.
_SIZES = (1, 3, 10)


@dataclass(frozen=True)
class StateChart:
    """A chart and sentences about it: where its lines come from."""

    chart: Chart
    notes: tuple[str, ...]


def find_growth(verdict: Verdict, repairs: Sequence[Repair] = ()) -> StateChart | None:
    """The state of a query against the rows it has read; None if nothing is known about it.

    If repairs are given, so is the bound after the first one that has a number.
    """
    series: list[Series] = []
    notes: list[str] = []
    state, is_assumed = _find_state(verdict)
    if verdict.outcome == BOUNDED and state.entries is not None:
        series.append(Series("this query, at most", _draw_flat(state.entries), "ours"))
        notes.append("This query: the worst-case bound of its state, proved from the query.")
        if is_assumed:
            notes.append(
                f"A rate of {ASSUMED_RATE} rows per second is assumed for streams that declare none."
            )
    proved = _find_proved(verdict)
    if proved:
        series += _draw_proved(proved)
        notes.append(
            "Every program: how many of the rows read have to be remembered, with at least one bit for each. "
            f"The points are witnesses with up to {int(proved[-1][1])} such rows, which were evaluated; "
            "there are larger ones of every size."
        )
    for number, repair in enumerate(repairs, start=1):
        entries = repair.verdict.state.entries if repair.verdict is not None else None
        if entries:
            series.append(Series(f"repair {number}, at most", _draw_flat(entries), "ours"))
            notes.append(f"Repair {number}: the bound of the state after this change.")
            break
    model = model_spark(verdict.query)
    series[:0] = _list_spark_series(model, state)
    notes += _describe_model(model)
    if not series:
        return None
    chart = Chart("State against rows", "rows read", "entries kept", tuple(series), is_log=True)
    return StateChart(chart, tuple(notes))


def _draw_flat(entries: int) -> tuple[tuple[float, float], ...]:
    return (_ROWS[0], float(entries)), (_ROWS[-1], float(entries))


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


def _draw_proved(proved: tuple[tuple[float, float], ...]) -> list[Series]:
    """The witnesses that were built, and the line on which the larger ones lie."""
    rows, remembered = proved[-1]
    further = (proved[-1], (_ROWS[-1], _ROWS[-1] - rows + remembered))
    return [
        Series("", proved, "proof", has_points=True),
        Series("every program, at least", further, "proof", "dotted"),
    ]


def _list_spark_series(model: SparkModel | None, state: State) -> Iterator[Series]:
    if model is None:
        return
    last = _ROWS[-1]
    if model.refuses:
        yield Series("every row that was read", ((1.0, 1.0), (last, last)), "plain", "dashed")
        return
    answers = [kept.entries for kept in state.streams if kept.stream is None]
    groups = sum(n for n in answers if n is not None) if None not in answers else None
    if model.has_open_groups and not groups:
        return
    line = tuple((rows, model.count(rows, groups or 0)) for rows in _ROWS)
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
