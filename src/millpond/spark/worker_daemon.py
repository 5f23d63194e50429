"""Spark's daemon of Python workers, which imports what workers need before it forks them.

Spark's own daemon imports nothing, so every worker imports pandas, PyArrow, DuckDB and the operators again.
Spark runs this module with ``python -m`` if ``spark.python.daemon.module`` names it.  Importing these starts
no thread that a fork could leave behind: Spark limits the thread pools of NumPy by OMP_NUM_THREADS, and the
memory allocators of PyArrow are prepared for forks.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from pathlib import Path

DAEMON_MODULE = "millpond.spark.worker_daemon"
_NEEDED = (
    "pandas",
    "pyarrow.compute",
    "pyspark.worker",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.streaming.stateful_processor_util",
    "pyspark.sql.streaming.proto.StateMessage_pb2",
    "millpond.spark.operators.exact",
    "millpond.spark.operators.lazy",
    "millpond.spark.operators.timed",
)


def prefer_installed_pyspark() -> None:
    """Import PySpark where it is installed, rather than from the zip file that Spark puts before it.

    Both are the same sources, but those in the zip file would be compiled anew: that takes 0.7 s.
    """
    for entry in sys.path[:]:
        package = Path(entry).parents[2:3]  # the zip file is in pyspark/python/lib
        if Path(entry).name == "pyspark.zip" and any(str(each.parent) in sys.path for each in package):
            sys.path.remove(entry)


def import_needed() -> None:
    """Import the modules of workers; one that cannot be imported fails later, in the worker."""
    for name in _NEEDED:
        try:
            importlib.import_module(name)
        except ImportError:
            return
    gc.collect()
    gc.freeze()  # workers collect garbage after every task, and then need not look at what is here


def main() -> None:
    prefer_installed_pyspark()
    import_needed()
    from pyspark import daemon

    try:
        daemon.manager()
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 1)  # do not tidy up what is frozen


if __name__ == "__main__":
    main()
