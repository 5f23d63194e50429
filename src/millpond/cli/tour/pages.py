"""The pages that need no Spark: the verdict, its proof, its repairs, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from millpond.analysis.repair.model import Repair
from millpond.analysis.repair.show import describe_effect, list_changed_lines
from millpond.analysis.verdict import Verdict
from millpond.cli.tour.parts import (
    INDENT,
    code,
    command,
    explained,
    heading,
    indented,
    paragraph,
    plain_table,
)
from millpond.cli.tour.proof import Proof
from millpond.cli.tour.script import CLICKS

_OTHERS = 2  # repairs of which only the title is shown


def question_page(verdict: Verdict, width: int) -> Group:
    """The first query, and the verdict on it."""
    return Group(
        heading(1, "A query everybody writes and nobody can run forever"),
        paragraph("Which ads paid more for a click than they had bid for an impression?"),
        code(CLICKS),
        command("millpond check clicks.sql"),
        explained(verdict, width),
    )


def proof_page(proof: Proof) -> Group:
    """A witness, and what the query writes in each case."""
    count = len(proof.rows)
    table = plain_table("may have arrived", "then this arrives", "written if so", "if not")
    for row, probe in zip(proof.rows, proof.probes, strict=True):
        table.add_row(
            Text(row, style="cyan"),
            Text(", ".join(probe.rows), style="cyan"),
            Text(_count_rows(probe.found), style="green"),
            Text(_count_rows(probe.missing), style="red"),
        )
    return Group(
        paragraph(f"“Whatever the program”? A proof in {count} rows:"),
        indented(table),
        paragraph(_conclude(proof)),
    )


def _count_rows(counts: frozenset[int]) -> str:
    """
    >>> _count_rows(frozenset({1})), _count_rows(frozenset({0, 2}))
    ('1 row', 'nothing or 2 rows')
    """
    words = {0: "nothing", 1: "1 row"}
    return " or ".join(words.get(count, f"{count} rows") for count in sorted(counts))


def _conclude(proof: Proof) -> str:
    count = len(proof.rows)
    if not proof.holds:
        return f"In some of the {proof.evaluated} cases the answers are the same: this is no proof."
    return (
        f"All {proof.evaluated} cases were evaluated just now: each of the {2**count} sets of {count} rows "
        "needs other answers later, so a program must remember which rows came. For N rows there are 2^N "
        "sets: memory grows with the stream, in Spark, in Flink, in any program."
    )


def repair_page(text: str, repairs: Sequence[Repair], width: int) -> Group:
    """The first repair with the lines that it changes, the titles of others, and the verdict on the first."""
    repaired = repairs[0].verdict
    table = plain_table()
    for number, repair in enumerate(repairs[1 : _OTHERS + 1], start=2):
        table.add_row(f"{number}.", Text(f"{repair.title}: {repair.meaning}", style="dim"))
    return Group(
        heading(2, "The repair: say what you know about the data"),
        command("millpond repair clicks.sql"),
        indented(Group(_describe(text, repairs[0]), *([table] if repairs[1:] else []))),
        command("millpond check repaired.sql"),
        *([explained(repaired, width)] if repaired is not None else []),
    )


def _describe(text: str, repair: Repair) -> Text:
    out = Text.assemble((f"1. {repair.title}\n", "bold"), f"{describe_effect(repair)}\n")
    for line in list_changed_lines(text, repair.edits):
        sign, style = ("-", "red") if line.removed else ("+", "green")
        shown = Text(f"{line.number:>4} {sign} ", style=style)
        shown.append(line.text, style=style)
        for start, end in line.marked:
            shown.stylize("bold", start + 7, end + 7)
        out.append_text(shown).append("\n")
    out.rstrip()
    return out


def list_next_steps(program: str, folder: Path) -> list[tuple[str, str]]:
    """Commands to try next, and what they do; ``program`` is how the reader calls Millpond."""
    return [
        (f"{program} check {folder}/clicks.sql", "the verdict, as in CI"),
        (f"{program} witness {folder}/clicks.sql -n 5", "a longer proof, as JSON"),
        (f"{program} repair {folder}/clicks.sql", "all repairs"),
        (f"{program} studio", "write queries, see verdicts"),
        (f"{program} check YOUR.sql", "the verdict on your query"),
    ]


def closing_page(number: int, program: str, folder: Path, report: Path, seconds: float) -> Group:
    """Where the report is, and commands to try next."""
    table = plain_table("", "")
    table.show_header = False
    for call, effect in list_next_steps(program, folder):
        table.add_row(Text(call, style="cyan"), effect)
    return Group(
        heading(number, "Go on"),
        command("millpond report clicks.sql -o report.html"),
        paragraph(
            "The picture of the query, its proof and its repairs are on this page. Open it in a browser:"
        ),
        Padding(Text(str(report.resolve()), style="cyan", overflow="fold"), (0, 0, 1, INDENT)),
        paragraph("Try next:"),
        indented(table),
        Text(f"The tour took {seconds:.0f} s.", style="dim"),
    )
