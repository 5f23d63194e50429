"""The SQL that answers one term of a query, over tables before and after a micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Version(StrEnum):
    """Which rows of a kept table SQL reads: those before, in, or after the micro-batch.

    The rows after it include those that it closes, which are not kept.
    """

    BEFORE = "old"
    ADDED = "new"
    AFTER = "now"
    CLOSED = "closed"

    def of(self, table: str) -> str:
        """The name under which these rows of the table are registered."""
        return f"{table}_{self}"


@dataclass(frozen=True)
class TermSql:
    """How one term of a query is answered from the ``tables`` that an engine keeps for it.

    A term without aggregates and DISTINCT is a bag of rows that only grows: ``added`` selects the rows that
    a micro-batch adds, with their multiplicity ``w``.  For every other term, ``before`` and ``after`` select
    the whole answer before and after the micro-batch, and the difference is emitted.

    ``grouped``: the answer consists of groups, whose keys are the first ``keys`` columns (``g0 …``), and a
    new row of a group replaces the old one.  ``retracts``: rows may leave the answer.  ``always``: the
    answer is not empty before any input, as in ``SELECT count(*)``.  ``chunked``: the tables are split into
    chunks, and each chunk is answered separately.
    """

    tables: tuple[str, ...]
    columns: tuple[str, ...]
    added: str | None = None
    before: str = ""
    after: str = ""
    keys: int = 0
    grouped: bool = False
    retracts: bool = False
    always: bool = False
    chunked: bool = False

    def changes_sql(self, types: Sequence[str] | None, first: bool) -> str:
        """The rows that a micro-batch adds to the answer or, if ``retracted``, removes; ``w`` times each.

        ``types`` are the DuckDB types of the columns; None leaves them as they are.  ``first``: nothing was
        emitted yet.
        """
        texts = (
            [f"CAST({c} AS {t})" for c, t in zip(self.columns, types, strict=True)] if types else self.columns
        )
        columns = ", ".join(f"{text} AS {name}" for text, name in zip(texts, self.columns, strict=True))
        if self.added is not None:
            return f"SELECT {columns}, CAST(w AS BIGINT) AS w, FALSE AS retracted FROM ({self.added})"
        every = "" if self.grouped or not self.retracts else " ALL"
        nothing_emitted = " WHERE FALSE" if first and self.always else ""
        past = f"SELECT * FROM ({self.before}){nothing_emitted}"
        came = f"SELECT * FROM present EXCEPT{every} SELECT * FROM past"
        text = (
            f"WITH present AS ({self.after}), past AS ({past}) "
            f"SELECT {columns}, CAST(1 AS BIGINT) AS w, FALSE AS retracted FROM ({came})"
        )
        if not self.retracts:
            return text
        if self.grouped:
            same = [f"present.g{i} IS NOT DISTINCT FROM past.g{i}" for i in range(self.keys)]
            gone = f"SELECT * FROM past WHERE NOT EXISTS (FROM present WHERE {' AND '.join(same) or 'TRUE'})"
        else:
            gone = "SELECT * FROM past EXCEPT ALL SELECT * FROM present"
        return f"{text} UNION ALL SELECT {columns}, CAST(1 AS BIGINT) AS w, TRUE AS retracted FROM ({gone})"
