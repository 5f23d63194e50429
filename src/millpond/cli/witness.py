"""``millpond witness``: rows that prove that the memory of an unbounded query must grow."""

from __future__ import annotations

import argparse

from millpond.cli.command import Command, check_file, choose_verdict, print_json
from millpond.cli.exits import ExitCode


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.sql", help="a file with CREATE statements and queries")
    parser.add_argument(
        "-n", type=int, required=True, metavar="N", help="the number of optional rows in the witness"
    )
    parser.add_argument(
        "--query",
        type=int,
        metavar="K",
        help="which query of the file, counted from 1 (default: the first unbounded one)",
    )


def _run(arguments: argparse.Namespace) -> ExitCode:
    verdicts = check_file(arguments.file)
    if arguments.query is not None:
        verdict = choose_verdict(verdicts, arguments.query)
    else:
        verdict = next((v for v in verdicts if v.outcome == "unbounded"), verdicts[0])
    print_json(verdict.witness(arguments.n))
    return ExitCode.OK


WITNESS = Command(
    "Print rows that prove that an unbounded query's memory must grow, as JSON.", _add_arguments, _run
)
