"""Draws line charts as SVG: axes, ticks, lines with their names at the end, and a description in words.

A chart takes its colours from the page, like the picture of a query.  A logarithmic axis has 0 at its begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

# Lengths in pixels.
_WIDTH, _HEIGHT = 440.0, 270.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 18.0, 34.0, 46.0
_LEAST_DISTANCE = 16.0  # between the names of two lines
_MOST_NAME = 48

CHART_STYLE = (
    ".mp-chart{display:block;max-width:100%;height:auto;font:12px system-ui,sans-serif}"
    ".mp-chart text{fill:var(--mp-text)}.mp-chart .dim{fill:var(--mp-dim)}"
    ".mp-chart .grid{stroke:var(--mp-grid);stroke-width:1}"
    ".mp-chart .axis{stroke:var(--mp-dim);stroke-width:1}"
    ".mp-chart .line{fill:none;stroke-width:2.4;stroke-linejoin:round;stroke-linecap:round}"
    ".mp-chart .point{stroke:none}"
    ".mp-chart .name{font-weight:600;paint-order:stroke;stroke:var(--mp-back);stroke-width:4px}"
    + "".join(
        f".mp-chart .{name} .line{{stroke:var({colour})}}.mp-chart .{name} .point{{fill:var({colour})}}"
        f".mp-chart .{name} .name{{fill:var({colour})}}"
        for name, colour in (
            ("ours", "--mp-ours"),
            ("spark", "--mp-spark"),
            ("proof", "--mp-accent"),
            ("plain", "--mp-dim"),
        )
    )
    + ".mp-chart .dashed .line{stroke-dasharray:7 5}.mp-chart .dotted .line{stroke-dasharray:2 5}"
)


@dataclass(frozen=True)
class Series:
    """A line: its name, its points, its colour (``ours``, ``spark``, ``proof`` or ``plain``) and its dashes.

    ``dashes``: "" for measured values, "dashed" for a model or a bound, "dotted" for a limit.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    colour: str = "ours"
    dashes: str = ""
    has_points: bool = False


@dataclass(frozen=True)
class Chart:
    """A chart of lines over a common axis; ``is_log``: both axes are logarithmic."""

    title: str
    x_name: str
    y_name: str
    series: tuple[Series, ...]
    is_log: bool = False


def draw_chart(chart: Chart) -> str:
    """The chart as an ``<svg>`` element, whose text alternative has the ends of each line."""
    xs = [x for each in chart.series for x, _ in each.points]
    ys = [y for each in chart.series for _, y in each.points]
    x_axis = _Axis(min(xs, default=0), max(xs, default=1), chart.is_log)
    y_axis = _Axis(0, max(ys, default=1), chart.is_log)
    plot = _Plot(x_axis, y_axis, _LEFT, _WIDTH - _RIGHT, _TOP, _HEIGHT - _BOTTOM)
    parts = [*plot.draw_axes(chart), *plot.draw_lines(chart.series)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="mp-chart" role="img" '
        f'aria-label="{escape(chart.title)}" width="{_WIDTH:.0f}" height="{_HEIGHT:.0f}" '
        f'viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}"><title>{escape(chart.title)}</title>'
        f"<desc>{escape(describe_chart(chart))}</desc>{''.join(parts)}</svg>"
    )


def describe_chart(chart: Chart) -> str:
    """The content of a chart in words.

    >>> describe_chart(Chart("State", "rows", "entries", (Series("bound", ((0, 3), (100, 3))),)))
    'entries against rows. bound: 3 at 0, 3 at 100.'
    """
    lines = [f"{chart.y_name} against {chart.x_name}."]
    for each in chart.series:
        if each.points and each.name:
            ends = dict.fromkeys((each.points[0], each.points[-1]))
            shown = ", ".join(f"{show_number(y)} at {show_number(x)}" for x, y in ends)
            lines.append(f"{each.name}: {shown}.")
    return " ".join(lines)


def show_number(value: float) -> str:
    """A number as an axis shows it.

    >>> [show_number(value) for value in (0, 0.25, 12, 1500, 20_000, 3_500_000)]
    ['0', '0.25', '12', '1,500', '20k', '3.5M']
    """
    if abs(value) >= 1e15:
        return f"{value:.0e}".replace("e+", "e")
    for size, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if suffix == 'k' else size):.3g}{suffix}"
    return f"{value:,.0f}" if value == int(value) else f"{value:.3g}"


