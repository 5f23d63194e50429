"""The Kafka connector is added where a query needs it and the user has not."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest

from millpond.frontend.parse import parse
from millpond.query.model import Table
from millpond.spark import connectors
from millpond.spark.connectors import find_packages, name_kafka_package
from millpond.spark.jvm import _launch_error

PACKAGE = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"


def declare(using: str) -> list[Table]:
    [query] = parse(f"CREATE STREAMING TABLE S (value STRING) {using}; SELECT value FROM S")
    return list(query.tables.values())


@pytest.fixture
def defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """spark-defaults.conf of a Spark without the connector."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "scala-library-2.13.18.jar").touch()
    monkeypatch.setattr(connectors, "_find_spark_home", lambda: str(tmp_path))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    return tmp_path / "spark-defaults.conf"


def test_the_connector_is_added_for_kafka(defaults: Path) -> None:
    assert name_kafka_package() == PACKAGE
    assert find_packages(declare("USING kafka")) == PACKAGE
    assert find_packages(declare("USING json OPTIONS (path 'kafka')")) is None
    assert find_packages(declare("")) is None


def test_other_packages_stay(defaults: Path) -> None:
    defaults.write_text("# kafka\nspark.jars.packages   a:b:1,c:d:2\n")
    assert find_packages(declare("USING Kafka")) == f"a:b:1,c:d:2,{PACKAGE}"


@pytest.mark.parametrize(
    "line", [f"spark.jars.packages={PACKAGE}", "spark.jars /opt/spark-sql-kafka-0-10_2.13-4.0.0.jar"]
)
def test_a_connector_in_the_settings_stays(defaults: Path, line: str) -> None:
    defaults.write_text(f"{line}\n")
    assert find_packages(declare("USING kafka")) is None


def test_a_connector_in_the_arguments_or_among_the_jars_stays(
    defaults: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--jars spark-sql-kafka-0-10_2.13-4.0.0.jar pyspark-shell")
    assert find_packages(declare("USING kafka")) is None
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS")
    (defaults.parent / "jars" / "spark-sql-kafka-0-10_2.13-4.0.0.jar").touch()
    assert find_packages(declare("USING kafka")) is None


def test_a_failed_download_says_what_to_do(defaults: Path) -> None:
    log = "Exception: [unresolved dependency: org.apache.spark#spark-sql-kafka-0-10_2.13;4.0.0: not found]"
    error = _launch_error(log)
    assert error.message == "Spark cannot download its Kafka connector"
    assert error.remedy is not None
    assert f"spark-sql-kafka-0-10_2.13-{pyspark.__version__}.jar" in error.remedy
    assert f"put them into {defaults.parent / 'jars'}" in error.remedy
