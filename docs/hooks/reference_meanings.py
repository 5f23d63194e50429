"""What the names in the generated reference mean, where the code has no words for it.

``reference_pages`` takes the names from the code, and fails if one is missing here, or has gone there.
"""

from __future__ import annotations

EXIT_CODES = {
    "OK": (
        "`check`: every query is bounded; `witness`, `repair`: printed what there is; "
        "`report`, `run`: everything is written"
    ),
    "UNBOUNDED": "`check`: at least one query is unbounded",
    "BAD_INPUT": (
        "bad input or wrong arguments; one line on standard error says where, and what to write instead"
    ),
    "UNDETERMINED": "`check`: at least one query is undetermined, and none is unbounded",
    "RUN_FAILED": "`run`: the run failed, after it had started",
    "NOT_UNBOUNDED": "`witness`: the query is not unbounded, so there is no witness",
    "INTERRUPTED": "stopped with Ctrl-C",
    "BROKEN_PIPE": "the program that read the output ended first, as in `millpond check … | head`",
}

METRICS = {
    "batch": "the number of the micro-batch, from 0",
    "timestamp": "when the micro-batch started, in UTC",
    "input_rows": "rows read from the streams",
    "output_rows": "rows written to the output",
    "malformed_rows": (
        "rows written to `_rejected` because they cannot be parsed, have a wrong type or break a CHECK"
    ),
    "late_rows": "rows written to `_rejected` because the watermark had passed their timestamp",
    "shed_rows": "tuples shed because of the budget",
    "state_entries": "the number of entries in the state after the batch",
    "state_bytes": "their size in bytes",
    "state_bound": (
        "the bound on `state_entries` that `millpond check` proved, or the budget; null if the size "
        "depends on the data"
    ),
    "waiting_rows": "rows in the reorder buffer: the watermark has not passed their timestamps",
    "missed_rows": "an estimate of the results that were missed in this batch, because a tuple had been shed",
    "missed_total": "the same for all batches since the query was started first",
    "missed_low": (
        "the lower end of the 95 % interval of `missed_total`; null for joins of three and more streams"
    ),
    "missed_high": "the upper end of that interval; null for joins of three and more streams",
    "missed_error": (
        "the larger distance of `missed_total` from the ends of the interval; null for joins of three"
        " and more streams"
    ),
    "lookups": "rows looked up in a database",
    "lookup_hits": "how many of them the cache answered",
    "excess_rows": "rows beyond the declared rate of their stream",
    "rates": (
        "for streams with a window or a declared rate, in rows per second: `average`, `peak` (the "
        "fullest second), `declared`"
    ),
    "cardinalities": (
        "for columns with a declared cardinality: `values` so far (exact up to 4,000, then within a "
        "few percent) and `declared`"
    ),
    "seconds": "how long the micro-batch took",
    "rows_per_second": "`input_rows` divided by `seconds`",
}

PROPERTIES = {
    "time": ("`'at'`", "the column with the timestamp of a row", "the only TIMESTAMP column"),
    "watermark": (
        "`'10 seconds'`",
        "rows may arrive so much out of order; later ones are [late](time.md#watermark-and-late-rows)",
        "rows arrive in order",
    ),
    "idle": (
        "`'1 minute'`",
        "after so long without rows, the stream no longer holds up the others",
        "it always does",
    ),
    "rate": (
        "`'1000 per second'`",
        (
            "a promise: the most rows with timestamps in one second. [A run reports](time.md#rates) "
            "when it is broken"
        ),
        "sizes that depend on the rate have no number",
    ),
    "cardinality.": (
        "`'1000000'`",
        "a promise: the column takes at most so many different values. A run reports when it is broken",
        "the type and the conditions decide",
    ),
}

LOOKUP_OPTIONS = {
    "url": (
        "the database, as a SQLAlchemy URL; the path of a SQLite file (`sqlite:///ads.db`) is "
        "relative to the `.sql` file"
    ),
    "dbtable": "the table or view, with its schema if it needs one: `shop.ads`",
    "memory": "the number of rows to cache; the default is `--memory`",
    "policy": "which rows are cached; the default is `--policy`, or else `auto`",
    "ttl": (
        "the age at which a cached row is fetched again: `'10 minutes'`. By default it stays as long "
        "as its process lives"
    ),
    "timeout": (
        "the time limit of a connection or a statement, `'30 seconds'` by default, for PostgreSQL and SQLite"
    ),
    "retries": (
        "the number of retries after a failed read, `'4'` by default, after pauses of 0.5, 1, 2, 4 … seconds"
    ),
}

# Queries whose first reason has the code, over EXAMPLE_STREAMS.
EXAMPLE_STREAMS = """
CREATE STREAMING TABLE clicks (ad INT, bid INT, age INT, at TIMESTAMP);
CREATE STREAMING TABLE offers (price INT, pages INT, at TIMESTAMP);
CREATE STREAMING TABLE views (ad INT, seconds INT, at TIMESTAMP);
CREATE STREAMING TABLE limits (ceiling INT, at TIMESTAMP);
CREATE TABLE ads (id INT);
"""
EXAMPLES = {
    "unbounded-projection": "SELECT DISTINCT ad FROM clicks",
    "unbounded-group": "SELECT ad, COUNT(*) FROM clicks GROUP BY ad",
    "holistic-aggregate": "SELECT MEDIAN(bid) FROM clicks",
    "unbounded-equality-join": "SELECT 1 FROM clicks, offers WHERE bid = price",
    "counted-inequality-join": "SELECT COUNT(*) FROM clicks, offers WHERE bid < price",
    "counted-disequality-join": "SELECT COUNT(*) FROM clicks, offers WHERE bid <> price",
    "conflicting-references": "SELECT DISTINCT 1 FROM clicks, offers WHERE bid < price AND age < pages",
    "conflicting-times": (
        "SELECT DISTINCT 1 FROM clicks, offers, views, limits "
        "WHERE views.at > clicks.at AND price > seconds AND ceiling > bid"
    ),
    "unbounded-partition": "SELECT ad, LAG(bid) OVER (PARTITION BY ad ORDER BY at) FROM clicks",
    "revised-rows": "SELECT ad, SUM(bid) OVER () FROM clicks",
    "unbounded-ties": "SELECT ad FROM clicks QUALIFY RANK() OVER (ORDER BY bid DESC) <= 3",
    "holistic-frame": "SELECT MEDIAN(bid) OVER (ORDER BY at) FROM clicks",
    "no-stream": "SELECT id FROM ads",
    "never-final": (
        "SELECT ad FROM clicks WHERE ad BETWEEN 1 AND 9 AND NOT EXISTS (SELECT 1 FROM offers "
        "WHERE price = ad)"
    ),
    "unconfirmed": (
        "SELECT DISTINCT 1 FROM clicks low, clicks middle, clicks high "
        "WHERE low.bid < middle.bid AND middle.bid < high.bid"
    ),
    "current-time": "SELECT DISTINCT ad FROM clicks WHERE at < now() - INTERVAL 1 HOUR",
    "revised-block": (
        "WITH counts AS (SELECT ad, COUNT(*) AS n FROM clicks WHERE ad BETWEEN 1 AND 5 GROUP BY ad) "
        "SELECT price FROM counts JOIN offers ON price = n"
    ),
}
# Codes without an example: they need a large query, or a DataFrame.
WITHOUT_EXAMPLE = {
    "block": "a subquery is not bounded, and no proof was found that the whole query is not",
    "opaque-operator": "an operator of a DataFrame keeps state that only its own program knows",
    "unsupported": "the plan of a DataFrame has no SQL that Millpond reads",
}
