"""``millpond demo``: a tour for newcomers."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from millpond.cli.command import Command, print_page
from millpond.cli.exits import ExitCode

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from millpond.spark.race import Race


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-live", action="store_true", help="leave out the part that runs on Spark")


def _run(arguments: argparse.Namespace) -> ExitCode:
    from rich.console import Console

    from millpond.cli.tour import make_tour
    from millpond.cli.tour_view import closing_page, tour_page

    console = Console(highlight=False)
    print_page(console, tour_page(make_tour(), console.width))
    if not arguments.no_live:
        _show_race(console)
    print_page(console, closing_page())
    return ExitCode.OK


def _show_race(console: Console) -> None:
    """Run Millpond's join and Spark's own; on a terminal, redraw the table after each batch."""
    from rich.live import Live

    from millpond.cli.tour import decide_query
    from millpond.cli.tour_view import race_heading
    from millpond.spark.race import QUERY, run_race

    print_page(console, race_heading(decide_query(QUERY)))
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            live.update("starting Spark …", refresh=True)
            for state in run_race():
                live.update(_draw_race(state), refresh=True)
    else:
        *_, state = run_race()
        print_page(console, _draw_race(state))


def _draw_race(race: Race) -> Table:
    from millpond.cli.tour_view import race_table

    ours, theirs = ([(s.rows, s.kept, s.seconds) for s in steps] for steps in (race.ours, race.theirs))
    return race_table(ours, theirs)


DEMO = Command("Show what Millpond does, on the examples of paper 1.", _add_arguments, _run)
