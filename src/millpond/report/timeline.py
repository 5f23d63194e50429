"""The order in time of the streams of a query: which come before which, and how long rows are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from millpond.analysis.blocks import open_blocks
from millpond.analysis.verdict import Verdict
from millpond.query.durations import format_duration
from millpond.query.model import Select
from millpond.query.normalize import TooManyParts
from millpond.query.parts import split_into_parts
from millpond.query.time_order import TimeOrder
from millpond.query.variants import join_subqueries

# Lengths in pixels.
_WIDTH, _LEFT, _NOW, _ROW = 440.0, 120.0, 360.0, 34.0
_MOST_NAME = 15

TIMELINE_STYLE = (
    ".mp-timeline{display:block;max-width:100%;height:auto;font:12px system-ui,sans-serif}"
    ".mp-timeline text{fill:var(--mp-text)}.mp-timeline .dim{fill:var(--mp-dim)}"
    ".mp-timeline .axis{stroke:var(--mp-dim);stroke-width:1}"
    ".mp-timeline .now{stroke:var(--mp-dim);stroke-width:1;stroke-dasharray:3 4}"
    ".mp-timeline .bar{fill:var(--mp-shade);stroke:var(--mp-ours);stroke-width:1}"
)


@dataclass(frozen=True)
class KeptFor:
    """A stream and for how many seconds its rows are kept."""

    stream: str
    seconds: float


@dataclass(frozen=True)
class TimeFacts:
    """What a query says about time: sentences about the order of its streams, and how long rows are kept."""

    orders: tuple[str, ...]
    windows: tuple[KeptFor, ...]


def find_time_facts(verdict: Verdict) -> TimeFacts | None:
    """What is known of the time order and the windows of a query; None if time plays no part."""
    orders = [
        text
        for select in open_blocks(verdict.query).selects
        for text in _describe_order(join_subqueries(select))
    ]
    windows = [KeptFor(each["stream"], each["seconds"]) for each in verdict.state.windows]
    if not orders and not windows:
        return None
    return TimeFacts(tuple(dict.fromkeys(orders)), tuple(dict.fromkeys(windows)))


def _describe_order(select: Select) -> list[str]:
    """For each pair of occurrences how far apart their timestamps may be, as far as it is bounded."""
    try:
        parts = split_into_parts(select, disjoint=False)
    except TooManyParts:
        return []
    if len(parts) != 1:
        return []
    order = TimeOrder(parts[0])
    aliases = [alias for alias in order.time_columns if alias in parts[0].aliases]
    pairs = [(a, b) for i, a in enumerate(aliases) for b in aliases[i + 1 :]]
    lines = [text for a, b in pairs if (text := _describe_pair(order, a, b))]
    return [*lines, *_describe_last(order)]


def _describe_pair(order: TimeOrder, a: str, b: str) -> str | None:
    """How two timestamps compare: ``b`` within a window of ``a``, before it, or after it."""
    later, earlier = order.max_lag(b, a), order.max_lag(a, b)
    if later is not None and earlier is not None:
        if later == earlier == 0:
            return f"{a} and {b} have the same timestamp."
        low, high = -earlier, later
        if low >= 0:
            since = f"{format_duration(low)} to " if low > 0 else "at most "
            return f"A row of {b} comes {since}{format_duration(high)} after the row of {a} that it matches."
        if high <= 0:
            since = f"{format_duration(-high)} to " if high < 0 else "at most "
            return f"A row of {b} comes {since}{format_duration(-low)} before the row of {a} that it matches."
        return (
            f"A row of {b} comes at most {format_duration(-low)} before and {format_duration(high)} after "
            f"the row of {a} that it matches."
        )
    for first, second, lag in ((a, b, earlier), (b, a, later)):
        if lag is not None and lag <= 0:
            return f"{first} comes before {second}." if lag else f"{first} does not come after {second}."
        if lag is not None:
            return f"{first} comes at most {format_duration(lag)} after {second}."
    return None


def _describe_last(order: TimeOrder) -> list[str]:
    last = order.last_group
    if last is None or len(order.endless) < 2:
        return []
    return [f"{' and '.join(last)} comes last: its rows are answered at once and need not wait for others."]


def draw_timeline(windows: Sequence[KeptFor]) -> str:
    """The time for which rows are kept, as bars that end now."""
    longest = max(each.seconds for each in windows)
    height = _ROW * len(windows) + 34
    parts, texts = [], []
    for number, each in enumerate(windows):
        y = 8 + _ROW * number
        width = max((_NOW - _LEFT) * each.seconds / longest, 3) if longest else 3.0
        size = format_duration(round(each.seconds * 1e6))
        name = each.stream if len(each.stream) <= _MOST_NAME else each.stream[: _MOST_NAME - 1] + "…"
        parts.append(
            f"<g><title>{escape(each.stream)}: {size}</title>"
            f'<text x="0" y="{y + 17:.0f}">{escape(name)}</text>'
            f'<rect class="bar" x="{_NOW - width:.1f}" y="{y:.0f}" width="{width:.1f}" height="24" rx="4"/>'
            f'<text x="{_NOW + 8:.0f}" y="{y + 17:.0f}">{size}</text></g>'
        )
        texts.append(f"{each.stream}: {size}")
    bottom = 8 + _ROW * len(windows)
    title = "How long rows are kept"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="mp-timeline" role="img" aria-label="{title}" '
        f'width="{_WIDTH:.0f}" height="{height:.0f}" viewBox="0 0 {_WIDTH:.0f} {height:.0f}">'
        f"<title>{title}</title><desc>{escape('; '.join(texts))}</desc>"
        f'<line class="now" x1="{_NOW}" y1="0" x2="{_NOW}" y2="{bottom:.0f}"/>'
        f'<line class="axis" x1="{_LEFT}" y1="{bottom:.0f}" x2="{_NOW}" y2="{bottom:.0f}"/>'
        f'<text class="dim" x="{_NOW}" y="{bottom + 17:.0f}" text-anchor="middle">now</text>'
        f'<text class="dim" x="{_LEFT}" y="{bottom + 17:.0f}">earlier</text>{"".join(parts)}</svg>'
    )
