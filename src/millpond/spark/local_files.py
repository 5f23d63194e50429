"""Files of this machine, read before Spark starts.

Paths without a scheme are on the default file system of Spark, which is this machine's own unless a
configuration names another one.  What cannot be found out here is found out by Spark, later.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_LOCAL_SCHEME = re.compile(r"file:(//(?=/))?(?=/)")
_CONFIGURATIONS = ("core-site.xml", "spark-defaults.conf")


class LocalFiles:
    """Reads files of this machine, as ``Files`` does on any file system."""

    def read(self, path: str) -> str | None:
        """The text of a file; None if there is no such file."""
        try:
            return Path(path).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None

    def list_names(self, folder: str, pattern: str = "*") -> list[str]:
        """The names in a folder that match a glob pattern, sorted; none if there is no such folder."""
        where = Path(folder)
        if not where.is_dir():
            return [where.name] if where.exists() and fnmatchcase(where.name, pattern) else []
        names = (name for name in os.listdir(where) if not name.endswith(".crc"))
        return sorted(name for name in names if fnmatchcase(name, pattern.replace("[^", "[!")))


def find_local_path(path: str, master: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """The absolute path on this machine that Spark will use; None if it may be on another file system.

    >>> find_local_path("file:/data/in", None, {}), find_local_path("s3a://bucket/in", None, {})
    ('/data/in', None)
    """
    if found := _LOCAL_SCHEME.match(path):
        return path[found.end() :] if _runs_here(master) else None
    if _SCHEME.match(path) or not _runs_here(master) or _names_default_file_system(environment):
        return None
    return os.path.abspath(path)


def _runs_here(master: str | None) -> bool:
    return master is None or master.startswith("local")


def _names_default_file_system(environment: Mapping[str, str]) -> bool:
    """Whether a configuration of Hadoop or Spark sets the default file system, or the master."""
    folders = [environment.get(name) for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")]
    if home := environment.get("SPARK_HOME"):
        folders.append(f"{home}/conf")
    for folder in filter(None, folders):
        for name in _CONFIGURATIONS:
            try:
                text = Path(folder, name).read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            if re.search(r"fs\.default|^\s*spark\.master\b", text, re.MULTILINE):
                return True
    return "fs.default" in environment.get("PYSPARK_SUBMIT_ARGS", "")
