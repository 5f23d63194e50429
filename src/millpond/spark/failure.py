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
# Where the message ends and the machinery begins.
_END = re.compile(
    r"\s*(SQLSTATE: \w+|\n\s*at [\w.$/]+\(|\n== [\w ]+[ (]|Driver stacktrace:|JVM stacktrace:"
    r"| Use [`'\"]?try_| If necessary set |\nParse Mode: )",
)
_TASK = re.compile(r"most recent failure: .*?\(TID \d+\) \(.*?\): (?:[\w.$]+: )?(?P<message>.*)", re.DOTALL)
_EXECUTOR = re.compile(r"ExecutorLostFailure \((?P<message>.*)", re.DOTALL)
_FILE = re.compile(r"while reading file (?P<file>\S+?)\.?(\s|$)")
_PYTHON_ERROR = re.compile(r"^(?P<name>[A-Za-z_][\w.]*)(: (?P<message>.*))?$")
_WORDS = {
    "ARITHMETIC_OVERFLOW": "a value does not fit its SQL type (arithmetic overflow)",
    "DIVIDE_BY_ZERO": "division by zero",
}


def cause_of(error: BaseException) -> str:
    """The root cause of what PySpark or the driver's own code raised."""
    if isinstance(error, MillpondError):
        return str(error)
    java = _java(error)
    if java is not None:
        try:
            return clear_line(list(_messages(java)))
        except (Py4JError, OSError):
            return _LOST
    if isinstance(error, Py4JError | ConnectionError):
        return _LOST if isinstance(error, Py4JNetworkError | ConnectionError) else _cleaned(str(error))
    if isinstance(error, OSError | PySparkException):
        return _cleaned(str(error)) or type(error).__name__
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def clear_line(messages: Sequence[str]) -> str:
    """From the messages of an exception and its causes, outermost first.

    >>> clear_line(["Job aborted", "[USER_RAISED_EXCEPTION] row 5 is malformed SQLSTATE: P0001"])
    'row 5 is malformed'
    """
    file = next((found["file"] for each in messages if (found := _FILE.search(each))), None)
    told = [text for each in messages if (text := _cleaned(each))]
    if not told:
        return "no reason given"
    return f"{file}: {told[-1]}" if file and file not in told[-1] else told[-1]


def _cleaned(message: str) -> str:
    """One message without what surrounds it."""
    if found := _TASK.search(message) or _EXECUTOR.search(message):
        message = found["message"]
    if "Traceback (most recent call last)" in message:
        return _raised(message)
    condition = _CONDITION.match(message)
    if condition:
        if condition["name"] in _WORDS:
            return _WORDS[condition["name"]]
        message = message[condition.end() :]
    if end := _END.search(message):
        message = message[: end.start()]
    return " ".join(message.split()).removesuffix(".")


def _raised(message: str) -> str:
    """What a Python worker raised: the last line of its traceback that is not part of a Java one."""
    message = re.split(r"\n\s*at [\w.$/]+\(|\s*SQLSTATE: \w+", message, maxsplit=1)[0]
    lines = [line for line in message.splitlines() if line.strip()]
    # A message may have several lines; its first one follows the last frame, which is indented.
    frames = [number for number, line in enumerate(lines) if line.startswith("  ")]
    last = " ".join(" ".join(lines[frames[-1] + 1 if frames else -1 :]).split())
    found = _PYTHON_ERROR.match(last)
    if found and found["name"].startswith("millpond.") and found["message"]:
        return found["message"]
    return last


def _java(error: BaseException) -> Any:
    """The Java exception behind a Python one, or None."""
    if isinstance(error, Py4JJavaError):
        return error.java_exception
    return getattr(error, "_origin", None)


def _messages(java: Any) -> Iterator[str]:
    for _ in range(_MAX_CAUSES):
        if java is None:
            return
        message = java.getMessage()
        yield str(message) if message else str(java.getClass().getSimpleName())
        java = java.getCause()