@dataclass(frozen=True)
class _Axis:
    """An axis from ``low`` to ``high``, with its ticks."""

    low: float
    high: float
    is_log: bool

    @property
    def ticks(self) -> list[float]:
        if self.is_log:
            decades = ceil(log10(max(self.high, 10)))
            step = max(1, ceil(decades / 7))
            powers = [10.0**i for i in range(0, decades + step, step)]
            return powers if self.low >= 1 else [0.0, *powers]
        width = _round_step((self.high - self.low) / 5 or 1)
        first = floor(self.low / width)
        last = max(ceil(self.high / width - 1e-9), first + 1)
        return [i * width for i in range(first, last + 1)]

    def find(self, value: float) -> float:
        """The place of a value: 0 at the begin of the axis, 1 at its end."""
        low, high = self._scale(self.ticks[0]), self._scale(self.ticks[-1])
        return (self._scale(value) - low) / (high - low)

    def _scale(self, value: float) -> float:
        if not self.is_log:
            return value
        return log10(value) + 1 if value >= 1 else max(value, 0.0)


def _round_step(step: float) -> float:
    """The next larger step that is easy to read: 1, 2 or 5 times a power of ten."""
    power = 10.0 ** floor(log10(step))
    return next(n * power for n in (1, 2, 5, 10) if n * power >= step * 0.999)


@dataclass(frozen=True)
class _Plot:
    """The area between the axes."""

    x_axis: _Axis
    y_axis: _Axis
    left: float
    right: float
    top: float
    bottom: float

    def _place(self, x: float, y: float) -> tuple[float, float]:
        return (
            self.left + self.x_axis.find(x) * (self.right - self.left),
            self.bottom - self.y_axis.find(y) * (self.bottom - self.top),
        )

    def draw_axes(self, chart: Chart) -> list[str]:
        parts = []
        for tick in self.y_axis.ticks:
            y = self._place(self.x_axis.ticks[0], tick)[1]
            parts.append(_draw_segment("grid", self.left, y, self.right, y))
            parts.append(_draw_text("dim", self.left - 8, y + 4, show_number(tick), "end"))
        for tick in self.x_axis.ticks:
            x = self._place(tick, self.y_axis.ticks[0])[0]
            parts.append(_draw_segment("axis", x, self.bottom, x, self.bottom + 4))
            parts.append(_draw_text("dim", x, self.bottom + 18, show_number(tick), "middle"))
        parts.append(_draw_segment("axis", self.left, self.bottom, self.right, self.bottom))
        parts.append(_draw_text("", 4, 16, chart.y_name, "start"))
        parts.append(_draw_text("", (self.left + self.right) / 2, _HEIGHT - 8, chart.x_name, "middle"))
        return parts

    def draw_lines(self, series: Sequence[Series]) -> list[str]:
        shown = [each for each in series if each.points]
        lines = [self._draw_line(each) for each in shown]
        named = (
            [each for each in shown if each.name] if len(shown) > 1 else []
        )  # one line is what the title says
        heights = _spread([self._place(*each.points[-1])[1] for each in named], self.top + 6, self.bottom - 4)
        # The names come last, so that no line crosses them.
        return lines + [self._draw_name(each, y) for each, y in zip(named, heights, strict=True)]

    def _draw_line(self, series: Series) -> str:
        points = [self._place(x, y) for x, y in series.points]
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        dots = [f'<circle class="point" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in points]
        return (
            f'<g class="{series.colour} {series.dashes}"><title>{escape(series.name)}</title>'
            f'<path class="line" d="{path}"/>{"".join(dots) if series.has_points else ""}</g>'
        )

    def _draw_name(self, series: Series, y: float) -> str:
        shown = series.name if len(series.name) <= _MOST_NAME else series.name[: _MOST_NAME - 1] + "…"
        return f'<g class="{series.colour}">{_draw_text("name", self.right - 4, y, shown, "end")}</g>'


def _spread(ends: Sequence[float], top: float, bottom: float) -> list[float]:
    """The heights of names, given the ends of their lines: the first above its line, the others below."""
    placed: dict[int, float] = {}
    for number in sorted(range(len(ends)), key=ends.__getitem__):
        least = max(placed.values(), default=top - _LEAST_DISTANCE) + _LEAST_DISTANCE
        wanted = ends[number] + 16 if placed and ends[number] + 16 <= bottom else ends[number] - 8
        placed[number] = max(wanted, least)
    return [placed[number] for number in range(len(ends))]


def _draw_segment(name: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{name}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _draw_text(name: str, x: float, y: float, text: str, anchor: str) -> str:
    classes = f' class="{name}"' if name else ""
    return f'<text{classes} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
