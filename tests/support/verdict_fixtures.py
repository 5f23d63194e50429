"""Reads the verdict examples in ``tests/fixtures/verdicts``: titled SQL with the expected verdict.

A file consists of blocks, separated by blank lines.  A block is a title and directives, as comments, and SQL:

    -- Example 5.7: counts for 11 to 19
    -- expect: bounded
    -- entries: 18
    SELECT A FROM S, T WHERE A < 20 AND A = C AND C > 10 AND B > 20;

Directives: ``expect`` (outcomes, of which one must hold), ``entries``, ``codes`` (of the reasons),
``published`` (text that ``Verdict.published`` contains) and ``compare`` (of witnesses).  A block of CREATE
statements without ``expect`` is the catalog of the blocks after it; a block without SQL is a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "fixtures" / "verdicts"
_DIRECTIVE = re.compile(r"-- (expect|entries|codes|published|compare): (.+)")


@dataclass(frozen=True)
class VerdictExample:
    """A query with its catalog, and what its verdict must be; empty or None is not checked."""

    file: str
    title: str
    catalog: str = field(repr=False)
    query: str
    outcomes: tuple[str, ...]
    entries: int | None = None
    codes: frozenset[str] = frozenset()
    published: str = ""
    compare: str = ""

    @property
    def sql(self) -> str:
        return f"{self.catalog}\n{self.query}"

    def __str__(self) -> str:
        return f"{self.file}: {self.title}"


def read_examples(*files: str) -> list[VerdictExample]:
    """The examples of some files (without ``.sql``), or of all."""
    paths = [FOLDER / f"{name}.sql" for name in files] if files else sorted(FOLDER.glob("*.sql"))
    return [example for path in paths for example in _read_file(path)]


def _read_file(path: Path) -> Iterator[VerdictExample]:
    catalog = ""
    for block in re.split(r"\n\s*\n", path.read_text().strip()):
        lines = block.splitlines()
        comments = [line for line in lines if line.startswith("--")]
        sql = "\n".join(line for line in lines if not line.startswith("--"))
        directives = {m[1]: m[2] for m in map(_DIRECTIVE.fullmatch, comments) if m}
        title = " ".join(c.removeprefix("-- ") for c in comments if not _DIRECTIVE.fullmatch(c))
        if "expect" in directives:
            assert title and sql, f"{path.name}: {block}"
            yield VerdictExample(
                path.stem,
                title,
                catalog,
                sql,
                tuple(directives["expect"].split(" or ")),
                int(directives["entries"]) if "entries" in directives else None,
                frozenset(directives["codes"].split(", ")) if "codes" in directives else frozenset(),
                directives.get("published", ""),
                directives.get("compare", ""),
            )
        elif sql:
            assert not directives, f"{path.name}: expect is missing: {block}"
            catalog = sql
