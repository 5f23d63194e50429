"""Runs from the command line: rows, metrics, resumption, refusals, failures and interruptions."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import millpond
from millpond.cli import main as cli
from millpond.spark import run as run_module
from millpond.spark.answer import AnswerFrame
from millpond.spark.exact import ExactEngine
from millpond.spark.job import Job
from millpond.spark.options import OUTPUT_FORMATS

CATALOG = "CREATE STREAMING TABLE S (A INT, B INT) USING json OPTIONS (path 'in', maxFilesPerTrigger '1');\n"
FILTER = "SELECT A, B FROM S WHERE A < 5;\n"
METRICS = {
    "batch", "input_rows", "output_rows", "state_entries", "state_bytes", "malformed_rows", "late_rows",
    "shed_rows", "seconds", "state_bound", "rows_per_second", "timestamp",
}  # fmt: skip
Captured = pytest.CaptureFixture[str]


class Folder:
    """A query with its input and output, and the command that runs it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.output = path / "out"
        (path / "in").mkdir()
        self.ask(FILTER)

    def ask(self, query: str, catalog: str = CATALOG) -> None:
        (self.path / "query.sql").write_text(catalog + query, encoding="utf-8")

    def feed(self, number: int, rows: list[Any]) -> None:
        """A file of the stream: a batch.  Spark reads files in the order of their times."""
        lines = [
            row if isinstance(row, str) else json.dumps(dict(zip("AB", row, strict=True))) for row in rows
        ]
        file = self.path / "in" / f"{number}.json"
        file.write_text("".join(f"{line}\n" for line in lines))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))

    def arguments(self, *options: str) -> list[str]:
        return ["run", str(self.path / "query.sql"), "--output", str(self.output), *options]

    def run(self, *options: str) -> int:
        return cli.main(self.arguments("--once", *options))

    def rows(self) -> Counter[tuple[Any, ...]]:
        return Counter(tuple(row.values()) for row in self._lines("part-*.json"))

    def rejected(self) -> list[dict[str, Any]]:
        return self._lines("_rejected/part-*.json")

    def metrics(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.path / "metrics").read_text().splitlines()]

    def _lines(self, pattern: str) -> list[dict[str, Any]]:
        files = sorted(self.output.glob(pattern))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Folder:
    return Folder(tmp_path)


PROGRESS = re.compile("millpond: (starting|planning|first batch|running|waiting|resuming)")


def assert_error(capsys: Captured, pattern: str) -> None:
    """One line on stderr besides the progress lines, and nothing on stdout."""
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if not PROGRESS.match(line)]
    assert out == ""
    assert len(lines) == 1, err
    assert re.search(pattern, lines[0]), lines[0]
    assert not re.search(r"Exception|Traceback|\tat |SQLSTATE|\[[A-Z_]+\]", lines[0])


# --- rows and metrics ------------------------------------------------------------------------------


def test_a_run_writes_rows_and_metrics(folder: Folder, capsys: Captured) -> None:
    folder.feed(1, [(1, 10), (1, 10), (7, 70), "rubbish"])
    folder.feed(2, [(2, None), '{"A": "x"}', '{"A": 3'])
    assert folder.run("--metrics", str(folder.path / "metrics")) == 0
    assert folder.rows() == Counter({(1, 10): 2, (2, None): 1})
    assert [(row["stream"], row["record"]) for row in folder.rejected()] == [
        ("S", "rubbish"), ("S", '{"A": "x"}'), ("S", '{"A": 3'),
    ]  # fmt: skip
    assert all(row["reason"] for row in folder.rejected())
    assert not (folder.output / "_staging").exists()
    first, second = folder.metrics()
    assert set(first) >= METRICS
    assert [first[k] for k in ("batch", "input_rows", "output_rows", "malformed_rows")] == [0, 4, 2, 1]
    assert [second[k] for k in ("batch", "input_rows", "output_rows", "malformed_rows")] == [1, 3, 1, 2]
    assert (first["state_entries"], first["state_bound"], first["late_rows"], first["shed_rows"]) == (
        0,
        0,
        0,
        0,
    )
    assert first["seconds"] > 0 and first["rows_per_second"] == pytest.approx(4 / first["seconds"], abs=0.1)
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(
        r"millpond: done after .*: 2 batches, 7 rows in, 3 out, 3 rejected, .*", err.splitlines()[-1]
    )


