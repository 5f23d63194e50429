"""The Spark session of a caller of ``millpond.sql``: what it needs is set, or reported in one line."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache

from pyspark.sql import SparkSession

from millpond.errors import MillpondError, UsageError
from millpond.spark.session import ship_package

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
# With any lower value, Spark measures the Arrow batch after every row.
_ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_MODULES = "duckdb, pandas, pyarrow, google.protobuf, millpond"
_shipped: set[str] = set()  # the applications to whose executors this package was sent


def check_session(spark: object) -> SparkSession:
    """The session, if it is one that runs in this process."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        message = "a session of Spark Connect has no JVM to run the query in"
        raise MillpondError(message, remedy="use SparkSession.builder.master(…).getOrCreate()")
    if not isinstance(spark, SparkSession):
        raise UsageError(f"spark must be a SparkSession, not {type(spark).__name__}")
    context = getattr(spark, "_sc", None)
    if context is None or context._jsc is None:
        raise MillpondError("the Spark session is stopped", remedy="make a new one")
    return spark


def choose_worker_python(spark: SparkSession) -> None:
    """Let the workers of this machine use the Python of this process, unless the environment names one."""
    if _is_local(spark) and "PYSPARK_PYTHON" not in os.environ:
        spark.sparkContext.pythonExec = sys.executable


def check_workers(spark: SparkSession) -> None:
    """Raise MillpondError if the Python workers cannot import this package; send it to those of a cluster."""
    context = spark.sparkContext
    if _is_local(spark):
        if problem := find_worker_problem(context.pythonExec):
            remedy = f"set PYSPARK_PYTHON to {sys.executable} before the session starts"
            raise MillpondError(problem, remedy=remedy)
    elif context.applicationId not in _shipped:
        ship_package(context)
        _shipped.add(context.applicationId)


def configure_state(spark: SparkSession) -> None:
    """Set what the stateful operators need, unless the caller has set it.

    Queries that the session starts later use these settings, too; queries that continue a checkpoint keep
    theirs.  Raises MillpondError if a setting of the caller's rules the operators out.
    """
    provider = spark.conf.get(_PROVIDER, None)
    if provider is None:
        spark.conf.set(_PROVIDER, _ROCKSDB)
    elif not provider.endswith("RocksDBStateStoreProvider"):
        name = provider.rpartition(".")[2]
        message = f"the state store {name} cannot hold the state of this query; Spark needs RocksDB for it"
        raise MillpondError(message, remedy=f"set {_PROVIDER} to {_ROCKSDB}, or leave it out")
    if spark.conf.get(_ARROW_BYTES, None) is None:
        spark.conf.set(_ARROW_BYTES, "2147483647")


def _is_local(spark: SparkSession) -> bool:
    return re.match(r"local(\[|$)", spark.sparkContext.master or "") is not None


@cache
def find_worker_problem(python: str) -> str | None:
    """Why the Python of the workers cannot run the operators; None if it can."""
    found = shutil.which(python)
    if found is None:
        return f"the Python workers cannot start: there is no {python}"
    if os.path.realpath(found) == os.path.realpath(sys.executable):
        return None
    code = f"import sys; print(*sys.version_info[:2], sep='.'); import {_MODULES}"
    ended = subprocess.run([found, "-c", code], capture_output=True, text=True, check=False)
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    version = ended.stdout.strip()
    if version != here:
        return f"the Python workers are {found} of version {version or 'unknown'}, but this is Python {here}"
    if missing := re.search(r"No module named '([\w.]+)'", ended.stderr):
        return f"the Python workers are {found}, which has no module {missing[1]}"
    return None if ended.returncode == 0 else f"the Python workers cannot start: {found} fails"
