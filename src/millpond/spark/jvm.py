"""Spark's JVM: starting it in the background, with options that suit a short run, and killing it."""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from subprocess import Popen
from threading import Thread
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from millpond.errors import RunError
from millpond.spark.class_archive import archive_options
from millpond.spark.connectors import describe_kafka_download

_launched: list[Popen[bytes]] = []  # the JVM of Spark, if this process started it
_launches: list[Future[Any]] = []  # a gateway to it, when it is there
_JAVA_REMEDY = "install Java 17 or newer (e.g. openjdk-17-jre-headless) or set JAVA_HOME to one"
# The optimising compiler waits for ten times as many calls of a method as by default.  It spent half of the
# processor time of a short run on methods called a few thousand times.  With a hundred times as many calls, a
# start takes 7 % less processor time, but a run of fifty small batches a quarter more.
_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
# For the JVM that only assembles the command line of Spark's JVM.
_LAUNCHER_OPTIONS = "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def begin_launch(master: str | None, packages: str | None) -> None:
    """Start Spark's JVM in the background, unless this process has one; ``launch_jvm`` waits for it."""
    if SparkContext._gateway is not None or _launches:
        return
    launch: Future[Any] = Future()

    def attempt() -> None:
        try:
            launch.set_result(_launch(master, packages))
        except BaseException as error:
            launch.set_exception(error)

    _launches.append(launch)
    Thread(target=attempt, name="millpond-launch", daemon=True).start()


def launch_jvm(master: str | None, packages: str | None) -> None:
    """Start Spark's JVM, or wait for the one that is starting.  Raises RunError if it does not start."""
    begin_launch(master, packages)
    gateway = _launches.pop().result()
    SparkContext._ensure_initialized(gateway=gateway)


def kill_spark() -> None:
    """Kill the JVM of a Spark that this process started; leave any other Spark alone."""
    if _launched:
        server: Any = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)
        if server is not None:
            server.handle_error = lambda *_: None  # otherwise it prints an error about the lost connection
        _launched.pop().kill()
        SparkContext._gateway = SparkContext._jvm = None


def _launch(master: str | None, packages: str | None) -> Any:
    """A gateway to a new JVM.  Its log is discarded, because errors arrive as exceptions."""
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(name, sys.executable)
    conf = SparkConf(loadDefaults=False)
    if master is not None:
        conf.set("spark.master", master)
    if packages is not None:
        conf.set("spark.jars.packages", packages)
    reader, writer = os.pipe()
    tail = _LogTail(reader)
    failed = False
    try:
        # In its own process session, a Ctrl-C on the terminal does not kill the Python workers.
        settings = {"stdout": writer, "stderr": writer, "start_new_session": True}
        with _jvm_options():
            gateway = launch_gateway(conf, settings)  # type: ignore[no-untyped-call]
    except (PySparkRuntimeError, OSError):
        failed = True
    finally:
        os.close(writer)
    if failed:
        raise _launch_error(tail.read_to_end())
    _launched[:] = [gateway.proc]
    return gateway


@contextmanager
def _jvm_options() -> Iterator[None]:
    """Set the options of JVMs in the environment; those that the user has set come last, and so win."""
    ours = {
        "SPARK_SUBMIT_OPTS": " ".join([*_OPTIONS, *archive_options()]),
        "SPARK_LAUNCHER_OPTS": _LAUNCHER_OPTIONS,
    }
    before = {name: os.environ.get(name) for name in ours}
    for name, options in ours.items():
        os.environ[name] = f"{options} {before[name] or ''}".rstrip()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _launch_error(log: str) -> RunError:
    """Why the JVM did not start, from what it printed."""
    if "UnsupportedClassVersionError" in log:
        return RunError("Spark needs Java 17 or newer, but an older version was found", remedy=_JAVA_REMEDY)
    if "JAVA_HOME is not set" in log or re.search(r"bin/java: (No such file|not found|cannot execute)", log):
        return RunError("Spark needs Java 17 or newer, but no Java was found", remedy=_JAVA_REMEDY)
    if "unresolved dependency" in log and "kafka" in log:
        return RunError("Spark cannot download its Kafka connector", remedy=describe_kafka_download())
    noise = ("\t", "WARNING")
    lines = [line.strip() for line in log.splitlines() if line.strip() and not line.startswith(noise)]
    error = next((line for line in lines if "rror" in line or "xception" in line), lines[-1] if lines else "")
    return RunError(f"Spark's Java process did not start{f': {error}' if error else ''}")


class _LogTail:
    """The last lines that a process prints, read at once so that the process never blocks."""

    def __init__(self, descriptor: int, lines: int = 200) -> None:
        self._lines: deque[str] = deque(maxlen=lines)
        self._thread = Thread(target=self._read, args=(descriptor,), name="spark-log", daemon=True)
        self._thread.start()

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, encoding="utf-8", errors="replace") as stream:
            self._lines.extend(stream)

    def read_to_end(self) -> str:
        """The lines that the process has printed when it has ended."""
        self._thread.join(timeout=2)
        return "".join(self._lines)
