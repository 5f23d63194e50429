"""Adds the connector that a query needs to Spark: Kafka's is not part of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import pyspark
from pyspark.find_spark_home import _find_spark_home

from millpond.query.model import Table

KAFKA = "kafka"
_ARTIFACT = "spark-sql-kafka-0-10"
_DEPENDENCIES = ("spark-token-provider-kafka-0-10", "kafka-clients", "commons-pool2")
# Settings with which a user adds packages or jars.
_PACKAGES = "spark.jars.packages"
_JARS = (_PACKAGES, "spark.jars", "spark.driver.extraClassPath")


def uses_kafka(table: Table) -> bool:
    """Whether the rows of a table come from Kafka."""
    return table.source is not None and table.source.format.lower() == KAFKA


def find_packages(tables: Iterable[Table]) -> str | None:
    """The value of ``spark.jars.packages`` with which a new Spark can read the tables; None to leave it.

    Spark downloads the packages.  Nothing is added if the connector is among Spark's jars, or if the user's
    settings name it: ``spark-defaults.conf``, or ``PYSPARK_SUBMIT_ARGS``.
    """
    if not any(map(uses_kafka, tables)):
        return None
    settings = _read_settings()
    given = " ".join([os.environ.get("PYSPARK_SUBMIT_ARGS", ""), *(settings.get(key, "") for key in _JARS)])
    if _ARTIFACT in given or any(_find_jars_folder().glob(f"{_ARTIFACT}*.jar")):
        return None
    others = settings.get(_PACKAGES)
    return f"{others},{name_kafka_package()}" if others else name_kafka_package()


def has_own_packages() -> bool:
    """Whether the user's settings add packages or jars to Spark, which may contain other formats."""
    arguments = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    return (
        bool(_read_settings()) or re.search(r"--(packages|jars|driver-class-path)\b", arguments) is not None
    )


def name_kafka_package() -> str:
    """The Maven coordinates of the Kafka connector for the installed Spark."""
    found = (
        re.search(r"scala-library-(\d+\.\d+)", jar.name) for jar in _find_jars_folder().glob("scala-*.jar")
    )
    scala = next((match[1] for match in found if match), "2.13")
    return f"org.apache.spark:{_ARTIFACT}_{scala}:{pyspark.__version__}"


def describe_kafka_download() -> str:
    """What to do where Spark cannot download the connector."""
    group, artifact, version = name_kafka_package().split(":")
    needed = ", ".join(_DEPENDENCIES)
    return (
        f"download {artifact}-{version}.jar of {group} and the jars it depends on ({needed}) "
        f"and put them into {_find_jars_folder()}, or name them in spark.jars"
    )


def _find_jars_folder() -> Path:
    return Path(_find_spark_home(), "jars")


def _read_settings() -> dict[str, str]:
    """The settings in spark-defaults.conf that add packages or jars."""
    folder = os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf")
    try:
        lines = Path(folder, "spark-defaults.conf").read_text(errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (re.match(r"\s*([\w.]+)[\s=:]+(.*\S)", line) for line in lines)
    return {pair[1]: pair[2] for pair in pairs if pair and pair[1] in _JARS}
