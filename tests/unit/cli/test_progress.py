"""The progress line and the summary of a run."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest

from millpond.cli.progress import ProgressDisplay, plain_line, promise_lines, status_line, summary_line
from millpond.spark.progress import CardinalityReport, Notice, Phase, RateReport, Snapshot

BUSY = Snapshot(
    Phase.RUNNING,
    batches=12,
    input_rows=34_512_345,
    output_rows=1_203,
    rejected_rows=3,
    state_entries=31,
    state_bound=48,
    rows_per_second=1_234_567.8,
    batch_seconds=1.34,
    seconds=75.2,
)
FIRST = Snapshot(Phase.FIRST_BATCH, "waiting for Python workers", seconds=12.4)
CALM = replace(BUSY, rejected_rows=0, phase=Phase.WAITING, rows_per_second=0.0)


FULL = "running  1.23M rows/s  34.5M in  1.20k out  state ███████░░░ 31 of 48  3 rejected"


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (120, f"{FULL}  batch 12 took 1.3 s"),
        (90, FULL),
        (60, "running  1.23M rows/s  34.5M in  1.20k out  3 rejected"),
        (50, "running  1.23M rows/s  1.20k out  3 rejected"),
        (7, "running"),
        (4, "runn"),
    ],
)  # fmt: skip
def test_the_least_important_parts_are_left_out_first(width: int, line: str) -> None:
    assert status_line(BUSY, width).plain == line


@pytest.mark.parametrize(
    "snapshot", [BUSY, CALM, FIRST, Snapshot(Phase.STARTING)], ids=lambda s: s.phase.name
)
def test_the_line_fits_every_width(snapshot: Snapshot) -> None:
    assert [width for width in range(1, 130) if status_line(snapshot, width).cell_len > width] == []


def test_rejected_rows_are_shown_when_there_are_some() -> None:
    assert "rejected" not in status_line(CALM, 200).plain
    assert "3 rejected" in status_line(BUSY, 200).plain


@pytest.mark.parametrize(
    ("kept", "bound", "shown"),
    [
        (0, 48, "state ░░░░░░░░░░ 0 of 48"),
        (1, 10_000, "state █░░░░░░░░░ 1 of 10.0k"),
        (24, 48, "state █████░░░░░ 24 of 48"),
        (47, 48, "state █████████░ 47 of 48"),
        (48, 48, "state ██████████ 48 of 48"),
        (50, 48, "state ██████████ 50 of 48"),
        (0, 0, "state 0"),
        (7, None, "state 7"),
    ],
)
def test_the_bar_is_empty_without_an_entry_and_full_at_the_bound(
    kept: int, bound: int | None, shown: str
) -> None:
    line = status_line(replace(CALM, state_entries=kept, state_bound=bound), 200).plain
    assert f"  {shown}  " in line


def test_more_entries_than_proven_are_red() -> None:
    over, within = (status_line(replace(CALM, state_entries=n), 200) for n in (49, 48))
    assert "red" in {str(span.style) for span in over.spans}
    assert "red" not in {str(span.style) for span in within.spans}


def test_a_terminal_without_block_characters_gets_ascii() -> None:
    assert status_line(BUSY, 200, ascii_only=True).plain.isascii()


def test_plain_lines() -> None:
    assert plain_line(Snapshot(Phase.STARTING)) == "millpond: starting Spark"
    assert plain_line(Snapshot(Phase.PLANNING, seconds=71.2)) == "millpond: planning the query (1 min 11 s)"
    assert plain_line(FIRST) == "millpond: first batch: waiting for Python workers (12 s)"
    assert plain_line(BUSY) == (
        "millpond: running: 12 batches, 34,512,345 rows in (1,234,568 rows/s), 1,203 out, 3 rejected, "
        "31 of at most 48 entries kept, last batch 1.3 s"
    )


@pytest.mark.parametrize(
    ("snapshot", "line"),
    [
        (
            replace(BUSY, phase=Phase.DONE),
            "millpond: done after 1 min 15 s: 12 batches, 34,512,345 rows in, 1,203 out, 3 rejected, "
            "31 of at most 48 entries kept; output: out; rejected rows: out/_rejected",
        ),
        (
            Snapshot(Phase.STOPPED, batches=1, state_entries=2, seconds=7_322.0),
            "millpond: stopped after 2 h 2 min: 1 batch, 0 rows in, 0 out, 0 rejected, 2 entries kept; "
            "output: out",
        ),
    ],
)
def test_summary(snapshot: Snapshot, line: str) -> None:
    assert summary_line(snapshot, "out") == line


# --- display ---------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, seconds: list[float]) -> str:
    """What a display prints if it gets a snapshot at each of these times."""
    now = [0.0]
    with ProgressDisplay(stream, lambda: now[0]) as display:
        for number, now[0] in enumerate(seconds):
            display.show(replace(BUSY, batches=number))
    return stream.getvalue()


def test_a_log_gets_a_line_every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")  # a log is not wrapped
    out = shown(io.StringIO(), [0.0, 0.2, 9.9, 10.0, 10.2, 19.9, 20.1])
    assert re.findall(r"running: (\d+) batch", out) == ["0", "3", "6"]
    assert out.count("\n") == 3 and "\x1b" not in out


def test_a_terminal_gets_one_line_that_is_redrawn_and_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    out = shown(Terminal(), [0.0, 0.2, 0.4])
    assert list(dict.fromkeys(re.findall(r"batch (\d+) took", out))) == ["0", "1", "2"]
    assert out.rindex("\x1b[2K") > out.rindex("took")  # erased at the end
    assert out.rindex("\x1b[?25h") > out.rindex("\x1b[?25l")  # and the cursor is back


def test_the_time_goes_on_between_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    now = [0.0]
    stream = Terminal()
    with ProgressDisplay(stream, lambda: now[0]) as display:
        display.show(FIRST)
        now[0] = 7.2
        display.notify(Notice("resuming after batch 41 with 400 entries"))
    out = stream.getvalue()
    assert "waiting for Python workers" in out and "12 s" in out and "20 s" in out
    assert "millpond: resuming after batch 41 with 400 entries\n" in out


def test_a_quiet_display_shows_only_warnings() -> None:
    stream = io.StringIO()
    with ProgressDisplay(stream, quiet=True) as display:
        display.show(BUSY)
        display.notify(Notice("resuming"))
        display.notify(Notice("look at this", is_warning=True))
    assert stream.getvalue() == "millpond: look at this\n"


@pytest.mark.parametrize("kind", ["dumb", "unknown"])
def test_a_terminal_that_cannot_redraw_gets_plain_lines(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", kind)
    assert shown(Terminal(), [0.0, 0.2]).count("millpond: running") == 1


# --- rates -------------------------------------------------------------------------------------------

ABOVE = RateReport("orders", 900.0, 1480, declared=1000, window=3600.0)
UNKNOWN = RateReport("clicks", 1000.0, 1200, window=3600.0)
WITHIN = RateReport("payments", 5.0, 7, declared=10, window=60.0)


def test_a_rate_that_was_exceeded_is_reported() -> None:
    fast = replace(BUSY, rates=(ABOVE, WITHIN))
    assert "orders above its rate" in status_line(fast, 200).plain
    assert "orders above the declared rate" in plain_line(fast)
    assert promise_lines(fast) == [
        "millpond: orders exceeded its declared rate of 1,000 rows/s: 1,480 in one second; "
        "the bound of 48 entries is no longer guaranteed; declare 'rate' = '1480 per second'"
    ]
    assert "the bound is no longer guaranteed" in promise_lines(replace(fast, state_bound=None))[0]


def test_the_size_of_a_window_is_estimated_at_the_rate_that_was_seen() -> None:
    assert promise_lines(replace(BUSY, rates=(UNKNOWN,))) == [
        "millpond: the last 1 h of clicks is about 3.60M rows at 1,000 rows/s (at most 1,200 in one second)"
    ]
    assert promise_lines(BUSY) == promise_lines(replace(BUSY, rates=(WITHIN,))) == []


def test_a_broken_cardinality_is_reported() -> None:
    broken = replace(BUSY, cardinalities=(CardinalityReport("visits", "user", 1200, 1000),), state_bound=1001)
    assert "visits.user above its cardinality" in status_line(broken, 300).plain
    assert "visits.user above the declared cardinality" in plain_line(broken)
    assert promise_lines(broken) == [
        "millpond: visits.user exceeded its declared cardinality of 1,000: about 1,200 values; the bound of "
        "1,001 entries is no longer guaranteed; declare 'cardinality.user' = '1200'"
    ]
    kept = CardinalityReport("visits", "user", 1_020_000, 1_000_000)  # within the error of the estimate
    assert promise_lines(replace(BUSY, cardinalities=(kept,))) == []
