"""What a run shows of itself: a line that lives on a terminal, plain lines now and then elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from math import ceil
from typing import Self, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

_BAR = 10  # cells
_PLAIN_SECONDS = 10.0


class Phase(Enum):
    STARTING = "starting Spark"
    RUNNING = "running"
    WAITING = "waiting for rows"
    STOPPING = "stopping after this batch"
    DONE = "done"
    STOPPED = "stopped"


_STYLES = {Phase.RUNNING: "bold green", Phase.WAITING: "bold cyan", Phase.STOPPING: "bold yellow"}


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment.  ``state_bound`` is the proven bound on ``state_entries``, None without one."""

    phase: Phase
    batches: int = 0
    input_rows: int = 0
    output_rows: int = 0
    rejected_rows: int = 0
    state_entries: int = 0
    state_bound: int | None = None
    waiting_rows: int = 0
    shed_rows: int = 0
    missed_rows: int = 0  # an estimate, and its standard error
    missed_error: float = 0.0
    lookups: int = 0
    lookup_hits: int = 0
    rows_per_second: float = 0.0
    batch_seconds: float | None = None  # of the last batch
    seconds: float = 0.0


def status_line(snapshot: Snapshot, width: int, ascii_only: bool = False) -> Text:
    """One line of at most ``width`` cells; what matters least goes first where there is no room."""
    phase = Text(snapshot.phase.value, style=_STYLES.get(snapshot.phase, "bold"))
    if snapshot.phase is Phase.STARTING:
        phase.truncate(width)
        return phase
    # In the order of the line, each with its rank: the highest number is left out first.
    parts = [
        (0, phase),
        (1, Text(f"{short(snapshot.rows_per_second)} rows/s")),
        (3, Text(f"{short(snapshot.input_rows)} in")),
        (2, Text(f"{short(snapshot.output_rows)} out")),
        (4, _state(snapshot, ascii_only)),
    ]
    if snapshot.waiting_rows:
        parts.append((3, Text(f"{short(snapshot.waiting_rows)} waiting", style="cyan")))
    if snapshot.shed_rows:
        parts.append((3, Text(f"{short(snapshot.shed_rows)} shed", style="yellow")))
        parts.append((2, Text(f"~{short(snapshot.missed_rows)} missed", style="yellow")))
    if snapshot.lookups:
        parts.append((2, Text(f"{snapshot.lookup_hits / snapshot.lookups:.1%} of look-ups cached")))
    if snapshot.rejected_rows:
        parts.append((1, Text(f"{short(snapshot.rejected_rows)} rejected", style="bold red")))
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
    """The same for a log."""
    if snapshot.phase is Phase.STARTING:
        return f"millpond: {snapshot.phase.value}"
    rate = f" ({snapshot.rows_per_second:,.0f} rows/s)"
    last = f", last batch {_duration(snapshot.batch_seconds)}" if snapshot.batch_seconds is not None else ""
    return f"millpond: {snapshot.phase.value}: {_totals(snapshot, rate)}{last}"


def summary(snapshot: Snapshot, output: str) -> str:
    """What a run leaves behind, in one line."""
    ended = f"{snapshot.phase.value} after {_duration(snapshot.seconds)}"
    rejected = f"; rejected rows: {output}/_rejected" if snapshot.rejected_rows else ""
    return f"millpond: {ended}: {_totals(snapshot)}; output: {output}{rejected}"


def short(number: float) -> str:
    """Three digits and a letter.

    >>> [short(n) for n in (0, 999, 1000, 12_345, 999_999, 1_234_567, 5e9)]
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
        _counted(snapshot.batches, "batch", "batches"),
        f"{snapshot.input_rows:,} rows in{rate}",
        f"{snapshot.output_rows:,} out",
        f"{snapshot.rejected_rows:,} rejected",
        f"{snapshot.state_entries:,}{bound} entries kept",
    ]
    if snapshot.waiting_rows:
        parts.append(f"{snapshot.waiting_rows:,} rows waiting")
    if snapshot.shed_rows:
        missed, error = snapshot.missed_rows, 2 * snapshot.missed_error
        share = snapshot.output_rows / max(snapshot.output_rows + missed, 1)
        parts.append(f"{snapshot.shed_rows:,} shed")
        parts.append(f"about {missed:,} ± {error:,.0f} results missed ({share:.1%} found)")
    if snapshot.lookups:
        ratio = snapshot.lookup_hits / snapshot.lookups
        parts.append(f"{snapshot.lookups:,} look-ups, {ratio:.1%} from the cache")
    return ", ".join(parts)


def _counted(number: int, one: str, several: str) -> str:
    return f"{number:,} {one if number == 1 else several}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _state(snapshot: Snapshot, ascii_only: bool) -> Text:
    """Entries against the bound, as a bar: empty only without an entry, full only at the bound."""
    kept, bound = snapshot.state_entries, snapshot.state_bound
    if not bound:
        return Text(f"state {short(kept)}")
    full, empty = "#-" if ascii_only else "█░"
    cells = min(ceil(kept / bound * _BAR), _BAR if kept >= bound else _BAR - 1)
    bar = Text(full * cells, style="red" if kept > bound else "green").append(
        empty * (_BAR - cells), style="dim"
    )
    return Text("state ").append_text(bar).append(f" {short(kept)} of {short(bound)}")


class Display:
    """Shows snapshots as they come."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        self._clock = clock
        self._told: float | None = None
        self._live: Live | None = None
        if self._console.is_terminal and os.environ.get("TERM") not in ("dumb", "unknown"):
            self._live = Live(
                console=self._console,
                auto_refresh=False,
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
        if self._live is not None:
            options = self._console.options
            line = status_line(snapshot, self._console.width, options.ascii_only)
            self._live.update(line, refresh=True)
        elif self._told is None or self._clock() - self._told >= _PLAIN_SECONDS:
            self._told = self._clock()
            self._console.print(Text(plain_line(snapshot)))
