"""What a user types: ``millpond COMMAND …``.  The only module that prints."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from millpond.errors import MillpondError, NotBoundedError, NotUnboundedError, RunError
from millpond.policies.registry import Use, policy_names

if TYPE_CHECKING:
    from rich.console import Console

    from millpond.analysis.verdict import Verdict

OK = 0
UNBOUNDED = 1
BAD_INPUT = 2
UNDETERMINED = 3
RUN_FAILED = 4
NOT_UNBOUNDED = 5
INTERRUPTED = 130
BROKEN_PIPE = 141

# The exit code of `check` is the first of these outcomes that a query of the file has.
_WORST_FIRST = {"unbounded": UNBOUNDED, "undetermined": UNDETERMINED, "bounded": OK}
_CODES = {NotUnboundedError: NOT_UNBOUNDED, RunError: RUN_FAILED}
_COLOURS = {"bounded": "1;32", "unbounded": "1;31", "undetermined": "1;33"}


@dataclass(frozen=True)
class Command:
    """A command: one line of help, its arguments, and what it does (the exit code comes back)."""

    help: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        code = _dispatch(argv)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _silence(sys.stdout)
        return BROKEN_PIPE


def main_entry() -> NoReturn:
    """The console script."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a character of the query is no reason to fail.
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(main())


def _dispatch(argv: Sequence[str] | None) -> int:
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as end:  # after --help, or after an error that argparse has reported
        return end.code if isinstance(end.code, int) else BAD_INPUT
    try:
        return COMMANDS[arguments.command].run(arguments)
    except MillpondError as error:
        _complain(getattr(arguments, "file", None), error)
        return next((code for kind, code in _CODES.items() if isinstance(error, kind)), BAD_INPUT)


class _Parser(argparse.ArgumentParser):
    """Reports a wrong call in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"millpond: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="millpond",
        description="Decides, with proof, whether a SQL query over unbounded streams "
        "can be answered in bounded memory.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        sub = commands.add_parser(name, help=command.help, description=command.help, allow_abbrev=False)
        command.arguments(sub)
    return parser


def _complain(file: str | None, error: MillpondError) -> None:
    place = f"{file}: " if file is not None else ""
    print(_one_line(f"millpond: {place}{error}"), file=sys.stderr)
    if isinstance(error, NotBoundedError):
        print(error.explanation, file=sys.stderr)


def _one_line(text: str) -> str:
    """The text on one line, without anything that would steer a terminal."""
    return "".join(c if c.isprintable() else "�" for c in " ".join(text.split()))


def _silence(stream: TextIO) -> None:
    """Nobody reads any more: let the interpreter's last flush go nowhere."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _coloured(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _verdicts(file: str) -> list[Verdict]:
    from millpond.analysis.decide import check
    from millpond.frontend.parse import read_text

    found = check(read_text(file))
    return found if isinstance(found, list) else [found]


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


# --- check -----------------------------------------------------------------------------------------


def _check_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.sql", help="CREATE statements and the queries to check")
    parser.add_argument(
        "--json", action="store_true", help="print JSON (a list if the file holds several queries)"
    )


def _check(arguments: argparse.Namespace) -> int:
    verdicts = _verdicts(arguments.file)
    if arguments.json:
        objects = [verdict.to_json() for verdict in verdicts]
        _print_json(objects[0] if len(objects) == 1 else objects)
    else:
        print("\n\n".join(_report(verdicts)))
    outcomes = {verdict.outcome for verdict in verdicts}
    return next(code for outcome, code in _WORST_FIRST.items() if outcome in outcomes)


def _report(verdicts: Sequence[Verdict]) -> list[str]:
    """Each verdict explained; under its query where there are several."""
    coloured = _coloured(sys.stdout)
    reports = []
    for number, verdict in enumerate(verdicts, start=1):
        text = verdict.explain()
        if coloured:
            outcome = verdict.outcome
            text = f"\x1b[{_COLOURS[outcome]}m{outcome}\x1b[0m{text.removeprefix(outcome)}"
        if len(verdicts) > 1:
            text = f"{number}. {_one_line(verdict.query_text)}\n{text}"
        reports.append(text)
    return reports


# --- witness ---------------------------------------------------------------------------------------


def _witness_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.sql", help="CREATE statements and the queries")
    parser.add_argument("-n", type=int, required=True, metavar="N", help="how many rows must be told apart")
    parser.add_argument(
        "--query", type=int, metavar="K", help="which query of the file, from 1 (the first unbounded one)"
    )


def _witness(arguments: argparse.Namespace) -> int:
    _print_json(_wanted(_verdicts(arguments.file), arguments.query).witness(arguments.n))
    return OK