def test_a_later_run_continues(folder: Folder, capsys: Captured) -> None:
    metrics = ("--metrics", str(folder.path / "metrics"))
    folder.ask("SELECT DISTINCT A, B FROM S WHERE A IN (1, 2) AND B IN (1, 2);\n")
    folder.feed(1, [(1, 1)])
    assert folder.run("--quiet", *metrics) == 0
    assert capsys.readouterr() == ("", "")
    with (folder.path / "metrics").open("a") as torn:
        torn.write('{"batch": 1, "inp')  # as a kill may leave it
    folder.feed(2, [(2, 2)])
    assert folder.run(*metrics) == 0
    assert "millpond: resuming after batch 0 with 1 entry\n" in capsys.readouterr().err
    assert folder.rows() == Counter([(1, 1), (2, 2)])
    lines = (folder.path / "metrics").read_text().splitlines()
    assert [json.loads(lines[n])["batch"] for n in (0, 2)] == [0, 1] and len(lines) == 3


@pytest.mark.parametrize("format", OUTPUT_FORMATS)
def test_every_output_format_holds_the_same_rows(folder: Folder, spark: SparkSession, format: str) -> None:
    folder.feed(1, [(1, None), (2, 20), "rubbish"])
    assert folder.run("--format", format) == 0
    found = spark.read.format(format).schema("A INT, B INT").option("header", "true").load(str(folder.output))
    assert Counter(map(tuple, found.collect())) == Counter([(1, None), (2, 20)])
    assert len(folder.rejected()) == 1


def test_a_run_without_input_rows(folder: Folder) -> None:
    assert folder.run() == 0
    assert folder.output.is_dir() and folder.rows() == Counter()


def test_the_state_of_sparks_own_operators_is_counted(folder: Folder) -> None:
    folder.ask("SELECT DISTINCT A FROM S WHERE A BETWEEN 0 AND 4;\n")
    folder.feed(1, [(n, n) for n in (0, 1, 1, 2, 9)])
    folder.feed(2, [(n, n) for n in (2, 3)])
    assert folder.run("--strict", "--metrics", str(folder.path / "metrics")) == 0
    assert folder.rows() == Counter([(0,), (1,), (2,), (3,)])
    assert [line["state_entries"] for line in folder.metrics()] == [3, 4]
    assert all(line["state_entries"] <= line["state_bound"] for line in folder.metrics())
    assert all(line["state_bytes"] > 0 for line in folder.metrics())


def test_the_operators_own_state_is_counted(folder: Folder) -> None:
    folder.ask("SELECT A, COUNT(*) AS n FROM S WHERE A BETWEEN 0 AND 1 GROUP BY A;\n")
    folder.feed(1, [(0, 1), (0, 2), (1, 3), (5, 5)])
    assert folder.run("--metrics", str(folder.path / "metrics")) == 0
    assert {(row[0], row[1]) for row in folder.rows()} == {(0, 2), (1, 1)}
    (line,) = folder.metrics()
    assert 0 < line["state_entries"] <= line["state_bound"]


def test_a_row_that_is_read_twice_is_counted_once(folder: Folder) -> None:
    folder.ask("SELECT A FROM S WHERE A < 2 UNION ALL SELECT B FROM S WHERE B < 2;\n")
    folder.feed(1, [(0, 0), (0, 5), (5, 5)])
    assert folder.run("--metrics", str(folder.path / "metrics")) == 0
    assert folder.rows() == Counter({(0,): 3})
    assert [line["input_rows"] for line in folder.metrics()] == [3]


def test_query_chooses_one_of_several(folder: Folder, capsys: Captured) -> None:
    folder.ask("SELECT B FROM S;\n" + FILTER)
    folder.feed(1, [(1, 2), (7, 7)])
    assert folder.run("--query", "2") == 0
    assert folder.rows() == Counter([(1, 2)])


