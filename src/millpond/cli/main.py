"""The command line: ``millpond COMMAND …``.  Only modules of this package print."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn, TextIO

import millpond
from millpond.cli.check import CHECK
from millpond.cli.command import Command, print_error
from millpond.cli.completion import COMPLETION
from millpond.cli.demo import DEMO
from millpond.cli.exits import ExitCode
from millpond.cli.lab import LAB
from millpond.cli.parser import HelpFormatter, Parser
from millpond.cli.repair import REPAIR
from millpond.cli.report import REPORT
from millpond.cli.run import RUN
from millpond.cli.studio import STUDIO
from millpond.cli.witness import WITNESS
from millpond.errors import MillpondError, NotUnboundedError, RunError

COMMANDS: dict[str, Command] = {
    "check": CHECK,
    "witness": WITNESS,
    "repair": REPAIR,
    "run": RUN,
    "report": REPORT,
    "lab": LAB,
    "studio": STUDIO,
    "demo": DEMO,
    "completion": COMPLETION,
}
# The exit codes of errors that are not bad input.
_ERROR_CODES = {NotUnboundedError: ExitCode.NOT_UNBOUNDED, RunError: ExitCode.RUN_FAILED}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        code = _dispatch(argv)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        _discard_output(sys.stdout)
        return ExitCode.BROKEN_PIPE


def main_entry() -> NoReturn:
    """The console script."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A character that the terminal cannot show must not end the command.
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(main())


def _dispatch(argv: Sequence[str] | None) -> int:
    try:
        arguments = make_parser().parse_args(argv)
    except SystemExit as end:  # after --help, or after an error that argparse has reported
        return end.code if isinstance(end.code, int) else ExitCode.BAD_INPUT
    try:
        return COMMANDS[arguments.command].run(arguments)
    except MillpondError as error:
        print_error(getattr(arguments, "file", None), error)
        return next(
            (code for kind, code in _ERROR_CODES.items() if isinstance(error, kind)), ExitCode.BAD_INPUT
        )


def make_parser() -> Parser:
    """The parser of all commands."""
    parser = Parser(
        prog="millpond",
        description="Decides, with proof, whether a SQL query over unbounded streams "
        "can be answered in bounded memory, and runs it.",
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"millpond {millpond.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=command.help,
            description=command.help,
            epilog=command.epilog,
            formatter_class=HelpFormatter,
            allow_abbrev=False,
        )
        command.add_arguments(sub)
    return parser


def _discard_output(stream: TextIO) -> None:
    """Discard buffered output, so that the last flush succeeds though the reader of the pipe has gone."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    main_entry()
