"""Why Spark failed, in one line: the root cause without stack traces, class names and query ids."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from millpond.errors import MillpondError

_MAX_CAUSES = 50
_LOST = "Spark's Java process has ended or does not answer (out of memory? see spark.driver.memory)"
_CONDITION = re.compile(r"\[(?P<name>[A-Z0-9_]+(\.[A-Z0-9_]+)*)\] ?")
# Where the message ends, and stack traces or hints begin.
_END = re.compile(
    r"\s*(SQLSTATE: \w+|\n\s*at [\w.$/]+\(|\n== [\w ]+[ (]|Driver stacktrace:|JVM stacktrace:"
    r"| Use [`'\"]?try_| If necessary set |\nParse Mode: )",
)
_TASK = re.compile(r"most recent failure: .*?\(TID \d+\) \(.*?\): (?:[\w.$]+: )?(?P<message>.*)", re.DOTALL)
_EXECUTOR = re.compile(r"ExecutorLostFailure \((?P<message>.*)", re.DOTALL)
_FILE = re.compile(r"while reading file (?P<file>\S+?)\.?(\s|$)")
_PYTHON_ERROR = re.compile(r"^(?P<name>[A-Za-z_][\w.]*)(: (?P<message>.*))?$")
_PLAIN_REASONS = {
    "ARITHMETIC_OVERFLOW": "a value does not fit its SQL type (arithmetic overflow)",
    "DIVIDE_BY_ZERO": "division by zero",
}
# What file systems say, in the words of Java and Hadoop, and in ours.
_PATH = r"(?:file:)?(?P<path>/[^\s()]*)"
_FILE_REASONS = [
    (re.compile(rf"{_PATH} \(Permission denied\)|Permission denied( \(13\))?"), "permission denied"),
    (re.compile(rf"({_PATH} \()?No space left on device\)?"), "the disk is full"),
    (re.compile(rf"({_PATH} \()?Disk quota exceeded\)?"), "the disk quota is used up"),
    (re.compile(rf"({_PATH} \()?Read-only file system\)?"), "the file system is read-only"),
    (re.compile(rf"{_PATH} \(Is a directory\)"), "it is a folder"),
    (re.compile(rf"{_PATH} \(Not a directory\)"), "a part of the path is a file"),
    (re.compile(rf"Mkdirs failed to create {_PATH}( \(.*\))?"), "the folder cannot be created"),
    (re.compile(rf"Parent path is not a directory: {_PATH}"), "it is a file, not a folder"),
    (re.compile(rf"({_PATH} \()?Too many open files\)?"), "too many files are open (see ulimit -n)"),
]


def find_cause(error: BaseException) -> str:
    """The root cause of what PySpark or the driver's own code raised."""
    if isinstance(error, MillpondError):
        return str(error)
    java = _java_exception(error)
    if java is not None:
        try:
            return summarise_messages(list(_java_messages(java)))
        except (Py4JError, OSError):
            return _LOST
    if isinstance(error, Py4JError | ConnectionError):
        return _LOST if isinstance(error, Py4JNetworkError | ConnectionError) else _clean_message(str(error))
    if isinstance(error, OSError | PySparkException):
        return _clean_message(str(error)) or type(error).__name__
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def summarise_messages(messages: Sequence[str]) -> str:
    """One line from the messages of an exception and its causes, outermost first.

    >>> summarise_messages(["Job aborted", "[USER_RAISED_EXCEPTION] row 5 is malformed SQLSTATE: P0001"])
    'row 5 is malformed'
    """
    file = next((found["file"] for each in messages if (found := _FILE.search(each))), None)
    cleaned = [text for each in messages if (text := _clean_message(each))]
    if not cleaned:
        return "no reason given"
    return f"{file}: {cleaned[-1]}" if file and file not in cleaned[-1] else cleaned[-1]


def _clean_message(message: str) -> str:
    """One message without stack traces, error classes and hints."""
    if found := _TASK.search(message) or _EXECUTOR.search(message):
        message = found["message"]
    if "Traceback (most recent call last)" in message:
        return _find_python_error(message)
    condition = _CONDITION.match(message)
    if condition:
        if condition["name"] in _PLAIN_REASONS:
            return _PLAIN_REASONS[condition["name"]]
        message = message[condition.end() :]
    if end := _END.search(message):
        message = message[: end.start()]
    message = " ".join(message.split()).removesuffix(".")
    for pattern, reason in _FILE_REASONS:
        if found := pattern.fullmatch(message):
            path = found.groupdict().get("path")
            return f"{path}: {reason}" if path else reason
    return message


def _find_python_error(message: str) -> str:
    """The exception that a Python worker raised: the last line of its traceback, before the one of Java."""
    message = re.split(r"\n\s*at [\w.$/]+\(|\s*SQLSTATE: \w+", message, maxsplit=1)[0]
    lines = [line for line in message.splitlines() if line.strip()]
    # A message may have several lines; the first one follows the last frame, whose lines are indented.
    frames = [number for number, line in enumerate(lines) if line.startswith("  ")]
    last = " ".join(" ".join(lines[frames[-1] + 1 if frames else -1 :]).split())
    found = _PYTHON_ERROR.match(last)
    if found and found["name"].startswith("millpond.") and found["message"]:
        return found["message"]
    return last


def _java_exception(error: BaseException) -> Any:
    """The Java exception behind a Python one, or None."""
    if isinstance(error, Py4JJavaError):
        return error.java_exception
    return getattr(error, "_origin", None)


def _java_messages(java: Any) -> Iterator[str]:
    for _ in range(_MAX_CAUSES):
        if java is None:
            return
        message = java.getMessage()
        yield str(message) if message else str(java.getClass().getSimpleName())
        java = java.getCause()
