"""What the commands have in common: their form, the queries of a file, and printing."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millpond.cli.exits import ExitCode
from millpond.errors import MillpondError, NotBoundedError

if TYPE_CHECKING:
    from rich.console import Console

    from millpond.analysis.repair.model import Repair
    from millpond.analysis.verdict import Verdict


@dataclass(frozen=True)
class Command:
    """A command: one line of help, its arguments, the function that runs it, and calls with what they do."""

    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], ExitCode]
    examples: tuple[tuple[str, str], ...] = ()

    @property
    def epilog(self) -> str | None:
        """The examples, as the help shows them."""
        if not self.examples:
            return None
        width = max(len(call) for call, _ in self.examples)
        lines = (f"  millpond {call:<{width}}  {meaning}" for call, meaning in self.examples)
        return "\n".join(["examples:", *lines])


# --- the queries of a file -------------------------------------------------------------------------


def check_file(file: str) -> list[Verdict]:
    """The verdict on each query of a file."""
    from millpond.analysis.decide import decide
    from millpond.cli.files import read_sql
    from millpond.frontend.parse import parse

    return [decide(query) for query in parse(read_sql(file))]


def choose_verdict(verdicts: Sequence[Verdict], number: int) -> Verdict:
    """The verdict on the query that ``--query`` names, counted from 1."""
    if 1 <= number <= len(verdicts):
        return verdicts[number - 1]
    count = f"{len(verdicts)} queries" if len(verdicts) > 1 else "one query"
    remedy = f"give a number from 1 to {len(verdicts)}" if len(verdicts) > 1 else "leave --query out"
    raise MillpondError(f"there is no query {number}: the file holds {count}", remedy=remedy)


def find_repairs_of(
    verdict: Verdict, file: str, limit: int | None = None, sample: str | None = None
) -> list[Repair]:
    """The repairs of a query of a file, with constants from a sample or from the declared sources."""
    from millpond.analysis.repair.find import find_repairs
    from millpond.analysis.repair.sample import read_sample, read_sources
    from millpond.analysis.verdict import BOUNDED
    from millpond.cli.files import STANDARD_INPUT

    if verdict.outcome == BOUNDED:
        return []
    if sample is not None:
        rows = read_sample(verdict.query, Path(sample))
    elif file != STANDARD_INPUT:
        rows = read_sources(verdict.query, Path(file).resolve().parent)
    else:
        rows = {}
    return find_repairs(verdict, limit, rows)


def parse_count(text: str) -> int:
    """A number of rows, possibly with a suffix: ``500``, ``10k``, ``2M``.

    >>> parse_count("10k"), parse_count("1.5M"), parse_count("20_000")
    (10000, 1500000, 20000)
    """
    found = re.fullmatch(r"([+-]?[\d_]+(?:\.\d+)?)([kKmM]?)", text.strip())
    scale = {"k": 1_000, "m": 1_000_000}.get(found[2].lower(), 1) if found else 1
    try:
        count = Decimal(found[1]) * scale if found else None
    except InvalidOperation:
        count = None
    if count is None or count != int(count):
        raise argparse.ArgumentTypeError(f"{flatten(text)!r} is not a number such as 500, 10k or 2M")
    return int(count)


# --- printing --------------------------------------------------------------------------------------


def print_error(file: str | None, error: MillpondError) -> None:
    """Print an error in one line; of a query that is not bounded, also the verdict."""
    place = f"{file}: " if file is not None else ""
    print_line(f"millpond: {place}{error}")
    if isinstance(error, NotBoundedError):
        for line in error.explanation.splitlines():
            print(_fit(line, text_width() + 2), file=sys.stderr)


def print_line(text: str) -> None:
    """Print one line to standard error; a terminal shows it in several, divided between words."""
    line = flatten(text)
    print(_fit(line, shutil.get_terminal_size().columns) if sys.stderr.isatty() else line, file=sys.stderr)


def _fit(line: str, width: int) -> str:
    """The line divided between words where it is longer than the width."""
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    wrapped = textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(wrapped) if len(line) > width else line


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    print(json.dumps(value, indent=2))


def print_page(console: Console, page: Any) -> None:
    """Print what rich renders, without the spaces with which it fills lines."""
    with console.capture() as captured:
        console.print(page)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()), flush=True)


def has_colours() -> bool:
    """Whether standard output shows colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def text_width() -> int:
    """The width for prose on this terminal: at most 98, because longer lines are hard to read."""
    return max(min(shutil.get_terminal_size().columns, 100), 40) - 2


def flatten(text: str) -> str:
    """The text on one line, without control characters."""
    return "".join(c if c.isprintable() else "�" for c in " ".join(text.split()))
