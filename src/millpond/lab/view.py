"""What a terminal shows of an experiment: progress while it runs, averages at its end."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from millpond.lab.command import Report
from millpond.lab.experiments import Planned
from millpond.lab.results import Row, averages

# Configurations beyond which the averages are left to the CSV file.
SHOWN = 40


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
    """The averages, a line a configuration and size, a column a policy."""
    ratios = any(row.hit_ratio is not None for row in report.rows)
    found = averages(report.rows, ratios)
    policies = list(dict.fromkeys(policy for _, policy, _ in found))
    places = list(dict.fromkeys((config, size) for config, _, size in found))
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in (report.name, "size", *policies):
        table.add_column(heading, justify="left" if heading == report.name else "right", no_wrap=True)
    for config, size in places[:SHOWN]:
        means = [found.get((config, policy, size)) for policy in policies]
        cells = [
            "" if mean is None else f"{mean.mean:.4f}" if ratios else f"{mean.mean:.5g}" for mean in means
        ]
        table.add_row(config, f"{size:g}", *cells)
    if len(places) > SHOWN:
        table.add_row(f"… and {len(places) - SHOWN} more in results.csv")
    return table
