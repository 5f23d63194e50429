"""The progress of a run: one line that is redrawn on a terminal, or a line every ten seconds in a log."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from typing import Self, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from millpond.analysis.reasons import join_words
from millpond.cli.command import flatten
from millpond.query.durations import format_duration
from millpond.spark.progress import MissedReport, Notice, Phase, Snapshot

_BAR = 10  # cells
_PLAIN_SECONDS = 10.0
# Phases without any totals to show.
_EARLY = (Phase.STARTING, Phase.PLANNING, Phase.FIRST_BATCH)
_STYLES = {Phase.RUNNING: "bold green", Phase.WAITING: "bold cyan", Phase.STOPPING: "bold yellow"}


def status_line(snapshot: Snapshot, width: int, ascii_only: bool = False) -> Text:
    """One line of at most ``width`` cells; if it is too long, the least important parts are left out."""
    phase = Text(snapshot.phase.value, style=_STYLES.get(snapshot.phase, "bold"))
    if snapshot.phase in _EARLY:
        if snapshot.waiting_for:
            phase.append(f": {snapshot.waiting_for}")
        line = phase + Text(f"  {_elapsed(snapshot)}", style="dim")
        line.truncate(width)
        return line
    # In the order of the line, each with its rank: the highest rank is left out first.
    parts = [
        (0, phase),
        (1, Text(f"{abbreviate(snapshot.rows_per_second)} rows/s")),
        (3, Text(f"{abbreviate(snapshot.input_rows)} in")),
        (2, Text(f"{abbreviate(snapshot.output_rows)} out")),
        (4, _state_bar(snapshot, ascii_only)),
    ]
    if snapshot.waiting_rows:
        parts.append((3, Text(f"{abbreviate(snapshot.waiting_rows)} waiting", style="cyan")))
    if snapshot.shed_rows:
        parts.append((3, Text(f"{abbreviate(snapshot.shed_rows)} shed", style="yellow")))
        parts.append((2, Text(f"~{abbreviate(snapshot.missed.missed)} missed", style="yellow")))
    if snapshot.lookups:
        parts.append((2, Text(f"{snapshot.lookup_hits / snapshot.lookups:.1%} of lookups cached")))
    for rate in snapshot.rates:
        if rate.is_exceeded:
            parts.append((1, Text(f"{rate.stream} above its rate", style="bold red")))
    for each in snapshot.cardinalities:
        if each.is_exceeded:
            words = f"{each.stream}.{each.column} above its cardinality"
            parts.append((1, Text(words, style="bold red")))
    if snapshot.rejected_rows:
        parts.append((1, Text(f"{abbreviate(snapshot.rejected_rows)} rejected", style="bold red")))
    if snapshot.batch_seconds is not None:
        last = f"batch {snapshot.batches} took {_duration(snapshot.batch_seconds)}"
        parts.append((5, Text(last, style="dim")))
    while True:
        line = Text("  ").join(part for _, part in parts)
        if line.cell_len <= width or len(parts) == 1:
            line.truncate(width)
            return line
        parts.remove(max(parts, key=lambda part: part[0]))


def plain_line(snapshot: Snapshot) -> str:
    """The line for a log."""
    if snapshot.phase in _EARLY:
        what = f": {snapshot.waiting_for}" if snapshot.waiting_for else ""
        since = f" ({_elapsed(snapshot)})" if snapshot.seconds >= 1 else ""
        return f"millpond: {snapshot.phase.value}{what}{since}"
    rate = f" ({snapshot.rows_per_second:,.0f} rows/s)"
    last = f", last batch {_duration(snapshot.batch_seconds)}" if snapshot.batch_seconds is not None else ""
    return f"millpond: {snapshot.phase.value}: {_totals(snapshot, rate)}{last}"


def summary_line(snapshot: Snapshot, output: str) -> str:
    """The last line of a run: its totals, and where its output is."""
    ended = f"{snapshot.phase.value} after {_duration(snapshot.seconds)}"
    rejected = f"; rejected rows: {output}/_rejected" if snapshot.rejected_rows else ""
    return f"millpond: {ended}: {_totals(snapshot)}; output: {output}{rejected}"


def promise_lines(snapshot: Snapshot) -> list[str]:
    """A line for each declared rate or cardinality that was exceeded, and for each window of unknown size."""
    kept = f" of {snapshot.state_bound:,} entries" if snapshot.state_bound is not None else ""
    lines = [
        f"millpond: {each.stream}.{each.column} exceeded its declared cardinality of {each.declared:,}: "
        f"about {each.values:,} values; the bound{kept} is no longer guaranteed; "
        f"declare 'cardinality.{each.column}' = '{each.values}'"
        for each in snapshot.cardinalities
        if each.is_exceeded
    ]
    for rate in snapshot.rates:
        if rate.is_exceeded:
            lines.append(
                f"millpond: {rate.stream} exceeded its declared rate of {rate.declared:,} rows/s: "
                f"{rate.peak:,} in one second; the bound{kept} is no longer guaranteed; "
                f"declare 'rate' = '{rate.peak} per second'"
            )
        elif rate.declared is None and rate.window is not None:
            length = format_duration(round(rate.window * 1_000_000))
            lines.append(
                f"millpond: the last {length} of {rate.stream} is about "
                f"{abbreviate(rate.average * rate.window)} rows at {_rate(rate.average)} rows/s "
                f"(at most {rate.peak:,} in one second)"
            )
    return lines


def _rate(rows: float) -> str:
    """
    >>> [_rate(rows) for rows in (1480.2, 12.0, 3.14159, 0.00123)]
    ['1,480', '12', '3.1', '0.0012']
    """
    return f"{rows:,.0f}" if rows >= 10 else f"{rows:.2g}"


def abbreviate(number: float) -> str:
    """A number with three digits and a unit.

    >>> [abbreviate(n) for n in (0, 999, 1000, 12_345, 999_999, 1_234_567, 5e9)]
    ['0', '999', '1.00k', '12.3k', '1.00M', '1.23M', '5.00G']
    """
    for letter in ("", "k", "M", "G"):
        digits = 0 if letter == "" else 2 if number < 9.995 else 1 if number < 99.95 else 0
        if round(number, digits) < 1000:
            return f"{number:.{digits}f}{letter}"
        number /= 1000
    return f"{number:.1f}T"


def _totals(snapshot: Snapshot, rate: str = "") -> str:
    bound = f" of at most {snapshot.state_bound:,}" if snapshot.state_bound is not None else ""
    parts = [
        f"{snapshot.batches:,} {'batch' if snapshot.batches == 1 else 'batches'}",
        f"{snapshot.input_rows:,} rows in{rate}",
        f"{snapshot.output_rows:,} out",
        f"{snapshot.rejected_rows:,} rejected",
        f"{snapshot.state_entries:,}{bound} entries kept",
    ]
    if snapshot.waiting_rows:
        parts.append(f"{snapshot.waiting_rows:,} rows waiting")
    above = [rate.stream for rate in snapshot.rates if rate.is_exceeded]
    if above:
        parts.append(f"{join_words(above)} above the declared rate")
    many = [f"{each.stream}.{each.column}" for each in snapshot.cardinalities if each.is_exceeded]
    if many:
        parts.append(f"{join_words(many)} above the declared cardinality")
    if snapshot.shed_rows:
        parts.append(f"{snapshot.shed_rows:,} shed")
        parts.append(_missed(snapshot.missed))
    if snapshot.lookups:
        ratio = snapshot.lookup_hits / snapshot.lookups
        parts.append(f"{snapshot.lookups:,} lookups, {ratio:.1%} from the cache")
    return ", ".join(parts)


def _missed(report: MissedReport) -> str:
    """
    >>> _missed(MissedReport(400, 600, 580, 630)), _missed(MissedReport(13, 7, 7, 7))
    ('about 600 results missed (95% interval: 580 to 630; 40.0% found)', '7 results missed (65.0% found)')
    """
    found = f"{report.share_found:.1%} found"
    if report.low is None or report.high is None:
        return f"roughly {report.missed:,} results missed (no interval for three or more streams; {found})"
    if report.low == report.high == report.missed:
        return f"{report.missed:,} results missed ({found})"
    interval = f"95% interval: {report.low:,} to {report.high:,}"
    return f"about {report.missed:,} results missed ({interval}; {found})"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _elapsed(snapshot: Snapshot) -> str:
    return f"{snapshot.seconds:.0f} s" if snapshot.seconds < 60 else _duration(snapshot.seconds)


def _state_bar(snapshot: Snapshot, ascii_only: bool) -> Text:
    """The entries as a share of the bound: an empty bar means no entry, a full bar the bound itself."""
    kept, bound = snapshot.state_entries, snapshot.state_bound
    if not bound:
        return Text(f"state {abbreviate(kept)}")
    full, empty = "#-" if ascii_only else "█░"
    cells = min(ceil(kept / bound * _BAR), _BAR if kept >= bound else _BAR - 1)
    bar = Text(full * cells, style="red" if kept > bound else "green").append(
        empty * (_BAR - cells), style="dim"
    )
    return Text("state ").append_text(bar).append(f" {abbreviate(kept)} of {abbreviate(bound)}")


class ProgressDisplay:
    """Shows each snapshot of a run on a stream; if ``quiet``, only warnings.

    On a terminal, the line is redrawn four times a second, so that the time goes on between snapshots.
    """

    def __init__(
        self, stream: TextIO, clock: Callable[[], float] = time.monotonic, quiet: bool = False
    ) -> None:
        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        self._clock = clock
        self._quiet = quiet
        self._last_shown: float | None = None
        self._last_line = ""
        self._latest: tuple[Snapshot, float] | None = None
        self._live: Live | None = None
        if self._console.is_terminal and os.environ.get("TERM") not in ("dumb", "unknown") and not quiet:
            self._live = Live(
                console=self._console,
                get_renderable=self._draw,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, snapshot: Snapshot) -> None:
        self._latest = (snapshot, self._clock())
        if self._live is not None:
            self._live.refresh()
        elif not self._quiet and (
            self._last_shown is None or self._clock() - self._last_shown >= _PLAIN_SECONDS
        ):
            self._last_shown = self._clock()
            if (line := plain_line(snapshot)) != self._last_line:  # a run that waits has nothing new
                self._console.print(Text(line))
            self._last_line = line

    def notify(self, notice: Notice) -> None:
        """Print a line above the progress."""
        if notice.is_warning or not self._quiet:
            text = Text(flatten(f"millpond: {notice.text}"))
            self._console.print(text, soft_wrap=not self._console.is_terminal)

    def _draw(self) -> Text:
        if self._latest is None:
            return Text()
        snapshot, at = self._latest
        snapshot = replace(snapshot, seconds=snapshot.seconds + self._clock() - at)
        return status_line(snapshot, self._console.width, self._console.options.ascii_only)
