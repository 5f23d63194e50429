"""What the rows of a query's frame are: results, rejected rows, and reports of the operator."""

from __future__ import annotations

# The column with a row's kind, and the one with what there is to say of a row that is no result.
KIND, NOTE = "_kind", "_note"
# Results, rejected rows, the sizes of the state and of what waits, and measures of what a batch did.
ROW, REJECTED, STATE, WAIT, MEASURE = 0, 1, 2, 3, 4
# Measures, each added up over the shards: tuples that were shed, results that were missed
# for it (an estimate and its variance), rows looked up in a database and those found in the cache.
SHED, MISSED, MISSED_VARIANCE, LOOKUPS, HITS = MEASURES = (
    "shed", "missed", "missed_variance", "lookups", "hits",
)  # fmt: skip
# How the reason of a late row, which is rejected too, begins.
LATE = "late:"
