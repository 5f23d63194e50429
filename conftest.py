"""Marks tests by speed: ``spark`` for those that start Spark, ``campaign`` for those over random queries.

Both are registered in pyproject.toml; CONTRIBUTING.md says how to select by them.  Spark starts with a JVM
that suits short runs.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
# Programs of the corpus register themselves by name, so they are imported once, by the tests that use them.
collect_ignore_glob = ["tests/fixtures/*"]


def make_spark_home() -> str:
    """A Spark without the zip file of its Python sources, which every Python process would compile anew."""
    installed = importlib.util.find_spec("pyspark")
    assert installed is not None and installed.submodule_search_locations
    home = tempfile.mkdtemp(prefix="millpond-spark-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for part in ("bin", "jars"):
        os.symlink(Path(installed.submodule_search_locations[0]) / part, Path(home) / part)
    return home


# Every JVM that tests start lives for minutes at most: the fast compiler alone takes 40 % less CPU time.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
if "SPARK_HOME" not in os.environ:
    os.environ["SPARK_HOME"] = make_spark_home()
# Tests write no archive of Spark's classes into the home directory.
os.environ.setdefault("MILLPOND_CACHE", "")


def uses_spark(item: pytest.Item) -> bool:
    """Tests in tests/spark, tests with the ``spark`` fixture, and pages whose examples start a session."""
    if isinstance(item, pytest.DoctestItem):
        return item.path.suffix == ".md" and "SparkSession" in item.path.read_text(encoding="utf-8")
    return item.path.is_relative_to(ROOT / "tests" / "spark") or "spark" in getattr(item, "fixturenames", ())


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if uses_spark(item):
            item.add_marker(pytest.mark.spark)
