"""``millpond repair``: the smallest changes that make a query bounded."""

from __future__ import annotations

import argparse
import textwrap
from typing import TYPE_CHECKING, Any

from millpond.cli.command import (
    Command,
    check_file,
    choose_verdict,
    find_repairs_of,
    flatten,
    has_colours,
    print_json,
    text_width,
)
from millpond.cli.exits import ExitCode
from millpond.errors import MillpondError

if TYPE_CHECKING:
    from millpond.analysis.repair.model import Repair
    from millpond.analysis.repair.show import ChangedLine
    from millpond.analysis.verdict import Verdict

_GREEN, _RED, _BOLD, _PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[1m", "\x1b[0m"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE.sql", help="a file with CREATE statements and queries; - for standard input"
    )
    parser.add_argument("--json", action="store_true", help="print the repairs as JSON")
    parser.add_argument("--query", type=int, metavar="K", help="which query of the file, counted from 1")
    parser.add_argument("--limit", type=int, metavar="N", help="show at most N repairs of a query")
    parser.add_argument(
        "--apply", type=int, metavar="N", help="print the whole text with repair N, to check or run it"
    )
    parser.add_argument(
        "--sample",
        metavar="FILE",
        help="rows of the stream, or a folder with a file for each stream, to take constants from; "
        "default: the first rows of the declared sources",
    )


def _run(arguments: argparse.Namespace) -> ExitCode:
    verdicts = check_file(arguments.file)
    if arguments.query is not None:
        verdicts = [choose_verdict(verdicts, arguments.query)]
    found = [
        (verdict, find_repairs_of(verdict, arguments.file, arguments.limit, arguments.sample))
        for verdict in verdicts
    ]
    if arguments.apply is not None:
        print(_choose_repair(found, arguments.apply).sql.rstrip("\n"))
    elif arguments.json:
        values = [_to_json(verdict, repairs) for verdict, repairs in found]
        print_json(values[0] if len(values) == 1 else values)
    else:
        print("\n\n".join("\n".join(_render(verdict, repairs, len(found) > 1)) for verdict, repairs in found))
    return ExitCode.OK


def _choose_repair(found: list[tuple[Verdict, list[Repair]]], number: int) -> Repair:
    """A repair by its number; raises MillpondError if there is none, or if it changes no text."""
    if len(found) > 1:
        raise MillpondError("the file has several queries", remedy="choose one with --query K")
    ((_, repairs),) = found
    if not 1 <= number <= len(repairs):
        count = {0: "no repair", 1: "one repair"}.get(len(repairs), f"{len(repairs)} repairs")
        raise MillpondError(f"there is no repair {number}: the query has {count}")
    repair = repairs[number - 1]
    if not repair.edits:
        raise MillpondError(
            f"repair {number} changes no text: {repair.title}", remedy="run the query with it"
        )
    return repair


def _to_json(verdict: Verdict, repairs: list[Repair]) -> dict[str, Any]:
    return {
        "query": verdict.query_text,
        "outcome": verdict.outcome,
        "repairs": [repair.to_json() for repair in repairs],
    }


def _render(verdict: Verdict, repairs: list[Repair], with_query: bool) -> list[str]:
    """The repairs of a query: a headline, then for each its title, its effect, and the changed lines."""
    from millpond.analysis.repair.show import render_repair

    lines = textwrap.wrap(flatten(verdict.query_text), text_width()) if with_query else []
    if verdict.outcome == "bounded":
        return [*lines, "bounded: nothing needs repair"]
    if not repairs:
        return [*lines, f"{verdict.outcome}: no change is known that makes it bounded"]
    count = "1 repair" if len(repairs) == 1 else f"{len(repairs)} repairs, best first"
    lines.append(f"{verdict.outcome}; {count}:")
    assert verdict.query.script is not None
    for number, repair in enumerate(repairs, start=1):
        lines += ["", *render_repair(number, repair, verdict.query.script.text, text_width(), _paint)]
    return lines


def _paint(line: ChangedLine) -> str:
    """The line in colour, with the pieces that differ in bold type."""
    if not has_colours():
        return line.text
    colour, text = _RED if line.removed else _GREEN, line.text
    for first, end in reversed(line.marked):
        text = f"{text[:first]}{_BOLD}{text[first:end]}{_PLAIN}{colour}{text[end:]}"
    return f"{colour}{text}{_PLAIN}"


REPAIR = Command(
    "Show the smallest changes that make a query bounded.",
    _add_arguments,
    _run,
    examples=(
        ("repair orders.sql", "each change as lines of the file"),
        ("repair orders.sql --apply 1 > repaired.sql", "the whole text with the first repair"),
        ("repair orders.sql --json", "for programs, with the whole text after each change"),
        ("repair orders.sql --sample orders.json", "with constants from rows of the stream"),
    ),
)
