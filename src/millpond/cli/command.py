"""What the commands have in common: their form, the queries of a file, and printing."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millpond.cli.exits import ExitCode
from millpond.errors import MillpondError

if TYPE_CHECKING:
    from rich.console import Console

    from millpond.analysis.verdict import Verdict


@dataclass(frozen=True)
class Command:
    """A command: one line of help, its arguments, and the function that runs it."""

    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], ExitCode]


# --- the queries of a file -------------------------------------------------------------------------


def check_file(file: str) -> list[Verdict]:
    """The verdict on each query of a file."""
    from millpond.analysis.decide import check
    from millpond.frontend.parse import read_text

    found = check(read_text(file))
    return found if isinstance(found, list) else [found]


def choose_verdict(verdicts: Sequence[Verdict], number: int) -> Verdict:
    """The verdict on the query that ``--query`` names, counted from 1."""
    if 1 <= number <= len(verdicts):
        return verdicts[number - 1]
    count = f"{len(verdicts)} queries" if len(verdicts) > 1 else "one query"
    remedy = f"give a number from 1 to {len(verdicts)}" if len(verdicts) > 1 else "leave --query out"
    raise MillpondError(f"there is no query {number}: the file holds {count}", remedy=remedy)


# --- printing --------------------------------------------------------------------------------------


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    print(json.dumps(value, indent=2))


def print_page(console: Console, page: Any) -> None:
    """Print what rich renders, without the spaces with which it fills lines."""
    with console.capture() as captured:
        console.print(page)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()), flush=True)


def flatten(text: str) -> str:
    """The text on one line, without control characters."""
    return "".join(c if c.isprintable() else "�" for c in " ".join(text.split()))
