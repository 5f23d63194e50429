"""The tour as a page of text, for terminals of any width."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from millpond.analysis.verdict import BOUNDED, Verdict
from millpond.cli.tour import CATALOG, ProbeRun, Tour

_STYLES = {"bounded": "bold green", "unbounded": "bold red", "undetermined": "bold yellow"}
_SHORT = {
    "unbounded-projection": "infinitely many values",
    "unbounded-equality-join": "infinitely many values to match",
    "counted-inequality-join": "every match counts",
    "conflicting-references": "no row is best for all future rows",
}
# The least width of the other columns of the table.
_VERDICTS_WIDTH = 54


def tour_page(tour: Tour, width: int) -> Group:
    """The question, Table I, a bounded query, and an unbounded one with its proof."""
    return Group(
        _heading("Can this query run forever in a fixed amount of memory?"),
        _paragraph(
            "Two unbounded streams, and seven queries over them, each with duplicates kept and with DISTINCT:"
        ),
        _code(CATALOG),
        _table(tour, width),
        _heading("Bounded: a few rows answer the query forever"),
        _code(tour.bounded.query_text),
        _explained(tour.bounded),
        Text(
            "A row of T that matches any row of S also matches the one with the smallest B. "
            "So all other rows can be dropped."
        ),
        _heading("Unbounded: a proof that every program needs growing memory"),
        _code(tour.unbounded.query_text),
        _explained(tour.unbounded),
        _experiment(tour.experiment),
    )


def closing_page() -> Group:
    """The last page of the tour: commands to try next."""
    return Group(_heading("Next"), _next_steps())


def race_heading(verdict: Verdict) -> Group:
    """The query that Millpond and Spark run, and its bound."""
    return Group(
        _heading("Live on Spark: rows kept, batch by batch"),
        _code(verdict.query_text),
        _paragraph(
            f"Millpond runs it exactly, with at most {verdict.state.entries} entries. "
            "Spark's own join keeps every row that passes the filter, forever."
        ),
    )


def race_table(ours: Sequence[tuple[int, int, float]], theirs: Sequence[tuple[int, int, float]]) -> Table:
    """The batches of both joins so far: rows read in total, rows kept, seconds."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("rows read", justify="right", style="dim")
    for name, style in (
        ("Millpond keeps", "green"),
        ("s", "dim"),
        ("Spark's join keeps", "red"),
        ("s", "dim"),
    ):
        table.add_column(name, justify="right", style=style)
    most = max((kept for _, kept, _ in theirs), default=0)
    table.add_column("", no_wrap=True, style="red")
    for i in range(max(len(ours), len(theirs))):
        mine = ours[i] if i < len(ours) else None
        other = theirs[i] if i < len(theirs) else None
        rows = (mine or other or (0, 0, 0.0))[0]
        bar = "█" * max(1, round(16 * other[1] / most)) if other and most else ""
        cells = [f"{step[1]:,}" if step else "" for step in (mine, other)]
        times = [f"{step[2]:.1f}" if step else "" for step in (mine, other)]
        table.add_row(f"{rows:,}", cells[0], times[0], cells[1], times[1], bar)
    return table


def _heading(text: str) -> RenderableType:
    return Padding(Rule(Text(text, style="bold"), align="left", style="dim"), (1, 0, 1, 0))


def _paragraph(text: str) -> RenderableType:
    return Padding(Text(text), (0, 0, 1, 0))


def _code(text: str) -> RenderableType:
    return Padding(Text(text.strip(), style="cyan"), (0, 0, 1, 2))


def _explained(verdict: Verdict) -> RenderableType:
    text = Text(verdict.explain())
    text.stylize(_STYLES[verdict.outcome], 0, len(verdict.outcome))
    return Padding(text, (0, 0, 1, 2))


def _table(tour: Tour, width: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_lines=True)
    table.add_column("", no_wrap=True, style="dim")
    table.add_column("SELECT [DISTINCT] …", no_wrap=True, style="cyan")
    table.add_column("duplicates kept")
    table.add_column("DISTINCT")
    room = min(max(width - _VERDICTS_WIDTH, 24), 52)
    for example in tour.examples:
        table.add_row(example.name, _fold(example.text, room), _cell(example.kept), _cell(example.distinct))
    return table


def _fold(query: str, width: int) -> str:
    """The query in lines that break before WHERE and AND only.

    >>> print(_fold("A FROM S, T WHERE B < D AND A = 10", 24))
    A FROM S, T WHERE B < D
    AND A = 10
    """
    lines = [""]
    for clause in query.replace(" WHERE ", "\nWHERE ").replace(" AND ", "\nAND ").split("\n"):
        longer = f"{lines[-1]} {clause}".strip()
        if len(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(clause)
    return "\n".join(lines)


def _cell(verdict: Verdict) -> Text:
    """The outcome, and below it the bound or the first reason."""
    cell = Text(verdict.outcome, style=_STYLES[verdict.outcome])
    if verdict.outcome == BOUNDED:
        entries = verdict.state.entries
        note = f"{entries} entries" if entries else "nothing is kept"
    else:
        reason = verdict.reasons[0]
        note = f"{reason.predicate or reason.columns[0]}: {_SHORT.get(reason.code, reason.code)}"
    return cell.append(f"\n{note}", style="not bold default")


def _experiment(experiment: ProbeRun) -> RenderableType:
    count = len(experiment.rows)
    lines = [f"Take {count} rows; each may or may not have arrived:"]
    lines += [f"  {number}.  {row}" for number, row in enumerate(experiment.rows, start=1)]
    lines += [
        f"Then probe {experiment.number} arrives: {', '.join(experiment.probe)}. The query emits",
        f"  {_count_rows(experiment.with_row)} if row {experiment.number} has arrived,",
        f"  {_count_rows(experiment.without_row)} if it has not (and the others have).",
        f"So the answer shows whether row {experiment.number} has arrived, and each row has such a probe: "
        f"a program must remember which of the {count} rows arrived, one of {2**count} cases. "
        f"With N rows there are 2^N cases, so memory grows with the stream.",
    ]
    return Padding(Text("\n".join(lines)), (0, 0, 0, 2))


def _count_rows(count: int) -> str:
    return "nothing" if count == 0 else "1 row" if count == 1 else f"{count} rows"


def _next_steps() -> RenderableType:
    table = Table.grid(padding=(0, 3))
    for command, effect in (
        ("millpond check FILE.sql", "check your own query"),
        ("millpond check FILE.sql --json", "the same as JSON; exit code 1 means unbounded"),
        ("millpond witness FILE.sql -n 5", "rows that prove that memory must grow"),
        ("millpond run FILE.sql --output DIR", "run a bounded query on Spark, in its proven memory"),
        ("… --memory N", "run an unbounded query with N tuples kept, and estimate what it misses"),
    ):
        table.add_row(Text(command, style="cyan", no_wrap=True), effect)
    return Padding(table, (0, 0, 0, 2))