def test_a_continued_run_keeps_its_number_of_state_partitions(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    used, real = [], ExactEngine.build

    def build_with(partitions: int) -> Callable[..., AnswerFrame]:
        def build(self: ExactEngine, job: Job) -> AnswerFrame:
            used.append(job.spark)
            return replace(real(self, job), partitions=partitions)

        return build

    for partitions in (3, 1):
        monkeypatch.setattr(ExactEngine, "build", build_with(partitions))
        assert folder.run() == 0
    assert [session.conf.get("spark.sql.shuffle.partitions") for session in used] == ["3", "3"]


# --- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("catalog", "query", "options", "pattern"),
    [
        (CATALOG, FILTER * 2, [], "holds 2 queries, but a run takes one; choose it with --query K"),
        (CATALOG, FILTER, ["--query", "2"], "no query 2: the file holds one query; leave --query out"),
        (
            CATALOG,
            FILTER * 2,
            ["--query", "0"],
            "no query 0: the file holds 2 queries; give a number from 1 to 2",
        ),
        ("CREATE STREAMING TABLE S (A INT);", "SELECT A FROM S", [], "stream S has no source; .*USING json"),
        (CATALOG, "SELECT A AS _Kind FROM S", [], "output column _Kind has a reserved name; give it another"),
        (CATALOG, "SELECT nosuch FROM S", [], "line 2, column 8: .*nosuch"),
        (
            CATALOG,
            FILTER,
            ["--metrics", "/nowhere/m"],
            "metrics file /nowhere/m cannot be written: there is no such",
        ),
        (CATALOG, FILTER, ["--format", "xml"], "--format: there is no 'xml'"),
    ],
)
def test_what_cannot_be_run_is_refused_without_spark(
    catalog: str,
    query: str,
    options: list[str],
    pattern: str,
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(run_module, "open_session")
    folder = Folder(tmp_path)
    folder.ask(query, catalog)
    assert folder.run(*options) == 2
    assert_error(capsys, pattern)
    assert not folder.output.exists()


@pytest.mark.parametrize(
    ("query", "first", "shown"),
    [
        (
            "SELECT DISTINCT A FROM S",
            "the query is unbounded, so it is not run; change it as shown below; or give it a memory budget",
            ["1. Declare the number of values of S.A", "TBLPROPERTIES ('cardinality.A' = '"],
        ),
        (
            "SELECT x.A FROM S x, S y WHERE x.B = y.B",
            "the query is unbounded, so it is not run; change it as shown below; or give it a memory budget",
            ["1. Declare the number of values of S.A and S.B", "+ SELECT"],
        ),
        (
            "SELECT DISTINCT 1 FROM S x, S y, S z WHERE x.A < y.A AND y.A < z.A",
            "the query is undetermined, so it is not run; change it as shown below; or give it a memory",
            ["1. Declare the number of values of S.A"],
        ),
    ],
)
def test_a_query_without_a_bound_is_refused(
    query: str,
    first: str,
    shown: list[str],
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(run_module, "open_session")
    folder = Folder(tmp_path)
    folder.ask(query)
    assert folder.run() == 2
    out, err = capsys.readouterr()
    verdict = millpond.check(CATALOG + query)
    assert isinstance(verdict, millpond.Verdict)
    assert out == ""
    assert first in err.splitlines()[0]
    assert err.partition("\n")[2].startswith(verdict.explain() + "\n\nIt would be bounded with one of these")
    assert all(each in err for each in shown)


def test_a_changed_query_does_not_continue_a_checkpoint(
    folder: Folder, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.feed(1, [(1, 1)])
    assert folder.run() == 0
    capsys.readouterr()
    monkeypatch.delattr(run_module, "open_session")  # all that follows is known before Spark starts
    assert folder.run("--format", "csv") == 2
    assert_error(capsys, "holds files in the format json; continue with --format json; ")
    assert folder.run("--updates") == 2
    assert_error(capsys, "is of a run without --updates; drop --updates; ")
    folder.ask("SELECT A FROM S WHERE A < 6;\n")
    assert folder.run() == 2
    assert_error(
        capsys, r"is of another query: it was SELECT A, B FROM S WHERE A < 5; .*new --checkpoint and a new"
    )
    assert folder.rows() == Counter([(1, 1)])


# --- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "row", "options", "pattern"),
    [
        (FILTER, "rubbish", ["--strict"], "rubbish"),
        (FILTER, '{"A": "x", "B": 1}', ["--strict"], "A"),
        ("SELECT A * B AS p FROM S;\n", (2_000_000_000, 2), [], "does not fit its SQL type"),
    ],
)
def test_a_failed_run_exits_with_4(
    folder: Folder, capsys: Captured, query: str, row: Any, options: list[str], pattern: str
) -> None:
    folder.ask(query)
    folder.feed(1, [(1, 1)])
    folder.feed(2, [(1, 2), row])
    assert folder.run(*options) == 4
    assert_error(capsys, pattern)
    assert folder.rows().total() == 1  # the good batch, and nothing of the bad one


# --- interruptions ---------------------------------------------------------------------------------


def build_slowly(seconds: float) -> Callable[..., Any]:
    """A build whose rows each take some seconds."""
    real = ExactEngine.build

    def build(self: ExactEngine, job: Job) -> AnswerFrame:
        made = real(self, job)
        sleep = f"reflect('java.lang.Thread', 'sleep', {round(seconds * 1000)}L)"
        slowed = made.frame.where(f"coalesce({sleep}, '') <> 'awake'")  # true, and not known beforehand
        return replace(made, frame=slowed)

    return build


def run_with_signals(folder: Folder, numbers: list[signal.Signals], *options: str) -> int:
    """Run, with signals a second apart once the first batch is being written."""

    def send() -> None:
        while not (folder.output / "_staging").exists():
            time.sleep(0.02)
        for number in numbers:
            os.kill(os.getpid(), number)
            time.sleep(0.7)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        return cli.main(folder.arguments(*options))
    finally:
        thread.join()


@pytest.mark.parametrize(
    ("number", "options"),
    [(signal.SIGINT, []), (signal.SIGTERM, ["--once"])],
    ids=["on and on", "once"],
)
def test_one_signal_lets_the_batch_end(
    folder: Folder,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    options: list[str],
) -> None:
    batches = [[(n, n), (n, n)] for n in range(4)]
    for count, rows in enumerate(batches):
        folder.feed(count, rows)
    with monkeypatch.context() as patched:
        patched.setattr(ExactEngine, "build", build_slowly(0.7))
        before = signal.getsignal(number)
        assert run_with_signals(folder, [number], "--metrics", str(folder.path / "metrics"), *options) == 130
        assert signal.getsignal(number) is before
    assert "millpond: stopped after" in capsys.readouterr().err.splitlines()[-1]
    assert folder.rows() == Counter({(0, 0): 2})  # all of the first batch and nothing of the second
    assert [line["batch"] for line in folder.metrics()] == [0]
    assert folder.run() == 0
    assert folder.rows() == Counter({(n, n): 2 for n in range(4)})


def test_two_signals_end_the_run_at_once(
    folder: Folder, spark: SparkSession, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.feed(1, [(1, 1)] * 2)
    with monkeypatch.context() as patched:
        patched.setattr(ExactEngine, "build", build_slowly(20))
        began = time.monotonic()
        assert run_with_signals(folder, [signal.SIGINT, signal.SIGINT]) == 130
        assert time.monotonic() - began < 20
    assert folder.rows() == Counter()
    assert folder.run() == 0
    assert folder.rows() == Counter({(1, 1): 2})


KILLED = """
import os, sys
from millpond.spark import sink
publish, renames = sink.Files.rename, []
def rename(self, old, new):
    if "part-000001" in new:
        os.kill(os.getpid(), 9)
    publish(self, old, new)
sink.Files.rename = rename
from millpond.cli.main import main_entry
main_entry()
"""


WINDOWED = """
CREATE STREAMING TABLE S (A INT, B INT, at TIMESTAMP)
  USING json OPTIONS (path 'in', maxFilesPerTrigger '1') TBLPROPERTIES ('idle' = '1 minute');
"""


def test_a_run_killed_within_a_window_loses_no_row_and_writes_none_twice(folder: Folder) -> None:
    """The first process is killed while it publishes its second batch; another process continues.

    The third file is from hours later, as after a downtime.
    """
    folder.ask(
        "SELECT x.B, y.B FROM S x, S y WHERE x.A = y.A AND y.at BETWEEN x.at AND x.at + INTERVAL 10 SECONDS",
        WINDOWED,
    )
    rows = []
    for number, begins in enumerate((0, 25, 6 * 3600)):
        file = [(n % 5, 50 * number + n, begins + n // 2) for n in range(50)]
        moments = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=t) for _, _, t in file]
        lines = [
            json.dumps({"A": a, "B": b, "at": moment.isoformat()})
            for (a, b, _), moment in zip(file, moments, strict=True)
        ]
        folder.feed(number, lines)
        rows += file
    truth = Counter((b, d) for a, b, t in rows for c, d, u in rows if a == c and t <= u <= t + 10)
    source = str(Path(millpond.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source, "PYSPARK_PYTHON": sys.executable}
    arguments = folder.arguments("--once", "--master", "local[1]", "--metrics", str(folder.path / "metrics"))

    def run(code: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=300, check=False
        )

    assert run(KILLED).returncode == -signal.SIGKILL
    assert Counter() < folder.rows() < truth
    ended = run("from millpond.cli.main import main_entry; main_entry()")
    assert (ended.returncode, ended.stdout) == (0, "")
    assert all(line.startswith("millpond: ") for line in ended.stderr.splitlines()), ended.stderr
    assert folder.rows() == truth
    assert [line["batch"] for line in folder.metrics()] == [0, 1, 2, 3]
    assert folder.rejected() == []
