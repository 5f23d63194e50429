"""The parser of the command line: wrong calls in one line, with the nearest name, and help that fits."""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from collections.abc import Iterable
from difflib import get_close_matches
from typing import NoReturn

from millpond.cli.command import flatten
from millpond.cli.exits import ExitCode

_CHOICE = re.compile(r"argument (\S+): invalid choice: (.*?) \((?:choose from|maybe you meant:?) (.*)\)")
_NUMBER = re.compile(r"argument (\S+): invalid int value: (.*)")
_MISSING_VALUE = re.compile(r"argument (\S+): expected .*")
_REQUIRED = re.compile(r"the following arguments are required: (.*)")
_UNKNOWN_OPTION = re.compile(r"unrecognized arguments: (-[\w-]+).*")
_UNKNOWN_WORD = re.compile(r"unrecognized arguments: (.*)")
_OTHER = re.compile(r"argument (\S+): (.*)")


class Parser(argparse.ArgumentParser):
    """Reports a wrong call in one line, with the nearest option, command or value."""

    def error(self, message: str) -> NoReturn:
        text, remedy = self._reword(message)
        self.exit(ExitCode.BAD_INPUT, f"{flatten(f'millpond: {text}; {remedy or self._help}')}\n")

    @property
    def options(self) -> list[str]:
        """The options of this parser and of the commands below it."""
        own = [option for action in self._actions for option in action.option_strings]
        below = (a.choices.values() for a in self._actions if isinstance(a, argparse._SubParsersAction))
        return own + [option for parsers in below for parser in parsers for option in parser.options]

    @property
    def _help(self) -> str:
        return f"see {self.prog} --help"

    def _reword(self, message: str) -> tuple[str, str | None]:
        """The message of argparse in plain words, and a remedy."""
        if found := _CHOICE.fullmatch(message):
            name, given = found[1], found[2].strip("'\"")
            known = [each.strip("'\"") for each in found[3].split(", ")]
            what = f"there is no command {given!r}" if name == "COMMAND" else f"{name}: there is no {given!r}"
            return what, suggest(given, known)
        if found := _UNKNOWN_OPTION.fullmatch(message):
            near = get_close_matches(found[1], self.options, n=1)
            return f"there is no option {found[1]}", f"did you mean {near[0]}?" if near else None
        if found := _NUMBER.fullmatch(message):
            return f"{found[1]}: {found[2]} is not a whole number", None
        if found := _MISSING_VALUE.fullmatch(message):
            return f"{found[1]} needs a value", None
        if found := _REQUIRED.fullmatch(message):
            return f"{found[1]} is missing", None
        if found := _UNKNOWN_WORD.fullmatch(message):
            return f"{found[1]!r} is not expected", None
        return (f"{found[1]}: {found[2]}" if (found := _OTHER.fullmatch(message)) else message), None


def suggest(given: str, known: Iterable[str]) -> str:
    """The nearest of the known names, or all of them.

    >>> suggest("chek", ["check", "run"]), suggest("xml", ["csv", "orc"])
    ('did you mean check?', 'choose from csv, orc')
    """
    names = list(known)
    near = get_close_matches(given, names, n=1)
    return f"did you mean {near[0]}?" if near else f"choose from {', '.join(names)}"


class HelpFormatter(argparse.HelpFormatter):
    """Wraps the description, and keeps the lines of examples; an example that is too long gets two lines."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=min(shutil.get_terminal_size().columns, 100) - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if not text.startswith("examples:"):
            return textwrap.fill(
                " ".join(text.split()), width, initial_indent=indent, subsequent_indent=indent
            )
        if max(map(len, text.splitlines())) <= width:
            return text
        return re.sub(r"(?<=\S) {2,}(?=\S)", "\n      ", text)
