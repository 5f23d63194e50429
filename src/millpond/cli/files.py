"""The files that ``check`` is given: paths, patterns, standard input, and tables that they share."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING

from millpond.cli.embedded import prepare_text
from millpond.errors import MillpondError, SqlError, one_line

if TYPE_CHECKING:
    from millpond.analysis.verdict import Verdict
    from millpond.frontend.scope import Names

STANDARD_INPUT = "-"


@dataclass(frozen=True)
class CheckedFile:
    """A file and the verdict on each of its queries, or the error for which there is none."""

    name: str
    verdicts: tuple[Verdict, ...] = ()
    error: MillpondError | None = None


def check_files(names: Iterable[str], catalog: str | None = None) -> list[CheckedFile]:
    """Check every file; a file that cannot be checked does not stop the others.

    ``catalog`` is a file with CREATE statements that all of them share.
    """
    tables = _read_catalog(catalog) if catalog is not None else {}
    files = (name for name in dict.fromkeys(_expand(names)) if catalog is None or not _is_same(name, catalog))
    return [_check_file(name, tables) for name in files]


def _check_file(name: str, tables: Names) -> CheckedFile:
    from millpond.analysis.decide import decide
    from millpond.frontend.parse import parse

    try:
        return CheckedFile(name, tuple(decide(query) for query in parse(read_sql(name), tables)))
    except MillpondError as error:
        return CheckedFile(name, error=error)


def _read_catalog(path: str) -> Names:
    from millpond.frontend.parse import read_declarations

    try:
        return read_declarations(read_sql(path))
    except MillpondError as error:
        raise MillpondError(f"the catalog {path}: {error.message}", error.position, error.remedy) from None


def _is_same(name: str, other: str) -> bool:
    return Path(name).absolute() == Path(other).absolute()


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


def read_sql(name: str) -> str:
    """The SQL of a file or of standard input, also if it stands in a template of dbt or in a notebook."""
    from millpond.frontend.parse import read_text

    if name != STANDARD_INPUT:
        return prepare_text(read_text(name))
    try:
        return prepare_text(sys.stdin.buffer.read().decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise SqlError("standard input is not UTF-8 text", remedy="give SQL text") from None
