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
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from millpond.analysis.decide import decide
from millpond.cli import main as cli
from millpond.errors import MillpondError
from millpond.frontend.parse import parse
from millpond.query.model import Query
from millpond.query.trees import is_aggregate
from millpond.spark.admission import admit
from tests.campaigns import time_on_spark
from tests.support.over_generate import CATALOG, make_consumer, make_query, make_rows
from tests.support.over_local import answer_at_once, cut_at_random


def examine(spark: SparkSession, seed: int) -> tuple[bool, str | None]:
    """Run the query of the seed; returns whether it runs, and what is wrong with its answer."""
    del spark  # it stays open for all runs
    rng = random.Random(seed)
    sql = make_query(rng) if rng.random() < 0.4 else make_consumer(rng)
    source = "USING json OPTIONS (path 's', maxFilesPerTrigger '4') TBLPROPERTIES"
    text = f"{CATALOG.replace('TBLPROPERTIES', source)} {sql};"
    (query,) = parse(text)
    try:
        admit(decide(query))
    except MillpondError:
        return False, None
    rows = make_rows(rng, 40)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "s").mkdir()
        for number, batch in enumerate(each for each in cut_at_random(rng, rows) if each):
            file = folder / "s" / f"{number:03}.json"
            file.write_text("".join(json.dumps({**row, "ts": _spell(row)}) + "\n" for row in batch))
            os.utime(file, (1_000_000_000 + number, 1_000_000_000 + number))
        (folder / "query.sql").write_text(text)
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            code = cli.main(["run", str(folder / "query.sql"), "--once", "--output", str(folder / "out")])
        if code:
            return True, f"seed {seed}: exit code {code}: {errors.getvalue()[-300:]}\n{sql}"
        found = _read_answer(folder / "out", query)
    expected = Counter[tuple[Any, ...]]()
    for row, count in answer_at_once(query, rows).items():
        expected[tuple(map(_plain, row))] += count
    if found == expected:
        return True, None
    return True, f"seed {seed}: missing {expected - found}, wrong {found - expected}\n{sql}"


def _spell(row: Mapping[str, Any]) -> str:
    return f"{row['ts'].isoformat()}Z"


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    return f"{value.isoformat(timespec='milliseconds')}Z" if isinstance(value, datetime) else value


def _read_answer(folder: Path, query: Query) -> Counter[tuple[Any, ...]]:
    """The rows that are written, without those that are taken back; of a group, its last revision."""
    select, lines = query.selects[0], []
    for file in folder.glob("part-*.json"):
        lines += [json.loads(line) for line in file.read_text().splitlines()]
    lines.sort(key=lambda row: row.get("_revision", 0))
    keys = [
        n for n, i in zip(query.columns, select.items, strict=True) if i.expression in (select.group_by or ())
    ]
    is_group = is_aggregate(select) and any("_revision" in row for row in lines)
    answer: Counter[tuple[Any, ...]] = Counter()
    groups: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in lines:
        is_retracted = row.pop("_retracted", False)
        row.pop("_revision", None)
        key, values = tuple(row[name] for name in keys), tuple(row.values())
        if is_group:
            groups.pop(key, None)
            groups |= {} if is_retracted else {key: values}
        else:
            answer[values] += -1 if is_retracted else 1
    return Counter(groups.values()) if is_group else +answer


if __name__ == "__main__":
    sys.exit(time_on_spark.main(None, examine, (__doc__ or "").splitlines()[0]))
