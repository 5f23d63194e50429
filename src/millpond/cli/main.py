"""The command line: ``millpond COMMAND …``.  Only modules of this package print."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import NoReturn, TextIO

import millpond
from millpond.cli.check import CHECK
from millpond.cli.command import Command, flatten, print_error
from millpond.cli.demo import DEMO
from millpond.cli.exits import ExitCode
from millpond.cli.lab import LAB
from millpond.cli.run import RUN
from millpond.cli.witness import WITNESS
from millpond.errors import MillpondError, NotUnboundedError, RunError

COMMANDS: dict[str, Command] = {"check": CHECK, "witness": WITNESS, "run": RUN, "lab": LAB, "demo": DEMO}
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
        arguments = _make_parser().parse_args(argv)
    except SystemExit as end:  # after --help, or after an error that argparse has reported
        return end.code if isinstance(end.code, int) else ExitCode.BAD_INPUT
    try:
        return COMMANDS[arguments.command].run(arguments)
    except MillpondError as error:
        print_error(getattr(arguments, "file", None), error)
        return next(
            (code for kind, code in _ERROR_CODES.items() if isinstance(error, kind)), ExitCode.BAD_INPUT
        )


class _Parser(argparse.ArgumentParser):
    """Reports a wrong call in one line, with the nearest option if one is unknown."""

    def error(self, message: str) -> NoReturn:
        remedy = f"see {self.prog} --help"
        if found := re.fullmatch(r"unrecognized arguments: (--[\w-]+).*", message):
            message = f"there is no option {found[1]}"
            if near := get_close_matches(found[1], self.options, n=1):
                remedy = f"did you mean {near[0]}?"
        self.exit(ExitCode.BAD_INPUT, f"{flatten(f'millpond: {message}; {remedy}')}\n")

    @property
    def options(self) -> list[str]:
        """The options of this parser and of the commands below it."""
        own = [option for action in self._actions for option in action.option_strings]
        below = (a.choices.values() for a in self._actions if isinstance(a, argparse._SubParsersAction))
        return own + [option for parsers in below for parser in parsers for option in parser.options]


def _make_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="millpond",
        description="Decides, with proof, whether a SQL query over unbounded streams "
        "can be answered in bounded memory, and runs it.",
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
            formatter_class=argparse.RawDescriptionHelpFormatter,
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