def _wanted(verdicts: Sequence[Verdict], number: int | None) -> Verdict:
    """The verdict asked for by number, or the first that has a witness."""
    if number is None:
        return next((v for v in verdicts if v.outcome == "unbounded"), verdicts[0])
    if not 1 <= number <= len(verdicts):
        count = f"{len(verdicts)} queries" if len(verdicts) > 1 else "one query"
        remedy = f"give a number from 1 to {len(verdicts)}" if len(verdicts) > 1 else "leave --query out"
        raise MillpondError(f"there is no query {number}: the file holds {count}", remedy=remedy)
    return verdicts[number - 1]


# --- run -------------------------------------------------------------------------------------------


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE.sql", help="CREATE statements with their sources, and the query"
    )
    parser.add_argument("--output", required=True, metavar="DIR", help="where the rows go; any Hadoop path")
    parser.add_argument("--once", action="store_true", help="take the rows that are there, then end")
    parser.add_argument(
        "--format",
        choices=("json", "parquet", "csv", "orc"),
        default="json",
        help="of the output, json by default",
    )
    parser.add_argument("--metrics", metavar="FILE", help="append a line of JSON for each micro-batch")
    parser.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="what a later run continues from, by default _checkpoint in the output",
    )
    parser.add_argument("--master", metavar="URL", help="the Spark cluster, by default this machine")
    parser.add_argument("--strict", action="store_true", help="end at the first malformed row")
    parser.add_argument("--query", type=int, metavar="K", help="which query of the file, from 1")
    parser.add_argument(
        "--memory",
        type=int,
        metavar="N",
        help="tuples to keep of a query that is not bounded, or rows of a relation in a database",
    )
    names = policy_names(Use.RUN)
    more = ", ".join(name for name in policy_names(Use.LOOKUP) if name not in names)
    parser.add_argument(
        "--policy",
        metavar="NAME",
        help=f"which tuples or rows to keep: {', '.join(names)}; for relations in a database also {more}",
    )


def _run(arguments: argparse.Namespace) -> int:
    from millpond.spark.run import run
    from millpond.spark.status import Display, Phase, summary

    chosen = {name: value for name, value in vars(arguments).items() if name != "command"}
    with Display(sys.stderr) as display:
        ended = run(**chosen, report=display.show)
    print(_one_line(summary(ended, arguments.output)), file=sys.stderr)
    return INTERRUPTED if ended.phase is Phase.STOPPED else OK


# --- demo ------------------------------------------------------------------------------------------


def _demo_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-live", action="store_true", help="leave out the part that runs on Spark")


def _demo(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from millpond.cli.tour import tour
    from millpond.cli.tour_view import closing, page

    console = Console(highlight=False)
    _print_page(console, page(tour(), console.width))
    if not arguments.no_live:
        _demo_live(console)
    _print_page(console, closing())
    return OK


def _demo_live(console: Console) -> None:
    """The race on Spark: drawn as it goes on a terminal, at its end elsewhere."""
    from rich.live import Live

    from millpond.cli.tour import judged
    from millpond.cli.tour_view import live_heading, race_table
    from millpond.spark.live import QUERY, Race, race

    _print_page(console, live_heading(judged(QUERY)))

    def drawn(state: Race) -> Any:
        ours, theirs = ([(s.rows, s.kept, s.seconds) for s in steps] for steps in (state.ours, state.theirs))
        return race_table(ours, theirs)

    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            live.update("starting Spark …", refresh=True)
            for state in race():
                live.update(drawn(state), refresh=True)
    else:
        *_, state = race()
        _print_page(console, drawn(state))


def _print_page(console: Console, page: Any) -> None:
    """Print without the blanks that fill up lines."""
    with console.capture() as captured:
        console.print(page)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()), flush=True)


# --- lab -------------------------------------------------------------------------------------------


def _lab_arguments(parser: argparse.ArgumentParser) -> None:
    from millpond.lab.command import add_arguments

    add_arguments(parser)


def _lab(arguments: argparse.Namespace) -> int:
    # SciPy reads this when it is first imported.  The lab's matrices are small: threads would mostly wait for
    # each other, and do so busily where other work is running.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from rich.console import Console

    from millpond.lab.command import run
    from millpond.lab.view import summary, watched

    report = run(arguments, lambda rows: watched(rows, Console(stderr=True)))
    _print_page(Console(), summary(report))
    for path in report.files:
        print(path)
    return OK


COMMANDS: dict[str, Command] = {
    "check": Command("Say whether each query of a file is bounded, and why.", _check_arguments, _check),
    "witness": Command(
        "Print input on which an unbounded query's memory must grow, as JSON.", _witness_arguments, _witness
    ),
    "run": Command(
        "Run a query on Spark, in the memory that was proven enough or on a budget.", _run_arguments, _run
    ),
    "lab": Command("Run an experiment on what to keep: a table and a picture.", _lab_arguments, _lab),
    "demo": Command("Show what Millpond does, on the examples of its first paper.", _demo_arguments, _demo),
}


if __name__ == "__main__":
    main_entry()
