"""The race as pages: the curves of both sides, and what it has shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10

from rich.console import Group
from rich.text import Text

from millpond.cli.tour.claims import Measured, compare_answers, compare_speed, compare_state, format_ratio
from millpond.cli.tour.curves import Curve, PlotRange, draw_curves
from millpond.cli.tour.parts import heading, paragraph
from millpond.cli.tour.script import GOAL

_HEIGHT = 12
_OURS, _THEIRS = "bold green", "bold red"


@dataclass(frozen=True)
class RaceView:
    """The turns of both sides so far, and the most rows that they may read."""

    ours: Sequence[Measured]
    theirs: Sequence[Measured]
    rows: int

    @property
    def ratio(self) -> float:
        """How many times as much Spark keeps, after the last turn that both have taken."""
        turns = min(len(self.ours), len(self.theirs))
        return self.theirs[turns - 1].kept / max(self.ours[turns - 1].kept, 1) if turns else 0.0

    @property
    def totals(self) -> tuple[Measured, Measured]:
        """Both sides at the end; the first batch, in which they warm up, does not count for the seconds."""
        ours, theirs = (
            Measured(turns[-1].rows, turns[-1].kept, sum(turn.seconds for turn in turns[1:]))
            for turns in (self.ours, self.theirs)
        )
        return ours, theirs


def race_introduction() -> Group:
    """What the two sides of the race run."""
    return Group(
        heading(3, "The repaired query on Spark, beside Spark's own join"),
        paragraph(
            "Both read the same files, a batch each in turn, with their state in RocksDB. Millpond runs the "
            "repaired query; Spark joins and drops duplicates. How much does each keep?"
        ),
    )


def race_plot(view: RaceView, width: int, ascii_only: bool = False) -> Text:
    """What both sides keep, against the rows read."""
    least = min((turn.kept for turn in (*view.ours, *view.theirs) if turn.kept), default=100)
    frame = PlotRange(view.rows, 10 ** floor(log10(least)), view.rows)
    curves = (
        Curve("Spark", [(turn.rows, turn.kept) for turn in view.theirs], _THEIRS, "*"),
        Curve("Millpond", [(turn.rows, turn.kept) for turn in view.ours], _OURS, "o"),
    )
    out = Text().append("rows or entries kept (log scale)\n", "dim")
    out.append_text(draw_curves(curves, frame, width, _HEIGHT, ascii_only))
    return out.append(f"\n{_describe_turn(view)}", "dim")


def _describe_turn(view: RaceView) -> str:
    """
    >>> _describe_turn(RaceView([Measured(10, 2, 0.5)], [Measured(10, 10, 1.5)], 100))
    '10 rows read; 5.0 times as much kept; batch: Millpond 0.5 s, Spark 1.5 s'
    """
    if not view.ours or not view.theirs:
        return "a small batch for both, to warm up …"
    ours, theirs = view.ours[-1], view.theirs[-1]
    times = f"batch: Millpond {ours.seconds:.1f} s, Spark {theirs.seconds:.1f} s"
    return f"{theirs.rows:,} rows read; {format_ratio(view.ratio)} times as much kept; {times}"


def race_line(view: RaceView) -> str:
    """The last turn in one line, for a log.

    >>> race_line(RaceView([Measured(10, 2, 0.5)], [Measured(10, 10, 1.5)], 100))
    '       10 rows read: Millpond keeps    2 (0.5 s), Spark      10 (1.5 s)'
    """
    ours, theirs = view.ours[-1], view.theirs[-1]
    return (
        f"{ours.rows:>9,} rows read: Millpond keeps {ours.kept:>4,} ({ours.seconds:.1f} s), "
        f"Spark {theirs.kept:>7,} ({theirs.seconds:.1f} s)"
    )


def race_claims(
    view: RaceView, our_answer: Sequence[object], their_answer: Sequence[object], bound: int | None
) -> Group:
    """What the race has shown."""
    ours, theirs = view.totals
    proven = f" (proven: at most {bound:,})" if bound is not None else ""
    state = Text.assemble(
        f"Of {theirs.rows:,} rows, Spark's join keeps ",
        (f"{theirs.kept:,} rows", _THEIRS),
        " and Millpond ",
        (f"{ours.kept:,} entries", _OURS),
        f"{proven}: ",
        (f"{compare_state(ours, theirs)}.", "bold"),
    )
    if view.ratio < GOAL:
        state.append(f" The tour had no time to let it grow to {GOAL:,} times.")
    speed = Text.assemble(
        f"After the warm-up, Millpond took {ours.seconds:.1f} s for them and Spark {theirs.seconds:.1f} s: ",
        (f"{compare_speed(ours, theirs)}.", "bold"),
        f" {compare_answers(our_answer, their_answer, 'ad')}",
    )
    return Group(Text(), paragraph(state), paragraph(speed))
