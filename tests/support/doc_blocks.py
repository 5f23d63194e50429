"""The code blocks of the documentation, and what runs each of them.

| block | what it is |
|---|---|
| ``python`` with ``>>>`` | a doctest, which pytest runs |
| ``sql`` | checked; ``-- NAME.sql`` in its first line makes it a file for the commands of the page |
| ``console`` | commands that need no Spark, with their output |
| ``bash`` | ``millpond run …``, repeated on Spark if the page shows its output |
| ``json data/FILE.json`` | an input file of the runs below it |
| ``json FOLDER`` | the rows in a folder after the runs above it |
| ``json FILE.jsonl`` | some fields of each line of a file of metrics after the runs above it |

Any other block follows a comment that says why nothing runs it: ``<!-- not run: needs a cluster -->``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))

_FENCE = re.compile(
    r"(?:^<!-- not run: (?P<excuse>[^\n]+) -->\n\n?)?"
    r"^(?P<indent> *)```(?P<language>\w*) ?(?P<name>\S*)\n(?P<text>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_SQL_NAME = re.compile(r"-- (\S+\.sql)\n")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the name of the file it shows, and why nothing runs it (if so)."""

    page: Path
    line: int
    language: str
    name: str
    text: str
    excuse: str | None = None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line} ({self.language or 'no language'})"

    @property
    def file(self) -> str | None:
        """The file to write for the commands of the page."""
        if self.language == "sql":
            found = _SQL_NAME.match(self.text)
            return found[1] if found else None
        return self.name if self.language == "json" and self.name.endswith(".json") else None

    @property
    def is_output(self) -> bool:
        """Whether it shows what a run writes."""
        return self.language == "json" and bool(self.name) and self.file is None


def read_blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in their order."""
    return find_blocks(page, page.read_text(encoding="utf-8"))


def find_blocks(page: Path, text: str) -> list[Block]:
    """The fenced blocks of a text."""
    return [
        Block(
            page,
            text.count("\n", 0, found.start("language")) + 1,
            *found.group("language", "name", "text", "excuse"),
        )
        for found in _FENCE.finditer(text)
    ]


@dataclass(frozen=True)
class Example:
    """A file of SQL that a page runs: its input, commands, and what they write, in the order of the page."""

    page: Path
    name: str
    steps: tuple[Block, ...]

    def __str__(self) -> str:
        return f"{self.page.stem}:{self.name}"


@cache
def read_examples() -> tuple[Example, ...]:
    """The examples that run on Spark: those that show what a run writes."""
    found: list[Example] = []
    for page in PAGES:
        steps: dict[str, list[Block]] = {}
        current = ""
        for block in read_blocks(page):
            if block.language == "sql" and block.file:
                current = block.file
                steps[current] = [block]
            elif current and ((block.language == "json" and block.name) or is_run(block)):
                steps[current].append(block)
        found += (
            Example(page, name, tuple(blocks))
            for name, blocks in steps.items()
            if any(block.is_output for block in blocks)
        )
    return tuple(found)


def is_run(block: Block) -> bool:
    """Whether a block contains runs only."""
    lines = block.text.splitlines()
    return block.language == "bash" and all(line.startswith("millpond run ") for line in lines)


def find_runner(block: Block) -> str | None:
    """What runs a block; None if nothing does."""
    if block.language == "python" and ">>> " in block.text:
        return "doctest"
    if block.language == "sql":
        return "check"
    if block.language == "console":
        return "commands"
    return "Spark" if any(block in example.steps for example in read_examples()) else None
