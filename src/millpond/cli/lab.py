"""``millpond lab``: the experiments of paper 3."""

from __future__ import annotations

import argparse
import os

from millpond.cli.command import Command, print_page
from millpond.cli.exits import ExitCode
from millpond.lab.command import add_arguments


def _run(arguments: argparse.Namespace) -> ExitCode:
    # SciPy reads this when it is first imported.  The lab's matrices are small: several threads would mostly
    # wait for each other in a loop, and slow down other processes.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from rich.console import Console

    from millpond.lab.command import run
    from millpond.lab.view import show_progress, summary

    report = run(arguments, lambda planned: show_progress(planned, Console(stderr=True)))
    print_page(Console(), summary(report))
    for path in report.files:
        print(path)
    return ExitCode.OK


LAB = Command(
    "Run an experiment of paper 3 on eviction policies; write a table and a chart.", add_arguments, _run
)
