"""The terminal output of an experiment: progress while it runs, averages at its end."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from millpond.lab.command import Report
from millpond.lab.experiments import PlannedExperiment
from millpond.lab.results import Row, averages

# The most lines of averages that are shown, and the most policies that fit side by side.
MOST_LINES = 40
MOST_COLUMNS = 8


def show_progress(experiment: PlannedExperiment, console: Console) -> Iterator[Row]:
    """Yield the rows of an experiment; on a terminal, show a progress bar."""
    if not console.is_terminal:
        yield from experiment.rows
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("starting …", total=experiment.total)
        for row in experiment.rows:
            progress.update(task, advance=1, description=f"{row.config}  {row.policy}  size {row.size:g}")
            yield row


def summary(report: Report) -> Table:
    """The averages as a table: a column per policy, or a row per policy if there are many."""
    ratios = any(row.hit_ratio is not None for row in report.rows)
    found = averages(report.rows, ratios)
    policies = list(dict.fromkeys(policy for _, policy, _ in found))
    places = list(dict.fromkeys((config, size) for config, _, size in found))

    def cell(config: str, policy: str, size: float) -> str:
        mean = found.get((config, policy, size))
        return "" if mean is None else f"{mean.mean:.4f}" if ratios else f"{mean.mean:.5g}"

    table = Table(box=None, header_style="bold", pad_edge=False)
    if len(policies) <= MOST_COLUMNS:
        _add_columns(table, report.name, "size", *policies)
        for config, size in places[:MOST_LINES]:
            table.add_row(config, f"{size:g}", *(cell(config, policy, size) for policy in policies))
        if len(places) > MOST_LINES:
            table.add_row(f"… and {len(places) - MOST_LINES} more in results.csv")
    else:
        _add_columns(table, places[0][0], *(f"{size:g}" for _, size in places))
        for policy in policies:
            table.add_row(policy, *(cell(config, policy, size) for config, size in places))
    return table


def _add_columns(table: Table, first: str, *others: str) -> None:
    table.add_column(first, no_wrap=True)
    for heading in others:
        table.add_column(heading, justify="right", no_wrap=True)
