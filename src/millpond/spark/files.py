"""Files of the output and the checkpoint, on any file system that Hadoop supports.

On a cluster, driver and executors may share nothing but these paths, so nothing here uses local files.
"""

from __future__ import annotations

import os
import re
from typing import Any

from pyspark.sql import SparkSession

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


class Files:
    """A Hadoop file system.  ``resolve`` makes a path that means the same to driver and executors."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._filter = jvm.org.apache.hadoop.fs.GlobFilter
        self._file_system = jvm.org.apache.hadoop.fs.FileSystem
        self._configuration = spark._jsparkSession.sessionState().newHadoopConf()

    def resolve(self, path: str) -> str:
        """The path with its scheme; one without a scheme is on the default file system."""
        if not _SCHEME.match(path):
            default = self._file_system.getDefaultUri(self._configuration)
            if default.getScheme() == "file":
                # In a relative path such as a:b, Hadoop takes the part before the colon for a scheme.
                path = os.path.abspath(path)
        _, where = self._at(path)
        return str(where.toString())

    def exists(self, path: str) -> bool:
        system, where = self._at(path)
        return bool(system.exists(where))

    def list_names(self, folder: str, pattern: str = "*") -> list[str]:
        """The names in a folder that match a glob pattern, sorted; none if there is no such folder."""
        system, where = self._at(folder)
        if not system.exists(where):
            return []
        # Hadoop's own glob fails on a colon anywhere in the path; a filter gets the name only.
        found = system.listStatus(where, self._filter(pattern))
        return sorted(str(each.getPath().getName()) for each in found)

    def make_folder(self, path: str) -> None:
        system, where = self._at(path)
        system.mkdirs(where)

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with its contents; do nothing if there is none."""
        system, where = self._at(path)
        system.delete(where, True)

    def rename(self, old: str, new: str) -> None:
        system, where = self._at(old)
        if not system.rename(where, self._path(new)):
            raise OSError(f"{old} could not be renamed to {new}")

    def read(self, path: str) -> str | None:
        """The text of a file; None if there is no such file."""
        system, where = self._at(path)
        if not system.exists(where):
            return None
        stream = system.open(where)
        try:
            return bytes(stream.readAllBytes()).decode("utf-8", errors="replace")
        finally:
            stream.close()

    def create(self, path: str, text: str) -> None:
        """Write a new file, which appears complete or not at all."""
        unfinished = f"{path}.tmp"
        system, where = self._at(unfinished)
        stream = system.create(where, True)
        try:
            stream.write(bytearray(text.encode("utf-8")))
        finally:
            stream.close()
        self.rename(unfinished, path)

    def _at(self, path: str) -> tuple[Any, Any]:
        where = self._path(path)
        system = where.getFileSystem(self._configuration)
        return system, system.makeQualified(where)
