"""An opened table: its rows, malformed ones marked with the reason."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

# Why a row is rejected (NULL for a good row), and the record as it was read.
REASON, RECORD = "_reason", "_record"


@dataclass(frozen=True)
class OpenSource:
    """The declared columns in order, then the derived ones; with ``rejects`` also REASON and RECORD.

    REASON says what is wrong with a row.  RECORD is the record as it was read, or the row as JSON if Spark
    does not keep the record.  Both are NULL for a good row.  A rejected row has NULL in each column that
    could not be read.
    """

    frame: DataFrame
    rejects: bool

    @property
    def good(self) -> DataFrame:
        """The rows with nothing wrong."""
        return self.frame.where(f"{REASON} IS NULL") if self.rejects else self.frame
