"""What is said of a relation in a database: where it is, and how many of its rows may be kept."""

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
# The most rows for which places are made ready.
_MOST = 100_000_000


@dataclass(frozen=True)
class LookupRelation:
    """``memory`` rows of it are kept, by ``policy``; ``ttl``, ``timeout`` are seconds."""

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
    """Whether the table stays in its database."""
    return not table.streaming and table.source is not None and table.source.format.lower() == FORMAT


def find_lookup_tables(query: Query) -> list[Table]:
    """The relations of a query that stay in their databases."""
    return [table for table in query.tables.values() if is_lookup(table)]


def read_declaration(
    table: Table, memory: int | None = None, policy: str | None = None, folder: Path | None = None
) -> LookupRelation:
    """The relation that a declaration describes.

    ``memory`` and ``policy`` stand in where it names none; a file of SQLite starts from ``folder``.
    """
    assert table.source is not None
    name = one_line(table.name)
    options = _options(name, table.source.options)
    if table.checks:
        message = f"{name}: a CHECK on a relation in a database is not looked at"
        raise MillpondError(message, remedy="leave it out, or put the condition into WHERE")
    for needed, example in (("url", "postgresql+psycopg://user@host/database"), ("dbtable", name)):
        if not options.get(needed):
            raise MillpondError(f"{name}: the option {needed} is missing", remedy=f"add {needed} '{example}'")
    rows = _rows(name, options["memory"]) if "memory" in options else memory
    if rows is None:
        message = f"{name} does not say how many of its rows may be kept"
        raise MillpondError(message, remedy="add memory 'N' to its OPTIONS, or give --memory N")
    if not 1 <= rows <= _MOST:
        raise MillpondError(f"{name}: {rows} rows cannot be kept", remedy=f"give from 1 to {_MOST:,} rows")
    chosen = options.get("policy", policy or "auto").lower()
    offered = policy_names(Use.LOOKUP)
    if chosen not in offered:
        message = f"{name}: there is no policy {one_line(chosen, 40)!r} for look-ups"
        raise MillpondError(message, remedy=f"choose from {', '.join(offered)}")
    timeout = _seconds(name, "timeout", options.get("timeout", _TIMEOUT))
    ttl = _seconds(name, "ttl", options["ttl"]) if "ttl" in options else None
    retries = options.get("retries", str(_RETRIES))
    if not retries.isdecimal() or len(retries) > 3:
        raise MillpondError(
            f"{name}: retries '{one_line(retries, 40)}' is no number", remedy="write retries '4'"
        )
    url = _located(options["url"], folder or Path.cwd())
    return LookupRelation(
        table.name, url, options["dbtable"], table.columns, rows, chosen, ttl, timeout, int(retries)
    )


def _options(name: str, given: Mapping[str, str]) -> dict[str, str]:
    options = {key.lower(): value for key, value in given.items()}
    for key in options:
        if key not in OPTIONS:
            message = f"{name}: a look-up has no option {one_line(key, 40)}"
            raise MillpondError(message, remedy=f"its options are {', '.join(OPTIONS)}")
    return options


def _rows(name: str, text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        message = f"{name}: memory '{one_line(text, 40)}' is not a number of rows"
        raise MillpondError(message, remedy="write memory '10000'")
    return int(text)


def _seconds(name: str, option: str, text: str) -> float:
    micros = parse_duration(text)
    if not micros:
        message = f"{name}: {option} '{one_line(text, 40)}' is not a length of time"
        raise MillpondError(message, remedy="write it as '10 seconds' or '5 minutes'")
    return micros / 1e6


def _located(url: str, folder: Path) -> str:
    """The URL; a file of SQLite with a relative path is in the folder.

    >>> _located("sqlite:///data/r.db", Path("/a")), _located("sqlite:////b/r.db", Path("/a"))
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
