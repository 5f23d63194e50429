"""A Spark session that prints nothing and keeps state in RocksDB; other settings are the user's."""

from __future__ import annotations

import logging
import re
import socket
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from millpond.errors import MillpondError, RunError
from millpond.spark.failure import find_cause
from millpond.spark.jvm import launch_jvm
from millpond.spark.worker_daemon import DAEMON_MODULE

# Settings that apply unless spark-defaults.conf, the environment or the caller's session sets them.
_SQL_DEFAULTS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # With any lower value, Spark measures the Arrow batch after every row.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000000",
    # With it, Spark runs mappers and stateful operators in separate Python workers, which import everything
    # again.  Errors are worded by us in any case.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    # Each task writes results and rejected rows to two files at once; without this, Spark sorts them first.
    "spark.sql.maxConcurrentOutputFileWriters": "4",
    # A run reads the recent progress several times a second; fewer than 20 batches finish in between.
    "spark.sql.streaming.numRecentProgressUpdates": "20",
}
_DEFAULTS = {"spark.app.name": "millpond", "spark.ui.enabled": "false"}
_FIXED = {"spark.sql.session.timeZone": "UTC"}
_MASTER = re.compile(r"local(\[.*\])?|local-cluster\[.*\]|yarn|(spark|k8s)://.+")
_PATIENCE = 5.0  # seconds for a master to answer


def make_session(
    master: str | None = None, partitions: int | None = None, packages: str | None = None
) -> SparkSession:
    """A session with Millpond's settings, in the Spark of this process or, if there is none, a new one.

    ``master`` is where a new Spark runs (default: that of spark-defaults.conf, or ``local[*]``).
    ``partitions`` is the number of state partitions (default: one per core).  A new Spark downloads
    ``packages`` (Maven coordinates).  Raises RunError if Spark cannot start.
    """
    if SparkContext._active_spark_context is None:
        spark = _start_spark(master, packages)
    else:
        spark = SparkSession.builder.getOrCreate().newSession()
        given = spark.sparkContext.getConf()
        for key, value in _SQL_DEFAULTS.items():
            if not given.contains(key):
                spark.conf.set(key, value)
        for key, value in _FIXED.items():
            spark.conf.set(key, value)
    set_partitions(spark, partitions)
    return spark


@contextmanager
def open_session(master: str | None = None, packages: str | None = None) -> Iterator[SparkSession]:
    """A session for one run; a Spark that was started for it is stopped afterwards."""
    ours = SparkContext._active_spark_context is None
    with _mute_logs():
        spark = make_session(master, packages=packages)
        try:
            yield spark
        finally:
            if ours:
                with suppress(Py4JError, PySparkException, OSError), warnings.catch_warnings():
                    # hide the warning that a killed JVM did not exit cleanly
                    warnings.simplefilter("ignore")
                    spark.stop()


def set_partitions(spark: SparkSession, partitions: int | None) -> None:
    """Set the number of state partitions (default: one per core)."""
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions or spark.sparkContext.defaultParallelism))


@contextmanager
def _mute_logs() -> Iterator[None]:
    """Keep PySpark from logging the exceptions that it raises.

    Uses may nest or overlap: each has a filter of its own, because a logger holds equal filters only once.
    """

    def is_wanted(record: logging.LogRecord) -> bool:
        return _is_not_from_spark(record)

    loggers = [logging.getLogger(name) for name in (None, "py4j.clientserver", "py4j.java_gateway")]
    loggers += [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]
    for logger in loggers:
        logger.addFilter(is_wanted)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_wanted)


def _is_not_from_spark(record: logging.LogRecord) -> bool:
    """Whether a log record comes from other code; Py4J uses the root logger, too."""
    return not {"py4j", "pyspark"} & set(Path(record.pathname).parts)


# --- starting Spark ----------------------------------------------------------------------------------


def _start_spark(master: str | None, packages: str | None) -> SparkSession:
    if master is not None:
        check_master(master)
    if SparkContext._gateway is None:
        launch_jvm(master, packages)
    conf = SparkConf()  # contains what spark-submit has read from spark-defaults.conf and the environment
    for key, value in {**_DEFAULTS, **_SQL_DEFAULTS}.items():
        conf.setIfMissing(key, value)
    for key, value in _FIXED.items():
        conf.set(key, value)
    if conf.get("spark.app.name") == "pyspark-shell":
        conf.set("spark.app.name", _DEFAULTS["spark.app.name"])
    conf.set("spark.ui.showConsoleProgress", "false")
    conf.set("spark.master", master or conf.get("spark.master") or "local[*]")
    is_local = re.match(r"local(\[|$)", conf.get("spark.master") or "") is not None
    if is_local:  # elsewhere, the package arrives with the first task
        conf.setIfMissing("spark.python.daemon.module", DAEMON_MODULE)
    try:
        spark = SparkSession.builder.config(conf=conf).getOrCreate()
    except (Py4JError, PySparkException) as error:
        raise RunError(f"Spark did not start: {find_cause(error)}") from None
    if is_local:
        Thread(target=_warm_up, args=(spark,), name="millpond-warm-up", daemon=True).start()
    else:
        ship_package(spark.sparkContext)
    return spark


def _warm_up(spark: SparkSession) -> None:
    """Start Python workers, and load the classes that run a job, while the query is being planned."""
    cores = spark.sparkContext.defaultParallelism
    with suppress(Exception):  # the query itself will report it
        rows = spark.range(0, cores, 1, cores).mapInArrow(_pass_on, "id BIGINT")
        rows.write.format("noop").mode("overwrite").save()


def _pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


# --- clusters ----------------------------------------------------------------------------------------


def check_master(master: str) -> None:
    """Refuse a malformed URL, and a standalone master that does not answer (Spark would wait a minute)."""
    if not _MASTER.fullmatch(master):
        forms = "local[N], spark://HOST:PORT, k8s://HOST:PORT or yarn"
        raise MillpondError(f"{master!r} is not a Spark master", remedy=f"write {forms}")
    if not master.startswith("spark://"):
        return
    reason: object = None
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        if not host or not port.isdecimal():
            raise MillpondError(f"{master!r} is not a Spark master", remedy="write spark://HOST:PORT")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
            return
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
    raise RunError(
        f"the Spark master {master} does not answer: {reason}", remedy="start it, or correct --master"
    )


def ship_package(context: SparkContext) -> None:
    """Send this package to the executors, so that they need not have it installed."""
    package = Path(__file__).parents[1]
    archive = Path(context._temp_dir or ".") / "millpond.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for source in sorted(package.rglob("*.py")):
            out.write(source, Path(package.name) / source.relative_to(package))
    context.addPyFile(str(archive))
