"""What a terminal shows of an experiment: progress while it runs, averages at its end."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from millpond.lab.command import Report
from millpond.lab.experiments import Planned
from millpond.lab.results import Row, averages

# Lines beyond which the averages are left to the CSV file, and policies that still fit beside each other.
SHOWN = 40
BESIDE = 8


def watched(planned: Planned, console: Console) -> Iterator[Row]:
    """The rows; on a terminal with a bar that says how far they are."""
    if not console.is_terminal:
        yield from planned.rows
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting …", total=planned.total)
        for row in planned.rows:
            progress.update(task, advance=1, description=f"{row.config}  {row.policy}  size {row.size:g}")
            yield row


def summary(report: Report) -> Table:
    """The averages: policies beside each other, or below each other where they are many."""
    ratios = any(row.hit_ratio is not None for row in report.rows)
    found = averages(report.rows, ratios)
    policies = list(dict.fromkeys(policy for _, policy, _ in found))
    places = list(dict.fromkeys((config, size) for config, _, size in found))

    def cell(config: str, policy: str, size: float) -> str:
        mean = found.get((config, policy, size))
        return "" if mean is None else f"{mean.mean:.4f}" if ratios else f"{mean.mean:.5g}"

    table = Table(box=None, header_style="bold", pad_edge=False)
    if len(policies) <= BESIDE:
        _columns(table, report.name, "size", *policies)
        for config, size in places[:SHOWN]:
            table.add_row(config, f"{size:g}", *(cell(config, policy, size) for policy in policies))
        if len(places) > SHOWN:
            table.add_row(f"… and {len(places) - SHOWN} more in results.csv")
    else:
        _columns(table, places[0][0], *(f"{size:g}" for _, size in places))
        for policy in policies:
            table.add_row(policy, *(cell(config, policy, size) for config, size in places))
    return table


def _columns(table: Table, first: str, *others: str) -> None:
    table.add_column(first, no_wrap=True)
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
