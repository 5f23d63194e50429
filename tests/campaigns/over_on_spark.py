"""Random window functions through ``millpond run``, with rows out of order, compared with DuckDB.

    python -m tests.campaigns.over_on_spark --cases 30

Each query runs on files that arrive in several micro-batches.  Added rows minus those that are taken back
must be DuckDB's answer on all rows.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from millpond import Verdict, check
from millpond.cli import main as cli
from millpond.engines.over.compile import find_gap
from tests.campaigns import time_on_spark
from tests.support.over_generate import CATALOG, make_query, make_rows
from tests.support.over_local import answer_at_once, cut_at_random


def examine(spark: SparkSession, seed: int) -> tuple[bool, str | None]:
    """Run the query of the seed; returns whether it runs, and what is wrong with its answer."""
    del spark  # it stays open for all runs
    rng = random.Random(seed)
    sql = make_query(rng)
    verdict = check(f"{CATALOG} {sql}")
    assert isinstance(verdict, Verdict)
    if verdict.over is None or find_gap(verdict.over) is not None:
        return False, None
    rows = make_rows(rng, 40)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "s").mkdir()
        for number, batch in enumerate(each for each in cut_at_random(rng, rows) if each):
            file = folder / "s" / f"{number:03}.json"
            file.write_text("".join(json.dumps({**row, "ts": _spell(row)}) + "\n" for row in batch))
            os.utime(file, (1_000_000_000 + number, 1_000_000_000 + number))
        source = "USING json OPTIONS (path 's', maxFilesPerTrigger '4') TBLPROPERTIES"
        (folder / "query.sql").write_text(f"{CATALOG.replace('TBLPROPERTIES', source)} {sql};")
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            code = cli.main(["run", str(folder / "query.sql"), "--once", "--output", str(folder / "out")])
        if code:
            return True, f"seed {seed}: exit code {code}: {errors.getvalue()[-300:]}\n{sql}"
        found = _read_answer(folder / "out")
    expected = answer_at_once(verdict.query, rows)
    if found == expected:
        return True, None
    return True, f"seed {seed}: missing {expected - found}, wrong {found - expected}\n{sql}"


def _spell(row: Mapping[str, Any]) -> str:
    return f"{row['ts'].isoformat()}Z"


def _read_answer(folder: Path) -> Counter[tuple[Any, ...]]:
    """The rows that are written, without those that are taken back."""
    answer: Counter[tuple[Any, ...]] = Counter()
    for file in folder.glob("part-*.json"):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            sign = -1 if row.pop("_retracted", False) else 1
            row.pop("_revision", None)
            answer[tuple(row.values())] += sign
    return +answer


if __name__ == "__main__":
    sys.exit(time_on_spark.main(None, examine, (__doc__ or "").splitlines()[0]))
