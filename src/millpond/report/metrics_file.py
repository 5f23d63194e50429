"""Reads the metrics of a run, one JSON object for each micro-batch, and makes charts of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, isfinite
from pathlib import Path
from typing import Any

from millpond.errors import MillpondError, describe_os_error, one_line
from millpond.report.chart import Chart, Series

_NUMBERS = (
    *("batch", "input_rows", "output_rows", "state_entries", "state_bytes"),
    *("malformed_rows", "late_rows", "shed_rows", "seconds"),
)
_REMEDY = "give the file that millpond run --metrics wrote"
# A chart has at most so many points; of more batches, each point shows the largest of several.
_MOST_POINTS = 300


@dataclass(frozen=True)
class Batch:
    """What the metrics say about one micro-batch."""

    number: int
    input_rows: float
    output_rows: float
    state_entries: float
    state_bytes: float
    malformed_rows: float
    late_rows: float
    shed_rows: float
    seconds: float
    state_bound: float | None = None

    @property
    def rate(self) -> float:
        """Input rows in a second."""
        return self.input_rows / self.seconds if self.seconds > 0 else 0.0


def read_metrics(path: str) -> list[Batch]:
    """The batches of a metrics file, in the order in which they were written.

    Raises MillpondError with the line that is not as ``millpond run`` writes it.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise MillpondError(
            f"the metrics {path} cannot be read: {describe_os_error(error)}", remedy=_REMEDY
        ) from None
    except ValueError:  # not UTF-8, or a path with a null character
        raise MillpondError(f"the metrics {path} are not UTF-8 text", remedy=_REMEDY) from None
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not lines:
        raise MillpondError(f"the metrics {path} have no micro-batch", remedy=_REMEDY)
    return [_read_line(path, number, line) for number, line in lines]


def _read_line(path: str, number: int, line: str) -> Batch:
    place = f"the metrics {path}, line {number}"
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise MillpondError(f"{place}: not JSON: {one_line(line, 40)}", remedy=_REMEDY) from None
    if not isinstance(found, dict):
        raise MillpondError(f"{place}: not an object: {one_line(line, 40)}", remedy=_REMEDY)
    values = {name: _read_number(place, found, name) for name in _NUMBERS}
    bound = _read_number(place, found, "state_bound") if found.get("state_bound") is not None else None
    return Batch(int(values.pop("batch")), **values, state_bound=bound)


def _read_number(place: str, found: dict[str, Any], name: str) -> float:
    value = found.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
        what = "is missing" if name not in found else f"is not a number: {one_line(repr(value), 30)}"
        raise MillpondError(f"{place}: {name} {what}", remedy=_REMEDY)
    return float(value)


# --- charts ------------------------------------------------------------------------------------------


def make_charts(batches: Sequence[Batch]) -> list[Chart]:
    """State, rate, time, and the rows that were late, malformed or shed; the last only if there were any."""
    state = [_make_series("state", batches, lambda b: b.state_entries)]
    if all(b.state_bound is not None for b in batches):
        bound = _make_series("bound", batches, lambda b: b.state_bound or 0, "plain", "dashed")
        largest = max(y for _, y in state[0].points)
        # A bound far above the state would make its line flat; then the table has it.
        state += [bound] if max(y for _, y in bound.points) <= 20 * max(largest, 1) else []
    charts = [
        _make_chart("State after each micro-batch", "entries", state),
        _make_chart("Rate", "rows per second", [_make_series("input", batches, lambda b: b.rate)]),
        _make_chart(
            "Time of each micro-batch", "seconds", [_make_series("time", batches, lambda b: b.seconds)]
        ),
    ]
    lost = [
        _make_series("late", batches, lambda b: b.late_rows, "spark"),
        _make_series("malformed", batches, lambda b: b.malformed_rows, "plain"),
        _make_series("shed", batches, lambda b: b.shed_rows, "ours"),
    ]
    lost = [each for each in lost if any(y for _, y in each.points)]
    if lost:
        charts.append(_make_chart("Late, malformed and shed rows", "rows", lost))
    return charts


def _make_chart(title: str, unit: str, series: Sequence[Series]) -> Chart:
    return Chart(title, "micro-batch", unit, tuple(series))


def _make_series(
    name: str,
    batches: Sequence[Batch],
    value: Callable[[Batch], float],
    colour: str = "ours",
    dashes: str = "",
) -> Series:
    """A line over the batches; the file may hold several runs, so they are counted anew."""
    values = [value(batch) for batch in batches]
    size = ceil(len(values) / _MOST_POINTS)
    first = batches[0].number if is_one_run(batches) else 0
    points = [(float(first + i), max(values[i : i + size])) for i in range(0, len(values), size)]
    return Series(name, tuple(points), colour, dashes, has_points=len(points) == 1)


def is_one_run(batches: Sequence[Batch]) -> bool:
    """Whether the numbers of the batches are consecutive."""
    return all(batch.number == batches[0].number + i for i, batch in enumerate(batches))


def count_batches_per_point(batches: Sequence[Batch]) -> int:
    """How many micro-batches a point of a chart stands for."""
    return ceil(len(batches) / _MOST_POINTS)
