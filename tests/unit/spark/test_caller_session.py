"""What millpond.sql needs of the caller's session."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millpond.errors import MillpondError, NotBoundedError, reword
from millpond.spark import caller_session
from millpond.spark.caller_session import (
    check_workers,
    choose_worker_python,
    configure_state,
    find_worker_problem,
)
from millpond.spark.sql import _PYTHON_WORDS

VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def make_session(master: str = "local[2]", python: str = "python3", **settings: str) -> Any:
    """An object with what is used of a session."""
    known = {key.replace("_", "."): value for key, value in settings.items()}
    context = SimpleNamespace(master=master, pythonExec=python, applicationId="app-1")
    conf = SimpleNamespace(get=known.get, set=known.__setitem__)
    return SimpleNamespace(sparkContext=context, conf=conf, known=known)


def test_missing_settings_are_set() -> None:
    session = make_session()
    configure_state(session)
    assert session.known[PROVIDER].endswith("RocksDBStateStoreProvider")
    assert session.known["spark.sql.execution.arrow.maxBytesPerBatch"] == "2147483647"


def test_settings_of_the_caller_are_kept_or_refused() -> None:
    session = make_session(spark_sql_execution_arrow_maxBytesPerBatch="1000")
    session.known[PROVIDER] = "com.example.MyRocksDBStateStoreProvider"
    configure_state(session)
    assert session.known["spark.sql.execution.arrow.maxBytesPerBatch"] == "1000"
    session.known[PROVIDER] = "org.apache.spark.HDFSBackedStateStoreProvider"
    with pytest.raises(
        MillpondError, match=r"^the state store HDFSBacked\w+ cannot hold .*; set spark\.sql\."
    ):
        configure_state(session)


def test_the_workers_of_this_machine_use_the_same_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    session = make_session()
    choose_worker_python(session)
    assert session.sparkContext.pythonExec == sys.executable
    check_workers(session)
    monkeypatch.setenv("PYSPARK_PYTHON", "nosuch")
    session = make_session(python="nosuch")
    choose_worker_python(session)
    with pytest.raises(
        MillpondError, match=r"there is no nosuch; set PYSPARK_PYTHON to .* before the session"
    ):
        check_workers(session)


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo 2.7", "of version 2.7, but this is Python"),
        (
            f"echo {VERSION}; echo \"No module named 'duckdb'\" >&2; exit 1",
            "no module duckdb",
        ),
        ("exit 1", "of version unknown"),
    ],
)
def test_another_python_is_tried(tmp_path: Path, script: str, problem: str) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    assert problem in (find_worker_problem(str(python)) or "")


def test_a_cluster_gets_the_package_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[object] = []
    monkeypatch.setattr(caller_session, "ship_package", sent.append)
    session = make_session("spark://host:7077")
    check_workers(session)
    check_workers(session)
    assert sent == [session.sparkContext]


def test_errors_speak_of_arguments_in_python() -> None:
    error = NotBoundedError(
        "it is not run", "With --memory, on 5 rows:", "with a budget (--memory N) it runs"
    )
    changed = reword(error, _PYTHON_WORDS)
    assert str(changed) == "it is not run; with a budget (memory=N) it runs"
    assert isinstance(changed, NotBoundedError) and changed.explanation == "With memory=N, on 5 rows:"
    assert "--memory" in str(error)
