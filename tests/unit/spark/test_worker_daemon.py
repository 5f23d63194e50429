"""The daemon of Python workers: where it imports PySpark from."""

from __future__ import annotations

import sys

import pytest

from millpond.spark.worker_daemon import prefer_installed_pyspark


@pytest.mark.parametrize(
    ("path", "left"),
    [
        (["/s/pyspark/python/lib/pyspark.zip", "/x", "/s"], ["/x", "/s"]),  # both are one installation
        (["/opt/spark/python/lib/pyspark.zip", "/s"], ["/opt/spark/python/lib/pyspark.zip", "/s"]),
        (["pyspark.zip", "/s"], ["pyspark.zip", "/s"]),
    ],
)
def test_the_zip_file_of_the_installed_pyspark_is_not_needed(
    path: list[str], left: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", path)
    prefer_installed_pyspark()
    assert sys.path == left
