"""All aggregates on Spark: their names, and their values in windows, sessions and other groups."""

from __future__ import annotations

import json
import math
import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millpond.cli import main as cli
from millpond.frontend.parse import parse
from millpond.query.evaluate import answer
from millpond.runtime.derive import derive_rows
from tests.campaigns.native_windows import read_lines

COLUMNS = "K TINYINT, H TINYINT, A INT, X DOUBLE, N STRING, OK BOOLEAN, TS TIMESTAMP"
ANYWHERE = [
    *("VARIANCE(A)", "VAR_POP(A)", "STDDEV(A)", "STD(A)", "STDDEV_POP(A)", "STDDEV_SAMP(A)", "MEAN(A)"),
    *("MAX_BY(N, X)", "MIN_BY(A, X)", "FIRST(A)", "LAST_VALUE(N)", "BOOL_AND(OK)", "EVERY(A > 2)"),
    *("ANY(OK)", "SOME(A > 3)", "COUNT_IF(A > 2)", "COUNT(A, X)", "COUNT(DISTINCT H, OK)", "SUM(DISTINCT H)"),
    *(
        "AVG(DISTINCT H)",
        "PERCENTILE(H, 0.3)",
        "PERCENTILE_CONT(0.2) WITHIN GROUP (ORDER BY H DESC)",
        "SUM(1)",
    ),
    *("PERCENTILE_DISC(0.6) WITHIN GROUP (ORDER BY H)", "STDDEV(A) FILTER (WHERE A > 1)", "MIN(DISTINCT A)"),
]
BY_SPARK = [
    *("VARIANCE(X)", "CORR(A, X)", "COVAR_POP(A, X)", "COVAR_SAMP(A, X)", "PERCENTILE_APPROX(A, 0.5)"),
    *("COLLECT_SET(A)", "ARRAY_AGG(A)", "COLLECT_LIST(N)", "APPROX_PERCENTILE(X, 0.9, 100)"),
]


def test_columns_have_sparks_names(spark: SparkSession) -> None:
    spark.createDataFrame([], COLUMNS).createOrReplaceTempView("S")
    every = [*ANYWHERE, *BY_SPARK, "APPROX_COUNT_DISTINCT(N, 0.01)"]
    text = ", ".join(every)
    [query] = parse(f"CREATE STREAMING TABLE S ({COLUMNS}); SELECT {text} FROM S")
    names = zip(query.columns, spark.sql(f"SELECT {text} FROM S").columns, strict=True)
    wrong = [(mine, theirs) for mine, theirs in names if mine != theirs]
    assert not wrong, str(wrong)


def _make_rows(rng: random.Random) -> list[dict[str, Any]]:
    orders = rng.sample(range(100), 50)

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.2 else value

    return [
        {
            **{"K": rng.randrange(3), "H": maybe(orders[i]), "A": maybe(rng.randrange(-5, 9))},
            **{"X": maybe(orders[i] / 8), "N": maybe(rng.choice("abc")), "OK": maybe(rng.random() < 0.5)},
            "TS": datetime(2024, 1, 1) + timedelta(seconds=7 * i),
        }
        for i in range(50)
    ]


@pytest.mark.parametrize(
    ("group", "keys", "aggregates"),
    [
        ("N, window(TS, '1 minute')", "N, window.start AS first", [*ANYWHERE, *BY_SPARK]),
        (
            "K, session_window(TS, '8 seconds')",
            "K, session_window.start AS first",
            [*ANYWHERE, *BY_SPARK[:4], "COLLECT_SET(H)", "COUNT(DISTINCT OK)", "MEDIAN(H)"],
        ),
        ("K", "K, 0 AS first", [each for each in ANYWHERE if "TS" not in each]),
        ("N", "N, 0 AS first", [*ANYWHERE]),
    ],
    ids=["windows", "sessions", "bounded keys", "declared cardinality"],
)
def test_values_are_those_of_the_reference(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    group: str,
    keys: str,
    aggregates: list[str],
) -> None:
    rows = _make_rows(random.Random(group))
    (tmp_path / "rows").mkdir()
    for start in range(0, len(rows), 25):
        lines = (json.dumps({**r, "TS": f"{r['TS'].isoformat()}Z"}) for r in rows[start : start + 25])
        (tmp_path / "rows" / f"{start}.json").write_text("\n".join(lines))
    items = ", ".join(f"{each} AS v{i}" for i, each in enumerate(aggregates))
    text = (
        f"CREATE STREAMING TABLE S ({COLUMNS}) USING json OPTIONS (path 'rows', maxFilesPerTrigger '1') "
        f"TBLPROPERTIES ('cardinality.N' = '2'); SELECT {keys}, {items} FROM S GROUP BY {group};"
    )
    (tmp_path / "query.sql").write_text(text)
    given = ["--once", "--output", str(tmp_path / "out"), "--metrics", str(tmp_path / "metrics")]
    assert cli.main(["run", str(tmp_path / "query.sql"), *given]) == 0
    if group == "N":  # a promise that is broken: nothing is lost, and it is reported
        assert read_lines(tmp_path, "metrics")[-1]["cardinalities"] == {"S.N": {"values": 3, "declared": 2}}
        assert "S.N exceeded its declared cardinality of 2: about 3 values" in capsys.readouterr().err
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in sorted(read_lines(tmp_path / "out", "part-*"), key=lambda each: each.get("_revision", 0)):
        found[line.get(keys[0]), _seconds(line["first"])] = line
    [query] = parse(text)
    expected = answer(query, derive_rows(query, {"S": rows}))
    assert len(found) == expected.total()
    for row in expected:
        line = found[row[0], _seconds(row[1])]
        for i, value in enumerate(row[2:]):
            assert _is_equal(line.get(f"v{i}"), value), (aggregates[i], line.get(f"v{i}"), value)


def _seconds(moment: Any) -> Any:
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment.replace("Z", "+00:00")).replace(tzinfo=None)
    return moment


def _is_equal(one: Any, other: Any) -> bool:
    if isinstance(other, tuple):
        return sorted(one) == list(other)
    return one == other or (isinstance(other, float) and math.isclose(one or 0, other, abs_tol=1e-9))
