"""``millpond demo`` on Spark, with fewer rows."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millpond.cli import main as cli
from millpond.cli.tour import script
from millpond.cli.tour.script import Size

SMALL = Size(20, 8_000, 3, 3600.0, 0.0, orders=400, unpaid=3, files=2, memory=5)


def find(pattern: str, text: str) -> tuple[str, ...]:
    found = re.search(pattern, text)
    assert found is not None, text
    return found.groups()


def test_the_tour_measures_what_it_claims(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(work))
    monkeypatch.setattr(script, "QUICK", SMALL)
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["demo", "--quick", "--output", str(tmp_path / "demo")]) == 0
    out, err = capsys.readouterr()
    assert not err and "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    text = " ".join(out.split())
    read, theirs, ours = find(
        r"Of ([\d,]+) rows, Spark's join keeps ([\d,]+) rows and Millpond ([\d,]+)", text
    )
    found, ratio = (
        find(r"the same (\d+) ads?", text),
        find(r"keeps ([\d,.]+) times as much as Millpond", text),
    )
    numbers = [int(each.replace(",", "")) for each in (read, theirs, ours)]
    # Spark keeps each row, and each row of the answer; Millpond at most one entry for each ad and table.
    assert numbers[0] == 17_017 and numbers[1] == numbers[0] + int(found[0]) and 20 < numbers[2] <= 60
    assert ratio == (f"{numbers[1] // numbers[2]:,}",)
    assert "These are exactly the 3 orders" in text and "Spark itself refuses the query" in text
    share, right, whole, truth = find(
        r"found ([\d.]+) % of the results: ([\d,]+) of ([\d,]+)\..* The truth is (\d+)\.", text
    )
    assert 50 <= float(share) < 100 and int(whole) - int(right) == int(truth)
    assert not list(work.iterdir())
