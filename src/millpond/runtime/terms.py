"""How one term of a query is answered: SQL over tables before and after a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TermProgram:
    """How one term of a query answers from the tables of its slots.

    ``added`` is what a batch adds to a bag of rows, with ``w``, how often each.  Otherwise ``before`` and
    ``after`` are the whole answer, the first ``keys`` columns naming the group (``g0 …``) of a row.
    ``retracts``: rows may leave the answer.  ``always``: there is an answer before there is any input.
    """

    slots: tuple[str, ...]
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
        """The rows that a batch adds, with ``w`` and ``retracted``; ``types`` are those of the columns.

        ``first``: nothing was emitted yet.
        """
        spelled = (
            [f"CAST({c} AS {t})" for c, t in zip(self.columns, types, strict=True)] if types else self.columns
        )
        columns = ", ".join(f"{text} AS {name}" for text, name in zip(spelled, self.columns, strict=True))
        if self.added is not None:
            return f"SELECT {columns}, CAST(w AS BIGINT) AS w, FALSE AS retracted FROM ({self.added})"
        every = "" if self.grouped or not self.retracts else " ALL"
        gone_before = " WHERE FALSE" if first and self.always else ""
        tables = f"WITH present AS ({self.after}), past AS (SELECT * FROM ({self.before}){gone_before})"
        came = f"SELECT * FROM present EXCEPT{every} SELECT * FROM past"
        text = f"{tables} SELECT {columns}, CAST(1 AS BIGINT) AS w, FALSE AS retracted FROM ({came})"
        if not self.retracts:
            return text
        if self.grouped:
            same = [f"present.g{i} IS NOT DISTINCT FROM past.g{i}" for i in range(self.keys)]
            gone = f"SELECT * FROM past WHERE NOT EXISTS (FROM present WHERE {' AND '.join(same) or 'TRUE'})"
        else:
            gone = "SELECT * FROM past EXCEPT ALL SELECT * FROM present"
        return f"{text} UNION ALL SELECT {columns}, CAST(1 AS BIGINT) AS w, TRUE AS retracted FROM ({gone})"
