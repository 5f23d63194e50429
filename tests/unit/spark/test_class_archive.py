"""The archive of Spark's classes: who writes it, who reads it, and when there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from millpond.spark import class_archive
from millpond.spark.class_archive import CACHE_VARIABLE, archive_options

COMPLETE = b"\xa8\xba\x0b\xf0 and the rest"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a Java and a Spark of which nothing is run."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch(mode=0o755)
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def written_archive() -> Path:
    [option] = archive_options()
    name, _, path = option.partition("=")
    assert name == "-XX:ArchiveClassesAtExit"
    return Path(path)


def test_the_first_run_writes_the_archive_and_later_ones_read_it(cache: Path) -> None:
    archive = written_archive()
    assert archive.parent == cache
    assert archive_options() == []  # another run that starts now neither writes nor reads
    archive.write_bytes(bytes(100))  # the JVM writes the header last
    assert archive_options() == []
    archive.write_bytes(COMPLETE)
    assert archive_options() == [f"-XX:SharedArchiveFile={archive}"]


def test_a_run_that_was_killed_is_given_up(cache: Path) -> None:
    archive = written_archive()
    os.utime(archive.with_suffix(".claimed"), (0, 0))
    assert written_archive() == archive


def test_another_java_has_another_archive_and_few_are_kept(cache: Path) -> None:
    archives = []
    for version in range(4):
        (cache.parent / "java" / "release").write_text(f'JAVA_VERSION="{version}"')
        archives.append(written_archive())
        archives[-1].write_bytes(COMPLETE)
        os.utime(archives[-1], (version, version))
    assert len(set(archives)) == 4
    assert [archive.exists() for archive in archives] == [False, False, True, True]


def test_no_archive_with_settings_on_the_class_path(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = cache.parent / "spark" / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").touch()
    assert archive_options() == []
    monkeypatch.setenv("SPARK_CONF_DIR", str(cache.parent / "absent"))
    assert archive_options()


def test_no_archive_where_none_can_be_written(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, "")
    assert archive_options() == []
    cache.write_text("a file, not a folder")
    monkeypatch.setenv(CACHE_VARIABLE, str(cache))
    assert archive_options() == []
    monkeypatch.setattr(class_archive, "_find_java", lambda: None)
    assert archive_options() == []
