"""``millpond report``: one page of HTML about the queries of a file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from millpond.cli.command import Command, check_file, choose_verdict, find_repairs_of, print_line
from millpond.cli.exits import ExitCode
from millpond.cli.files import STANDARD_INPUT
from millpond.errors import MillpondError, describe_os_error


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE.sql",
        help="a file with CREATE statements and queries, or - for standard input",
    )
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="REPORT.html",
        help="the file to write, or - for the terminal",
    )
    parser.add_argument(
        "--query", type=int, metavar="K", help="only this query of the file, counted from 1 (default: all)"
    )
    parser.add_argument(
        "--metrics", metavar="FILE", help="the metrics that a run has written, to be shown as charts"
    )


# How many repairs of a query are shown.
_REPAIRS = 5


def _run(arguments: argparse.Namespace) -> ExitCode:
    from millpond.report.metrics_file import read_metrics
    from millpond.report.page import render_page

    batches = read_metrics(arguments.metrics) if arguments.metrics is not None else []
    verdicts = check_file(arguments.file)
    if arguments.query is not None:
        verdicts = [choose_verdict(verdicts, arguments.query)]
    title = "standard input" if arguments.file == STANDARD_INPUT else Path(arguments.file).name
    repairs = [find_repairs_of(verdict, arguments.file, _REPAIRS) for verdict in verdicts]
    page = render_page(verdicts, title, batches, repairs)
    if arguments.output == STANDARD_INPUT:
        sys.stdout.write(page)
        return ExitCode.OK
    try:
        Path(arguments.output).write_text(page, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = describe_os_error(error) if isinstance(error, OSError) else str(error)
        raise MillpondError(
            f"the report {arguments.output} cannot be written: {reason}", remedy="give another --output"
        ) from None
    print_line(f"wrote {arguments.output}")
    return ExitCode.OK


REPORT = Command(
    "Write one self-contained page of HTML: verdict, picture, proof, what is kept, repairs.",
    _add_arguments,
    _run,
    examples=(
        ("report orders.sql -o report.html", "all queries of the file"),
        ("report orders.sql -o report.html --metrics run.jsonl", "with charts of a run"),
    ),
)
