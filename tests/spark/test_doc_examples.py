"""The examples that ``docs/reference/time.md`` runs: the rows that it shows are those that a run writes.

A block ``json data/FOLDER/FILE`` is an input file, and ``json OUTPUT`` shows the rows in a folder after the
commands ``millpond run …`` above it.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from millpond.cli import main as cli

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "time.md"
STEP = re.compile(r"^```(sql|json) ?(\S*)\n(.*?)^```$|^    millpond (run [^\n]*)$", re.MULTILINE | re.DOTALL)


class Step(NamedTuple):
    """A file to write, an output to compare, or (without ``path``) a command."""

    path: str
    text: str


def read_examples() -> dict[str, list[Step]]:
    """The steps of each example, by its SQL file."""
    found: dict[str, list[Step]] = {}
    current = ""
    for language, path, text, command in STEP.findall(PAGE.read_text(encoding="utf-8")):
        if language == "sql":
            if name := re.match(r"-- (\S+\.sql)\n", text):
                current = name[1]
                found[current] = [Step(current, text)]
        elif current:
            found[current].append(Step(path, text or command))
    return {name: steps for name, steps in found.items() if any(not step.path for step in steps)}


EXAMPLES = read_examples()


def read_rows(folder: Path) -> list[dict[str, object]]:
    lines = [line for file in folder.glob("part-*.json") for line in file.read_text().splitlines()]
    return sorted(map(json.loads, lines), key=repr)


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) >= 6


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_run_writes_the_rows_that_the_page_shows(
    name: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, (path, text) in enumerate(EXAMPLES[name]):
        if not path:
            assert cli.main(text.split()) == 0
        elif path.endswith((".json", ".sql")):
            file = Path(path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
        else:
            shown = [json.loads(line) for line in text.splitlines()]
            assert read_rows(Path(path)) == sorted(shown, key=repr)
