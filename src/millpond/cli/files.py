"""The SQL files that ``check`` is given: paths, patterns and standard input, some with other text around."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.errors import MillpondError, SqlError, one_line

if TYPE_CHECKING:
    from millpond.analysis.verdict import Verdict

STANDARD_INPUT = "-"
# dbt: names of tables in {{ ref('clicks') }} and {{ source('web', 'clicks') }}; {{ config(…) }} is no SQL.
_TABLE = re.compile(r"\{\{-?\s*(?:ref|source)\(\s*(?:'[^'{}]*'\s*,\s*)?'([A-Za-z_]\w*)'\s*\)\s*-?\}\}")
_CONFIG = re.compile(r"\{\{-?\s*config\([^{}]*\)\s*-?\}\}|\{#.*?#\}", re.DOTALL)
_TEMPLATE = re.compile(r"\{\{|\{%")
# Notebooks that are exported as SQL divide their cells by this line; cells need no semicolon.
_CELL = re.compile(r"^--[ ]COMMAND[ ]-+[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class CheckedFile:
    """A file and the verdict on each of its queries, or the error for which there is none."""

    name: str
    verdicts: tuple[Verdict, ...] = ()
    error: MillpondError | None = None


def check_files(names: Iterable[str]) -> list[CheckedFile]:
    """Check every file; a file that cannot be checked does not stop the others."""
    return [_check_file(name) for name in dict.fromkeys(_expand(names))]


def _check_file(name: str) -> CheckedFile:
    from millpond.analysis.decide import check

    try:
        found = check(prepare_text(_read(name)))
    except MillpondError as error:
        return CheckedFile(name, error=error)
    return CheckedFile(name, tuple(found) if isinstance(found, list) else (found,))


def _expand(names: Iterable[str]) -> Iterator[str]:
    """The names, with patterns such as ``queries/**/*.sql`` replaced by the files that match them."""
    for name in names:
        if not has_magic(name) or Path(name).exists():
            yield name
            continue
        found = sorted(path for path in glob(name, recursive=True) if Path(path).is_file())
        if not found:
            raise MillpondError(f"no file matches {one_line(name, 200)}", remedy="correct the pattern")
        yield from found


def _read(name: str) -> str:
    from millpond.frontend.parse import read_text

    if name != STANDARD_INPUT:
        return read_text(name)
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SqlError("standard input is not UTF-8 text", remedy="give SQL text") from None


def prepare_text(text: str) -> str:
    """The SQL of a file with dbt's templates or the cells of a notebook; every position stays what it was.

    >>> prepare_text("SELECT a FROM {{ ref('clicks') }}")
    'SELECT a FROM clicks             '
    """

    def blank(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", found[0])

    def name(found: re.Match[str]) -> str:
        return found[1] + blank(found)[len(found[1]) :]

    text = _CONFIG.sub(blank, _TABLE.sub(name, text))
    if (found := _TEMPLATE.search(text)) is not None:
        from millpond.frontend.statement import position

        remedy = "compile the template first, and check the SQL that it gives"
        raise SqlError("a template is not SQL", position(text, found.start()), remedy)
    return _divide_cells(text)


def _divide_cells(text: str) -> str:
    """Put a semicolon between the cells of a notebook, where a statement does not end with one."""
    start = 0

    def divide(found: re.Match[str]) -> str:
        nonlocal start
        code = re.sub(r"--[^\n]*", "", text[start : found.start()]).rstrip()
        start = found.end()
        return f";{' ' * (len(found[0]) - 1)}" if code and not code.endswith(";") else found[0]

    return _CELL.sub(divide, text)
