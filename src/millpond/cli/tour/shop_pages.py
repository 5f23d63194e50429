"""The day of a shop as pages: a window query, and a join on a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.console import Group
from rich.text import Text

from millpond.analysis.verdict import Verdict
from millpond.cli.tour.parts import code, command, explained, heading, indented, paragraph, plain_table
from millpond.cli.tour.script import OVERDUE, PAID, select_of


@dataclass(frozen=True)
class OverdueView:
    """A run of the window query: rows read, the most entries kept at once, its rows, and the right orders.

    ``refusal`` is what Spark itself says about the query, if it refuses it.
    """

    rows: int
    most_kept: int
    found: Sequence[dict[str, Any]]
    expected: frozenset[int]
    refusal: str | None


@dataclass(frozen=True)
class BudgetView:
    """A run on a budget: rows read, results found and all of them, and the estimate of the missed ones."""

    rows: int
    memory: int
    found: int
    all: int
    missed: int
    low: int | None
    high: int | None


def overdue_introduction(verdict: Verdict, width: int) -> Group:
    """What the window query asks, and its verdict."""
    return Group(
        heading(4, "A window: which orders were not paid within an hour?"),
        code(select_of(OVERDUE)),
        command("millpond check overdue.sql"),
        explained(verdict, width),
        command("millpond run overdue.sql --once --output overdue"),
    )


def overdue_page(view: OverdueView) -> Group:
    """The overdue orders that the run found, and how many rows it kept."""
    table = plain_table("order", "amount", "at")
    for row in view.found:
        at = datetime.fromisoformat(row["at"])
        table.add_row(f"{row['id']:>6}", f"{row['amount']:>6}", f"{at:%Y-%m-%d %H:%M:%S}")
    if {row["id"] for row in view.found} == view.expected:
        right = f"These are exactly the {_count_orders(view.expected)} without a payment in time."
    else:
        right = f"This is wrong: {_count_orders(view.expected)} had no payment in time."
    text = f"{right} Of {view.rows:,} rows, at most {view.most_kept:,} were kept at a time."
    if view.refusal is not None:
        text += f" Spark itself refuses the query: “{view.refusal}”"
    return Group(Text(), indented(table), paragraph(text))


def _count_orders(orders: frozenset[int]) -> str:
    return "1 order" if len(orders) == 1 else f"{len(orders)} orders"


def budget_introduction(memory: int) -> Group:
    """The join that has no bound, and the command that runs it on a budget."""
    return Group(
        heading(5, "No bound at all? Then on a budget"),
        paragraph(
            "Every order with its payment, whenever it comes: unbounded again. On a budget, Millpond keeps "
            "the tuples that are most likely to find a partner soon."
        ),
        code(select_of(PAID)),
        command(f"millpond run paid.sql --once --output paid --memory {memory}"),
    )


def budget_page(view: BudgetView) -> Group:
    """The share of results that the budget found, and how well the run estimated what it missed."""
    found = Text.assemble(
        f"Of {view.rows:,} rows it kept {view.memory:,} at a time, and found ",
        (format_share(view.found, view.all), "bold green"),
        f" of the results: {view.found:,} of {view.all:,}.",
    )
    interval = (
        "" if view.low is None or view.high is None else f" (95 % interval: {view.low:,} to {view.high:,})"
    )
    estimate = (
        f"The run does not know the full answer, but estimates that it missed {view.missed:,}{interval}. "
        f"The truth is {view.all - view.found:,}."
    )
    return Group(Text(), paragraph(found), paragraph(estimate))


def format_share(part: int, whole: int) -> str:
    """A share in percent, never rounded up.

    >>> format_share(9_999, 10_000), format_share(3, 3)
    ('99.9 %', '100.0 %')
    """
    return f"{part * 1000 // whole / 10:.1f} %"
