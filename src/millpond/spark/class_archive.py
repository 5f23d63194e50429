"""An archive of Spark's classes, with which its JVM starts in half the time (class data sharing).

The first local run makes the JVM write the archive when it exits; later runs map it.  An archive is valid for
one Java and one Spark only, so both are in its name; the JVM itself ignores an archive that does not fit.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pyspark
from pyspark.find_spark_home import _find_spark_home

# The directory of the archives; an empty value turns them off.
CACHE_VARIABLE = "MILLPOND_CACHE"
_MAGIC = b"\xa8\xba\x0b\xf0"  # of an archive that is complete: the JVM writes its header last
_KEPT = 2  # archives
_PATIENCE = 3600.0  # seconds after which a JVM that should have written an archive is given up


def archive_options() -> list[str]:
    """The JVM's options to read the archive, or to write it if there is none; none if neither is possible."""
    folder = _find_folder()
    java = _find_java()
    if folder is None or java is None or _has_settings_on_class_path():
        return []
    archive = folder / f"spark-{_describe_jvm(java)}.jsa"
    try:
        if is_complete(archive):
            os.utime(archive)
            return [f"-XX:SharedArchiveFile={archive}"]
        if claim(archive):
            _delete_old(folder)
            return [f"-XX:ArchiveClassesAtExit={archive}"]
    except OSError:  # such as a home directory that cannot be written
        pass
    return []


def is_complete(archive: Path) -> bool:
    """Whether a JVM has written the whole archive."""
    try:
        with archive.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except FileNotFoundError:
        return False


def claim(archive: Path) -> bool:
    """Whether this process may write the archive; of several that start at the same time, only one may."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    claimed = archive.with_suffix(".claimed")
    with suppress(FileNotFoundError):
        if time.time() - claimed.stat().st_mtime > _PATIENCE:
            claimed.unlink()
    try:
        claimed.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _delete_old(folder: Path) -> None:
    """Delete the archives that were not used for the longest time."""
    archives = sorted(folder.glob("spark-*.jsa"), key=lambda each: each.stat().st_mtime, reverse=True)
    for archive in archives[_KEPT - 1 :]:
        archive.unlink(missing_ok=True)
        archive.with_suffix(".claimed").unlink(missing_ok=True)


def _find_folder() -> Path | None:
    given = os.environ.get(CACHE_VARIABLE)
    if given is not None:
        return Path(given).absolute() if given else None
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "millpond"
    except RuntimeError:  # there is no home directory
        return None


def _find_java() -> Path | None:
    """The home of the Java that spark-submit takes."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)
    return None if found is None else Path(found).resolve().parents[1]


def _has_settings_on_class_path() -> bool:
    """Whether a folder with files is on Spark's class path: the JVM writes no archive then."""
    conf = os.environ.get("SPARK_CONF_DIR") or os.path.join(_find_spark_home(), "conf")
    folders = [conf, os.environ.get("HADOOP_CONF_DIR", ""), os.environ.get("YARN_CONF_DIR", "")]
    return any(os.path.isdir(folder) and os.listdir(folder) for folder in folders if folder)


def _describe_jvm(java: Path) -> str:
    """A digest of Java and Spark: where they are, and their versions."""
    jars = Path(_find_spark_home()).resolve() / "jars"
    release = java / "release"
    version = release.read_text() if release.is_file() else str(java.stat().st_mtime_ns)
    parts = (str(java), version, str(jars), str(jars.stat().st_mtime_ns), pyspark.__version__)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
