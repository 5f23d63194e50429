"""The examples of the documentation that run on Spark: what a page shows is what the run writes.

``tests/support/doc_blocks.py`` describes how a page shows input, commands and output.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millpond.cli import main as cli
from tests.support.doc_blocks import Block, Example, read_examples


def read_rows(folder: Path) -> list[dict[str, object]]:
    files = [file for pattern in ("part-*.json", "*.jsonl") for file in sorted(folder.glob(pattern))]
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def compare(block: Block) -> None:
    """Compare what a block shows with what a run wrote: the rows of a folder, or fields of a file's lines."""
    shown = [json.loads(line) for line in block.text.splitlines()]
    if not block.name.endswith(".jsonl"):
        assert sorted(read_rows(Path(block.name)), key=repr) == sorted(shown, key=repr)
        return
    lines = [json.loads(line) for line in Path(block.name).read_text().splitlines()]
    for fields in shown:
        line = next(each for each in lines if each["batch"] == fields["batch"])
        assert fields == {name: line[name] for name in fields}


@pytest.mark.parametrize("example", read_examples(), ids=str)
def test_a_run_writes_what_the_page_shows(
    example: Example, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, step in enumerate(example.steps):
        if step.language == "bash":
            for line in step.text.splitlines():
                assert cli.main(shlex.split(line)[1:]) == 0
        elif step.is_output:
            compare(step)
        else:
            assert step.file
            file = Path(step.file)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(step.text, encoding="utf-8")
            os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
