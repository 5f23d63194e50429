"""``millpond demo``: a tour for newcomers."""

from __future__ import annotations

import argparse
from pathlib import Path

from millpond.cli.command import Command
from millpond.cli.exits import ExitCode


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quick", action="store_true", help="a shorter tour: fewer rows, and only the first run on Spark"
    )
    parser.add_argument("--no-spark", action="store_true", help="leave out the parts that run on Spark")
    parser.add_argument(
        "--output",
        metavar="DIR",
        default="millpond-demo",
        help="the folder for the queries and the report (default: millpond-demo)",
    )


def _run(arguments: argparse.Namespace) -> ExitCode:
    from rich.console import Console

    from millpond.cli.tour.play import play_tour
    from millpond.cli.tour.script import FULL, QUICK
    from millpond.cli.tour.stage import Stage, Tour

    size = QUICK if arguments.quick else FULL
    play_tour(
        Tour(Stage(Console(highlight=False)), size, Path(arguments.output)), on_spark=not arguments.no_spark
    )
    return ExitCode.OK


DEMO = Command(
    "Show what Millpond does, in two minutes.",
    _add_arguments,
    _run,
    examples=(("demo", "the whole tour"), ("demo --quick", "in half a minute")),
)
