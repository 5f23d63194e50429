"""Curves on a logarithmic scale, drawn with characters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from rich.text import Text

# A braille character has 2 x 4 dots; the bit of each, from the top left down, then the right column.
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_BRAILLE = 0x2800


@dataclass(frozen=True)
class Curve:
    """Points (x, y), both positive, x rising; drawn in ``style``, or with ``mark`` if only ASCII is shown."""

    name: str
    points: Sequence[tuple[float, float]]
    style: str
    mark: str


@dataclass(frozen=True)
class PlotRange:
    """The range of a plot: x from 0 to ``right``, y from ``bottom`` to ``top``."""

    right: float
    bottom: float
    top: float

    @property
    def decades(self) -> list[int]:
        """The powers of ten in the range."""
        return [10**n for n in range(ceil(log10(self.bottom)), floor(log10(self.top)) + 1)]


def draw_curves(
    curves: Sequence[Curve], frame: PlotRange, width: int, height: int, ascii_only: bool = False
) -> Text:
    """The curves over ``height`` lines and at most ``width`` cells, with an axis of powers of ten.

    The name and last value of each curve are at the right.
    """
    labels = {_row_of(decade, frame, height): f"{decade:,}" for decade in frame.decades}
    margin = max(map(len, labels.values()), default=0)
    notes = _place_notes(curves, frame, height)
    room = max(len(curve.name) for curve in curves) + len(f" {frame.top:,.0f}")
    columns = max(width - margin - 3 - room - 1, 8)
    cells = _draw_ascii if ascii_only else _draw_braille
    plot = cells(curves, frame, columns, height)
    axis, corner, line = ("|", "+", "-") if ascii_only else ("┤", "└", "─")
    out = Text(no_wrap=True)
    for row in range(height):
        out.append(f"{labels.get(row, ''):>{margin}} {axis if row in labels or ascii_only else '│'}", "dim")
        for column in range(columns):
            out.append(*plot.get((column, row), (" ", "")))
        if row in notes:
            out.append(" ").append_text(notes[row])
        out.append("\n")
    return out.append(f"{' ' * (margin + 1)}{corner}{line * columns}", "dim")


def _place_notes(curves: Sequence[Curve], frame: PlotRange, height: int) -> dict[int, Text]:
    """The note of each curve, by the row of its last point; the next free row if it is taken."""
    notes: dict[int, Text] = {}
    for curve in curves:
        if curve.points:
            value = curve.points[-1][1]
            row = _row_of(value, frame, height)
            while row in notes and row < height - 1:
                row += 1
            notes[row] = Text(f"{curve.name} {value:,.0f}", style=curve.style)
    return notes


def _draw_braille(
    curves: Sequence[Curve], frame: PlotRange, columns: int, height: int
) -> dict[tuple[int, int], tuple[str, str]]:
    """The characters of the plot and their styles, by column and row; a later curve covers earlier ones."""
    plot: dict[tuple[int, int], tuple[str, str]] = {}
    for curve in curves:
        bits: dict[tuple[int, int], int] = {}
        for x, y in _trace(curve, frame, columns * 2, height * 4):
            cell = (x // 2, y // 4)
            bits[cell] = bits.get(cell, 0) | _DOTS[x % 2][y % 4]
        plot |= {cell: (chr(_BRAILLE + dots), curve.style) for cell, dots in bits.items()}
    return plot


def _draw_ascii(
    curves: Sequence[Curve], frame: PlotRange, columns: int, height: int
) -> dict[tuple[int, int], tuple[str, str]]:
    return {
        point: (curve.mark, curve.style)
        for curve in curves
        for point in _trace(curve, frame, columns, height)
    }


def _trace(curve: Curve, frame: PlotRange, columns: int, rows: int) -> Iterator[tuple[int, int]]:
    """The dots of a curve, without gaps: between two points, it is straight in x and y."""
    before: int | None = None
    for column in range(columns):
        value = _value_at(curve.points, (column + 0.5) / columns * frame.right)
        if value is None:
            before = None
            continue
        row = _row_of(value, frame, rows)
        start = row if before is None else before + (row > before) - (row < before)
        yield from ((column, y) for y in range(min(start, row), max(start, row) + 1))
        before = row


def _value_at(points: Sequence[tuple[float, float]], x: float) -> float | None:
    """The value between the points around x; that of the first before it; None after the last one."""
    previous: tuple[float, float] | None = None
    for point in points:
        if x <= point[0]:
            if previous is None:
                return point[1]
            share = (x - previous[0]) / (point[0] - previous[0])
            return previous[1] + share * (point[1] - previous[1])
        previous = point
    return None


def _row_of(value: float, frame: PlotRange, rows: int) -> int:
    """The row of a value, counted from the top."""
    span = log10(frame.top) - log10(frame.bottom)
    share = (log10(max(value, frame.bottom)) - log10(frame.bottom)) / span
    return rows - 1 - min(round(share * (rows - 1)), rows - 1)
