"""``millpond run``: a query on Spark."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from pathlib import Path

from millpond.cli.command import Command, check_file, choose_verdict, parse_count, print_line
from millpond.cli.exits import ExitCode
from millpond.errors import MillpondError
from millpond.policies.registry import Use, policy_names
from millpond.spark.options import OUTPUT_FORMATS, RunOptions


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE.sql",
        help="a file with CREATE statements that name their sources, and the query",
    )
    parser.add_argument(
        "--output", required=True, metavar="DIR", help="the folder to write to; any Hadoop path"
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="process the available input, then exit (default: run until stopped)",
    )
    parser.add_argument(
        "--format", choices=OUTPUT_FORMATS, default="json", help="the format of the output (default: json)"
    )
    parser.add_argument(
        "--metrics", metavar="FILE", help="append one JSON object per micro-batch to this file"
    )
    parser.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="the folder from which a later run continues (default: _checkpoint in the output)",
    )
    parser.add_argument(
        "--master", metavar="URL", help="the Spark master (default: all cores of this machine)"
    )
    parser.add_argument(
        "--updates",
        action="store_true",
        help="write every change of a group of a time window (default: each group once, when it closes)",
    )
    parser.add_argument("--strict", action="store_true", help="end the run at the first malformed row")
    parser.add_argument("--query", type=int, metavar="K", help="which query of the file, counted from 1")
    parser.add_argument(
        "--memory",
        type=parse_count,
        metavar="N",
        help="keep at most N tuples of a query that is not bounded, or cache N rows of each lookup relation",
    )
    names = policy_names(Use.RUN)
    more = ", ".join(name for name in policy_names(Use.LOOKUP) if name not in names)
    parser.add_argument(
        "--policy",
        metavar="NAME",
        help=f"which tuples to keep under --memory: {', '.join(names)}; for lookup relations also {more}",
    )
    parser.add_argument("--quiet", action="store_true", help="print only warnings and errors")


def _run(arguments: argparse.Namespace) -> ExitCode:
    verdicts = check_file(arguments.file)
    if arguments.query is None and len(verdicts) > 1:
        message = f"the file holds {len(verdicts)} queries, but a run takes one"
        raise MillpondError(message, remedy="choose it with --query K")
    verdict = choose_verdict(verdicts, arguments.query if arguments.query is not None else 1)
    names = {field.name for field in fields(RunOptions)}
    options = RunOptions(**{name: value for name, value in vars(arguments).items() if name in names})

    from millpond.cli.progress import ProgressDisplay, promise_lines, summary_line
    from millpond.spark.progress import Phase
    from millpond.spark.run import run

    with ProgressDisplay(sys.stderr, quiet=arguments.quiet) as display:
        folder = Path(arguments.file).resolve().parent
        ended = run(verdict, folder, options, display.show, display.notify)
    summary = [] if arguments.quiet else [summary_line(ended, arguments.output)]
    for line in [*promise_lines(ended), *summary]:
        print_line(line)
    return ExitCode.INTERRUPTED if ended.phase is Phase.STOPPED else ExitCode.OK


RUN = Command(
    "Run a query on Spark: a bounded one exactly, within its bound; any other on a memory budget.",
    _add_arguments,
    _run,
    examples=(
        ("run orders.sql --output out", "until it is stopped"),
        ("run orders.sql --output out --once", "take what is there, then end"),
        ("run orders.sql --output out --memory 10k", "keep at most 10,000 tuples"),
        ("run orders.sql --output out --metrics run.jsonl", "with a line of metrics per micro-batch"),
    ),
)
