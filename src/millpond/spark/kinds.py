"""What the rows of a query's frame are: results, rejected rows, and reports of the operator."""

from __future__ import annotations

# The column with a row's kind, and the one with what there is to say of a row that is no result.
KIND, NOTE = "_kind", "_note"
# Results, rejected rows, and the sizes of the state and of what waits.
ROW, REJECTED, STATE, WAIT = 0, 1, 2, 3
# How the reason of a late row, which is rejected too, begins.
LATE = "late:"
