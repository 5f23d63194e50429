"""The kinds of rows in a query's answer frame: results, rejected rows, and reports of the operator."""

from __future__ import annotations

from enum import IntEnum, StrEnum

# The column with a row's kind, and the column with the details of a row that is not a result.
KIND, NOTE = "_kind", "_note"
# The prefix of a late row's rejection reason.
LATE = "late:"


class RowKind(IntEnum):
    """The value of the column ``_kind``."""

    RESULT = 0
    REJECTED = 1
    STATE = 2  # entries and bytes of the state store
    BUFFERED = 3  # rows in the reorder buffer
    MEASURE = 4  # one BatchMeasure
    RATES = 5  # the rates of the streams, as JSON
    CARDINALITIES = 7  # the numbers of values of columns with a declared cardinality, as JSON
    PROGRESS = 6  # the timestamp before which a block has emitted all its rows; for the block that reads it


class BatchMeasure(StrEnum):
    """What an operator counts per micro-batch; each measure is summed over the shards."""

    SHED = "shed"  # tuples shed because of the memory budget
    MISSED = "missed"  # results lost by shedding, an estimate
    ALL_FOUND = "all_found"  # matches found since the query was started first
    ALL_MISSED = "all_missed"  # the estimate of the results lost since then
    MISSED_BELOW = "missed_below"  # the squared distances of the limits of its 95 % interval
    MISSED_ABOVE = "missed_above"
    LOOKUPS = "lookups"  # keys looked up, in the cache or in the database
    HITS = "hits"  # lookups answered by the cache
