"""A failure is reported in one line: its root cause."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millpond.errors import MillpondError
from millpond.spark.failure import find_cause, summarise_messages

TRACEBACK = """\
[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/somewhere/operator.py", line 14, in keep
    raise error
{raised}
 SQLSTATE: 38000"""
ABORTED = (
    "Job aborted due to stage failure: Task 0 in stage 7.0 failed 1 times, most recent failure: "
    "Lost task 0.0 in stage 7.0 (TID 14) (192.168.0.1 executor driver): "
    "java.io.IOException: No space left on device\n"
    "\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)\n\nDriver stacktrace:"
)


@pytest.mark.parametrize(
    ("messages", "line"),
    [
        (["[USER_RAISED_EXCEPTION] S: row 5 is malformed SQLSTATE: P0001"], "S: row 5 is malformed"),
        (["Job aborted", "/data/out/part-0 (Permission denied)"], "/data/out/part-0: permission denied"),
        (["No space left on device"], "the disk is full"),
        (["Mkdirs failed to create file:/a/b (exists=false)"], "/a/b: the folder cannot be created"),
        (["Parent path is not a directory: file:/a"], "/a: it is a file, not a folder"),
        (["S: 'No space left on device' is not INT"], "S: 'No space left on device' is not INT"),
        (
            ["[PATH_NOT_FOUND] Path does not exist: file:/data/S. SQLSTATE: 42K03"],
            "Path does not exist: file:/data/S",
        ),
        (
            [
                "[ARITHMETIC_OVERFLOW] overflow. Use 'try_multiply' to tolerate overflow. SQLSTATE: 22003\n"
                "== SQL (line 1, position 1) ==\nA * B"
            ],
            "a value does not fit its SQL type (arithmetic overflow)",
        ),
        (
            [
                "[CAST_INVALID_INPUT] The value '0x' of the type \"STRING\" cannot be cast to \"INT\" "
                "because it is malformed. Use `try_cast` to tolerate malformed input. SQLSTATE: 22018"
            ],
            "The value '0x' of the type \"STRING\" cannot be cast to \"INT\" because it is malformed",
        ),
        ([ABORTED], "the disk is full"),
        ([ABORTED, "No space left on device"], "the disk is full"),
        (
            [TRACEBACK.format(raised="millpond.errors.RunError: the count does not fit BIGINT; use DECIMAL")],
            "the count does not fit BIGINT; use DECIMAL",
        ),
        ([TRACEBACK.format(raised="ZeroDivisionError: by zero")], "ZeroDivisionError: by zero"),
        ([TRACEBACK.format(raised="KeyError")], "KeyError"),
        ([TRACEBACK.format(raised="ValueError: one line\nand another")], "ValueError: one line and another"),
        (
            [
                "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///data/1.json.  "
                "SQLSTATE: KD001",
                "[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are detected.",
                "[CANNOT_PARSE_JSON_FIELD] Cannot parse the field name 'A'. SQLSTATE: 2203G",
            ],
            "file:///data/1.json: Cannot parse the field name 'A'",
        ),
        (["outer", ""], "outer"),
        ([], "no reason given"),
    ],
)  # fmt: skip
def test_the_root_cause_is_reported_in_one_line(messages: list[str], line: str) -> None:
    assert summarise_messages(messages) == line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (MillpondError("no source", remedy="add one"), "no source; add one"),
        (Py4JNetworkError("Answer from Java side is empty"), "Spark's Java process has ended"),
        (ConnectionRefusedError(111, "Connection refused"), "Spark's Java process has ended"),
        (OSError("a could not be renamed to b"), "a could not be renamed to b"),
        (KeyError("x"), "KeyError: 'x'"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_errors_of_the_driver(error: Exception, line: str) -> None:
    assert find_cause(error).startswith(line)


@pytest.mark.parametrize(
    ("expression", "line"),
    [
        ("raise_error('S: row 5 is malformed')", "S: row 5 is malformed"),
        ("id * 9223372036854775807 * 2", "a value does not fit its SQL type (arithmetic overflow)"),
        ("nosuch(id)", "Cannot resolve routine `nosuch`"),
    ],
)
def test_errors_of_spark(spark: SparkSession, expression: str, line: str) -> None:
    with pytest.raises(PySparkException) as raised:
        spark.range(2, 4).selectExpr(f"{expression} AS x").collect()
    assert find_cause(raised.value).startswith(line)
    assert "\n" not in find_cause(raised.value)
