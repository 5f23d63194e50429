"""Declarations of lookup relations: where the relation is, and how many of its rows are cached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from millpond.errors import MillpondError, one_line
from millpond.policies.registry import Use, policy_names
from millpond.query.durations import parse_duration
from millpond.query.model import Column, Query, Table

FORMAT = "lookup"
OPTIONS = ("url", "dbtable", "memory", "policy", "ttl", "timeout", "retries")
_TIMEOUT = "30 seconds"
_RETRIES = 4
# The cache allocates an entry for each row.
_MAX_ROWS = 100_000_000


@dataclass(frozen=True)
class LookupRelation:
    """A relation in a database; ``memory`` rows are cached under ``policy``.  Times are in seconds."""

    name: str
    url: str = field(repr=False)
    dbtable: str
    columns: tuple[Column, ...]
    memory: int
    policy: str = "auto"
    ttl: float | None = None
    timeout: float = 30.0
    retries: int = _RETRIES


def is_lookup(table: Table) -> bool:
    """Whether the table is a relation that stays in its database."""
    return not table.streaming and table.source is not None and table.source.format.lower() == FORMAT


def find_lookup_tables(query: Query) -> list[Table]:
    """The lookup relations of a query."""
    return [table for table in query.tables.values() if is_lookup(table)]


def read_declaration(
    table: Table, memory: int | None = None, policy: str | None = None, folder: Path | None = None
) -> LookupRelation:
    """The relation that a declaration describes; raises MillpondError for wrong options.

    ``memory`` and ``policy`` are defaults; the path of a SQLite file is relative to ``folder``.
    """
    assert table.source is not None
    name = one_line(table.name)
    options = _check_options(name, table.source.options)
    if table.checks:
        message = f"{name}: CHECK is not supported on a lookup relation"
        raise MillpondError(message, remedy="remove it, or put the condition into WHERE")
    for needed, example in (("url", "postgresql+psycopg://user@host/database"), ("dbtable", name)):
        if not options.get(needed):
            raise MillpondError(f"{name}: the option {needed} is missing", remedy=f"add {needed} '{example}'")
    rows = _parse_rows(name, options["memory"]) if "memory" in options else memory
    if rows is None:
        message = f"{name}: the number of rows to cache is missing"
        raise MillpondError(message, remedy="add memory 'N' to its OPTIONS, or give --memory N")
    if not 1 <= rows <= _MAX_ROWS:
        raise MillpondError(f"{name}: cannot cache {rows} rows", remedy=f"give from 1 to {_MAX_ROWS:,} rows")
    chosen = options.get("policy", policy or "auto").lower()
    offered = policy_names(Use.LOOKUP)
    if chosen not in offered:
        message = f"{name}: there is no policy {one_line(chosen, 40)!r} for lookups"
        raise MillpondError(message, remedy=f"choose from {', '.join(offered)}")
    timeout = _parse_duration(name, "timeout", options.get("timeout", _TIMEOUT))
    ttl = _parse_duration(name, "ttl", options["ttl"]) if "ttl" in options else None
    retries = options.get("retries", str(_RETRIES))
    if not retries.isdecimal() or len(retries) > 3:
        raise MillpondError(
            f"{name}: retries '{one_line(retries, 40)}' is not a number", remedy="write retries '4'"
        )
    url = _resolve_url(options["url"], folder or Path.cwd())
    return LookupRelation(
        table.name, url, options["dbtable"], table.columns, rows, chosen, ttl, timeout, int(retries)
    )


def _check_options(name: str, given: Mapping[str, str]) -> dict[str, str]:
    """The options in lower case; refuses unknown ones."""
    options = {key.lower(): value for key, value in given.items()}
    for key in options:
        if key not in OPTIONS:
            message = f"{name}: unknown option {one_line(key, 40)}"
            raise MillpondError(message, remedy=f"the options of a lookup relation are {', '.join(OPTIONS)}")
    return options


def _parse_rows(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        message = f"{name}: memory '{one_line(text, 40)}' is not a number of rows"
        raise MillpondError(message, remedy="write memory '10000'")
    return int(text)


def _parse_duration(name: str, option: str, text: str) -> float:
    micros = parse_duration(text)
    if not micros:
        message = f"{name}: {option} '{one_line(text, 40)}' is not a duration"
        raise MillpondError(message, remedy="write '10 seconds' or '5 minutes'")
    return micros / 1e6


def _resolve_url(url: str, folder: Path) -> str:
    """The URL, with the path of a SQLite file relative to the folder made absolute.

    >>> _resolve_url("sqlite:///data/r.db", Path("/a")), _resolve_url("sqlite:////b/r.db", Path("/a"))
    ('sqlite:////a/data/r.db', 'sqlite:////b/r.db')
    """
    scheme, found, rest = url.partition(":///")
    if (
        not found
        or not scheme.lower().startswith("sqlite")
        or not rest
        or rest.startswith(("/", "file:", ":"))
    ):
        return url
    return f"{scheme}:///{folder.absolute().as_posix()}/{rest}"
