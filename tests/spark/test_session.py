"""Sessions: which settings apply, and what is reported if Spark cannot start."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import millpond
from millpond.cli.exits import ExitCode
from millpond.errors import MillpondError, RunError
from millpond.spark.jvm import _launch_error
from millpond.spark.session import check_master, make_session, open_session

QUERY = "CREATE STREAMING TABLE S (A INT) USING json OPTIONS (path '.'); SELECT A FROM S;"


def test_a_session_beside_others_has_our_settings_and_changes_none(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    before = spark.conf.get("spark.sql.shuffle.partitions")
    with open_session() as session:
        assert (
            session.conf.get("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled")
            == "true"
        )
        assert session.conf.get("spark.sql.session.timeZone") == "UTC"
        assert session.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "1000000"
    assert make_session(partitions=7).conf.get("spark.sql.shuffle.partitions") == "7"
    assert spark.conf.get("spark.sql.shuffle.partitions") == before
    assert spark.range(3).count() == 3  # it goes on


@pytest.mark.parametrize(
    "master", ["", "localhost", "spark://", "spark://host", "http://host:1", "spark://a:b"]
)
def test_a_malformed_master_is_refused(master: str) -> None:
    with pytest.raises(MillpondError, match="is not a Spark master; write ") as raised:
        check_master(master)
    assert not isinstance(raised.value, RunError)


@pytest.mark.parametrize(
    "master", ["local", "local[2]", "local[*]", "local-cluster[1,1,1024]", "yarn", "k8s://h:1"]
)
def test_a_well_formed_master_is_accepted(master: str) -> None:
    check_master(master)


def test_a_standalone_master_must_answer() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        began = time.monotonic()
        with pytest.raises(
            RunError, match=f"spark://127.0.0.1:{port} does not answer: .*; start it, or correct"
        ):
            check_master(f"spark://127.0.0.1:{port}")
        assert time.monotonic() - began < 10
        server.listen()
        check_master(f"spark://127.0.0.1:{port}")
        check_master(f"spark://127.0.0.1:1,127.0.0.1:{port}")  # one of them is enough


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("JAVA_HOME is not set\n", "Spark needs Java 17 or newer, but no Java was found; install Java 17"),
        ("spark-class: line 97: /x/bin/java: No such file or directory\n", "but no Java was found; install"),
        (
            "Error: LinkageError\njava.lang.UnsupportedClassVersionError: org/apache\n\tat java.lang\n",
            "Spark needs Java 17 or newer, but an older version was found; install",
        ),
        (
            "WARNING: Using incubator modules\nError: Could not find or load main class X\n\tat y\nbye\n",
            "Spark's Java process did not start: Error: Could not find or load main class X",
        ),
        ("", "Spark's Java process did not start"),
    ],
)
def test_the_log_of_java_shows_why_it_did_not_start(log: str, message: str) -> None:
    assert message in str(_launch_error(log))


def run_in_a_process(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(millpond.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": source, **environment},
        timeout=300,
        check=False,
    )


def assert_failed_with(ended: subprocess.CompletedProcess[str], *lines: str) -> None:
    """Exit code 4, and these lines, the last of which says why the run failed."""
    assert (ended.returncode, ended.stdout) == (ExitCode.RUN_FAILED, "")
    for line, text in zip(ended.stderr.splitlines(), lines, strict=True):
        assert text in line


def test_a_machine_without_java(tmp_path: Path) -> None:
    (tmp_path / "query.sql").write_text(QUERY)
    arguments = ["run", str(tmp_path / "query.sql"), "--once", "--output", str(tmp_path / "out")]
    code = "from millpond.cli.main import main_entry; main_entry()"
    ended = run_in_a_process(code, *arguments, JAVA_HOME=str(tmp_path))
    reason = "Spark needs Java 17 or newer, but no Java was found; install Java 17 or newer"
    assert_failed_with(ended, "millpond: starting Spark", reason)


def test_a_master_that_does_not_answer(tmp_path: Path) -> None:
    (tmp_path / "query.sql").write_text(QUERY)
    arguments = ["run", str(tmp_path / "query.sql"), "--once", "--output", str(tmp_path / "out")]
    code = "from millpond.cli.main import main_entry; main_entry()"
    ended = run_in_a_process(code, *arguments, "--master", "spark://127.0.0.1:1")
    assert_failed_with(ended, "the Spark master spark://127.0.0.1:1 does not answer: Connection refused")


SETTINGS = """
import json, sys
from millpond.spark.session import open_session
with open_session() as spark:
    names = sys.argv[1:]
    print(json.dumps([spark.sparkContext.getConf().get(name, None) for name in names]))
    print(spark.range(3).count(), spark.sparkContext.master)
"""


def test_the_users_settings_win_and_spark_prints_nothing(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.driver.memory 600m\n"
        "spark.master local[1]\n"
        "spark.ui.showConsoleProgress true\n"
        "spark.sql.execution.arrow.maxRecordsPerBatch 77\n"
        "spark.sql.session.timeZone Asia/Tokyo\n"
    )
    expected = {
        "spark.driver.memory": "600m",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "77",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.app.name": "millpond",
    }
    ended = run_in_a_process(SETTINGS, *expected, SPARK_CONF_DIR=str(tmp_path))
    assert (ended.returncode, ended.stderr) == (0, "")
    first, second = ended.stdout.splitlines()
    assert json.loads(first) == list(expected.values())
    assert second == "3 local[1]"
