"""``millpond check``: the verdict on each query of a file."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from millpond.cli.command import Command, check_file, flatten, print_json
from millpond.cli.exits import ExitCode

if TYPE_CHECKING:
    from millpond.analysis.verdict import Verdict

# The exit code is that of the first of these outcomes that a query of the file has.
_WORST_FIRST = {
    "unbounded": ExitCode.UNBOUNDED,
    "undetermined": ExitCode.UNDETERMINED,
    "bounded": ExitCode.OK,
}
_COLOURS = {"bounded": "1;32", "unbounded": "1;31", "undetermined": "1;33"}


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE.sql", help="a file with CREATE statements and the queries to check"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print JSON: one object, or a list if the file holds several queries",
    )


def _run(arguments: argparse.Namespace) -> ExitCode:
    verdicts = check_file(arguments.file)
    if arguments.json:
        objects = [verdict.to_json() for verdict in verdicts]
        print_json(objects[0] if len(objects) == 1 else objects)
    else:
        print("\n\n".join(_describe(verdicts)))
    outcomes = {verdict.outcome for verdict in verdicts}
    return next(code for outcome, code in _WORST_FIRST.items() if outcome in outcomes)


def _describe(verdicts: Sequence[Verdict]) -> list[str]:
    """The explanation of each verdict, headed by the query if there are several."""
    is_coloured = _has_colours()
    texts = []
    for number, verdict in enumerate(verdicts, start=1):
        text = verdict.explain()
        if is_coloured:
            outcome = verdict.outcome
            text = f"\x1b[{_COLOURS[outcome]}m{outcome}\x1b[0m{text.removeprefix(outcome)}"
        if len(verdicts) > 1:
            text = f"{number}. {flatten(verdict.query_text)}\n{text}"
        texts.append(text)
    return texts


def _has_colours() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


CHECK = Command(
    "Decide for each query of a file whether it is bounded, and explain why.", _add_arguments, _run
)
