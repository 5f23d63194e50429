"""Files of the output and the checkpoint, on any file system that Hadoop knows.

On a cluster, driver and executors share nothing but these paths, so nothing here touches the driver's disk.
"""

from __future__ import annotations

import os
import re
from typing import Any

from pyspark.sql import SparkSession

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


class Files:
    """Paths are strings; ``absolute`` makes one that means the same to driver and executors."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._filter = jvm.org.apache.hadoop.fs.GlobFilter
        self._file_system = jvm.org.apache.hadoop.fs.FileSystem
        self._configuration = spark._jsparkSession.sessionState().newHadoopConf()

    def absolute(self, path: str) -> str:
        """A path without a scheme belongs to the default file system."""
        if not _SCHEME.match(path):
            default = self._file_system.getDefaultUri(self._configuration)
            if default.getScheme() == "file":
                # Hadoop takes the colon of a relative a:b for the end of a scheme.
                path = os.path.abspath(path)
        _, where = self._at(path)
        return str(where.toString())

    def exists(self, path: str) -> bool:
        system, where = self._at(path)
        return bool(system.exists(where))

    def names(self, folder: str, pattern: str = "*") -> list[str]:
        """Names in a folder that match a glob pattern, in order; none where there is no such folder."""
        system, where = self._at(folder)
        if not system.exists(where):
            return []
        # Hadoop's own glob fails on a colon anywhere in the path; a filter sees the name alone.
        found = system.listStatus(where, self._filter(pattern))
        return sorted(str(each.getPath().getName()) for each in found)

    def make_folder(self, path: str) -> None:
        system, where = self._at(path)
        system.mkdirs(where)

    def delete(self, path: str) -> None:
        """The file, or the folder with all that is in it; nothing where there is none."""
        system, where = self._at(path)
        system.delete(where, True)

    def rename(self, old: str, new: str) -> None:
        system, where = self._at(old)
        if not system.rename(where, self._path(new)):
            raise OSError(f"{old} could not be renamed to {new}")

    def read(self, path: str) -> str | None:
        """The text of a file; None where there is no such file."""
        system, where = self._at(path)
        if not system.exists(where):
            return None
        stream = system.open(where)
        try:
            return bytes(stream.readAllBytes()).decode("utf-8", errors="replace")
        finally:
            stream.close()

    def create(self, path: str, text: str) -> None:
        """Write a file that does not exist yet; it appears whole or not at all."""
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
